"""A claim costs the same whatever else waits: plans and buffers under noise (CLAIM, DESIGN 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import transaction

from jobs.models import ClaimLine
from jobs.store import due, erasures, meant
from tests.driver import Driver, claimer
from tests.making import default_workspace, statements, tenant_id
from tests.races.threads import LONG
from tests.store import noise
from tests.store.noise import Cost, measure, scans

# Half of the sizes that CLAIM names, unless asked for the long form: seconds instead of minutes.
SCALE = 1 if LONG else 2
SLOTS = 10
# Deeper indexes and a line that lies on another page; not a backlog that is being read.
SLACK = 4.0


def _backlog(ws: int) -> None:
    big = noise.tenants(1, ws, "big")
    noise.jobs(200_000 // SCALE, ws, big)
    noise.lines(ws, big, 1)


def _tomorrow(ws: int) -> None:
    noise.jobs(
        200_000 // SCALE, ws, noise.tenants(1, ws, "tomorrow"), priority="100", gate="'scheduled'", after="86400"
    )
    noise.jobs(20_000 // SCALE, ws, tenant_id(), priority="100", gate="'scheduled'", after="86400")


def _full_group(ws: int) -> None:
    noise.jobs(100_000 // SCALE, ws, tenant_id(), priority="100", exclusive="'full'", gate="'exclusive'")


def _parked(ws: int) -> None:
    capped = noise.tenants(1, ws, "capped")
    noise.jobs(100_000 // SCALE, ws, capped, priority="100")
    noise.lines(ws, capped, 1, parked="'cap'")


def _many_tenants(ws: int) -> None:
    first = noise.tenants(10_000, ws, "many")
    noise.jobs(10_000, ws, f"{first} + n - 1")
    noise.lines(ws, first, 10_000)


def _many_parked(ws: int) -> None:
    first = noise.tenants(9_990, ws, "held")
    noise.jobs(9_990, ws, f"{first} + n - 1")
    noise.lines(ws, first, 9_990, parked="'cap'")


def _finished(ws: int) -> None:
    noise.jobs(1_000_000 // SCALE**2, ws, tenant_id(), state="completed", ended="jobs_now()")


def _others(ws: int) -> None:
    noise.jobs(40_000 // SCALE, ws, tenant_id(), priority="100", group="others")
    noise.jobs(40_000 // SCALE, ws, tenant_id(), priority="100", queue="chat")


NOISES: list[tuple[str, Callable[[int], None]]] = [
    ("due tomorrow", _tomorrow), ("a full group", _full_group), ("a parked tenant", _parked),
    ("finished jobs", _finished), ("other groups and queues", _others), ("9,990 parked tenants", _many_parked),
    ("a backlog", _backlog), ("10,000 tenants", _many_tenants),
]


SORTS = {"Sort", "Incremental Sort", "Gather", "Gather Merge"}


def check_plan(cost: Cost, when: str, lines: int) -> None:
    """The partial indexes of the claim in the claim's order, and never a look at a whole table."""
    assert cost.claimed == SLOTS, when
    assert scans(cost.candidates, "jobs_job") == {("Index Scan", "job_claim")}, (when, cost.candidates)
    assert not {kind for kind, _, _ in cost.candidates} & SORTS, (when, cost.candidates)
    # Over a page or two of lines a scan of them all is as good as an index.
    if lines > 1_000:
        assert scans(cost.lines, "jobs_claim_line") <= {
            ("Index Scan", "line_open"),
            ("Index Only Scan", "line_open"),
        }, (when, cost.lines)
        assert not {kind for kind, _, _ in cost.lines} & SORTS, (when, cost.lines)


@pytest.fixture
def without_autovacuum(database: None) -> Iterator[None]:
    """The statistics are what the test says they are: one in the middle of it would know of the first noises alone."""
    noise.execute("ALTER TABLE jobs_job SET (autovacuum_enabled = false)")
    yield
    noise.execute("ALTER TABLE jobs_job RESET (autovacuum_enabled)")


