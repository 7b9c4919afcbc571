"""Why a job does not run: each reason is planted, real claims refuse it, it is told first, taken away, and claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from jobs import RetryPolicy, clock
from jobs.conf import registry
from jobs.models import ClaimLine, Key, Leader, Owner, Worker
from jobs.outcomes import Interrupted
from jobs.routing import UNROUTED
from jobs.services import blockers, owners, recovery, settlement, tenancy, throttles, workers
from jobs.services.blockers import Asked, Blocker
from jobs.store.claim import Claimer
from tests import database as db
from tests.driver import QUEUES, Driver, claimer
from tests.edges.caller import Caller
from tests.making import default_workspace, limit, statements, tenant_id
from tests.owned import put
from tests.store import noise


def reasons(job_id: str, tenant: int | None = None) -> list[Blocker]:
    """What is told of a job, to an operator, or to this tenant."""
    return blockers.all_of(Asked(Driver().job(job_id), clock.now(), tenant))


def codes(job_id: str) -> list[str]:
    return [one.code for one in reasons(job_id)]


def serve(*types: str, groups: tuple[str, ...] = ("default",), name: str = "w") -> Worker:
    """A live worker, as far as its row says."""
    return workers.register(name, 2, groups, QUEUES, types or ("echo@1", "owned@1", "bounded@1", "breaks@1"))


@dataclass
class Planted:
    """A job that a claim refuses, what is told of it, what takes that away, and who would claim it then."""

    job_id: str
    says: dict[str, Any]
    remove: Callable[[], object]
    refused_by: Claimer | None = None
    taken_by: Claimer | None = None


# --- twenty reasons and more ---------------------------------------------------------------------------------------


def _not_due(d: Driver) -> Planted:
    return Planted(d.enqueue(delay_s=90), {}, lambda: d.pass_time(91))


def _promotion_pending(d: Driver) -> Planted:
    job_id = d.enqueue(delay_s=5)
    db.pass_time(6)
    return Planted(job_id, {}, recovery.promote)


def _waiting_for_retry(d: Driver) -> Planted:
    job_id = d.enqueue()
    d.fail(d.claim_one(), "no_luck")
    return Planted(job_id, {"attempt_count": 1, "max_attempts": 5, "reason_code": "no_luck"}, lambda: d.pass_time(600))


def _paused(d: Driver) -> Planted:
    job_id = d.enqueue()
    d.pause(job_id, reason="the store is closed")
    return Planted(job_id, {"reason": "the store is closed", "paused_by": "user:test"}, lambda: d.resume(job_id))


def _unregistered_type(d: Driver) -> Planted:
    job_id = d.enqueue()
    held = d.claim_one()
    db.rows("UPDATE jobs_job SET version = 9 WHERE id = %s RETURNING id", job_id)
    settlement.settle([settlement.Report(job_id, held.fence, Interrupted("unregistered_type"), "echo@9")], d.claimer.by)

    def comes_back() -> None:
        db.rows("UPDATE jobs_job SET version = 1 WHERE id = %s RETURNING id", job_id)
        assert codes(job_id)[0] == "type_back"
        recovery.Registered([("echo", 1)], "worker:x").tick()

    return Planted(job_id, {"type": "echo", "version": 9}, comes_back)


def _no_live_worker(d: Driver) -> Planted:
    Worker.objects.update(seen_at=clock.now() - timedelta(seconds=61))
    return Planted(d.enqueue(), {"worker_group": "default", "queue": "collect"}, lambda: serve(), claimer("elsewhere"))


def _no_worker_knows_type(d: Driver) -> Planted:
    job_id = d.enqueue("staged")
    return Planted(job_id, {"type": "staged", "version": 1}, lambda: serve("staged@1"),
                   claimer(types=[("echo", 1)]))


def _no_live_runner(d: Driver) -> Planted:
    job_id = d.enqueue("outside")
    return Planted(job_id, {"worker_group": "runners"}, lambda: Key.objects.filter(
        pk=Caller(worker_groups=["runners"]).key.pk).update(last_used_at=clock.now()), taken_by=claimer("runners"))


def _definition_stopped(d: Driver) -> Planted:
    job_id = d.enqueue()
    stopped = registry().find("echo", 1)
    object.__setattr__(stopped, "runs", False)
    return Planted(job_id, {"type": "echo"}, lambda: object.__setattr__(stopped, "runs", True), claimer(types=[]))


def _unknown_agent(d: Driver) -> Planted:
    return Planted(d.enqueue(agent="nobody"), {"agent": "nobody"}, lambda: None, taken_by=claimer(UNROUTED))


def _tenant_at_cap(d: Driver) -> Planted:
    limit(tenant="a", tenant_concurrency=1)
    first, job_id = d.enqueue(tenant="a"), d.enqueue(tenant="a")
    held = d.claim_one()
    return Planted(job_id, {"most": 1, "used": 1, "holders": [first]}, lambda: d.complete(held))


def _line_parked(d: Driver) -> Planted:
    job_id = d.enqueue()
    ClaimLine.objects.update(parked="cap")
    return Planted(job_id, {}, lambda: recovery.Repair().tick())


def _tenant_paused(d: Driver) -> Planted:
    job_id, place = d.enqueue(), default_workspace()
    throttles.pause("tenant", "", by="ann", reason="unpaid", workspace=place)
    return Planted(job_id, {"paused_by": "ann", "reason": "unpaid"},
                   lambda: throttles.resume("tenant", "", by="ann", workspace=place))


def _line_paused_in_vain(d: Driver) -> Planted:
    """Whoever ended the pause has died before it could bring the lines back."""
    job_id = d.enqueue()
    ClaimLine.objects.update(parked="paused")
    return Planted(job_id, {}, lambda: recovery.Repair().tick())


def _line_missing(d: Driver) -> Planted:
    job_id = d.enqueue()
    ClaimLine.objects.all().delete()
    return Planted(job_id, {"queue": "collect"}, lambda: (d.pause(job_id), d.resume(job_id)))


def _exclusive_group_full(d: Driver) -> Planted:
    limit(exclusive_group_max=1)
    first, job_id = d.enqueue(exclusive_group="g"), d.enqueue(exclusive_group="g")
    held = d.claim_one()
    assert held.id == first
    return Planted(job_id, {"exclusive_group": "g", "most": 1, "used": 1, "holders": [first]}, lambda: d.complete(held))


def _group_has_room(d: Driver) -> Planted:
    limit(exclusive_group_max=1)
    job_id = d.enqueue(exclusive_group="g")
    db.rows("UPDATE jobs_job SET gate = 'exclusive' WHERE id = %s RETURNING id", job_id)
    return Planted(job_id, {"exclusive_group": "g"}, lambda: recovery.Repair().tick())


def _owner_unavailable(d: Driver) -> Planted:
    job_id = d.enqueue("owned")
    assert d.claim() == []
    assert d.state(job_id) == "paused"
    return Planted(job_id, {"owner": None}, put)


def _owner_at_capacity(d: Driver) -> Planted:
    put(concurrency=1)
    first, job_id = d.enqueue("owned"), d.enqueue("owned")
    held = d.claim_one()
    return Planted(job_id, {"most": 1, "used": 1, "holders": [first]}, lambda: d.complete(held, "4"))


def _owner_away(d: Driver) -> Planted:
    put()
    job_id = d.enqueue("owned")
    Owner.objects.update(away_until=clock.now() + timedelta(seconds=50))
    return Planted(job_id, {}, lambda: (d.pass_time(60), owners.Owners().tick(), serve()))


def _owner_back(d: Driver) -> Planted:
    job_id = d.enqueue("owned")
    assert d.claim() == []
    with transaction.atomic():
        put()
        # As where the process dies after the commit.
        transaction.get_connection().run_on_commit.clear()
    return Planted(job_id, {}, lambda: owners.Owners().tick())


def _claims_spent(d: Driver) -> Planted:
    job_id = d.enqueue("bounded")
    for _ in range(3):
        d.release(d.claim_one())
    return Planted(job_id, {"claims": 3, "max_claims": 3}, lambda: (recovery.deadlines(), d.requeue(job_id)))


def _deadline_passed(d: Driver) -> Planted:
    job_id = d.enqueue(deadline_at=clock.now() + timedelta(seconds=5))
    db.pass_time(6)
    return Planted(job_id, {}, lambda: (recovery.deadlines(), d.requeue(job_id)))


def _dead_lettered(d: Driver) -> Planted:
    job_id = d.enqueue("breaks")
    d.fail(d.claim_one(), "no_luck")
    d.pass_time(30)
    d.fail(d.claim_one(), "no_luck")
    return Planted(job_id, {"letter_reason": "attempts_exhausted", "reason_code": "no_luck", "failures": 2,
                            "max_attempts": 2}, lambda: d.requeue(job_id))


def _held(d: Driver) -> Planted:
    job_id = d.enqueue()
    held = d.claim_one()
    return Planted(job_id, {"attempt": 1, "overtime": None}, lambda: d.release(held))


def _lease_expired(d: Driver) -> Planted:
    job_id = d.enqueue()
    d.claim_one()
    db.pass_time(60)
    return Planted(job_id, {"attempt": 1}, lambda: (serve(), d.recover()))


REASONS = {plant.__name__[1:]: plant for plant in (
    _not_due, _promotion_pending, _waiting_for_retry, _paused, _unregistered_type, _no_live_worker,
    _no_worker_knows_type, _no_live_runner, _definition_stopped, _unknown_agent, _tenant_at_cap, _line_parked,
    _tenant_paused, _line_paused_in_vain, _line_missing, _exclusive_group_full, _group_has_room, _owner_unavailable,
    _owner_at_capacity, _owner_away, _owner_back, _claims_spent, _deadline_passed, _dead_lettered, _held,
    _lease_expired)}


# Two ways to one reason.
CODES = {"line_paused_in_vain": "line_parked"}


@pytest.fixture
def site(owned_site: None, driver: Driver) -> Iterator[Driver]:
    """A live worker, and whatever a test switches off is switched on again."""
    serve()
    serve(groups=(UNROUTED,))
    yield driver
    object.__setattr__(registry().find("echo", 1), "runs", True)


@pytest.mark.parametrize("code", REASONS)
def test_each_reason_is_told_first_while_claims_refuse_the_job_and_no_more_when_it_is_gone(site: Driver,
                                                                                         code: str) -> None:
    """DESIGN 7.1: right for every planted reason, with its numbers; then the job is claimed."""
    planted = REASONS[code](site)
    found = reasons(planted.job_id)
    assert found[0].code == CODES.get(code, code), [one.code for one in found]
    assert planted.says.items() <= found[0].as_json().items(), found[0].as_json()
    assert planted.job_id not in {job.id for job in site.claim(10, planted.refused_by)}
    planted.remove()
    assert reasons(planted.job_id)[0].code != code or code == "unknown_agent"
    assert planted.job_id in {job.id for job in site.claim(10, planted.taken_by)}


def test_a_job_that_waits_for_a_far_retry_holds_no_place_in_its_group(site: Driver) -> None:
    """case-F04: with room for one, what is in backoff for an hour lets the next one run at once."""
    limit(exclusive_group_max=1)
    first = site.enqueue(exclusive_group="g", retry=RetryPolicy(base_delay_s=3_600, max_delay_s=3_600))
    second = site.enqueue(exclusive_group="g")
    assert codes(second) == ["exclusive_group_full"]
    site.fail(site.claim_one())
    assert codes(first)[0] == "waiting_for_retry"
    assert codes(second) == ["claimable_now"]
    assert site.claim_one().id == second


def test_where_nothing_is_in_the_way_the_next_claim_takes_it_and_the_second_waits_for_its_turn(site: Driver) -> None:
    """C5, C6: the last of the reasons is none."""
    first, second = site.enqueue(), site.enqueue()
    assert codes(first) == ["claimable_now"]
    [told] = reasons(second)
    assert (told.code, told.facts["queue_position"], told.facts["jobs_ahead"]) == ("waiting_for_turn", 2, 1)
    assert [site.claim_one().id, site.claim_one().id] == [first, second]


def test_all_reasons_are_told_in_the_order_of_the_claim(driver: Driver) -> None:
    """DESIGN 7.1: whoever takes the first away sees the next one coming."""
    limit(tenant="a", tenant_concurrency=1)
    driver.enqueue(tenant="a")
    driver.claim_one()
    job_id = driver.enqueue(tenant="a", delay_s=60)
    assert codes(job_id) == ["not_due", "tenant_at_cap", "no_live_worker"]


ENDS: dict[str, Callable[[Driver, str], object]] = {
    "completed": lambda d, id_: d.complete(d.claim_one()),
    "cancelled": lambda d, id_: d.cancel(id_, reason="not needed"),
    "superseded": lambda d, id_: d.enqueue(target="thing"),
    "failed": lambda d, id_: (d.fail(d.claim_one(), "no_luck", retryable=False), d.discard(id_)),
}


@pytest.mark.parametrize("code", ENDS)
def test_of_an_ended_job_it_is_told_how_and_by_whom(driver: Driver, code: str) -> None:
    """DESIGN 7.1: an end needs a reason as much as a delay does."""
    job_id = driver.enqueue(target="thing")
    ENDS[code](driver, job_id)
    [told] = reasons(job_id)
    assert told.code == code
    assert told.facts["ended_at"]
    assert told.facts["reason"] == {"cancelled": "not needed", "failed": "terminal_error"}.get(
        code, driver.job(job_id).reason)
    if code == "cancelled":
        assert told.facts["by"] == "user:test"


def test_an_archived_tenant_is_named_where_it_keeps_a_letter_from_being_requeued(driver: Driver) -> None:
    """B37: what was admitted goes on; a requeue does not."""
    job_id = driver.enqueue("breaks", tenant="a")
    driver.fail(driver.claim_one(), retryable=False)
    tenancy.archive(tenancy.tenant(tenancy.workspace(), "a"), by="user:test", reason="gone")
    assert codes(job_id) == ["dead_lettered", "tenant_archived"]


def test_a_tenant_that_is_deleted_is_named(driver: Driver) -> None:
    """B38: no claim takes its jobs any more."""
    job_id = driver.enqueue(tenant="a")
    db.rows("UPDATE jobs_tenant SET deleting_at = jobs_now() WHERE id = %s RETURNING id", tenant_id("a"))
    assert codes(job_id)[0] == "tenant_deleting"


def test_a_duty_that_nobody_does_is_named_where_it_would_end_the_matter(site: Driver) -> None:
    """Recovery that stands still or has no leader, and a deadline that nobody looks after (E8)."""
    job_id = site.enqueue()
    site.claim_one()
    db.pass_time(60)
    assert codes(job_id) == ["lease_expired", "held", "duty_silent"]
    later = clock.now() + timedelta(seconds=30)
    Leader.objects.create(duty="recovery", until=later, ticked_at=clock.now())
    assert codes(job_id) == ["lease_expired", "held"]
    Leader.objects.update(hold_until=later)
    assert codes(job_id) == ["lease_expired", "held", "recovery_stands_still"]


def test_a_tenant_is_told_nothing_that_another_one_owns(site: Driver) -> None:
    """E2: of a group that all tenants share it learns that others are in it, not who or how many; no machine's name."""
    limit(exclusive_group_max=2, exclusive_group_scope="workspace")
    theirs = site.enqueue(tenant="other", exclusive_group="g")
    mine = site.enqueue(tenant="me", exclusive_group="g")
    job_id = site.enqueue(tenant="me", exclusive_group="g")
    Worker.objects.update(seen_at=clock.now() - timedelta(seconds=90))
    me = tenant_id("me")
    full, served = reasons(job_id, me)
    assert full.facts == {"exclusive_group": "g", "scope": "workspace", "most": 2, "holders": [mine]}
    assert full.said.endswith(f"before it: {mine} and others.")
    assert theirs not in str([full.as_json(), served.as_json()])
    assert "last_seen" not in served.facts
    whole, seen = reasons(job_id)
    assert set(whole.facts["holders"]) == {theirs, mine}
    assert whole.facts["used"] == 2
    assert {one["name"] for one in seen.facts["last_seen"]} == {"w"}
    site.claim(2)
    [held] = reasons(mine, me)
    assert held.facts["holder"] == "a worker"


