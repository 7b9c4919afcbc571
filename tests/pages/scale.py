"""Very many jobs and dead letters by plain SQL, and how long pages take over them.

`python -m tests.pages.scale --jobs 1000000 --letters 100000` makes a test database, fills it, and prints the slowest of
a few looks at each page with its slowest statement; with `--lanes 100000` at the pages of so many lanes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

TENANTS = 200
# A UUIDv7 of so many milliseconds ago: ids of jobs are ordered by time.
_ID = ("encode(set_byte(set_byte(substring(int8send((extract(epoch FROM {at}) * 1000)::bigint) FROM 3) ||"
       " substring(sha256(int8send({n}::bigint)) FROM 1 FOR 10), 6, 112 + {n} % 16), 8, 128 + {n} % 64), 'hex')::uuid")
_AT = "(jobs_now() - ({count} - n) * interval '50 milliseconds' - interval '10 seconds')"
_STATE = """CASE WHEN n <= {letters} THEN 'failed' WHEN n % 50 = 0 THEN 'cancelled' WHEN n % 997 = 0 THEN 'paused'
    WHEN n > {count} - {waiting} THEN 'queued' ELSE 'completed' END"""
_JOBS = """INSERT INTO jobs_job (id, workspace_id, tenant_id, type, version, queue, worker_group, origin, priority,
        input, input_hash, fingerprint, external_id, idempotency_key, singleton, state, reason, gate, available_at,
        created_at, started_at, ended_at, max_attempts, base_delay_ms, max_delay_ms, lapse_counts, max_lapses,
        dead_letter, lease_ms, duration_scope, strict_lease, credential, claims, chain, chain_claims, failures, lapses,
        releases, interruptions, pauses, checkpoint_number, revision, number, head)
    SELECT s.id, {workspace}, {tenant} + s.n % {tenants}, (ARRAY['echo', 'staged', 'breaks', 'sleepy'])[1 + s.n % 4], 1,
        (ARRAY['collect', 'chat', 'steer', 'follow_up'])[1 + s.n % 4], 'default', 'user', 0,
        '{{}}', '\\x00', '\\x00', 'seed-' || s.n, 'key-' || s.n, 'allow', s.state,
        CASE s.state WHEN 'failed' THEN 'attempts_exhausted' WHEN 'cancelled' THEN 'cancelled'
            WHEN 'paused' THEN 'paused' END,
        NULL, s.at, s.at, CASE WHEN s.state NOT IN ('queued', 'paused') THEN s.at END,
        CASE WHEN s.state NOT IN ('queued', 'paused') THEN s.at + interval '2 seconds' END,
        5, 5000, 300000, true, 10, true, 30000, 'attempt', false, 'none', s.ran, 1, s.ran,
        CASE WHEN s.state = 'failed' THEN 1 ELSE 0 END, 0, 0, 0, 0, 0, 1, 1, '\\x00'
    FROM (SELECT n, {at} AS at, {id} AS id, {state} AS state,
        CASE WHEN {state} IN ('queued', 'paused') THEN 0 ELSE 1 END AS ran FROM generate_series(1, {count}) n) s"""
_ATTEMPTS = """INSERT INTO jobs_attempt (id, job_id, number, chain, leased_at, lease_until, ended_at, outcome,
        reason_code, message, retryable)
    SELECT gen_random_uuid(), j.id, 1, 1, j.created_at, j.created_at + interval '30 seconds', j.ended_at,
        CASE j.state WHEN 'failed' THEN 'failed' WHEN 'completed' THEN 'completed' ELSE 'cancelled' END,
        CASE WHEN j.state = 'failed' THEN 'attempt_error' END,
        CASE WHEN j.state = 'failed' THEN 'ValueError: no such file: /data/' || right(j.external_id, 4) END, true
    FROM jobs_job j WHERE j.claims > 0"""
_LETTERS = """INSERT INTO jobs_dead_letter (job_id, workspace_id, tenant_id, type, chain, reason, reason_code,
        attempt_count, opened_at)
    SELECT j.id, j.workspace_id, j.tenant_id, j.type, 1, 'attempts_exhausted', 'attempt_error', 1, j.ended_at
    FROM jobs_job j WHERE j.state = 'failed'"""
_RECEIPTS = """INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)
    SELECT j.id, 1, 'job.enqueued', j.created_at, '{"to":"queued"}', '\\x00' FROM jobs_job j"""
_LINES = """INSERT INTO jobs_claim_line (workspace_id, worker_group, queue, tenant_id)
    SELECT DISTINCT workspace_id, worker_group, queue, tenant_id FROM jobs_job WHERE state = 'queued'"""


def seed(jobs: int, letters: int, waiting: int | None = None) -> None:
    """So many jobs, the oldest of them failed with an open dead letter each, the newest waiting (a fifth of all)."""
    from jobs.services import tenancy

    workspace = tenancy.workspace()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO jobs_tenant (workspace_id, subject, revision, created_at) SELECT %s, 'seed-' || n,"
                       " 0, jobs_now() FROM generate_series(1, %s) n", [workspace.pk, TENANTS])
        cursor.execute("SELECT min(id) FROM jobs_tenant WHERE subject LIKE 'seed-%%'", [])
        at = _AT.format(count=jobs)
        state = _STATE.format(letters=letters, count=jobs, waiting=jobs // 5 if waiting is None else waiting)
        cursor.execute(_JOBS.format(workspace=workspace.pk, tenant=cursor.fetchone()[0], tenants=TENANTS, count=jobs,
                                    at=at, id=_ID.format(at=at, n="n"), state=state))
        for sql in (_ATTEMPTS, _LETTERS, _RECEIPTS, _LINES):
            cursor.execute(sql)
        for table in ("job", "attempt", "dead_letter", "receipt", "claim_line", "tenant"):
            cursor.execute(f"VACUUM (ANALYZE) jobs_{table}")


@contextmanager
def timed() -> Iterator[list[tuple[float, str, Any]]]:
    """The statements of this thread's connection: milliseconds, SQL and parameters."""
    found: list[tuple[float, str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        begin = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            found.append(((time.perf_counter() - begin) * 1000, sql, params))

    with connection.execute_wrapper(note):
        yield found


def reads_all_jobs(sql: str, params: Any) -> bool:
    """Whether the database would read every job for this statement."""
    if not sql.lstrip().startswith("SELECT") or "jobs_job" not in sql:
        return False
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        return any("Seq Scan on jobs_job" in line for line, in cursor.fetchall())


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--lanes", type=int, help="so many lanes, and their pages alone")
    parser.add_argument("--path", action="append", help="a page to look at; default: a few of each")
    said = parser.parse_args()
    from django.test import Client
    from django.test.utils import setup_databases, setup_test_environment, teardown_databases

    from jobs.services import tenancy
    from tests import database
    from tests.pages import lane_seeds
    from tests.pages.people import person

    setup_test_environment()
    made = setup_databases(verbosity=0, interactive=False, aliases=["default"], serialized_aliases=[])
    try:
        tenancy.make_defaults()
        began = time.perf_counter()
        seed(said.jobs, said.letters)
        print(f"{said.jobs:,} jobs and {said.letters:,} dead letters in {time.perf_counter() - began:.0f} s")
        client, operator = Client(), person("operator", superuser=True)
        client.force_login(operator)
        of_lanes = lane_seeds.paths(lane_seeds.seed_for(operator, said.lanes)) if said.lanes else None
        for path in said.path or of_lanes or paths():
            _look(client, path)
    finally:
        database.close()
        teardown_databases(made, verbosity=0)


def paths() -> list[str]:
    """A few looks at each page that there is."""
    newest, oldest, middle = some()
    return ["/", "/workers/", "/dead-letters/", "/jobs/", "/jobs/?state=failed", "/jobs/?state=paused",
            "/jobs/?state=running", "/jobs/?state=queued&type=echo@1", "/jobs/?type=nothing", "/jobs/?reason=nothing",
            "/jobs/?tenant=seed-7", "/jobs/?tenant=seed-7&state=failed", "/jobs/?tenant=seed-7&q=seed-406",
            "/jobs/?q=nothing-like-it", f"/jobs/?q={str(oldest)[-12:]}", f"/jobs/?before={middle}",
            f"/jobs/?after={oldest}", f"/jobs/?after={oldest}&state=paused&reason=nothing",
            f"/jobs/{newest}/", f"/jobs/{oldest}/", f"/jobs/act/?verb=cancel&id={newest}"]


def some() -> tuple[Any, Any, Any]:
    """The newest, the oldest and some job in between."""
    from jobs.models import Job

    ids = Job.objects.order_by("pk").values_list("pk", flat=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM jobs_job TABLESAMPLE SYSTEM (1) LIMIT 1")
        found = cursor.fetchone()
    return ids.last(), ids.first(), found[0] if found else ids.first()


def _look(client: Any, path: str) -> None:
    took, slowest, count, status = 0.0, (0.0, ""), 0, 0
    for _ in range(3):
        with timed() as statements:
            begin = time.perf_counter()
            answer = client.get(path)
            took, status = max(took, (time.perf_counter() - begin) * 1000), answer.status_code
        count = len(statements)
        slowest = max(slowest, *((ms, sql) for ms, sql, _ in statements))
    print(f"{status} {took:7.0f} ms  {count:3} statements, slowest {slowest[0]:6.0f} ms  {path}")
    if slowest[0] > 100:
        print(f"      {slowest[1][:300]}")


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    os.environ.setdefault("JOBS_DEFINITIONS", "jobsite.definitions,tests.definitions")
    import django

    django.setup()
    sys.exit(main())
