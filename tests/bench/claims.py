"""Claims of a few jobs under each noise: the time of the claim's statements, and the buffers that they touch."""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections.abc import Iterator
from typing import Any

from django.db import connection

from jobs.store import claim as claims
from jobs.store import rotation
from jobs.store.claim import Claimer
from jobs.store.sql import durable
from tests.bench import noise

ROUNDS = 100
WARM_UP = 60
WARM_UP_MOST = 2_000


def measure(batch: int, scale: float, only: str | None) -> Iterator[dict[str, Any]]:
    """One row of figures a noise, the first of them for none."""
    wanted = only.split(",") if only else [*noise.NOISES, "all"]
    base: dict[str, float] = {}
    for name in ["empty", *wanted]:
        noise.empty()
        for part in noise.NOISES if name == "all" else [name]:
            if part != "empty":
                noise.NOISES[part](int(noise.SIZES[part] * scale))
        noise.lines()
        figures = _claims(batch)
        base = base or figures
        yield {"noise": name, **figures, "time_ratio": round(figures["p50_ms"] / base["p50_ms"], 2),
               "buffers_ratio": round(figures["buffers_job"] / base["buffers_job"], 2)}


def _claimer() -> Claimer:
    worker = str(uuid.uuid4())
    return Claimer(pairs=[("default", "collect")], by=f"worker:{worker}", worker_id=worker)


def _claims(batch: int) -> dict[str, float]:
    claimer = _claimer()
    _warm_up(claimer, batch)
    took, got = [], 0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        got += len(durable(lambda: claims.claim(claimer, batch)).jobs)
        took.append(time.perf_counter() - began)
    took.sort()
    buffers, jobs = _buffers(claimer, batch)
    return {"p50_ms": round(took[len(took) // 2] * 1000, 2), "p95_ms": round(took[int(len(took) * 0.95)] * 1000, 2),
            "p99_ms": round(took[-1] * 1000, 2), "jobs_claim": round(got / ROUNDS, 1),
            "buffers_job": round(buffers / max(jobs, 1), 1)}


def _warm_up(claimer: Claimer, batch: int) -> None:
    """Claims until they come back full many times in a row: every full tenant has been met and parked by then."""
    streak = 0
    for _ in range(WARM_UP_MOST):
        full = len(durable(lambda: claims.claim(claimer, batch)).jobs) == batch
        streak = streak + 1 if full else 0
        if streak == WARM_UP:
            return


def _buffers(claimer: Claimer, batch: int) -> tuple[float, float]:
    """Buffers touched by the statements of a claim, by EXPLAIN of each as it is run; medians of nine."""
    seen: list[int] = []
    jobs: list[int] = []
    run = claims.rows
    total = 0

    def explained(sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        nonlocal total
        with connection.cursor() as cursor:
            cursor.execute("SAVEPOINT look")
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + sql, params)
            plan = cursor.fetchone()[0]
            plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
            cursor.execute("ROLLBACK TO SAVEPOINT look")
        total += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return run(sql, params)

    claims.rows = rotation.rows = explained
    try:
        for _ in range(9):
            total = 0
            jobs.append(len(durable(lambda: claims.claim(claimer, batch)).jobs))
            seen.append(total)
    finally:
        claims.rows = rotation.rows = run
    return statistics.median(seen), statistics.median(jobs)
