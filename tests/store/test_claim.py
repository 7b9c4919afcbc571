"""Who is next: order within a tenant, turns between tenants, queues by weight, narrowed claimers."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from django.db import transaction

from jobs import clock
from jobs.models import Attempt, ClaimLine, Job
from jobs.services.recovery import Closing
from jobs.store import rotation
from jobs.store.claim import Batch, Claimer, claim
from jobs.store.sql import durable
from tests import database as db
from tests.driver import QUEUES, Driver, claimer
from tests.making import default_workspace, limit, tenant_id


def batch(by: Claimer, slots: int) -> Batch:
    return durable(lambda: claim(by, slots))


def test_within_a_tenant_it_goes_by_priority_then_first_come(driver: Driver) -> None:
    """DESIGN 5: higher first from -100 to 100; jobs that share a moment go by id."""
    ids = {p: [driver.enqueue(priority=p) for _ in range(2)] for p in (0, -100, 100, 7)}
    assert [job.id for job in driver.claim(10)] == ids[100] + ids[7] + ids[0] + ids[-100]


def test_a_job_that_became_due_earlier_goes_first(driver: Driver) -> None:
    """B20: by due time, then id."""
    now = clock.now()
    late = driver.enqueue(available_at=now - timedelta(seconds=5))
    early = driver.enqueue(available_at=now - timedelta(seconds=9))
    assert [job.id for job in driver.claim(2)] == [early, late]


def test_a_claim_counts_the_attempt_in_its_own_transaction(driver: Driver) -> None:
    """E14.1, case-B02: a job that kills its worker has been counted; the fence is the attempt's id."""
    driver.enqueue()
    job = driver.claim_one()
    row = Attempt.objects.get(pk=job.fence)
    assert (row.number, row.chain, str(row.worker_id), row.key_id) == (1, 1, driver.claimer.worker_id, None)
    assert row.lease_until - row.leased_at == timedelta(milliseconds=job.lease_ms) == timedelta(seconds=30)
    assert job.leased_at == row.leased_at
    assert driver.claim() == []


def test_tenants_take_turns_and_a_backlog_holds_nobody_up(driver: Driver) -> None:
    """C4, E14.8: one job each per round."""
    for _ in range(20):
        driver.enqueue(tenant="big")
    for tenant in ("small", "tiny"):
        driver.enqueue(tenant=tenant)
    order = [driver.claim_one().tenant_id for _ in range(5)]
    assert {tenant_id("small"), tenant_id("tiny")} < set(order[:3])
    assert order[3:] == [tenant_id("big")] * 2


def test_a_new_process_begins_anywhere_among_the_tenants(driver: Driver) -> None:
    """C4: whose ids are the highest does not come last after each restart; with one tenant, too, it is found."""
    pair, first = ("default", "collect"), [0] * 6
    for n in range(6):
        driver.enqueue(tenant=f"t{n}")
    ids = [tenant_id(f"t{n}") for n in range(6)]
    for _ in range(120):
        with transaction.atomic():
            new = claimer(cursors={})
            first[ids.index(claim(new, 1).jobs[0].tenant_id)] += 1
            transaction.set_rollback(True)
        assert set(new.cursors) == set(new.pairs)
    # One in six each: that one of them has none of 120 happens once in a billion tries.
    assert all(first), first
    assert rotation.anywhere(rotation.Scope(None, ids[3]), [pair, ("default", "chat")]) == [ids[3] - 1, 0]
    new = claimer(cursors={}, workspaces=(default_workspace().pk,))
    assert len(batch(new, 10).jobs) == 6


