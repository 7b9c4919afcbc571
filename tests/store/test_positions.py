"""Positions and turns, proven by claiming to the end: what was foretold is what one claimer then does (C4 to C6)."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

import pytest
from django.db import transaction

from jobs.models import Job, Traffic
from jobs.services import standing, tenancy, traffic
from jobs.store import position
from jobs.store.claim import Claimer, claim
from jobs.store.position import CAP
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, claimer
from tests.making import limit, statements, tenant_id
from tests.races.threads import LONG
from tests.store import noise
from tests.store.noise import _explain, _walk, scans

SCALE = 1 if LONG else 5


def claimed_to_the_end(by: Claimer) -> list[str]:
    """All that is claimable, one by one: the real order."""
    order: list[str] = []
    while jobs := durable(lambda: claim(by, 1)).jobs:
        order.append(jobs[0].id)
    return order


def counted(order: Sequence[str], whose: dict[str, int]) -> dict[str, tuple[int, int]]:
    """From scratch: of each job the place among its tenant's, and how many of all were claimed before it."""
    seen: dict[int, int] = {}
    found = {}
    for n, id_ in enumerate(order):
        seen[whose[id_]] = seen.get(whose[id_], 0) + 1
        found[id_] = (seen[whose[id_]], n)
    return found


@pytest.mark.parametrize("seed", range(10 if LONG else 2))
def test_every_position_is_the_one_in_which_a_claimer_then_takes_it(driver: Driver, seed: int) -> None:
    """C5, C6: with priorities, tenants of any size, a cursor anywhere, and gates that let nobody in."""
    chance = random.Random(seed)
    limit(exclusive_group_max=1)
    tenants = [f"t{n}" for n in range(6)]
    for _ in range(40):
        driver.enqueue(tenant=chance.choice(tenants[: chance.randint(1, 6)]), priority=chance.choice([-5, 0, 0, 7]))
    for tenant in tenants[:2]:
        driver.enqueue(tenant=tenant, exclusive_group="g")
        gated = [driver.enqueue(tenant=tenant, exclusive_group="g", priority=9) for _ in range(3)]
        gated += [driver.enqueue(tenant=tenant, delay_s=60, priority=9)]
        assert [position.of(id_) for id_ in gated] == [None] * 4
    whose = {str(pk): tenant for pk, tenant in Job.objects.filter(gate=None).values_list("pk", "tenant_id")}
    foretold = position.positions(whose)
    assert foretold == {id_: position.of(id_) for id_ in whose}
    by = claimer(queues=("collect",))
    by.cursors[("default", "collect")] = chance.choice([0, *whose.values()])
    real = counted(claimed_to_the_end(by), whose)
    assert real.keys() == whose.keys()
    others = len(set(whose.values())) - 1
    for id_, (place, before) in real.items():
        assert foretold[id_].own == place
        # Where the cursor stands nobody knows: at the most, and less by one turn of every other tenant at the most.
        assert 0 <= foretold[id_].ahead - before <= others, (foretold[id_], before)
    tightest = {foretold[id_].ahead - before for id_, (_, before) in real.items()}
    assert 0 in tightest


def test_positions_move_with_every_claim(driver: Driver) -> None:
    """C8: after each claim the rest stand one further, of the tenant that had its turn."""
    ids = [driver.enqueue(tenant=f"t{n % 3}") for n in range(12)]
    by = claimer(queues=("collect",))
    left = dict.fromkeys(ids)
    while left:
        before = position.positions(left)
        [job] = durable(lambda: claim(by, 1)).jobs
        del left[job.id]
        after = position.positions(left)
        mine = {str(pk) for pk in Job.objects.filter(tenant_id=job.tenant_id).values_list("pk", flat=True)}
        assert {id_: p.own for id_, p in after.items()} == {
            id_: before[id_].own - (id_ in mine) for id_ in left}


