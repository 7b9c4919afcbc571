"""Gates, caps and lines: what keeps a queued job or a tenant out of the claim, and what lets it in again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import clock
from jobs.models import AttemptCap, ClaimLine, Job
from jobs.services import intake, recovery, settlement
from jobs.services.recovery import Closing, Repair
from jobs.store.claim import claim
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, done
from tests.making import limit, statements, tenant_id


def gates(*ids: str) -> list[str | None]:
    by_id = {str(job.id): job.gate for job in Job.objects.filter(pk__in=ids)}
    return [by_id[i] for i in ids]


def parked() -> list[str | None]:
    return list(ClaimLine.objects.order_by("id").values_list("parked", flat=True))


@pytest.mark.parametrize("when", ["delay", "moment"])
def test_a_job_that_is_not_due_is_behind_a_gate_until_it_is_promoted(driver: Driver, when: str) -> None:
    """B17, E14.10: never claimed before available_at."""
    job_id = driver.enqueue(**(
        {"delay_s": 60} if when == "delay" else {"available_at": clock.now() + timedelta(seconds=60)}))
    assert gates(job_id) == ["scheduled"]
    assert not recovery.promote()
    assert ClaimLine.objects.count() == 0
    db.pass_time(61)
    assert driver.claim() == []
    driver.pass_time(0)
    assert driver.claim_one().id == job_id


def test_a_moment_that_has_passed_is_claimable_at_once(driver: Driver) -> None:
    """B17."""
    job_id = driver.enqueue(available_at=clock.now() - timedelta(days=1))
    assert gates(job_id) == [None]
    assert driver.claim_one().id == job_id


def test_promotion_takes_a_bounded_batch_the_earliest_first(driver: Driver) -> None:
    """A47: `promote` says whether there may be more."""
    ids = [driver.enqueue(delay_s=10 + n) for n in range(5)]
    db.pass_time(20)
    assert recovery.promote(2)
    assert gates(*ids) == [None, None, "scheduled", "scheduled", "scheduled"]
    assert recovery.promote(2)
    assert not recovery.promote(2)
    assert gates(*ids) == [None] * 5


def test_a_job_of_a_full_group_waits_behind_the_gate_and_is_let_in(driver: Driver) -> None:
    """C11, E14.9: skipped and never waited on; the end of an attempt lets the next in, by priority, then first come."""
    limit(exclusive_group_max=1)
    first = driver.enqueue(exclusive_group="g")
    later = driver.enqueue(exclusive_group="g")
    urgent = driver.enqueue(exclusive_group="g", priority=5)
    other = driver.enqueue(exclusive_group="h")
    assert gates(first, later, urgent, other) == [None, "exclusive", "exclusive", None]
    jobs = {job.id: job for job in driver.claim(10)}
    assert set(jobs) == {first, other}
    driver.complete(jobs[first])
    assert gates(later, urgent) == ["exclusive", None]
    assert driver.claim_one().id == urgent
    assert driver.claim(10) == []


def test_the_claim_holds_what_the_guess_at_enqueue_let_through(driver: Driver) -> None:
    """C11: the limit came after the jobs; the claim counts anyway and puts the rest aside."""
    ids = [driver.enqueue(exclusive_group="g") for _ in range(4)]
    assert gates(*ids) == [None] * 4
    limit(exclusive_group_max=2)
    jobs = driver.claim(10)
    assert len(jobs) == 2
    assert sorted(str(g) for g in gates(*ids)) == ["None", "None", "exclusive", "exclusive"]
    driver.complete(jobs[0])
    assert len(driver.claim(10)) == 1


@pytest.mark.parametrize(("scope", "together"), [("tenant", 2), ("workspace", 1)])
def test_a_group_counts_within_its_scope(driver: Driver, scope: str, together: int) -> None:
    """C11, E2: per tenant by default, or over the workspace."""
    limit(exclusive_group_max=1, exclusive_group_scope=scope)
    for tenant in ("a", "b"):
        driver.enqueue(exclusive_group="g", tenant=tenant)
    jobs = driver.claim(10)
    assert len(jobs) == together
    for job in jobs:
        driver.complete(job)
    Repair().tick()
    assert len(driver.claim(10)) == 2 - together


def test_a_promoted_job_of_a_full_group_goes_behind_its_gate(driver: Driver) -> None:
    """C11."""
    limit(exclusive_group_max=1)
    driver.enqueue(exclusive_group="g")
    late = driver.enqueue(exclusive_group="g", delay_s=5)
    assert gates(late) == ["scheduled"]
    driver.pass_time(6)
    assert gates(late) == ["exclusive"]


def test_a_group_without_a_limit_limits_nothing_and_says_so(driver: Driver) -> None:
    """C11, C37, E3."""
    said = [intake.enqueue("echo", {}, exclusive_group="g").warnings for _ in range(3)]
    assert [w[0]["code"] for w in said] == ["exclusive_group_unlimited"] * 3
    assert len(driver.claim(10)) == 3


@pytest.mark.parametrize("cap", [1, 3])
def test_a_tenant_runs_at_most_its_cap_and_is_parked_meanwhile(driver: Driver, cap: int) -> None:
    """C9, E14.8: over it, accepted and queued; other tenants are not held up."""
    limit(tenant="busy", tenant_concurrency=cap)
    for _ in range(5):
        driver.enqueue(tenant="busy")
    driver.enqueue(tenant="calm")
    jobs = driver.claim(10)
    busy = [j for j in jobs if j.tenant_id == tenant_id("busy")]
    assert (len(busy), len(jobs)) == (cap, cap + 1)
    assert driver.claim(10) == []
    assert parked().count("cap") == 1
    driver.complete(busy[0])
    assert parked().count("cap") == 0
    assert len(driver.claim(10)) == 1


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "interrupt", "cancel", "pause", "lapse"])
def test_every_end_of_an_attempt_gives_back_what_it_held(driver: Driver, verb: str) -> None:
    """C9, C11, case-A16, case-A18: the cap rows go, the line comes back, a held job is let in."""
    limit(tenant_concurrency=1, exclusive_group_max=1)
    driver.enqueue(exclusive_group="g")
    waiting = driver.enqueue(exclusive_group="g", priority=9)
    db.rows("UPDATE jobs_job SET gate = 'exclusive' WHERE id = %s RETURNING 1", waiting)
    job = driver.claim_one()
    assert AttemptCap.objects.count() == 2
    assert driver.claim() == []
    match verb:
        case "cancel" | "pause":
            getattr(driver, verb)(job.id)
        case "lapse":
            driver.pass_time(60)
            driver.recover()
        case "release":
            driver.release(job, 60)
        case _:
            getattr(driver, verb)(job)
    assert AttemptCap.objects.count() == 0
    if driver.job(waiting).gate:
        assert driver.job(job.id).gate is None, "the group's only place must be taken by somebody"
    assert len(driver.claim()) == 1


def test_lost_releases_are_repaired(driver: Driver) -> None:
    """CLAIM: parked lines with room and held jobs of groups with room; nothing else is touched."""
    limit(exclusive_group_max=1)
    limit(tenant="full", tenant_concurrency=1)
    for _ in range(2):
        driver.enqueue(tenant="full")
    driver.claim(1)
    driver.claim(1)
    assert parked() == ["cap"]
    held = [driver.enqueue(exclusive_group="g") for _ in range(3)]
    stuck = driver.enqueue(tenant="stuck")
    db.rows("UPDATE jobs_job SET gate = 'exclusive' WHERE exclusive_group = 'g' RETURNING 1")
    db.rows("UPDATE jobs_claim_line SET parked = 'cap' WHERE tenant_id = %s RETURNING 1", tenant_id("stuck"))
    repair = Repair()
    assert repair.tick()
    assert gates(*held) == [None, "exclusive", "exclusive"]
    assert {job.id for job in driver.claim(10)} == {held[0], stuck}
    assert not repair.tick()
    assert ClaimLine.objects.get(tenant_id=tenant_id("full")).parked == "cap"


def test_the_repair_goes_on_where_it_stopped(driver: Driver) -> None:
    """case-A20: a full batch of tenants that have no room hides nobody behind it."""
    for n in range(6):
        limit(tenant=f"t{n}", tenant_concurrency=1)
        driver.enqueue(tenant=f"t{n}")
        driver.enqueue(tenant=f"t{n}")
    jobs = driver.claim(10)
    driver.claim(10)
    assert parked() == ["cap"] * 6
    db.rows("DELETE FROM jobs_attempt_cap WHERE attempt_id = %s RETURNING 1",
            next(j.fence for j in jobs if j.tenant_id == tenant_id("t5")))
    repair = Repair()
    assert [repair.tick(2) for _ in range(3)] == [False, False, True]
    assert ClaimLine.objects.get(parked=None).tenant_id == tenant_id("t5")


def test_a_pause_of_a_line_is_lifted_by_no_end_of_an_attempt(driver: Driver) -> None:
    """CLAIM: the end of an attempt clears only `cap`."""
    limit(tenant_concurrency=1)
    driver.enqueue()
    driver.enqueue()
    job = driver.claim_one()
    ClaimLine.objects.update(parked="paused")
    driver.complete(job)
    assert parked() == ["paused"]
    assert driver.claim() == []


def test_empty_lines_are_closed_and_opened_again(driver: Driver) -> None:
    """CLAIM: only lines without claimable work go; a paused tenant's work keeps its line."""
    driver.enqueue(tenant="done")
    driver.complete(driver.claim_one())
    driver.enqueue(tenant="waits")
    driver.enqueue(tenant="later", delay_s=60)
    assert ClaimLine.objects.count() == 2
    assert not Closing().tick()
    assert [line.tenant_id for line in ClaimLine.objects.all()] == [tenant_id("waits")]
    driver.enqueue(tenant="done")
    assert len(driver.claim(10)) == 2


