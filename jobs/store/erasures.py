"""The rows of erasures and the marks of a tenant that goes: carried on by one process at a time, counted by batch.

Who carries one on holds an advisory lock, and writes guarded by where the batch began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from jobs.store import erase
from jobs.store.sql import array, packed, rows, run

_LOCKS = 5
_HOLD = f"""SELECT pg_try_advisory_xact_lock({_LOCKS}, (%s::bigint %% 2147483647)::int)"""
_NEXT = "SELECT id FROM jobs_erasure WHERE ended_at IS NULL AND id > %s ORDER BY id LIMIT 1"
_READ = """SELECT tenant_id, verb, by, reason, phase, coalesce(after, '00000000-0000-0000-0000-000000000000')::text,
        unfinished, wait_until IS NOT NULL AND wait_until > jobs_now(),
        created_at < jobs_now() - %s::bigint * interval '1 ms', counts::text
    FROM jobs_erasure WHERE id = %s AND ended_at IS NULL"""
_ADVANCE = """UPDATE jobs_erasure SET phase = %s, after = %s::uuid, unfinished = %s, counts = %s::jsonb,
    moved_at = jobs_now() WHERE id = %s AND ended_at IS NULL"""
_WAIT = """UPDATE jobs_erasure SET wait_until = greatest(wait_until, jobs_now() + %s::bigint * interval '1 ms')
    WHERE id = %s"""
_END = """UPDATE jobs_erasure SET ended_at = jobs_now(), "end" = %s WHERE id = %s AND ended_at IS NULL"""
_MARK = """UPDATE jobs_tenant SET deleting_at = coalesce(deleting_at, jobs_now()),
    archived_at = coalesce(archived_at, jobs_now()) WHERE id = %s AND subject IS NOT NULL"""
_PARK = """UPDATE jobs_claim_line SET parked = 'deleting' WHERE id IN (SELECT x.id FROM jobs_claim_line x
    WHERE x.tenant_id = %s AND x.parked IS DISTINCT FROM 'deleting' FOR NO KEY UPDATE SKIP LOCKED)"""
# By the index of live attempts: a tenant may have had a million jobs.
_LIVE = """SELECT job.id::text, job.lease_ms FROM jobs_attempt a JOIN jobs_job job ON job.id = a.job_id
    WHERE a.ended_at IS NULL AND job.tenant_id = %s ORDER BY job.id LIMIT {limit}
    FOR NO KEY UPDATE OF job SKIP LOCKED"""
_LOOK = """SELECT s.id::text, s.ended_at IS NULL FROM (SELECT id, ended_at FROM jobs_job
    WHERE tenant_id = %s AND id > %s::uuid ORDER BY id LIMIT {limit}) s ORDER BY s.id"""
_FREE = f"SELECT id::text FROM jobs_job WHERE id = ANY({array('uuid')}) AND ended_at IS NULL" \
    " ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"


class Open(NamedTuple):
    """An erasure that has not ended. `waits`: for holders; `patience_over`: untold ends are waited for no longer."""

    tenant_id: int
    verb: str
    by: str
    reason: str
    phase: str
    after: str
    unfinished: bool
    waits: bool
    patience_over: bool
    counts: dict[str, int]


def following(after: int) -> int | None:
    """The open erasure that comes after this one, if there is one."""
    found = rows(_NEXT, [after])
    return int(found[0][0]) if found else None


def hold(pk: int) -> bool:
    """Keep others off this one until the commit; false while another process is at it."""
    return bool(rows(_HOLD, [pk])[0][0])


def read(pk: int, patience_ms: int) -> Open | None:
    """How it stands; None where it has ended."""
    found = rows(_READ, [patience_ms, pk])
    return Open._make([*found[0][:-1], json.loads(found[0][-1])]) if found else None


def advance(pk: int, phase: str, after: str | None, unfinished: bool, counts: Mapping[str, int]) -> None:
    """Note a batch, in its own transaction."""
    run(_ADVANCE, [phase, after, unfinished, json.dumps(counts, sort_keys=True), pk])


def wait(pk: int, ms: int) -> None:
    """Not before so long from now are rows deleted."""
    run(_WAIT, [ms, pk])


def end(pk: int, word: str) -> bool:
    """It goes on no more; false where it had ended."""
    return run(_END, [word, pk]) == 1


def mark(tenant_id: int) -> bool:
    """Take no jobs for this tenant and claim none any more; false for one without a subject, and for one that is gone.

    The claim pays nothing for it: the tenant's lines are out of the rotation.
    """
    done = run(_MARK, [tenant_id]) == 1
    park(tenant_id)
    return done


def park(tenant_id: int) -> None:
    """Take the tenant's lines out of the rotation, those too that were opened since."""
    run(_PARK, [tenant_id])


