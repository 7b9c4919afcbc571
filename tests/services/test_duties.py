"""The duties of the claim go on whatever one row, one of them or the clock does, and wake who waits for their work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from jobs import clock, publish
from jobs.models import ClaimLine, Job
from jobs.services import assignments, recovery, settlement, workers
from jobs.services.assignments import Locked
from jobs.services.duties import AFTER_FAILURE_S, Duties, Upkeep
from jobs.services.recovery import Deadlines, Registered
from jobs.services.settlement import Report
from jobs.states import State
from jobs.store import due
from jobs.store.moves import Moved
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, done, quiet_recovery, refused
from tests.making import limit, tenant_id
from tests.races.threads import elsewhere


@pytest.fixture
def poison() -> Iterator[set[str]]:
    """Jobs that a hook of the site refuses to move anywhere."""
    ids: set[str] = set()

    @publish.in_transaction
    def refuse(news: Any) -> None:
        if ids & {id_ for id_, _, _ in news}:
            raise LookupError("not this one")

    yield ids
    publish.forget(refuse)


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(publish._waker, "ask", lambda: asked.append(1))
    return asked


# --- what a process that claims over HTTP does ----------------------------------------------------------------------


@pytest.fixture
def upkeep(monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """As new, with everything due."""
    here = Upkeep()
    monkeypatch.setattr(assignments, "_upkeep", here)
    here.now()
    return here


def test_a_request_that_claims_does_every_duty_of_the_claim(driver: Driver, upkeep: Upkeep) -> None:
    """C21, C35, E4: with HTTP runners only, deadlines, spent chains, lost releases and empty lines are theirs too."""
    late = driver.enqueue(deadline_at=clock.now() + timedelta(seconds=10))
    spent = driver.enqueue("bounded")
    db.rows("UPDATE jobs_job SET gate = 'spent' WHERE id = %s RETURNING 1", spent)
    free = driver.enqueue(tenant="parked")
    due_later = driver.enqueue(tenant="later", delay_s=5)
    ClaimLine.objects.filter(tenant_id=tenant_id("parked")).update(parked="cap")
    db.pass_time(11)
    assert {j.id for j in assignments.take(driver.claimer, 10).jobs} == {free, due_later}
    assert [driver.state(job_id) for job_id in (late, spent)] == ["failed", "failed"]
    upkeep.now()
    assignments.take(driver.claimer, 10)
    assert not ClaimLine.objects.exists()


def test_a_duty_that_fails_never_fails_the_claim(
        driver: Driver, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """CLAIM: it is logged and put off, also when it was the database that refused; the other duties go on."""
    tried: list[int] = []

    def broken() -> bool:
        tried.append(1)
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(recovery, "promote", broken)
    late = driver.enqueue(deadline_at=clock.now() + timedelta(seconds=10))
    job_id = driver.enqueue()
    db.pass_time(11)
    for _ in range(3):
        assignments.take(driver.claimer, 1)
        assert driver.state(job_id) == "leased"
    assert driver.state(late) == "failed"
    assert len(tried) == 1
    assert len([r for r in caplog.records if "duty" in r.message]) == 1
    every = upkeep._duties._duties[0][0]
    assert AFTER_FAILURE_S - 2 < every.wait_s() <= AFTER_FAILURE_S


def test_a_claim_outlives_the_loss_of_the_connection_in_a_duty(
        driver: Driver, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    """E8: the claim goes on with another connection."""
    def broken() -> bool:
        db.rows("SELECT pg_terminate_backend(pg_backend_pid())")
        return False

    monkeypatch.setattr(recovery, "promote", broken)
    driver.enqueue()
    assert len(assignments.take(driver.claimer, 1).jobs) == 1


def test_one_thread_of_a_process_at_a_time_does_the_duties(driver: Driver, upkeep: Upkeep) -> None:
    """CLAIM: a hundred requests that claim at once need no hundred looks, and wait for none."""
    began: list[int] = []
    inside, go = threading.Event(), threading.Event()

    class Slow(Duties):
        def tick(self) -> None:
            began.append(1)
            inside.set()
            go.wait(20)

    upkeep._duties = Slow()
    thread = threading.Thread(target=upkeep.tick)
    thread.start()
    assert inside.wait(20)
    upkeep.tick()
    go.set()
    thread.join(20)
    assert began == [1]


def test_promotion_in_a_request_is_bounded(driver: Driver, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A47: one batch a tick, however much is due; the next tick goes on at once."""
    batches: list[int] = []
    monkeypatch.setattr(recovery, "promote", lambda: bool(batches.append(1)) or True)
    upkeep.tick()
    upkeep.tick()
    assert batches == [1, 1]


