"""Bulk operations at length: `python -m tests.services.bulk_scale [--verb cancel|requeue] [--number N]`, one JSON line.

Seconds, the longest batch, and how long a claim takes meanwhile. Needs a DATABASE_URL, on whose server it makes a
database of its own; the suite has the short form.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from typing import Any

from tests.bench import site


def claiming(ended: threading.Event, spans: list[float]) -> None:
    """Claim one job at a time until the end, and keep it."""
    from django.db import connection

    from jobs.store.claim import claim
    from jobs.store.sql import durable
    from tests.driver import claimer

    taker = claimer()
    while not ended.wait(0.01):
        began = time.perf_counter()
        durable(lambda: claim(taker, 1))
        spans.append(1_000 * (time.perf_counter() - began))
    connection.close()


def measured(verb: str) -> dict[str, Any]:
    """Do it to all that there is, in this process, beside one that claims."""
    from jobs.services import operations
    from jobs.services.operations import JobMatch, Match
    from jobs.services.triage import Triage

    match = Match() if verb in operations.VERBS else JobMatch(states=("queued",))
    began = time.perf_counter()
    asked = operations.begin(verb, match, by="user:scale", reason="scale")
    begun = time.perf_counter() - began
    ended, spans, batches, duty = threading.Event(), [0.0], [0.0], Triage()
    beside = threading.Thread(target=claiming, args=(ended, spans))
    beside.start()
    try:
        while not asked.ended:
            at = time.perf_counter()
            duty.carry_on(asked.pk)
            batches.append(1_000 * (time.perf_counter() - at))
            asked.refresh_from_db()
    finally:
        seconds = time.perf_counter() - began
        ended.set()
        beside.join()
    spans.sort()
    return {"verb": verb, "done": asked.done, "skipped": asked.skipped, "end": asked.end, "seconds": round(seconds, 1),
            "a_second": round(asked.looked_at / seconds), "begin_ms": round(1_000 * begun),
            "longest_batch_ms": round(max(batches)), "claims": len(spans),
            "claim_p95_ms": round(spans[int(0.95 * (len(spans) - 1))], 1), "claim_longest_ms": round(spans[-1], 1)}


def main() -> None:
    """Seed and measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verb", choices=["cancel", "pause", "requeue", "discard"], default="cancel")
    parser.add_argument("--number", type=int, default=100_000)
    said = parser.parse_args()
    site.NAME = "jobs_bulk_scale"
    site.prepare()
    from jobs.services import intake, tenancy
    from jobs.services.intake import Options, Request
    from tests.pages.letter_seeds import by_verbs
    from tests.store import noise

    tenancy.workspace()
    if said.verb in ("requeue", "discard"):
        by_verbs(said.number, "noop", messages=16, tenants=200)
    else:
        for first in range(0, said.number, 500):
            intake.enqueue_many([Request("noop", {}, Options(tenant=f"t{n % 200}")) for n in range(first, first + 500)])
    noise.execute("ANALYZE")
    print(json.dumps(measured(said.verb)))


if __name__ == "__main__":
    main()
