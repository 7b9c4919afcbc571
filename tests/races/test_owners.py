"""Owners against claims and settlements, with real commits: no completion after a revocation, no cap exceeded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from jobs.errors import StaleFence
from jobs.models import AttemptCap, Job
from jobs.services import cancellation, owners, settlement
from jobs.services.intake import Request, enqueue_many
from jobs.services.settlement import Report
from jobs.store.claim import Claimed, claim
from jobs.store.moves import Moved
from jobs.store.sql import durable
from tests.database import rows
from tests.driver import Driver, check, claimer, done
from tests.making import tenant_id
from tests.owned import put
from tests.races.threads import LONG, deadlocks, together

pytestmark = pytest.mark.usefixtures("database", "owned_site")
ROUNDS = 300 if LONG else 50


def test_nothing_completes_after_its_owner_was_revoked(driver: Driver) -> None:
    """B23, B35: whichever comes first, a completion and a revocation agree; the claims between them too."""
    tenant, before = tenant_id(), deadlocks()
    ends = {"settled": 0, "revoked": 0}
    for n in range(ROUNDS):
        put(f"r{n}")
        job_id = driver.enqueue("owned")
        job = driver.claim_one()

        def settle(job: Claimed = job) -> object:
            return settlement.settle([Report(job.id, job.fence, done("1"))], "test")[0]

        def revoke(n: int = n) -> object:
            time.sleep(n % 5 / 2_000)
            return owners.revoke(tenant, by="person:1")

        answer, _ = together([settle, revoke])
        row = Job.objects.get(pk=job_id)
        if isinstance(answer, Moved):
            ends["settled"] += 1
            assert row.state == "completed"
        else:
            ends["revoked"] += 1
            assert isinstance(answer, StaleFence)
            assert (row.state, row.reason) == ("paused", "owner_unavailable")
            cancellation.cancel(job_id, by="test")
        check(job_id)
    assert not AttemptCap.objects.exists()
    assert deadlocks() == before
    assert ends["settled"] + ends["revoked"] == ROUNDS


def test_a_claim_beside_a_revocation_leaves_no_attempt_under_a_dead_owner(driver: Driver) -> None:
    """B35: a claim that saw the owner live commits before the revocation looks for attempts, or sees it gone."""
    tenant = tenant_id()
    for n in range(ROUNDS // 2):
        put(f"r{n}", concurrency=4)
        bulk_owned(2)

        def take() -> list[Claimed]:
            return durable(lambda: claim(claimer(), 2)).jobs

        def revoke(n: int = n) -> object:
            time.sleep(n % 5 / 2_000)
            return owners.revoke(tenant, by="person:1")

        together([take, revoke, take])
        live = rows("SELECT count(*) FROM jobs_attempt WHERE ended_at IS NULL")[0][0]
        assert live == 0, n


def bulk_owned(count: int) -> None:
    """So many jobs that need an owner."""
    enqueue_many([Request("owned", {}) for _ in range(count)])


def test_four_claimers_never_run_two_jobs_of_an_owner_that_may_run_one(driver: Driver) -> None:
    """B22, B36: a cap of 1 over 100 rounds; nobody is claimed and given back, and nobody is forgotten."""
    rounds = 100
    put()
    bulk_owned(rounds)
    guard, running, worst = threading.Lock(), [0], [0]
    before = deadlocks()

    def work() -> Callable[[], int]:
        def run() -> int:
            by, mine, idle = claimer(), 0, 0
            while idle < 200:
                jobs = durable(lambda: claim(by, 2)).jobs
                with guard:
                    running[0] += len(jobs)
                    worst[0] = max(worst[0], running[0])
                idle = 0 if jobs else idle + 1
                if not jobs:
                    if not Job.objects.exclude(state="completed").exists():
                        break
                    time.sleep(0.005)
                    continue
                with guard:
                    running[0] -= len(jobs)
                answers = settlement.settle([Report(j.id, j.fence, done("1")) for j in jobs], "test")
                assert all(isinstance(a, Moved) for a in answers)
                mine += len(jobs)
            return mine
        return run

    assert sum(together([work() for _ in range(4)])) == rounds
    assert worst[0] == 1
    assert Job.objects.filter(state="completed", claims=1, releases=0, interruptions=0).count() == rounds
    assert deadlocks() == before