# --- one row that cannot be moved -----------------------------------------------------------------------------------


def test_a_lapsed_job_that_cannot_be_moved_holds_up_no_other(
        driver: Driver, poison: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """C35, DESIGN 4: a batch that fails for one member's sake is done one by one."""
    ids = [driver.enqueue() for _ in range(5)]
    driver.claim(5)
    driver.pass_time(60)
    poison.add(ids[0])
    with caplog.at_level(logging.CRITICAL):
        assert quiet_recovery().run() == 4
    assert [driver.state(i) for i in ids] == ["leased", *["queued"] * 4]
    poison.clear()
    assert quiet_recovery().run() == 1


@pytest.mark.parametrize("kind", ["late", "spent"])
def test_poisoned_jobs_at_the_head_hide_nothing_behind_them(
        driver: Driver, poison: set[str], caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """C21, E4, case-A20: a full batch that cannot be moved, then the others; round and round."""
    first = clock.now() + timedelta(seconds=5)
    ids = [driver.enqueue(deadline_at=first + timedelta(seconds=n)) for n in range(5)]
    if kind == "spent":
        db.rows("UPDATE jobs_job SET gate = 'spent' RETURNING 1")
    else:
        driver.pass_time(60)
    poison.update(ids[:2])
    duty = Deadlines()
    with caplog.at_level(logging.CRITICAL):
        assert [duty.tick(2) for _ in range(3)] == [False, True, True]
    assert [driver.state(i) for i in ids] == ["queued", "queued", "failed", "failed", "failed"]
    poison.clear()
    assert duty.tick(2)
    assert {driver.state(i) for i in ids} == {"failed"}


def test_a_deadline_that_moved_between_the_look_and_the_lock_is_kept(driver: Driver) -> None:
    """C21: judged by what the locked row says; a locked row is left for the next round."""
    ids = [driver.enqueue(deadline_at=clock.now() + timedelta(seconds=5)) for _ in range(2)]
    driver.pass_time(10)
    found, _ = due.late(due.FIRST_SPOT, 10)
    assert found == ids
    db.rows("UPDATE jobs_job SET deadline_at = deadline_at + interval '1 hour' WHERE id = %s RETURNING 1", ids[0])
    with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", ids[1]):
        assert durable(lambda: due.expire(found, "test")) == []
    assert len(durable(lambda: due.expire(found, "test"))) == 1
    assert [driver.state(i) for i in ids] == ["queued", "failed"]


def test_a_stray_that_cannot_be_moved_keeps_no_other_from_being_handed_back(
        driver: Driver, poison: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """E8: after a lost answer."""
    driver.claimer.worker_id = str(workers.register("w", 3, ["default"], ["collect"], []).pk)
    ids = [driver.enqueue() for _ in range(3)]
    driver.claim(3)
    poison.add(ids[1])
    with caplog.at_level(logging.CRITICAL):
        assert assignments.hand_back_unknown(driver.claimer.worker_id, [], "test") == 2
    assert [driver.state(i) for i in ids] == ["queued", "leased", "queued"]


# --- rows that somebody holds ---------------------------------------------------------------------------------------


def test_a_settlement_waits_for_nobodys_open_transaction(driver: Driver) -> None:
    """E8, DESIGN 5: the others of the batch are settled, the locked one is answered `job_locked` and kept as it is."""
    ids = [driver.enqueue() for _ in range(4)]
    jobs = driver.claim(3)
    reports = [Report(j.id, j.fence, done()) for j in jobs]
    before = db.row_hash(jobs[1].id)
    with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", jobs[1].id):
        answers, batch = settlement.settle_and_claim(reports, "test", driver.claimer, 5)
        assert [type(a) for a in answers] == [Moved, Locked, Moved]
        assert (batch.jobs, batch.again) == ([], True)
        assert db.row_hash(jobs[1].id) == before
        # The claim never waits, and a repeat of the locked one does not either.
        assert [j.id for j in assignments.claim_now(driver.claimer, 5).jobs] == ids[3:]
        refused(settlement.settle_free([reports[1]], "test")[0], "job_locked")
        refused(settlement.spoil(jobs[1].id, jobs[1].fence, "no", "test"), "job_locked")
    assert settlement.settle_free([reports[1]], "test")[0].state == "completed"
    for job in jobs:
        assert driver.state(job.id) == "completed"


def test_a_cap_that_somebody_holds_locked_stalls_no_settlement(driver: Driver) -> None:
    """DESIGN 4: ends of attempts wait for the keys of caps, but not for ever."""
    limit(tenant_concurrency=5)
    driver.enqueue()
    driver.enqueue()
    jobs = driver.claim(2)
    key = db.rows("SELECT cap_key FROM jobs_attempt_cap LIMIT 1")[0][0]
    with elsewhere("SELECT pg_advisory_xact_lock(%s)", key):
        answers = settlement.settle([Report(j.id, j.fence, done()) for j in jobs], "test")
        assert [type(a) for a in answers] == [Locked, Locked]
    assert driver.complete(jobs[0]).state == "completed"


# --- types ----------------------------------------------------------------------------------------------------------


def test_only_jobs_paused_for_want_of_their_type_are_resumed(driver: Driver) -> None:
    """E7: in bounded batches, for the types that are registered here."""
    ours = [driver.enqueue() for _ in range(3)]
    theirs, by_hand = driver.enqueue("echo-thread"), driver.enqueue()
    for job_id in (*ours, theirs):
        driver.pause(job_id, reason="unregistered_type")
    driver.pause(by_hand)
    duty = Registered([("echo", 1), ("other", 2)], "test")
    assert [duty.tick(2), duty.tick(2)] == [True, False]
    assert {driver.state(i) for i in ours} == {"queued"}
    assert (driver.state(theirs), driver.state(by_hand)) == ("paused", "paused")
    assert len(driver.claim(10)) == 3


# --- wakes ----------------------------------------------------------------------------------------------------------


def test_promotion_wakes_workers_and_only_where_something_was_due(driver: Driver, wakes: list[int]) -> None:
    """DESIGN 4: workers of other processes hear of it."""
    driver.enqueue(delay_s=5)
    wakes.clear()
    recovery.promote()
    assert wakes == []
    db.pass_time(6)
    recovery.promote()
    assert wakes == [1]


@pytest.mark.parametrize("what", ["cap", "group", "neither"])
def test_the_end_of_an_attempt_wakes_workers_where_it_lets_others_in(
        driver: Driver, wakes: list[int], what: str) -> None:
    """DESIGN 4: held jobs let in or lines unparked, and not for nothing."""
    limit(**({"exclusive_group_max": 1} if what == "group" else {"tenant_concurrency": 1}))
    group = {"exclusive_group": "printer"} if what == "group" else {}
    driver.enqueue(**group)
    if what != "neither":
        driver.enqueue(**group)
    job = driver.claim_one()
    assert driver.claim() == []
    if what == "neither":
        ClaimLine.objects.update(parked=None)
    wakes.clear()
    driver.complete(job)
    assert wakes == ([] if what == "neither" else [1])
    assert Job.objects.filter(state=State.COMPLETED).count() == 1


def test_repair_wakes_workers_for_what_it_brings_back(driver: Driver, wakes: list[int]) -> None:
    """CLAIM: a lost release is found by one process and served by any."""
    driver.enqueue()
    ClaimLine.objects.update(parked="cap")
    wakes.clear()
    repair = recovery.Repair()
    assert repair.tick()
    assert wakes == [1]
    repair.tick()
    assert wakes == [1]
