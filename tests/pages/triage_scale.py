"""Triage at length: `python -m tests.pages.triage_scale [--letters 100000] [--jobs 1000000] [--verb requeue]`.

Makes the letters by verbs in a database of its own, looks at each page, answers all of them in bulk while a worker
drains what comes back and the pages are asked for again and again, and prints what it took as one JSON line.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import urllib.request
import uuid
from collections import defaultdict
from typing import Any

from tests.bench import site

LETTERS = "/dead-letters/"
# How long a worker went without a claim of what came back.
GAP = """SELECT coalesce(max(extract(epoch FROM gap)), 0) FROM (
    SELECT leased_at - lag(leased_at) OVER (ORDER BY leased_at) AS gap FROM jobs_attempt WHERE chain = 2) g"""


class Pages:
    """The pages as a signed-in person's browser asks for them; the longest answer of each, in seconds."""

    def __init__(self, port: int, cookie: str) -> None:
        self.url, self.cookie = f"http://127.0.0.1:{port}", cookie
        self.longest: dict[str, float] = defaultdict(float)

    def get(self, name: str, path: str) -> str:
        """Ask for it once."""
        request = urllib.request.Request(self.url + path, headers={"Cookie": f"sessionid={self.cookie}"})
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: str = answer.read().decode()
        self.longest[name] = max(self.longest[name], time.perf_counter() - began)
        return text

    def look(self, when: str, more: dict[str, str]) -> None:
        """All that somebody at triage looks at."""
        cluster = re.search(r"cluster=([0-9a-f]{16})", self.get(f"{when} clusters", LETTERS))
        self.get(f"{when} list", f"{LETTERS}list/")
        if cluster:
            self.get(f"{when} cluster", f"{LETTERS}list/?cluster={cluster[1]}")
            self.get(f"{when} preview", f"{LETTERS}answer/?verb=requeue&cluster={cluster[1]}")
        self.get(f"{when} preview of all", f"{LETTERS}answer/?verb=requeue")
        for name, path in more.items():
            self.get(f"{when} {name}", path)


def seed(said: argparse.Namespace) -> float:
    """The letters, and ended jobs beside them; seconds."""
    from tests.making import tenant_id
    from tests.pages.letter_seeds import by_verbs
    from tests.store import noise

    began = time.perf_counter()
    by_verbs(said.letters, "noop", messages=16, tenants=200)
    if said.jobs:
        from jobs.services import tenancy

        noise.jobs(said.jobs, tenancy.workspace().pk, tenant_id(), state="completed", ended="jobs_now()")
    return time.perf_counter() - began


def answered(pages: Pages, pk: int) -> float:
    """Watch until the bulk answer has ended; seconds."""
    from jobs.models import BulkOperation

    began = time.perf_counter()
    while not BulkOperation.objects.get(pk=pk).ended:
        pages.look("busy", {"progress": f"{LETTERS}answers/{pk}/"})
        time.sleep(0.5)
        if time.perf_counter() - began > 600:
            raise SystemExit("it takes too long")
    done = BulkOperation.objects.get(pk=pk)
    assert done.ended_at is not None
    return (done.ended_at - done.created_at).total_seconds()


def run(said: argparse.Namespace) -> dict[str, Any]:
    """Seed, look, answer, count."""
    from django.db import connection

    from jobs.models import BulkOperation, DeadLetter, Receipt
    from jobs.services import operations
    from jobs.services.operations import Match
    from tests import database as db
    from tests.pages.people import person
    from tests.pages.site import serving, session_cookie

    seeded = seed(said)
    with serving() as port:
        pages = Pages(port, session_cookie(person("operator", superuser=True)))
        for _ in range(3):
            pages.look("idle", {})
        asked = operations.begin(said.verb, Match(), by="user:operator", reason="scale", token=uuid.uuid4())
        with site.workers(1, said.slots):
            seconds = answered(pages, asked.pk)
            if said.verb == "requeue":
                time.sleep(2)
    asked = BulkOperation.objects.get(pk=asked.pk)
    kind = "job.requeued" if said.verb == "requeue" else "job.discarded"
    connection.close()
    return {
        "verb": said.verb, "letters": said.letters, "other_jobs": said.jobs, "seed_s": round(seeded, 1),
        "seconds": round(seconds, 1), "a_second": round(asked.done / seconds), "shown_done": asked.done,
        "done": DeadLetter.objects.filter(bulk_id=asked.pk).count(),
        "receipts": Receipt.objects.filter(kind=kind).count(),
        "skipped": asked.skipped, "end": asked.end, "claimed_meanwhile": db.rows(
            "SELECT count(*) FROM jobs_attempt WHERE chain = 2")[0][0],
        "longest_without_a_claim_s": round(float(db.rows(GAP)[0][0]), 2),
        "longest_page_ms": {name: round(1000 * s) for name, s in sorted(pages.longest.items())}}


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=0, help="ended jobs beside them")
    parser.add_argument("--verb", choices=["requeue", "discard"], default="requeue")
    parser.add_argument("--slots", type=int, default=16)
    said = parser.parse_args()
    site.NAME = "jobs_triage_scale"
    site.prepare()
    print(json.dumps(run(said)))


if __name__ == "__main__":
    main()