def test_a_thousand_jobs_of_another_tenant_never_change_ones_own_place(driver: Driver) -> None:
    """C5: what others do is none of a tenant's business; of the pool it learns a count that stops at its cap (C6)."""
    mine = [driver.enqueue(tenant="me") for _ in range(3)]
    before = position.positions(mine)
    noise.jobs(1_000, tenancy.workspace().pk, tenant_id("other"), priority="100")
    noise.lines(tenancy.workspace().pk, tenant_id("other"), 1)
    after = position.positions(mine)
    assert [p.own for p in after.values()] == [p.own for p in before.values()] == [1, 2, 3]
    assert [after[id_].ahead - before[id_].ahead for id_ in mine] == [1, 2, 3]


def test_one_tenants_backlog_holds_no_other_up(driver: Driver) -> None:
    """C4, case-F07: 10,000 of one and 20 of each of five others, by two claimers with a cursor each."""
    ws = tenancy.workspace().pk
    flood = tenant_id("a")
    few = [tenant_id(name) for name in "bcdef"]
    noise.jobs(10_000, ws, flood)
    noise.lines(ws, flood, 1)
    for tenant in few:
        noise.jobs(20, ws, tenant)
        noise.lines(ws, tenant, 1)
    noise.execute("ANALYZE jobs_job")
    last = {t: str(Job.objects.filter(tenant_id=t).order_by("available_at", "pk").last().pk) for t in few}  # type: ignore[union-attr]
    foretold = {t: position.of(id_) for t, id_ in last.items()}
    workers = [claimer(queues=("collect",)), claimer(queues=("collect",))]
    order: list[tuple[int, str]] = []
    for by in workers * 65:
        order += [(job.tenant_id, job.id) for job in durable(lambda by=by: claim(by, 1)).jobs]  # type: ignore[misc]
    active = 6
    for tenant in few:
        starts = [n for n, (t, _) in enumerate(order) if t == tenant]
        assert len(starts) == 20
        for k, n in enumerate(starts, 1):
            assert n < 2 * active * k, (tenant, k, n)
        stands = foretold[tenant]
        assert stands is not None
        assert abs(stands.ahead - starts[-1]) <= 0.1 * starts[-1] + 1, (stands, starts[-1])
    for low in range(0, 120, 2 * active):
        shares = [t for t, _ in order[low:low + 2 * active]]
        assert all(abs(shares.count(t) - 2) <= 2 for t in (flood, *few)), (low, shares)


