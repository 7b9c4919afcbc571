"""What throttles hold back: places, types and tenants, exactly, at no cost for others, and back again by themselves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from jobs import clock
from jobs.models import AttemptCap, ClaimLine, Job, Throttle
from jobs.routing import SYSTEM
from jobs.services import recovery, settlement, tenancy, throttles
from jobs.services.duties import Duties
from jobs.services.intake import Options, Request, enqueue_many
from jobs.services.recovery import Closing, Repair
from jobs.store import rotation, throttling
from jobs.store.claim import Batch, Claimer, claim
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, claimer, done
from tests.making import default_workspace, statements, tenant_id
from tests.races.threads import LONG
from tests.store import noise
from tests.store.noise import measure

HEAD = 100_000 if LONG else 20_000
KINDS = {"queue": "collect", "worker_group": "default", "type": "echo", "tenant": "t"}
pytestmark = pytest.mark.usefixtures("database")


def look(by: Claimer, slots: int = 10) -> Batch:
    return durable(lambda: claim(by, slots))


def taken(by: Claimer, slots: int = 10) -> list[str]:
    """What a claimer gets that looks again as long as it is told to."""
    ids: list[str] = []
    for _ in range(300):
        batch = look(by, slots - len(ids))
        ids += [job.id for job in batch.jobs]
        if not batch.again or len(ids) == slots:
            return ids
    raise AssertionError("told to look again for ever")


def pause(kind: str, site: bool = True, **more: Any) -> Throttle:
    place = None if site and kind != "tenant" else default_workspace()
    if kind == "tenant":
        tenant_id("t")
    return throttles.pause(kind, KINDS[kind], by="ann", reason="they are down", workspace=place, **more)


def end(ids: list[str]) -> None:
    reports = [settlement.Report(str(j.pk), str(j.attempt_id), done()) for j in Job.objects.filter(pk__in=ids)]
    settlement.settle(reports, "test")


@pytest.mark.parametrize("site", [True, False], ids=["site", "workspace"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_lets_nothing_begin_and_what_runs_goes_on(driver: Driver, kind: str, site: bool) -> None:
    """C9, E14.8: also what is enqueued later; other work has its turn; a resume brings all of it back."""
    running = driver.enqueue(tenant="t")
    job = driver.claim_one()
    row = pause(kind, site)
    assert (row.paused_by, row.pause_reason, row.paused_until) == ("ann", "they are down", None)
    waiting = [driver.enqueue(tenant="t") for _ in range(3)]
    other = driver.enqueue("breaks", tenant="other", queue="chat") if kind != "worker_group" else None
    assert taken(claimer()) == [id_ for id_ in (other,) if id_]
    waiting.append(driver.enqueue(tenant="t"))
    assert taken(claimer()) == []
    driver.complete(job)
    assert driver.state(running) == "completed"
    throttles.resume(kind, KINDS[kind], by="ann", workspace=row.workspace)
    assert not Throttle.objects.exists()
    assert set(taken(claimer())) == set(waiting)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_ends_by_itself_where_no_loop_runs(driver: Driver, kind: str) -> None:
    """C9: by the database's clock; a process that claims brings back what was put aside, and the row is gone."""
    job_id = driver.enqueue(tenant="t")
    pause(kind, site=False, for_s=60)
    assert taken(claimer()) == []
    db.pass_time(59)
    Duties(looped=True).tick()
    assert taken(claimer()) == []
    db.pass_time(2)
    assert not throttles.blockers_of(Job.objects.get(pk=job_id))
    Duties(looped=True).tick()
    assert taken(claimer()) == [job_id]
    assert not Throttle.objects.exists()


@pytest.mark.parametrize("site", [True, False], ids=["site", "workspace"])
@pytest.mark.parametrize("kind", ["queue", "worker_group", "type"])
def test_a_cap_fills_exactly_and_each_end_lets_the_next_one_in(driver: Driver, kind: str, site: bool) -> None:
    """C9, E14.8, case-F03: also where a lost release is repaired; what is not under it is not counted."""
    place = None if site else default_workspace()
    throttles.cap(kind, KINDS[kind], 2, by="ann", workspace=place)
    ids = [driver.enqueue(tenant=f"t{n}") for n in range(7)]
    by, got = claimer(), []
    for _ in range(3):
        first = taken(by)
        assert len(first) == 2
        assert AttemptCap.objects.count() == 2
        assert taken(by) == []
        end(first)
        got += first
    got += taken(by)
    assert sorted(got) == sorted(ids)


