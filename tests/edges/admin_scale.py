"""The admin with many rows, at length: `python -m tests.edges.admin_scale [JOBS [LETTERS]]`, one JSON line a page.

Makes the test database anew and leaves it; the suite runs the same pages on 100,000 jobs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

LIMIT_MS = 300
# Pages of an empty search, each filter, the pages behind the first, each level of dates.
LISTS = ["job/", "job/?state=completed", "job/?state=failed", "job/?state=paused", "job/?state=running",
         "job/?state=queued&type=echo", "job/?type=echo", "job/?type=gone", "job/?queue=chat", "job/?group=nobody",
         "job/?reason=terminal_error", "job/?workspace=1", "job/?tenant=1", "job/?tenant=1&state=failed",
         "job/?q=nothing-like-it", "job/?q=key-77", "job/?q=caller-88", "job/?q=%00", "deadletter/",
         "deadletter/?answer=open", "deadletter/?answer=requeued", "deadletter/?reason=quarantined",
         "deadletter/?type=gone", "deadletter/?q=key-77", "attempt/", "attempt/?outcome=live",
         "attempt/?outcome=lapsed", "artifact/",
         "command/", "target/", "tenant/", "workspace/", "claimline/", "worker/", "leader/", "limits/",
         "key/"]


def pages(client: Any) -> Iterator[tuple[str, Any, float, list[tuple[str, Any]]]]:
    """Every page with its answer, its milliseconds (the better of two) and its statements."""
    from django.db import connection

    from jobs.models import Attempt, DeadLetter, Job
    from tests.making import statements

    last = Job.objects.order_by("-pk").first()
    middle = Job.objects.order_by("pk").values_list("pk", flat=True)[Job.objects.count() // 2]
    day = last.created_at
    paths = [*LISTS, f"job/?older={middle}", f"job/?newer={middle}", f"job/?older={middle}&state=failed",
             f"job/?newer={middle}&state=paused", f"job/?created={day:%Y}", f"job/?created={day:%Y-%m}",
             f"job/?created={day:%Y-%m-%d}", f"job/?created={day:%Y-%m-%d}&state=failed",
             f"job/?created={day:%Y-%m-%d-%H}", f"job/?q={last.pk}", f"job/{last.pk}/change/",
             f"job/{last.pk}/history/",
             f"deadletter/?older={DeadLetter.objects.count() // 2}",
             f"deadletter/{DeadLetter.objects.values_list('pk', flat=True).first()}/change/",
             f"attempt/{Attempt.objects.filter(job_id=last.pk).get().pk}/change/"]
    for path in paths:
        best = 1e9
        for _ in range(2):
            with statements() as found:
                begun = time.perf_counter()
                answer = client.get(f"/admin/jobs/{path}")
                best = min(best, (time.perf_counter() - begun) * 1_000)
        yield path, answer, best, found
    connection.close()


def main(jobs: int = 1_000_000, letters: int = 100_000) -> int:
    """Seed, ask for every page, print a line each; 1 if one was too slow or refused."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    os.environ.setdefault("JOBS_DEFINITIONS", "jobsite.definitions,tests.definitions")
    import django

    django.setup()
    from django.test.utils import setup_databases, setup_test_environment

    setup_test_environment()
    setup_databases(verbosity=0, interactive=False, serialized_aliases=[])
    from tests.edges.admin_people import seed, somebody

    seed(jobs, letters)
    worst = 0.0
    refused = False
    for path, answer, ms, found in pages(somebody("root")):
        worst, refused = max(worst, ms), refused or answer.status_code != 200
        print(json.dumps({"page": path, "status": answer.status_code, "ms": round(ms, 1), "statements": len(found)}))
    print(json.dumps({"jobs": jobs, "letters": letters, "worst_ms": round(worst, 1), "limit_ms": LIMIT_MS}))
    return int(refused or worst > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
