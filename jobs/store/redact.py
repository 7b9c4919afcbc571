"""Redaction: the columns in which callers' words stand are emptied, the receipts stay and still verify (E13).

Receipts hold hashes of payloads and never payloads, so that nothing of the chain is touched but for one receipt more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from jobs.routing import SYSTEM
from jobs.store import erase
from jobs.store.letters import CLUSTER
from jobs.store.sql import array, packed, rows, run

_ALIKE = CLUSTER.format(type="x.type", version="x.version", reason="x.reason", code="x.reason_code", error="NULL")
# What becomes of every column that may hold a caller's words. An empty input is what tells that a job was redacted.
# A known agent is the site's own word. The house's keys are its own, and tell that an end was told.
COLUMNS: dict[str, dict[str, str]] = {
    "jobs_job": {
        "input": "''", "subject": "NULL", "external_id": "NULL",
        "idempotency_key": f"CASE WHEN x.worker_group = '{SYSTEM}' THEN x.idempotency_key END",
        "session_key": "NULL", "exclusive_group": "NULL", "target_id": "NULL", "abort_reason": "NULL",
        "callback_url": "NULL", "callback_events": "NULL",
        "normal_hash": "NULL", "checkpoint": "NULL", "agent": "CASE WHEN x.agent = ANY(%s::text[]) THEN x.agent END"},
    "jobs_artifact": {"value": "''"},
    "jobs_command": {"payload": "''", "reason": "NULL", "idempotency_key": "NULL", "external_id": "NULL"},
    "jobs_attempt": {"message": "NULL", "owner_binding": "NULL"},
    "jobs_delivery": {"host": "''"},
    "jobs_delivery_try": {"answer": "NULL"},
    "jobs_dead_letter": {"error": "''", "cluster": _ALIKE, "answer_key": "NULL"},
}
# One an attempt, there or not: lines that a frozen worker brings when it wakes find their place taken.
_LOGS = f"""INSERT INTO jobs_attempt_log (attempt_id, lines, dropped, at)
    SELECT a.id, '', 0, jobs_now() FROM jobs_attempt a WHERE a.job_id = ANY({array('uuid')})
    ON CONFLICT (attempt_id) DO UPDATE SET lines = '', dropped = 0"""
# Targets before jobs, as everybody locks them (E3).
_LOCK_TARGETS_OF = f"""SELECT t.id FROM jobs_target t WHERE t.id IN (SELECT job.target_id FROM jobs_job job
    WHERE job.id = ANY({array('uuid')}) AND job.target_id IS NOT NULL) ORDER BY t.id FOR NO KEY UPDATE OF t"""
# A target that has had one request was named by that one alone.
_TARGETS = f"""UPDATE jobs_target t SET key = '\u00a7' || t.id WHERE t.generation = 1 AND t.id IN (
    SELECT job.target_id FROM jobs_job job WHERE job.id = ANY({array('uuid')}) AND job.generation = 1)"""
# Waits: a person's answer is given or refused, and never forgotten.
_LOCK = f"SELECT id FROM jobs_job WHERE id = ANY({array('uuid')}) ORDER BY id FOR NO KEY UPDATE"
_SEEN = f"""SELECT job.id::text, job.tenant_id, job.state, job.ended_at IS NOT NULL, job.input = '',
        encode(job.input_hash, 'hex'), encode(job.checkpoint_hash, 'hex'), encode(made.hash, 'hex'), job.revision,
        job.number
    FROM jobs_job job LEFT JOIN jobs_artifact made ON made.job_id = job.id
    WHERE job.id = ANY({array('uuid')}) ORDER BY job.id"""


class Seen(NamedTuple):
    """A locked job as redaction sees it; hashes of what it holds."""

    id: str
    tenant_id: int
    state: str
    ended: bool
    redacted: bool
    input: str
    checkpoint: str | None
    artifact: str | None
    revision: int
    number: int


def lock(job_ids: Sequence[str], *, targets: bool = True) -> dict[str, Seen]:
    """Lock these jobs, with `targets` what they are about first, and look at them; those that there are, by id."""
    mine = packed(job_ids)
    if targets:
        rows(_LOCK_TARGETS_OF, [mine])
    rows(_LOCK, [mine])
    return {s.id: s for s in map(Seen._make, rows(_SEEN, [mine]))}


def empty(job_ids: Sequence[str], agents: Collection[str], *, targets: bool = True) -> None:
    """Empty every column with callers' words of these ended jobs, which the caller has locked.

    `agents` are the site's own and stay. With `targets`, which the caller has locked too, those that were theirs alone.
    """
    mine = packed(job_ids)
    if targets:
        run(_TARGETS, [mine])
    with erase.erasing():
        for table, columns in COLUMNS.items():
            sets = ", ".join(f"{name} = {value}" for name, value in columns.items())
            params: list[Any] = [list(agents)] if table == "jobs_job" else []
            key = "x.id" if table == "jobs_job" else "x.job_id"
            run(f"UPDATE {table} x SET {sets} WHERE {key} = ANY({array('uuid')})", [*params, mine])
    run(_LOGS, [mine])


# Of a look at so many jobs of a tenant those that have ended and still say something; locked ones are left for later.
_LOOK = """SELECT s.id::text, s.ended_at IS NOT NULL AND s.input <> '' FROM (SELECT id, ended_at, input FROM jobs_job
    WHERE tenant_id = %s AND id > %s::uuid ORDER BY id LIMIT {limit}) s ORDER BY s.id"""
_FREE = f"""SELECT id::text FROM jobs_job WHERE id = ANY({array('uuid')}) AND ended_at IS NOT NULL
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"""


def ended(tenant_id: int, after: str, limit: int, batch: int) -> tuple[list[str], str | None, bool]:
    """Ended jobs of a tenant behind this one that are not redacted yet, locked; the last one seen, and whether some
    were held by others."""
    seen = rows(_LOOK.format(limit=int(limit)), [tenant_id, after])
    wanted = [id_ for id_, whole in seen if whole][:batch]
    last = wanted[-1] if len(wanted) == batch else seen[-1][0] if seen else None
    free = [r[0] for r in rows(_FREE, [packed(wanted)])] if wanted else []
    return free, last, len(free) < len(wanted)


# The lock is a statement of its own: an enqueue for one of these that waits for us is seen, or sees us.
_LOCK_TARGETS = """SELECT id FROM jobs_target WHERE tenant_id = %s AND id > %s AND key NOT LIKE '\u00a7%%'
    ORDER BY id LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED"""
_BLANK = f"""UPDATE jobs_target t SET key = '\u00a7' || t.id WHERE t.id = ANY({array('bigint')})
    AND NOT EXISTS (SELECT 1 FROM jobs_job job WHERE job.target_id = t.id AND job.ended_at IS NULL)"""


def targets(tenant_id: int, after: int, limit: int) -> tuple[int, int | None]:
    """Empty the names of a tenant's targets of which no job is active; how many, and where to go on (None: done).

    A later request of the same name begins another target: no job of the old one can run again.
    """
    found = [r[0] for r in rows(_LOCK_TARGETS.format(limit=int(limit)), [tenant_id, after])]
    done = run(_BLANK, [packed(found)]) if found else 0
    return done, found[-1] if len(found) == limit else None
