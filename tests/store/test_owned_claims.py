"""Claims of jobs that need an owner: flat whatever stands at the head of a line, and no more statements than a cap."""

from __future__ import annotations

import pytest
from django.db import transaction

from jobs.models import Job
from jobs.services import settlement
from jobs.store import owning
from jobs.store.claim import claim
from jobs.store.sql import durable
from tests.driver import Driver, claimer, done
from tests.making import default_workspace, statements, tenant_id
from tests.owned import put
from tests.races.threads import LONG
from tests.store import noise
from tests.store.noise import _explain, _walk

HEAD = 100_000 if LONG else 20_000
# Moved by one claim at the most: a look of the head, and the few that were met.
MOST = owning.ASIDE + 10

pytestmark = pytest.mark.usefixtures("database", "owned_site")


def head(driver: Driver) -> str:
    """Jobs of the highest priority that need the owner, before one that does not; its id."""
    noise.jobs(HEAD, default_workspace().pk, tenant_id("busy"), priority="100", credential="'owner'")
    noise.execute("ANALYZE jobs_job")
    return driver.enqueue(tenant="busy")


def aside(gate: str | None, state: str) -> int:
    return Job.objects.filter(tenant_id=tenant_id("busy"), credential="owner", gate=gate, state=state).count()


@pytest.mark.parametrize("owner", ["none", "full"])
def test_jobs_that_wait_for_an_owner_hold_nobody_up_and_cost_a_claim_little(driver: Driver, owner: str) -> None:
    """B35, B36, C4: each claim moves a bounded number out of the way; other tenants have their turns meanwhile."""
    if owner == "full":
        put(tenant="busy")
        driver.enqueue("owned", tenant="busy")
        assert len(driver.claim(1)) == 1
    head(driver)
    moved = ("exclusive", "queued") if owner == "full" else (None, "paused")
    others = [driver.enqueue(tenant=f"t{n % 3}") for n in range(12)]
    taken: list[str] = []
    by = claimer()
    for n in range(1, 9):
        before = aside(*moved)
        batch = durable(lambda: claim(by, 2))
        taken += [job.id for job in batch.jobs]
        assert aside(*moved) - before <= MOST, n
        assert batch.jobs or batch.again
    assert set(taken) == set(others), "somebody waited behind jobs of an owner"
    assert aside(*moved) > 0


def test_a_tenants_other_jobs_run_while_its_owner_is_full(driver: Driver) -> None:
    """B36: they stand behind 1,000 of the owner's, and have their turn after ten looks."""
    put(tenant="busy")
    noise.jobs(1_000, default_workspace().pk, tenant_id("busy"), priority="100", credential="'owner'")
    plain = driver.enqueue(tenant="busy")
    by, taken = claimer(), []
    for _ in range(30):
        batch = durable(lambda: claim(by, 2))
        taken += [job.id for job in batch.jobs]
        if not batch.again:
            break
    assert plain in taken
    assert len(taken) == 2
    assert aside("exclusive", "queued") == 999


def test_the_looks_of_an_owner_use_the_indexes_that_are_there(driver: Driver) -> None:
    """DESIGN 5: the head of the line by the claim's index; what waits behind the owner by that of held jobs."""
    head(driver)
    sql = owning._HEAD.format(limit=owning.ASIDE)
    plan = _explain(sql, ["default", "collect", tenant_id("busy"), ""])
    nodes = _walk(plan)
    assert ("Index Scan", "jobs_job", "job_claim") in nodes, nodes
    assert "Seq Scan" not in {kind for kind, _, _ in nodes}, nodes
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1_500
    Job.objects.filter(credential="owner").update(gate="exclusive")
    noise.execute("ANALYZE jobs_job")
    with transaction.atomic(), statements() as seen:
        assert len(owning.let_in([tenant_id("busy")])) == owning.LET_IN
        transaction.set_rollback(True)
    sql, params = next((s, p) for s, p in seen if "row_number" in s)
    plan = _explain(sql, params)
    nodes = _walk(plan)
    assert {i for _, t, i in nodes if t == "jobs_job"} <= {"job_held", "job_held_workspace"}, nodes
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1_500


def test_an_owner_adds_two_statements_to_a_claim_and_none_where_there_is_none(driver: Driver) -> None:
    """DESIGN 5: as each kind of cap: try the keys, then count; the end of an attempt takes the keys once more."""
    put(concurrency=5)
    for _ in range(6):
        driver.enqueue("owned")
    with statements() as claiming:
        jobs = durable(lambda: claim(driver.claimer, 5)).jobs
    assert len(jobs) == 5
    assert len(claiming) <= 3 + 2, claiming
    with statements() as settling:
        settlement.settle([settlement.Report(j.id, j.fence, done()) for j in jobs], "test")
    assert len(settling) <= 2 + 8, settling
    driver.claim(5)
    driver.enqueue()
    with statements() as claiming:
        assert len(durable(lambda: claim(driver.claimer, 5)).jobs) == 1
    assert len(claiming) <= 3, claiming