@pytest.mark.parametrize("way", ["enqueue", "promote", "retry", "release", "resume", "requeue", "lapse", "let in"])
def test_whatever_makes_a_job_claimable_opens_its_line(driver: Driver, way: str) -> None:
    """CLAIM 7: the line was closed meanwhile, and nothing is stranded."""
    if way == "let in":
        limit(exclusive_group_max=1)
    job_id = driver.enqueue(exclusive_group="g", delay_s=5 if way == "promote" else None)
    job = driver.claim_one() if way not in ("enqueue", "promote", "resume") else None
    if way == "resume":
        driver.pause(job_id)
    if way == "requeue":
        driver.fail(job, retryable=False)
    if way == "let in":
        job_id = driver.enqueue(exclusive_group="g")
    if way != "enqueue":
        Closing().tick()
        assert ClaimLine.objects.count() == 0
    match way:
        case "promote":
            driver.pass_time(6)
        case "retry":
            driver.fail(job)
            driver.pass_time(10)
        case "release":
            driver.release(job)
        case "lapse":
            driver.pass_time(60)
            driver.recover()
        case "let in":
            driver.complete(job)
        case "resume" | "requeue":
            getattr(driver, way)(job_id)
    assert driver.claim_one().id == job_id


def test_a_claim_of_a_batch_is_three_statements_and_a_settle_two(driver: Driver) -> None:
    """DESIGN 5: lines, candidates, writing; lock, writing. However many jobs."""
    for n in range(20):
        driver.enqueue("echo", {"value": str(n)}, tenant=f"t{n % 4}")
    with statements() as claiming:
        jobs = durable(lambda: claim(driver.claimer, 12)).jobs
    assert len(jobs) == 12
    assert len(claiming) <= 3, claiming
    with statements() as settling:
        settlement.settle([settlement.Report(j.id, j.fence, done()) for j in jobs], "test")
    assert len(settling) <= 2, settling