def test_no_question_reads_a_backlog(site: Driver) -> None:
    """Behind 10,000 jobs of its tenant, of others and of its group every statement touches few pages."""
    limit(exclusive_group_max=1, tenant_concurrency=5)
    ws, a, b = tenancy.workspace().pk, tenant_id("a"), tenant_id("b")
    site.enqueue(tenant="a", exclusive_group="g")
    site.enqueue(tenant="b")
    noise.jobs(4_000, ws, a, exclusive="'g'", gate="'exclusive'")
    noise.jobs(4_000, ws, a)
    noise.jobs(2_000, ws, b)
    noise.execute("ANALYZE jobs_job, jobs_claim_line")
    held_back, last = site.enqueue(tenant="a", exclusive_group="g"), site.enqueue(tenant="a", priority=-1)
    assert (codes(held_back), codes(last)) == (["exclusive_group_full"], ["waiting_for_turn"])
    with transaction.atomic(), statements() as seen:
        reasons(held_back)
        reasons(last)
    with transaction.atomic():
        # As where they are asked.
        noise.execute("SET LOCAL enable_sort = off")
        cost = {sql: _buffers(noise._explain(sql, params)) for sql, params in seen if "FROM" in sql}
    assert max(cost.values()) < 2_500, cost


def _buffers(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