@pytest.mark.slow
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
def test_a_claim_does_not_notice_what_else_waits(driver: Driver, analyzed: bool, record_property: Callable,
                                                 without_autovacuum: None) -> None:
    """E14.8, E14.9, case-C13, case-C15: each noise on top of the others, 1.5 x of empty in buffers at the most."""
    ws = default_workspace().pk
    for n in range(SLOTS):
        driver.enqueue(tenant=f"probe{n}")
        driver.enqueue(tenant=f"probe{n}")
    by = claimer(queues=("collect",))
    empty = measure(by, SLOTS)
    record_property("empty", empty.a_job)
    report = [f"empty {empty.a_job:.1f}"]
    for when, make in NOISES:
        make(ws)
        if analyzed:
            noise.execute("ANALYZE jobs_job, jobs_claim_line, jobs_tenant")
        by.cursors.update(dict.fromkeys(by.pairs, 0))
        cost = measure(by, SLOTS)
        report.append(f"{when} {cost.a_job:.1f}")
        record_property(when, cost.a_job)
        check_plan(cost, when, ClaimLine.objects.count())
        assert cost.a_job <= 1.5 * empty.a_job + SLACK, report
    print("buffers a job:", "; ".join(report))


BATCH = 100


def _unregistered(ws: int) -> None:
    noise.jobs(20_000, ws, tenant_id("many"), state="paused")
    noise.execute("UPDATE jobs_job SET reason = 'unregistered_type' WHERE state = 'paused'")


def _held_by_others(ws: int) -> None:
    noise.jobs(5_000, ws, tenant_id("many"))
    noise.execute("""WITH held AS (UPDATE jobs_job SET state = 'leased', attempt_id = gen_random_uuid()
            WHERE state = 'queued' RETURNING id, attempt_id)
        INSERT INTO jobs_attempt (id, job_id, number, chain, leased_at, lease_until)
        SELECT attempt_id, id, 1, 1, jobs_now(), jobs_now() + interval '1 hour' FROM held""")


def _at_one_moment(column: str, **columns: str) -> Callable[[int], None]:
    def make(ws: int) -> None:
        noise.jobs(20_000, ws, tenant_id("many"), **columns)
        noise.execute(f"UPDATE jobs_job SET {column} = now() - interval '1 s' WHERE state = 'queued'")
    return make


def _ended(ws: int) -> None:
    noise.jobs(20_000, ws, tenant_id("many"), state="completed", ended="jobs_now()")


LOOKS: dict[str, tuple[Callable[[int], None], Callable[[], object]]] = {
    "promotion": (_at_one_moment("available_at", gate="'scheduled'"), lambda: due.promote(BATCH)),
    "deadlines": (_at_one_moment("deadline_at"), lambda: due.late(due.FIRST_SPOT, BATCH)),
    "spent": (lambda ws: noise.jobs(20_000, ws, tenant_id("many"), gate="'spent'"),
              lambda: due.spent(due.FIRST, BATCH)),
    "unregistered": (_unregistered, lambda: due.unregistered([("echo", 1)], due.FIRST, BATCH)),
    "recovery": (_held_by_others, lambda: due.look(0, due.FIRST, BATCH)),
    "a tenant's newest": (_ended, lambda: erasures.sample(tenant_id("many"), 5)),
    "the newest of all": (_ended, meant.newest_of_all),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_loop_reads_a_batch_in_order_and_sorts_no_backlog(database: None, look: str) -> None:
    """DESIGN 5: also where very many stand at the same moment; the order is an index's."""
    make, work = LOOKS[look]
    make(default_workspace().pk)
    noise.execute("ANALYZE jobs_job, jobs_attempt")
    with transaction.atomic(), statements() as seen:
        assert work()
        transaction.set_rollback(True)
    sql, params = next((s, p) for s, p in seen if "ORDER BY" in s and "LIMIT" in s and "FROM jobs_" in s)
    plan = noise._explain(sql, params)
    kinds = {kind for kind, _, _ in noise._walk(plan)}
    assert not kinds & {*SORTS, "Seq Scan"}, kinds
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 10 * BATCH
