"""How evenly tenants have their turns, and how long one job waits behind the backlog of another tenant (C4)."""

from __future__ import annotations

import itertools
import statistics
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.db import connections

from jobs.services import intake
from jobs.store import claim as claims
from jobs.store.claim import Claimer
from jobs.store.sql import durable
from tests.bench import noise

TENANTS, CLAIMERS = (2, 10, 100), (1, 16)
FIRST = 1_000
SINGLES = 20
ROUNDS = 3


def measure(starts: int, backlog: int) -> Iterator[dict[str, Any]]:
    """A row of figures for each number of tenants and claimers, then for single jobs behind `backlog` of another."""
    for tenants, claimers in itertools.product(TENANTS, CLAIMERS):
        noise.empty()
        noise.run("DELETE FROM jobs_job")
        noise.tenants(tenants, FIRST)
        # Uneven backlogs: the first has ten times what each of the others has.
        # Each claimer begins somewhere: less than some rounds of each would measure that alone.
        drawn = max(starts, ROUNDS * tenants * claimers)
        each = 2 * drawn // tenants + 2 * claimers
        noise.jobs(each * tenants, f"{FIRST} + i % {tenants}")
        noise.jobs(9 * each, str(FIRST))
        noise.lines()
        yield _shares(_drawn(claimers, drawn), tenants, claimers)
    for claimers in CLAIMERS:
        noise.empty()
        noise.run("DELETE FROM jobs_job")
        noise.tenants(1, FIRST)
        noise.jobs(backlog, str(FIRST), priority=100)
        noise.lines()
        yield _delays(claimers, backlog)


def _claimer() -> Claimer:
    worker = str(uuid.uuid4())
    return Claimer(pairs=[("default", "collect")], by=f"worker:{worker}", worker_id=worker)


def _shares(order: list[tuple[int, int]], tenants: int, claimers: int) -> dict[str, Any]:
    counts = Counter(tenant for _, tenant in order)
    ideal = len(order) / tenants
    shares = [counts.get(FIRST + n, 0) / ideal for n in range(tenants)]
    return {"what": "shares", "tenants": tenants, "claimers": claimers, "starts": len(order), "ideal_share": ideal,
            "least_of_ideal": round(min(shares), 3), "most_of_ideal": round(max(shares), 3),
            "flood_of_ideal": round(shares[0], 3),
            "most_off_in_jobs": round(max(abs(s - 1) * ideal for s in shares), 1)}


def _drawn(claimers: int, starts: int) -> list[tuple[int, int]]:
    """So many claims of one job each, by threads with a cursor and a connection each: (moment, tenant) in order."""
    found: list[tuple[int, int]] = []
    left = threading.Semaphore(starts)

    def run() -> None:
        by = _claimer()
        try:
            while left.acquire(blocking=False):
                found.extend((job.leased_us, job.tenant_id) for job in durable(lambda: claims.claim(by, 1)).jobs)
        finally:
            connections.close_all()

    _together(claimers, run)
    return sorted(found)


def _together(count: int, run: Any) -> None:
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _delays(claimers: int, backlog: int) -> dict[str, Any]:
    """How many jobs of the flood began between the enqueue of a single job and its start, over rounds of claimers."""
    stop = threading.Event()
    order: list[tuple[int, str]] = []

    def run() -> None:
        by = _claimer()
        try:
            while not stop.is_set():
                order.extend((job.leased_us, job.id) for job in durable(lambda: claims.claim(by, 1)).jobs)
        finally:
            connections.close_all()

    singles: dict[str, int] = {}
    threads = [threading.Thread(target=run) for _ in range(claimers)]
    for thread in threads:
        thread.start()
    for n in range(SINGLES):
        stop.wait(0.2)
        id_ = intake.enqueue("noop", {}, tenant=f"single{n}", priority=-100).id
        singles[id_] = _now_us()
    stop.wait(2.0)
    stop.set()
    for thread in threads:
        thread.join()
    starts = {id_: us for us, id_ in order if id_ in singles}
    turns = [sum(1 for us, id_ in order if singles[one] < us < at and id_ not in singles) / claimers
             for one, at in starts.items()]
    waits = [(at - singles[one]) / 1_000 for one, at in starts.items()]
    return {"what": "single", "claimers": claimers, "waiting": backlog, "singles": SINGLES,
            "lost": SINGLES - len(starts),
            "turns_p50": round(statistics.median(turns), 2), "turns_most": round(max(turns), 2),
            "ms_p50": round(statistics.median(waits), 1), "ms_most": round(max(waits), 1)}


def _now_us() -> int:
    from jobs import clock

    return clock.micros(clock.now()) or 0