@pytest.mark.parametrize("slots", [1, 3, 7])
def test_with_one_claimer_every_window_of_the_rotation_is_fair(driver: Driver, slots: int) -> None:
    """DESIGN 5: in every window of T claims each of T tenants has one, give or take one."""
    tenants = 5
    for n in range(tenants * 8):
        driver.enqueue(tenant=f"t{n % tenants}", priority=n % 3)
    order: list[int] = []
    while jobs := batch(driver.claimer, slots).jobs:
        order += [job.tenant_id for job in jobs]
    assert len(order) == tenants * 8
    for start in range(len(order) - tenants + 1):
        window = Counter(order[start:start + tenants])
        assert max(window.values()) <= 2, (start, order)
    assert set(Counter(order).values()) == {8}


def test_more_tenants_than_one_look_sees_have_one_job_each_first(driver: Driver) -> None:
    """C4: the second helping comes after everybody's first."""
    for n in range(20):
        driver.enqueue(tenant=f"t{n % 10}")
    order = [job.tenant_id for _ in range(10) for job in batch(driver.claimer, 2).jobs]
    assert len(set(order[:10])) == 10
    assert len(order) == 20


def test_a_short_claim_that_met_more_tenants_than_it_looked_at_says_look_again(driver: Driver) -> None:
    """CLAIM: nine empty lines must not make the tenth tenant wait for a poll between two jobs."""
    for n in range(9):
        driver.enqueue(tenant=f"empty{n}")
    for job in driver.claim(20):
        driver.complete(job)
    for _ in range(15):
        driver.enqueue(tenant="busy")
    by, taken, rounds = claimer(), 0, 0
    while True:
        got = batch(by, 10)
        taken, rounds = taken + len(got.jobs), rounds + 1
        if not got.again and len(got.jobs) < 10:
            break
        assert rounds < 50
    assert taken == 15


def test_many_lines_of_one_tenant_hide_nobody(driver: Driver) -> None:
    """CLAIM: lines are not unique on purpose, so what was cut off is told by rows and not by tenants."""
    driver.enqueue(tenant="a")
    driver.complete(driver.claim_one())
    line = ClaimLine.objects.get()
    ClaimLine.objects.bulk_create([ClaimLine(
        workspace_id=line.workspace_id, tenant_id=line.tenant_id, worker_group=line.worker_group, queue=line.queue)
        for _ in range(20)])
    job_id = driver.enqueue(tenant="b")
    assert [job.id for job in batch(claimer(), 1).jobs] == [job_id]


def test_tenants_whose_keys_are_taken_hide_nobody(driver: Driver) -> None:
    """E14.8, E14.9: a claim never waits; a tenant served by somebody else at this moment is passed over."""
    limit(tenant_concurrency=5)
    for n in range(12):
        driver.enqueue(tenant=f"t{n:02}")
    limit(tenant="free", tenant_concurrency=5)
    job_id = driver.enqueue(tenant="free")
    from tests.races.threads import elsewhere

    with elsewhere("SELECT pg_advisory_lock(hashtextextended('tenant:' || id, 0)) FROM jobs_tenant WHERE id <> %s",
                   tenant_id("free"), after="SELECT pg_advisory_unlock_all()"):
        assert [job.id for job in batch(claimer(), 1).jobs] == [job_id]


def test_a_locked_job_is_skipped_and_never_waited_on(driver: Driver) -> None:
    """B20: skip locked."""
    ids = [driver.enqueue() for _ in range(3)]
    from tests.races.threads import elsewhere

    with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", ids[0]):
        assert [job.id for job in driver.claim(5)] == ids[1:]
    assert [job.id for job in driver.claim(5)] == [ids[0]]


@pytest.mark.parametrize(("types", "claimed"), [
    ([("echo", 1)], ["echo"]), ([("staged", 1), ("echo", 1)], ["staged", "echo"]), ([("echo", 2)], []), ([], []),
    (None, ["staged", "echo"])])
def test_a_type_filter_narrows_a_claim(driver: Driver, types: list[tuple[str, int]] | None, claimed: list[str]) -> None:
    """E7: by type and version; what it passes over stays for others."""
    driver.enqueue("staged")
    driver.enqueue("echo")
    assert [job.type for job in driver.claim(5, by=claimer(types=types))] == claimed
    assert len(driver.claim(5)) == 2 - len(claimed)