@pytest.mark.parametrize("kind", ["queue", "worker_group", "type"])
def test_a_cap_counts_what_runs_already_and_a_raised_one_lets_in(driver: Driver, kind: str) -> None:
    """C9, E14.8: set under 3 running it lets none begin until two have ended."""
    for _ in range(6):
        driver.enqueue()
    first = [job.id for job in look(claimer(), 3).jobs]
    throttles.cap(kind, KINDS[kind], 2, by="ann")
    assert AttemptCap.objects.count() == 3
    assert taken(claimer()) == []
    end(first[:1])
    assert taken(claimer()) == []
    throttles.cap(kind, KINDS[kind], 4, by="ann")
    assert len(taken(claimer())) == 2
    assert throttles.cap(kind, KINDS[kind], None, by="ann") is None
    assert len(taken(claimer())) == 1


@pytest.mark.parametrize("kind", ["queue", "worker_group", "type"])
def test_a_slot_that_a_crash_leaves_comes_back_by_itself(driver: Driver, kind: str) -> None:
    """C9, C35: the lapse of its lease frees it."""
    throttles.cap(kind, KINDS[kind], 1, by="ann")
    driver.enqueue()
    second = driver.enqueue()
    assert len(taken(claimer())) == 1
    assert taken(claimer()) == []
    db.pass_time(120)
    driver.recover()
    db.pass_time(600)
    Repair().tick()
    assert second in taken(claimer())


def test_jobs_in_backoff_hold_no_slot_of_a_cap(driver: Driver) -> None:
    """case-F04: a job that waits an hour for its next try blocks nobody."""
    throttles.cap("type", "echo", 1, by="ann")
    first = driver.enqueue()
    driver.release(driver.claim_one(), after_s=3600)
    second = driver.enqueue()
    assert taken(claimer()) == [second]
    assert driver.state(first) == "queued"


def test_the_houses_own_jobs_are_never_held_back(driver: Driver) -> None:
    """They tell of ends, and no pause of a queue, of a type or of everything may stop that."""
    job_id = driver.enqueue()
    noise.execute("UPDATE jobs_job SET worker_group = 'system'")
    noise.execute("UPDATE jobs_claim_line SET worker_group = 'system'")
    for kind, name in (("queue", "collect"), ("type", "echo")):
        throttles.pause(kind, name, by="ann", reason="x")
    throttles.pause("tenant", "", by="ann", reason="x", workspace=default_workspace())
    assert taken(claimer(SYSTEM)) == [job_id]


def test_a_workspaces_own_pause_is_nobody_elses(driver: Driver) -> None:
    """C9: also where its 300 tenants stand before the others in the rotation."""
    mine = default_workspace()
    enqueue_many([Request("echo", {}, Options(tenant=f"t{n}")) for n in range(300)])
    other = tenancy.make_workspace("other")
    there = driver.enqueue(workspace=other.slug)
    throttles.pause("queue", "collect", by="ann", reason="x", workspace=mine)
    assert taken(claimer()) == [there]
    throttles.pause("queue", "collect", by="ann", reason="x", workspace=other)
    throttles.resume("queue", "collect", by="ann", workspace=mine)
    assert len(taken(claimer(), 400)) == 300


def test_a_full_workspace_hides_no_other(driver: Driver) -> None:
    """C9, C4: its 100 tenants stand before the one of another."""
    mine = default_workspace()
    for n in range(100):
        driver.enqueue(tenant=f"t{n}")
    other = tenancy.make_workspace("other")
    there = driver.enqueue(workspace=other.slug)
    throttles.cap("queue", "collect", 1, by="ann", workspace=mine)
    got = taken(claimer(), 4)
    assert there in got
    assert len(got) == 2


