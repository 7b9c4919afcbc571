"""What may lie around a claim: backlogs, schedules, history, capped tenants, full groups, many tenants (CLAIM).

Rows are made by plain SQL, shaped and gated as enqueue would have left them.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection

from jobs.services import tenancy

TENANTS = 20
_COLUMNS = """id, workspace_id, tenant_id, type, version, queue, worker_group, origin, priority, input, input_hash,
    fingerprint, singleton, state, gate, available_at, created_at, base_delay_ms, max_delay_ms, lapse_counts,
    max_lapses, dead_letter, lease_ms, duration_scope, strict_lease, credential, claims, chain,
    chain_claims, failures, lapses,
    releases, interruptions, pauses, checkpoint_number, revision, number, head, attempt_id, ended_at, exclusive_group"""
_ROW = """gen_random_uuid(), {workspace}, {tenant}, 'noop', 1, {queue}, {group}, 'user', {priority}, '{{}}', ''::bytea,
    ''::bytea, 'allow', {state}, {gate}, {at}, jobs_now(), 5000, 300000, true, 10, true, 30000, 'attempt', false,
    'none', 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, ''::bytea, {attempt}, {ended}, {exclusive}"""
SOON = "jobs_now() - interval '1 second' + i * interval '1 microsecond'"


def run(sql: str) -> None:
    """One statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql)


def jobs(n: int, tenant: str, *, queue: str = "'collect'", group: str = "'default'", priority: int = 0, at: str = SOON,
         gate: str = "NULL", state: str = "'queued'", attempt: str = "NULL::uuid", ended: str = "NULL::timestamptz",
         exclusive: str = "NULL") -> None:
    """n jobs; `tenant` may be an expression over i."""
    row = _ROW.format(workspace=1, tenant=tenant, queue=queue, group=group, priority=priority, state=state, gate=gate,
                      at=at, attempt=attempt, ended=ended, exclusive=exclusive)
    run(f"INSERT INTO jobs_job ({_COLUMNS}) SELECT {row} FROM generate_series(1, {n}) i")


def tenants(n: int, first: int) -> None:
    """n tenants with ids from `first` on."""
    run(f"""INSERT INTO jobs_tenant (id, workspace_id, subject, revision, created_at)
        SELECT {first} + i - 1, 1, 'tenant ' || ({first} + i - 1), 0, jobs_now() FROM generate_series(1, {n}) i
        ON CONFLICT DO NOTHING""")


def live(tenant: str, n: int, key: str, exclusive: str = "NULL") -> None:
    """n live attempts that count under a cap; `tenant` is an expression over i, `key` one over j."""
    row = _ROW.format(workspace=1, tenant=tenant, queue="'collect'", group="'default'", priority=0, state="'leased'",
                      gate="NULL", at=SOON, attempt="gen_random_uuid()", ended="NULL::timestamptz", exclusive=exclusive)
    run(f"""WITH j AS (INSERT INTO jobs_job ({_COLUMNS}) SELECT {row} FROM generate_series(1, {n}) i
            RETURNING id, attempt_id, tenant_id),
        a AS (INSERT INTO jobs_attempt (id, job_id, number, chain, leased_at, lease_until)
            SELECT attempt_id, id, 1, 1, jobs_now(), jobs_now() + interval '1 day' FROM j)
        INSERT INTO jobs_attempt_cap (attempt_id, cap_key) SELECT attempt_id, hashtextextended({key}, 0) FROM j""")


def cap(tenant: str, n: int, most: int) -> None:
    """Concurrency caps of tenants; `tenant` may be an expression over i."""
    run(f"""INSERT INTO jobs_limits (workspace_id, tenant_id, tenant_concurrency, updated_at)
        SELECT 1, {tenant}, {most}, jobs_now() FROM generate_series(1, {n}) i""")


def lines() -> None:
    """Open the lines that enqueue would have opened, and look at the tables as a site that runs has."""
    run("""INSERT INTO jobs_claim_line (workspace_id, worker_group, queue, tenant_id)
        SELECT DISTINCT workspace_id, worker_group, queue, tenant_id FROM jobs_job
        WHERE state = 'queued' AND gate IS NULL""")
    for table in ("jobs_job", "jobs_attempt", "jobs_claim_line", "jobs_attempt_cap"):
        run(f"ANALYZE {table}")


def empty() -> None:
    """Nothing but 20 tenants with 800 jobs each."""
    names = ("job", "attempt", "attempt_cap", "receipt", "artifact", "claim_line", "limits", "tenant", "command",
             "dead_letter", "target", "key")
    run(f"TRUNCATE {', '.join('jobs_' + name for name in names)} RESTART IDENTITY CASCADE")
    tenancy.make_defaults()
    tenants(TENANTS, 2)
    run("SELECT setval(pg_get_serial_sequence('jobs_tenant', 'id'), 1000000)")
    run("INSERT INTO jobs_limits (workspace_id, exclusive_group_max, updated_at) VALUES (1, 1, jobs_now())")
    jobs(16_000, f"2 + i % {TENANTS}")


def backlog(n: int) -> None:
    """One tenant's backlog."""
    jobs(n, "5")


def scheduled(n: int) -> None:
    """Jobs due tomorrow, of a higher priority."""
    jobs(n, f"2 + i % {TENANTS}", priority=50, at="jobs_now() + interval '1 day'", gate="'scheduled'")


def finished(n: int) -> None:
    """History."""
    jobs(n, f"2 + i % {TENANTS}", state="'completed'", ended="jobs_now()")


def capped(n: int) -> None:
    """A tenant at its cap with a backlog at the head."""
    tenants(1, 100)
    cap("100", 1, 2)
    live("100", 2, "'tenant:100'")
    jobs(n, "100", priority=100)


def group(n: int) -> None:
    """A full exclusive group with a backlog at the head."""
    live("5", 1, "'group:5:x'", exclusive="'x'")
    jobs(n, "5", priority=100, gate="'exclusive'", exclusive="'x'")


def many(n: int) -> None:
    """Many tenants with one job each."""
    tenants(n, 10_000)
    jobs(n, "9999 + i")


def many_capped(n: int) -> None:
    """Many tenants, all but ten at their cap."""
    tenants(n, 30_000)
    cap("29999 + i", n - 10, 1)
    live("29999 + i", n - 10, "'tenant:' || j.tenant_id")
    jobs(5 * n, f"30000 + i % {n}")


def others(n: int) -> None:
    """Other queues and worker groups."""
    jobs(n // 2, f"2 + i % {TENANTS}", queue="'chat'")
    jobs(n // 2, f"2 + i % {TENANTS}", group="'codex'")


NOISES: dict[str, Callable[[int], None]] = {
    "backlog": backlog, "scheduled": scheduled, "finished": finished, "capped": capped, "group": group,
    "tenants": many, "tenants_capped": many_capped, "others": others,
}
SIZES = {"backlog": 200_000, "scheduled": 200_000, "finished": 1_000_000, "capped": 100_000, "group": 100_000,
         "tenants": 10_000, "tenants_capped": 10_000, "others": 200_000}