def test_a_key_of_a_tenant_or_a_workspace_sees_its_own_alone(driver: Driver) -> None:
    """E2, E14.8."""
    from jobs.services import tenancy

    tenancy.make_workspace("other")
    driver.enqueue(workspace="other")
    driver.enqueue(tenant="a")
    driver.enqueue(tenant="b")
    here = default_workspace().pk
    assert {j.tenant_id for j in driver.claim(5, by=claimer(workspaces=(here,), tenant_id=tenant_id("b")))} == {
        tenant_id("b")
    }
    assert {j.tenant_id for j in driver.claim(5, by=claimer(workspaces=(here,)))} == {tenant_id("a")}
    assert len(driver.claim(5)) == 1


def test_only_the_given_groups_and_queues_are_claimed(driver: Driver) -> None:
    """A4, A28: the four queues, and jobs of other groups stay."""
    for queue in QUEUES:
        driver.enqueue(queue=queue)
    driver.enqueue("outside", {})
    assert driver.job(driver.enqueue()).queue == "collect"
    assert [job.queue for job in driver.claim(9, by=claimer(queues=("chat",)))] == ["chat"]
    assert {job.worker_group for job in driver.claim(9)} == {"default"}
    assert [job.type for job in driver.claim(9, by=claimer("runners"))] == ["outside"]


def test_a_strict_claimer_serves_its_queues_in_the_given_order(driver: Driver) -> None:
    """DESIGN 5: strictly in the order given."""
    for queue in ("collect", "chat") * 3:
        driver.enqueue(queue=queue)
    by = claimer(queues=("chat", "collect"))
    assert [driver.claim_one(by=by).queue for _ in range(6)] == ["chat"] * 3 + ["collect"] * 3


def test_a_weighted_claimer_starves_no_queue(driver: Driver) -> None:
    """DESIGN 5: by weight, so that the light queue has its share while the heavy one is never empty."""
    for queue in ("chat", "collect"):
        for _ in range(60):
            driver.enqueue(queue=queue)
    by = claimer(queues=("chat", "collect"), strict=False, weights={"chat": 4, "collect": 1})
    served = Counter(batch(by, 1).jobs[0].queue for _ in range(60))
    assert served["chat"] > served["collect"] > 0


def test_no_slots_and_no_pairs_claim_nothing(driver: Driver) -> None:
    """A30."""
    driver.enqueue()
    assert batch(driver.claimer, 0) == Batch([])
    assert batch(Claimer(pairs=[], by="worker:x"), 5) == Batch([])
    assert Job.objects.get().state == "queued"


def test_an_empty_queue_says_so_at_once(driver: Driver) -> None:
    """CLAIM: no `again` for nothing, also over many empty lines."""
    assert batch(driver.claimer, 4) == Batch([])
    for n in range(20):
        driver.enqueue(tenant=f"t{n}")
    for job in driver.claim(50):
        driver.complete(job)
    got = batch(claimer(), 4)
    while got.again:
        got = batch(claimer(), 4)
        Closing().tick()
    assert got == Batch([])


@pytest.mark.parametrize("nth", range(1, 4))
def test_a_claim_that_breaks_at_any_statement_leaves_nothing_behind(driver: Driver, nth: int) -> None:
    """case-A18: the job is claimable again, no slot is counted, no half receipt."""
    from django.db import connection

    job_id = driver.enqueue()
    before, seen = db.row_hash(job_id), []

    def break_after(execute: object, sql: str, params: object, many: bool, context: object) -> object:
        result = execute(sql, params, many, context)  # type: ignore[operator]
        seen.append(sql)
        if len(seen) == nth:
            raise LookupError
        return result

    with connection.execute_wrapper(break_after), pytest.raises(LookupError):
        batch(driver.claimer, 1)
    assert db.row_hash(job_id) == before
    assert driver.claim_one().id == job_id