def test_tenants_keep_their_turns_under_a_cap_of_a_type(driver: Driver) -> None:
    """C4, case-F07: one with 40 jobs does not hold up one with 4; shares within one a round."""
    throttles.cap("type", "echo", 1, by="ann")
    for _ in range(40):
        driver.enqueue(tenant="big")
    for _ in range(4):
        driver.enqueue(tenant="a")
        driver.enqueue(tenant="b")
    by, served = claimer(), []
    for _ in range(15):
        got = taken(by, 4)
        assert len(got) == 1
        served.append(Job.objects.get(pk=got[0]).tenant.subject)
        end(got)
    assert served.count("a") == served.count("b") == 4


def test_a_job_behind_the_gate_is_cancelled_paused_and_expired_like_any_other(driver: Driver) -> None:
    """E1, C21: the gate holds back claims and nothing else; the story of each is whole."""
    ids = [driver.enqueue() for _ in range(3)] + [driver.enqueue(deadline_at=clock.now() + timedelta(seconds=60))]
    throttles.pause("type", "echo", by="ann", reason="x")
    assert taken(claimer()) == []
    assert Job.objects.filter(gate="type").count() == 4
    driver.cancel(ids[0])
    driver.pause(ids[1])
    driver.resume(ids[1])
    db.pass_time(120)
    recovery.deadlines()
    assert [driver.state(id_) for id_ in ids] == ["cancelled", "queued", "queued", "failed"]
    throttles.resume("type", "echo", by="ann")
    assert set(taken(claimer())) == set(ids[1:3])


def test_lines_that_were_closed_meanwhile_are_opened_again(driver: Driver) -> None:
    """CLAIM: what lets jobs in opens their lines, and no more than is there."""
    driver.enqueue()
    throttles.pause("type", "echo", by="ann", reason="x")
    assert taken(claimer()) == []
    Closing().tick()
    assert not ClaimLine.objects.exists()
    throttles.resume("type", "echo", by="ann")
    assert len(taken(claimer())) == 1


def test_what_a_lost_resume_left_behind_is_repaired(driver: Driver) -> None:
    """CLAIM: a process may die between the commit and what follows it."""
    driver.enqueue(tenant="t")
    driver.enqueue()
    pause("tenant")
    throttles.pause("type", "echo", by="ann", reason="x")
    assert taken(claimer()) == []
    Throttle.objects.all().delete()
    assert taken(claimer()) == []
    assert Repair().tick()
    assert len(taken(claimer())) == 2


# --- cost ----------------------------------------------------------------------------------------------------------


def _blocked_queue() -> None:
    noise.jobs(HEAD, default_workspace().pk, tenant_id("busy"), priority="100", queue="chat")
    throttles.pause("queue", "chat", by="ann", reason="x")


def _blocked_type() -> None:
    noise.jobs(HEAD, default_workspace().pk, tenant_id("probe0"), priority="100", type="breaks", gate="'type'")
    throttles.pause("type", "breaks", by="ann", reason="x")


def _blocked_tenants() -> None:
    first = noise.tenants(2_000, default_workspace().pk, "asleep")
    noise.jobs(HEAD, default_workspace().pk, f"{first} + n % 2000", priority="100")
    noise.lines(default_workspace().pk, first, 2_000, parked="'paused'")
    noise.execute(f"""INSERT INTO jobs_throttle (kind, name, workspace_id, tenant_id, paused_at, paused_by,
        pause_reason, created_at, updated_at)
        SELECT 'tenant', '', {default_workspace().pk}, {first} + n - 1, jobs_now(), 'x', 'x',
        jobs_now(), jobs_now() FROM generate_series(1, 2000) n""")


@pytest.mark.parametrize("block", [_blocked_queue, _blocked_type, _blocked_tenants],
                         ids=["queue", "type", "tenants"])
