"""Wakes for what waits long, and the rows of workers that are gone."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from jobs import clock, publish
from jobs.models import ClaimLine, Worker
from jobs.services import workers
from jobs.services.recovery import Redrive
from jobs.store import due
from tests import database as db
from tests.driver import Driver
from tests.making import statements, tenant_id
from tests.races.threads import elsewhere
from tests.store import noise

DAY = 86_400


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(publish._waker, "ask", lambda: asked.append(1))
    return asked


# --- redrive --------------------------------------------------------------------------------------------------------


def test_work_that_waits_for_long_wakes_workers_once_a_pass(driver: Driver, wakes: list[int]) -> None:
    """A47, E2: from 30 s on, one wake however much waits, and as often as there are passes."""
    for n in range(5):
        driver.enqueue(tenant=f"t{n}")
    wakes.clear()
    here = Redrive()
    assert not here.tick()
    assert wakes == []
    db.pass_time(31)
    assert not here.tick()
    assert wakes == [1]
    assert not here.tick()
    assert wakes == [1, 1]


@pytest.mark.parametrize("why", ["claimed", "paused", "scheduled", "parked", "held"])
def test_what_cannot_be_claimed_wakes_nobody(driver: Driver, wakes: list[int], why: str) -> None:
    """A47: only what a worker could take."""
    job_id = driver.enqueue(**({"delay_s": DAY} if why == "scheduled" else {}))
    match why:
        case "claimed":
            driver.claim_one()
        case "paused":
            driver.pause(job_id)
        case "parked":
            ClaimLine.objects.update(parked="cap")
        case "held":
            db.rows("UPDATE jobs_job SET gate = 'exclusive', exclusive_group = 'g' RETURNING 1")
    wakes.clear()
    db.pass_time(60)
    Redrive().tick()
    assert wakes == []


def test_a_full_batch_of_young_lines_hides_no_old_one(driver: Driver, wakes: list[int]) -> None:
    """case-A20: the pass goes on where it stopped."""
    last = driver.enqueue(tenant="last")
    for n in range(4):
        driver.enqueue(tenant=f"t{n}")
    ClaimLine.objects.filter(tenant_id=tenant_id("last")).update(id=1_000_000)
    db.rows("UPDATE jobs_job SET available_at = jobs_now() - interval '1 minute' WHERE id = %s RETURNING 1", last)
    wakes.clear()
    here = Redrive()
    assert [here.tick(2) for _ in range(3)] == [True, True, False]
    assert wakes == [1]


def test_the_look_at_what_waits_reads_the_heads_alone(driver: Driver) -> None:
    """A47, DESIGN 5: by the claim's index, whatever the backlog."""
    ws = tenant_id()
    noise.jobs(50_000, 1, ws)
    noise.lines(1, ws, 1)
    noise.execute("VACUUM ANALYZE jobs_job")
    with statements() as seen:
        assert due.waiting(30, 0, 500)[1] == 0
    plan = noise._explain(*seen[0])
    assert ("Index Only Scan", "jobs_job", "job_claim") in noise._walk(plan)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20


# --- workers --------------------------------------------------------------------------------------------------------


def worker() -> Any:
    return workers.register("w", 2, ["default"], ["collect"], ["echo@1"])


def test_a_worker_that_is_silent_for_a_minute_is_closed(database: None) -> None:
    """E7: and counts for no type; one that beats does not, and one that is locked is beating."""
    silent, beating, locked = worker(), worker(), worker()
    db.pass_time(61)
    workers.seen(beating.pk, 1)
    with elsewhere("SELECT 1 FROM jobs_worker WHERE id = %s FOR NO KEY UPDATE", locked.pk):
        assert not workers.tidy(10)
    assert set(Worker.objects.filter(stopped_at=None).values_list("pk", flat=True)) == {beating.pk, locked.pk}
    assert Worker.objects.get(pk=silent.pk).stopped_at is not None
    assert workers.tidy(1)


def test_a_worker_that_was_missed_and_beats_again_is_back(database: None) -> None:
    """E7: frozen for two minutes, say; its types count again."""
    here = worker()
    db.pass_time(120)
    workers.tidy(10)
    assert workers.known_types() == set()
    workers.seen(here.pk, 0)
    assert workers.known_types() == {"echo@1"}


def test_rows_of_workers_go_a_week_after_their_end_unless_they_hold_something(driver: Driver) -> None:
    """E7: a live attempt names its worker until it ends."""
    holding, gone, fresh = worker(), worker(), worker()
    driver.claimer.worker_id = str(holding.pk)
    driver.enqueue()
    job = driver.claim_one()
    for w in (gone, holding):
        workers.stopped(w.pk)
    db.pass_time(7 * DAY - 60)
    workers.stopped(fresh.pk)
    workers.tidy(10)
    assert Worker.objects.count() == 3
    db.pass_time(120)
    # A full batch that may not go hides nothing.
    workers.tidy(1)
    assert set(Worker.objects.values_list("pk", flat=True)) == {holding.pk, fresh.pk}
    driver.complete(job)
    workers.tidy(10)
    assert [w.pk for w in Worker.objects.all()] == [fresh.pk]


def test_many_rows_are_tidied_in_bounded_batches(database: None) -> None:
    """DESIGN 4."""
    old = clock.now() - timedelta(days=8)
    Worker.objects.bulk_create([Worker(id=uuid.uuid4(), name="w", host="h", pid=1, slots=1, worker_groups=[],
                                       queues=[], types=[], seen_at=old, stopped_at=old) for _ in range(25)])
    assert [workers.tidy(10) for _ in range(3)] == [True, True, False]
    assert Worker.objects.count() == 0
