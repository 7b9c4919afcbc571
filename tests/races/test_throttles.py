"""Sixteen claimers against caps and pauses of queues, worker groups and types: none over, none lost, none late."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import transaction

from jobs.models import Attempt, AttemptCap, Job
from jobs.services import throttles
from jobs.services.recovery import Repair
from jobs.store.claim import Claimed, claim
from jobs.store.sql import durable
from tests.driver import claimer
from tests.making import default_workspace, tenant_id
from tests.races.test_claims import WORKERS, Watch, bulk, finish
from tests.races.threads import LONG, deadlocks, together

ROUNDS = 400 if LONG else 40
JOBS = 1_500
CAPS = {"queue": ("collect", 3), "worker_group": ("default", 4), "type": ("echo", 2)}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]


def _claimers(watch: Watch) -> None:
    def work(w: int) -> Callable[[], None]:
        def run() -> None:
            by, held = claimer(), []
            for n in range(ROUNDS):
                jobs = durable(lambda slots=1 + (w + n) % 4: claim(by, slots)).jobs
                watch.begin(["all"] * len(jobs))
                held += jobs
                if (w + n) % 3:
                    # Before the settle: the database may free a place that we still count.
                    watch.end(["all"] * len(held))
                    finish(held)
                    held = []
            watch.end(["all"] * len(held))
            finish(held)
        return run

    together([work(w) for w in range(WORKERS)])


@pytest.mark.parametrize("kind", [*CAPS, "all"])
def test_no_cap_is_exceeded_by_sixteen_claimers_and_no_slot_is_lost(kind: str) -> None:
    """C9, E14.8, E14.9: 0 over while settles race with claims; afterwards exactly what is free is filled."""
    caps = CAPS if kind == "all" else {kind: CAPS[kind]}
    for n, (of, (name, most)) in enumerate(caps.items()):
        throttles.cap(of, name, most, by="test", workspace=default_workspace() if n % 2 else None)
    least = min(most for _, most in caps.values())
    ids = bulk(WORKERS * ROUNDS, tenant=lambda n: f"t{n % 5}", priority=lambda n: n % 3)
    watch, before = Watch(), deadlocks()
    _claimers(watch)
    assert 0 < watch.most["all"] <= least
    assert AttemptCap.objects.count() == 0
    _drain(least, len(ids))
    assert deadlocks() == before


def _drain(most: int, count: int) -> None:
    """A quiet claimer fills what is free until 40 more are done, and all of the rest once the caps are gone."""
    by, repair = claimer(), Repair()
    for _ in range(20):
        waiting = Job.objects.filter(state="queued").count()
        jobs: list[Claimed] = []
        for _ in range(6):
            jobs += durable(lambda: claim(by, 50)).jobs
            repair.tick()
        assert len(jobs) == min(most, waiting)
        finish(jobs)
    for row in throttles.listed():
        throttles.remove(row.kind, row.name, by="test", workspace=row.workspace)
    while Job.objects.filter(state="queued").exists():
        repair.tick()
        jobs = durable(lambda: claim(by, 500)).jobs
        assert jobs or repair.tick()
        finish(jobs)
    assert Job.objects.filter(state="completed").count() == count == Attempt.objects.count()


@pytest.mark.parametrize("kind", ["queue", "worker_group", "type", "tenant"])
def test_nothing_begins_after_the_commit_of_a_pause(kind: str) -> None:
    """C9, E14.8: 16 claimers, 6 pauses; whoever begins to claim after the commit gets nothing, until it is resumed."""
    name = {**{k: v for k, (v, _) in CAPS.items()}, "tenant": "t"}[kind]
    tenant_id("t")
    bulk(JOBS, tenant="t")
    # Odd while it is paused.
    turn, stop, late, taken = [0], threading.Event(), [], []

    def work() -> None:
        by = claimer()
        while not stop.is_set():
            began = turn[0]
            jobs = durable(lambda: claim(by, 2)).jobs
            taken.extend(jobs)
            if began % 2 and turn[0] == began:
                late.extend(jobs)
            finish(jobs)

    def switch() -> None:
        place = default_workspace()
        try:
            for _ in range(6):
                with transaction.atomic():
                    throttles.pause(kind, name, by="test", reason="stop", workspace=place)
                seen = len(taken)
                turn[0] += 1
                # As long as a few claims take.
                for _ in range(5):
                    assert durable(lambda: claim(claimer(), 2)).jobs == []
                turn[0] += 1
                throttles.resume(kind, name, by="test", workspace=place)
                before = len(taken)
                assert before >= seen
                for _ in range(200):
                    Repair().tick()
                    if len(taken) > before:
                        break
                else:
                    raise AssertionError("nothing begins after a resume")
        finally:
            stop.set()

    together([switch, *([work] * WORKERS)])
    assert late == []
    by = claimer()
    while Job.objects.filter(state="queued").exists():
        Repair().tick()
        finish(durable(lambda: claim(by, 500)).jobs)
    assert Job.objects.filter(state="completed").count() == JOBS