def live(tenant_id: int, limit: int) -> list[tuple[str, int]]:
    """Jobs of the tenant that somebody holds, locked, with their leases in milliseconds; locked ones are left out."""
    return [(id_, int(ms)) for id_, ms in rows(_LIVE.format(limit=int(limit)), [tenant_id])]


def active(tenant_id: int, after: str, limit: int, batch: int) -> tuple[list[str], str | None]:
    """Jobs of the tenant behind this one that have not ended, locked, at most a batch; and the last one seen."""
    seen = rows(_LOOK.format(limit=int(limit)), [tenant_id, after])
    wanted = [id_ for id_, is_active in seen if is_active][:batch]
    last = wanted[-1] if len(wanted) == batch else seen[-1][0] if seen else None
    return [r[0] for r in rows(_FREE, [packed(wanted)])] if wanted else [], last


# --- what would go ----------------------------------------------------------------------------------------------------

_OF_JOBS = """SELECT count(*) FROM (SELECT 1 FROM (SELECT id FROM jobs_job WHERE tenant_id = %s ORDER BY id
    LIMIT {most} + 1) job {join} LIMIT {most} + 1) s"""
_JOINS = {"job_id": "JOIN {table} x ON x.job_id = job.id",
          "attempt_id": "JOIN jobs_attempt a ON a.job_id = job.id JOIN {table} x ON x.attempt_id = a.id"}
_OWN = "SELECT count(*) FROM (SELECT 1 FROM {table} x WHERE x.tenant_id = %s LIMIT {most} + 1) s"
_ACTIVE = """SELECT count(*) FROM (SELECT ended_at FROM jobs_job WHERE tenant_id = %s ORDER BY id DESC LIMIT {most}) s
    WHERE s.ended_at IS NULL"""
_SAMPLE = "SELECT id::text FROM jobs_job WHERE tenant_id = %s ORDER BY jobs_job.id DESC LIMIT {limit}"
# In order, so that no plan hopes to meet one soon in a table that has none of them left.
_ANY = "SELECT id FROM jobs_job WHERE tenant_id = %s ORDER BY id LIMIT 1"


def has_jobs(tenant_id: int) -> bool:
    """Whether any job of the tenant is there."""
    return bool(rows(_ANY, [tenant_id]))


def count(tenant_id: int, most: int) -> dict[str, int]:
    """How many rows of each table are the tenant's; `most` + 1 stands for more."""
    most = int(most)
    found = {"jobs_job": rows(_OF_JOBS.format(most=most, join=""), [tenant_id])[0][0]}
    for table, column in erase.BY_JOB.items():
        join = _JOINS[column].format(table=table)
        found[table] = rows(_OF_JOBS.format(most=most, join=join), [tenant_id])[0][0]
    for table in erase.OF_TENANT:
        found[table] = rows(_OWN.format(table=table, most=most), [tenant_id])[0][0]
    return {table: int(n) for table, n in found.items()}


def active_count(tenant_id: int, most: int) -> int:
    """How many of the tenant's newest so many jobs have not ended."""
    return int(rows(_ACTIVE.format(most=int(most)), [tenant_id])[0][0])


def sample(tenant_id: int, limit: int) -> list[str]:
    """Ids of the tenant's newest jobs."""
    return [r[0] for r in rows(_SAMPLE.format(limit=int(limit)), [tenant_id])]