@pytest.mark.parametrize(("limits", "group", "extra"), [
    ({"tenant_concurrency": 50}, None, 2), ({"exclusive_group_max": 50}, "g", 2),
    ({"tenant_concurrency": 50, "exclusive_group_max": 50}, "g", 4),
])
def test_each_kind_of_cap_adds_two_statements_to_a_claim(
        driver: Driver, limits: dict[str, int], group: str | None, extra: int) -> None:
    """DESIGN 5: try the keys, then count."""
    limit(**limits)
    for _ in range(6):
        driver.enqueue(exclusive_group=group)
    with statements() as claiming:
        assert len(durable(lambda: claim(driver.claimer, 5)).jobs) == 5
    assert len(claiming) <= 3 + extra, claiming


@pytest.mark.parametrize(("limits", "group", "extra"), [
    ({"tenant_concurrency": 50}, None, 2), ({"exclusive_group_max": 50}, "g", 4),
    ({"tenant_concurrency": 50, "exclusive_group_max": 50}, "g", 4),
])
def test_a_settle_under_caps_with_nobody_waiting_stays_short(
        driver: Driver, limits: dict[str, int], group: str | None, extra: int) -> None:
    """DESIGN 5: keys, then held jobs of groups, then lines."""
    limit(**limits)
    for _ in range(5):
        driver.enqueue(exclusive_group=group)
    jobs = driver.claim(5)
    with statements() as settling:
        settlement.settle([settlement.Report(j.id, j.fence, done()) for j in jobs], "test")
    assert len(settling) <= 2 + extra, settling