def test_what_is_blocked_at_the_head_costs_a_claim_nothing(driver: Driver, block: Callable[[], None]) -> None:
    """C9, E14.9, case-F07: at most 1.5 x of empty in buffers, and not one statement more."""
    for n in range(10):
        driver.enqueue(tenant=f"probe{n}")
        driver.enqueue(tenant=f"probe{n}")
    by = claimer()
    empty = measure(by, 10)
    before = _statements(by)
    block()
    noise.execute("ANALYZE jobs_job, jobs_claim_line, jobs_tenant, jobs_throttle")
    by.cursors.update(dict.fromkeys(by.pairs, 0))
    after = _statements(by)
    cost = measure(by, 10)
    assert cost.claimed == 10
    assert cost.a_job <= 1.5 * empty.a_job + 4, (cost.a_job, empty.a_job)
    assert after == before


def _statements(by: Claimer) -> int:
    """How many statements a claim has, which is undone; without the one that hears now and then of throttles."""
    def once() -> int:
        with transaction.atomic(), statements() as seen:
            claim(by, 10)
            transaction.set_rollback(True)
        return len(seen)

    return min(once() for _ in range(3))


@pytest.mark.parametrize("how", ["paused", "full"])
def test_a_blocked_type_at_the_head_is_put_aside_some_at_a_time(driver: Driver, how: str) -> None:
    """C9, C4: others have their turns meanwhile, and each claim moves a bounded number."""
    if how == "full":
        throttles.cap("type", "breaks", 1, by="ann")
        driver.enqueue("breaks", tenant="busy")
        assert len(taken(claimer())) == 1
    else:
        throttles.pause("type", "breaks", by="ann", reason="x")
    noise.jobs(1_500, default_workspace().pk, tenant_id("busy"), priority="100", type="breaks")
    plain = [driver.enqueue(tenant="busy"), driver.enqueue(tenant="other")]
    by, got = claimer(), []
    for _ in range(8):
        before = Job.objects.filter(gate="type").count()
        batch = look(by, 2)
        got += [job.id for job in batch.jobs]
        moved = Job.objects.filter(gate="type").count() - before
        assert moved <= throttling.ASIDE + 10
        if not batch.again:
            break
    assert sorted(got) == sorted(plain)
    assert Job.objects.filter(gate="type", state="queued").count() == 1_500


def test_a_claim_that_meets_no_throttle_has_its_three_statements(driver: Driver) -> None:
    """DESIGN 5: lines, candidates, writing; also where others are throttled."""
    driver.enqueue()
    assert _statements(claimer()) == 3
    throttles.cap("queue", "chat", 1, by="ann")
    pause("tenant")
    assert _statements(claimer()) == 3


def test_the_throttles_are_read_where_there_are_any_alone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """C9: whoever believes that there are none hears of the first one in the statement that would do without."""
    driver.enqueue()
    monkeypatch.setattr(rotation, "_met_in", -1)
    every = rotation.Scope(None, None), [("default", "collect")], [0], 8, {}
    with transaction.atomic(), statements() as none:
        assert [(row[0], row[-1]) for row in rotation.look(*every)] == [(1, False)]
    assert len(none) == 1
    assert "t.paused_until" not in none[0][0]
    pause("queue")
    with transaction.atomic(), statements() as met:
        assert [(row[0], row[-1]) for row in rotation.look(*every)] == [(1, False), (0, True)]
    assert len(met) == 2
    assert taken(claimer()) == []


# --- rows ----------------------------------------------------------------------------------------------------------

_ROW = {"kind": "queue", "name": "collect", "most": 1}


@pytest.mark.parametrize(("change", "constraint"), [
    ({"kind": "moon"}, "throttle_kind_known"),
    ({"name": ""}, "throttle_names_one"),
    ({"kind": "tenant"}, "throttle_(names_one|most_positive)"),
    ({"most": 0}, "throttle_most_positive"),
    ({"most": None}, "throttle_says_something"),
    ({"paused_by": "ann"}, "throttle_pause_whole"),
    ({}, "throttle_once"),
])
def test_the_database_refuses_rows_that_say_nothing_or_half(change: dict[str, Any], constraint: str) -> None:
    """DESIGN 4: the database keeps the promise; one throttle a place, the whole site's too."""
    Throttle.objects.create(**_ROW)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Throttle.objects.create(**{**_ROW, **change})
    assert connection.is_usable()