def test_a_single_job_behind_a_hundred_thousand_of_another_tenant_has_the_next_turn_but_one(driver: Driver) -> None:
    """C4: whoever comes last with one job is delayed by one turn of the flood at the most."""
    ws, flood = tenancy.workspace().pk, tenant_id("flood")
    noise.jobs(100_000 // SCALE, ws, flood, priority="100")
    noise.lines(ws, flood, 1)
    noise.execute("ANALYZE jobs_job")
    by = claimer(queues=("collect",))
    durable(lambda: claim(by, 1))
    for n in range(3):
        single = driver.enqueue(tenant=f"single{n}", priority=-100)
        assert position.of(single) == position.Position(1, 1)
        taken = [durable(lambda: claim(by, 1)).jobs[0].id for _ in range(2)]
        assert single in taken


@pytest.fixture
def flood(driver: Driver) -> int:
    """200,000 waiting (a fifth of that in the short form): half of one tenant, half of a thousand others."""
    ws, big = tenancy.workspace().pk, tenant_id("big")
    noise.jobs(100_000 // SCALE, ws, big)
    noise.lines(ws, big, 1)
    first = noise.tenants(1_000, ws, "many")
    noise.jobs(100_000 // SCALE, ws, f"{first} + n % 1000")
    noise.lines(ws, first, 1_000)
    noise.execute("ANALYZE jobs_job, jobs_claim_line, jobs_tenant")
    return big


def test_a_position_is_cheap_with_two_hundred_thousand_waiting(driver: Driver, flood: int) -> None:
    """C5, C6: by the claim's indexes, without a sort; 20 ms in the median (10 times that on a busy machine)."""
    near = driver.enqueue(tenant="big", priority=5)
    far = driver.enqueue(tenant="big", priority=-5)
    deep = str(Job.objects.filter(tenant_id=flood).order_by("available_at")[900].pk)
    assert position.of(near) == position.Position(1, CAP)
    assert position.of(far) == position.Position(CAP + 1, CAP)
    for id_ in (near, far, deep):
        took = []
        for _ in range(15):
            began = time.perf_counter()
            standing.of(driver.job(id_))
            took.append(time.perf_counter() - began)
        print(f"a position took {statistics.median(took) * 1000:.1f} ms in the median")
        assert statistics.median(took) < 0.2
    with transaction.atomic(), statements() as seen:
        position.positions([near, deep])
    with transaction.atomic():
        noise.execute("SET LOCAL enable_sort = off")
        for sql, params in (one for one in seen if "LATERAL" in one[0] or "FROM jobs_job" in one[0]):
            plan = _explain(sql, params)
            nodes = tuple(_walk(plan))
            assert "Seq Scan" not in {kind for kind, _, _ in nodes}, nodes
            assert {index for _, _, index in nodes} <= {None, "job_claim", "jobs_job_pkey", "line_open", "line_known"}
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 12_000


def test_what_takes_too_long_is_not_known_and_fails_no_read(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """C5: a position is told beside a job; reading that must not depend on it."""
    job = driver.job(driver.enqueue())
    monkeypatch.setattr(position, "_OWN", position._OWN.replace("SELECT me.id::text", "SELECT pg_sleep(5)::text"))
    began = time.monotonic()
    assert standing.of(job) is None
    assert time.monotonic() - began < 4
    assert db.rows("SHOW statement_timeout") == [("0",)]


def test_when_it_begins_is_told_by_the_pace_of_the_last_minutes(driver: Driver) -> None:
    """C6: nothing where nothing began of late, and nothing while its tenant's line is put aside."""
    # What earlier tests have counted is added in the background.
    traffic.flusher.flush()
    Traffic.objects.all().delete()
    ids = [driver.enqueue(tenant="a") for _ in range(10)]
    last = driver.job(ids[-1])
    told = standing.of(last)
    assert told is not None
    assert (told.position, told.ahead, told.eta_s) == (10, 9, None)
    db.rows("""INSERT INTO jobs_traffic (minute, worker_group, queue, enqueued, claimed, completed, erred, lapsed,
            released, interrupted, stopped, failed, cancelled, superseded, letters_opened, letters_answered, waited_us,
            ran_us, waits, runs)
        SELECT date_trunc('minute', jobs_now()) - n * interval '1 min', 'default', 'collect', 0, 60, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, '{}', '{}' FROM generate_series(1, 3) n RETURNING 1""")
    told = standing.of(last)
    assert told is not None
    assert told.eta_s is not None
    # 180 in three minutes and what has passed of the present one: between one and three quarters of one a second.
    assert 10 <= told.eta_s <= 10 * 4 / 3 + 0.1
    assert standing.as_json(told)["estimated_start_at"] is not None
    db.rows("UPDATE jobs_claim_line SET parked = 'cap' RETURNING id")
    told = standing.of(last)
    assert told is not None
    assert (told.position, told.eta_s) == (10, None)
    db.rows("UPDATE jobs_claim_line SET parked = NULL RETURNING id")
    db.pass_time(600)
    told = standing.of(last)
    assert told is not None
    assert told.eta_s is None


def test_the_pace_is_read_by_the_key(driver: Driver) -> None:
    """However many pairs there are: one look a minute."""
    driver.enqueue()
    id_ = driver.enqueue()
    with transaction.atomic(), statements() as seen:
        standing.of(driver.job(id_))
    [(sql, params)] = [one for one in seen if "jobs_traffic" in one[0]]
    with transaction.atomic():
        noise.execute("SET LOCAL enable_seqscan = off")
        nodes = tuple(_walk(_explain(sql, params)))
    assert {index for _, index in scans(nodes, "jobs_traffic")} == {"jobs_traffic_pkey"}
