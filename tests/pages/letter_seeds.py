"""Dead letters by the thousand: by verbs, with the receipts that a requeue goes on from, or by plain SQL to look at."""

from __future__ import annotations

from typing import Any

from jobs.outcomes import Failed
from jobs.services import intake, settlement
from jobs.services.intake import Options, Request
from jobs.store.claim import claim
from jobs.store.sql import durable
from tests.driver import claimer
from tests.making import default_workspace
from tests.store import noise

BATCH = 500
PLACES = "abcdefghijklmnop"


def by_verbs(number: int, type_: str = "echo", messages: int = 7, tenants: int = 5, **failure: Any) -> None:
    """So many jobs that were enqueued, claimed and failed for good, as the services do it."""
    taker = claimer()
    for first in range(0, number, BATCH):
        some = range(first, min(number, first + BATCH))
        intake.enqueue_many([Request(type_, {}, Options(tenant=f"tenant-{n % tenants}")) for n in some])
        taken = durable(lambda: claim(taker, BATCH)).jobs
        settlement.settle([settlement.Report(job.id, job.fence, Failed(
            failure.get("code", "upstream_refused"), f"upstream {PLACES[n % messages]} refused job {n}: 503", False))
            for n, job in enumerate(taken)], taker.by)


def by_sql(number: int, clusters: int, tenants: int = 200) -> None:
    """So many open letters in so many clusters, of jobs without receipts: to be listed and counted only."""
    place = default_workspace().pk
    first = noise.tenants(tenants, place, f"t{clusters}-")
    noise.jobs(number, place, f"{first} + n % {tenants}", state="failed", ended="jobs_now()")
    noise.execute(f"""INSERT INTO jobs_dead_letter (job_id, workspace_id, tenant_id, type, version, house, chain,
            reason, reason_code, error, cluster, attempt_count, opened_at)
        SELECT job.id, job.workspace_id, job.tenant_id, job.type, 1, false, 1, 'terminal_error', 'attempt_error',
            'it broke in place ' || (n * 7919) % {clusters}, left(md5(((n * 7919) % {clusters})::text), 16), 1,
            jobs_now() - ({number} - n) * interval '0.1 second'
        FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM jobs_job WHERE state = 'failed'
            AND tenant_id >= {first} AND tenant_id < {first} + {tenants}) job""")
