"""Deletion of jobs and of what belongs to them: the only module that does it, by bounded batches of ids (E13).

What may go is judged again on the locked row. Locked jobs are skipped, and nobody who claims waits for ours: they
have ended. Targets stay as long as their tenant, since a generation never falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from jobs.store.sql import array, packed, rows, run

BATCH = 500
# The key of the job that tells of a job's end; no caller can spell it, since theirs are printable ASCII.
TELLING = "\u00a7ended:{job}:{chain}"


class Keep(NamedTuple):
    """How long the ended jobs of a `type@version` are kept, in milliseconds. Types without one are kept for ever."""

    type: str
    version: int
    ms: int


_KEEPS = f"unnest({array('text')}, {array('int')}, {array('bigint')}) k(type, version, ms)"
# The time of a job with a dead letter starts when somebody answered it; an open one keeps it for ever.
_PAST = """job.ended_at < jobs_now() - k.ms * interval '1 ms' AND NOT EXISTS (
    SELECT 1 FROM jobs_dead_letter d WHERE d.job_id = job.id
        AND (d.resolved_at IS NULL OR d.resolved_at >= jobs_now() - k.ms * interval '1 ms'))"""
# By the primary key, whose beginning is the time of creation: no index of its own on the hot path.
_OLDEST = f"""SELECT job.id::text, k.ms IS NOT NULL AND {_PAST} FROM (
        SELECT id, type, version, ended_at FROM jobs_job WHERE id > %s::uuid AND id < %s::uuid
        ORDER BY id LIMIT {{limit}}) job
    LEFT JOIN {_KEEPS} ON k.type = job.type AND k.version = job.version ORDER BY job.id"""
# Not before its definition was told of its end, or a person has given that up (B34).
_TOLD = """NOT EXISTS (SELECT 1 FROM jobs_tenant house JOIN jobs_job t ON t.tenant_id = house.id
        AND t.idempotency_key = '""" + TELLING.format(job="' || job.id || '", chain="' || job.chain || '") + """'
    WHERE house.workspace_id = job.workspace_id AND house.subject IS NULL AND (t.ended_at IS NULL OR EXISTS (
        SELECT 1 FROM jobs_dead_letter d WHERE d.job_id = t.id AND d.resolved_at IS NULL)))
    AND NOT EXISTS (SELECT 1 FROM jobs_delivery y WHERE y.job_id = job.id AND y.state = 'pending')"""
_LOCK = f"""WITH job AS MATERIALIZED (SELECT id, type, version, ended_at, chain, workspace_id FROM jobs_job
        WHERE id = ANY({array('uuid')}) AND ended_at IS NOT NULL ORDER BY id FOR UPDATE SKIP LOCKED)
    SELECT job.id::text FROM job JOIN {_KEEPS} ON k.type = job.type AND k.version = job.version
    WHERE {_PAST} AND {_TOLD}"""
# Children first; of attempts too, though only live ones count under a cap.
_OF_JOBS = (
    "DELETE FROM jobs_receipt WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_artifact WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_command WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_bulk_item WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_dead_letter WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_attempt_cap WHERE attempt_id IN (SELECT id FROM jobs_attempt WHERE job_id = ANY({ids}))",
    "DELETE FROM jobs_attempt_log WHERE attempt_id IN (SELECT id FROM jobs_attempt WHERE job_id = ANY({ids}))",
    "DELETE FROM jobs_attempt WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_delivery_try WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_delivery WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_firing WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_job WHERE id = ANY({ids})",
)
# The tables of these but that of jobs, and the column by which each knows its job or its attempt.
BY_JOB = {sql.split()[2]: sql.split()[4] for sql in _OF_JOBS[:-1]}


def _columns(keeps: Sequence[Keep]) -> list[str]:
    return [packed(column) for column in zip(*keeps, strict=True)]


def oldest(keeps: Sequence[Keep], after: str, until: str, limit: int,
           batch: int = BATCH) -> tuple[list[str], str | None]:
    """Which of the next jobs by id have outlived their time, at most a batch; and where to go on (None: done)."""
    seen = rows(_OLDEST.format(limit=int(limit)), [after, until, *_columns(keeps)])
    past = [id_ for id_, gone in seen if gone]
    if len(past) > batch:
        return past[:batch], past[batch - 1]
    return past, seen[-1][0] if len(seen) == limit else None


def jobs(ids: Sequence[str], keeps: Sequence[Keep]) -> int:
    """Delete these jobs with everything of theirs, as far as they have still outlived their time when locked."""
    mine = packed([r[0] for r in rows(_LOCK, [packed(ids), *_columns(keeps)])])
    if not mine:
        return 0
    return _delete(mine)["jobs_job"]


@contextmanager
def erasing() -> Iterator[None]:
    """Let the triggers of receipts and artifacts pass what is erased within; for `store` alone (E13).

    Shut again before a caller's own statements. An exception undoes the setting with everything else.
    """
    run("SET LOCAL jobs.erasing = 'on'")
    yield
    run("SET LOCAL jobs.erasing = 'off'")


def _delete(mine: str) -> Counter[str]:
    """Delete these locked jobs with everything of theirs; how many rows of each table."""
    with erasing():
        return Counter({sql.split()[2]: run(sql.format(ids=array("uuid")), [mine]) for sql in _OF_JOBS})


_LETTERS = f"""SELECT d.id, d.job_id::text, k.ms IS NOT NULL AND d.resolved_at < jobs_now() - k.ms * interval '1 ms'
    FROM (SELECT id, job_id, resolved_at FROM jobs_dead_letter WHERE id > %s ORDER BY id LIMIT {{limit}}) d
    JOIN jobs_job job ON job.id = d.job_id
    LEFT JOIN {_KEEPS} ON k.type = job.type AND k.version = job.version ORDER BY d.id"""
_LOCK_JOBS = f"""SELECT id::text FROM jobs_job WHERE id = ANY({array('uuid')}) ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED"""
_CHAINS = f"""WITH old AS (DELETE FROM jobs_dead_letter d WHERE d.id = ANY({array('bigint')})
        AND d.job_id = ANY({array('uuid')}) AND d.resolved_at IS NOT NULL RETURNING d.job_id, d.chain),
    gone AS (DELETE FROM jobs_attempt a USING old WHERE a.job_id = old.job_id AND a.chain = old.chain
        AND a.ended_at IS NOT NULL RETURNING a.id)
    DELETE FROM jobs_attempt_log l USING gone WHERE l.attempt_id = gone.id"""


def answered(keeps: Sequence[Keep], after: int, limit: int,
             batch: int = BATCH) -> tuple[list[tuple[int, str]], int]:
    """Which of the next dead letters were answered longer ago than they are kept, as (letter, job), at most a batch.

    And the letter to go on from (0: done).
    """
    seen = rows(_LETTERS.format(limit=int(limit)), [after, *_columns(keeps)])
    past = [(letter, job) for letter, job, gone in seen if gone]
    if len(past) > batch:
        return past[:batch], past[batch - 1][0]
    return past, seen[-1][0] if len(seen) == limit else 0


def letters(found: Sequence[tuple[int, str]]) -> None:
    """Delete answered letters and the attempts of their chains, though the job lives on (C26)."""
    mine = [r[0] for r in rows(_LOCK_JOBS, [packed(sorted({job for _, job in found}))])]
    if mine:
        run(_CHAINS, [packed([letter for letter, _ in found]), packed(mine)])


_BULKS = """DELETE FROM jobs_bulk_operation WHERE id IN (SELECT o.id FROM jobs_bulk_operation o
    WHERE o.ended_at < jobs_now() - %s::bigint * interval '1 ms'
        AND NOT EXISTS (SELECT 1 FROM jobs_bulk_item i WHERE i.bulk_id = o.id) ORDER BY o.id LIMIT {limit})"""
_ITEMS = """DELETE FROM jobs_bulk_item i WHERE (i.bulk_id, i.number) IN (SELECT old.bulk_id, old.number
    FROM jobs_bulk_operation o JOIN jobs_bulk_item old ON old.bulk_id = o.id
    WHERE o.ended_at < jobs_now() - %s::bigint * interval '1 ms' LIMIT {limit})"""


def bulk_operations(ms: int, limit: int = BATCH) -> int:
    """Delete bulk operations that ended so long ago, once their items are gone; how many."""
    return run(_BULKS.format(limit=int(limit)), [ms])


def bulk_items(ms: int, limit: int) -> int:
    """Delete items of bulk operations that ended so long ago; how many."""
    return run(_ITEMS.format(limit=int(limit)), [ms])


# --- a whole tenant ---------------------------------------------------------------------------------------------------

# What a tenant has beside its jobs; each has a tenant_id. Timers before their firings: nothing fires then.
OF_TENANT = ("jobs_bulk_operation", "jobs_callback_secret", "jobs_limits", "jobs_tenant_window", "jobs_key",
             "jobs_owner", "jobs_target", "jobs_claim_line", "jobs_throttle", "jobs_timer", "jobs_firing")
# A full lock, since they are deleted. Untold ends are waited for until patience is over.
_NEXT = f"""WITH job AS MATERIALIZED (SELECT id, ended_at, chain, workspace_id FROM jobs_job
        WHERE tenant_id = %s AND id > %s::uuid ORDER BY id LIMIT {{limit}} FOR UPDATE SKIP LOCKED)
    SELECT job.id::text, job.chain, job.ended_at IS NOT NULL, job.ended_at IS NOT NULL AND (%s OR {_TOLD})
    FROM job ORDER BY job.id"""
_TELLING_IDS = f"""SELECT t.id::text FROM jobs_job t WHERE t.idempotency_key = ANY({array('text')})
    AND t.tenant_id = (SELECT house.id FROM jobs_tenant own JOIN jobs_tenant house
        ON house.workspace_id = own.workspace_id AND house.subject IS NULL WHERE own.id = %s)
    ORDER BY t.id FOR UPDATE SKIP LOCKED"""
# What sends their callbacks; one that is at it just now finds nothing to tell.
_SENDERS = f"""SELECT t.id::text FROM jobs_job t WHERE t.id IN (SELECT y.sender_id FROM jobs_delivery y
    WHERE y.job_id = ANY({array('uuid')})) ORDER BY t.id FOR UPDATE SKIP LOCKED"""
# By the key alone, so before the keys.
_REQUESTS = """DELETE FROM jobs_claim_request WHERE id IN (SELECT r.id FROM jobs_claim_request r
    JOIN jobs_key k ON k.id = r.key_id WHERE k.tenant_id = %s LIMIT {limit})"""
_REST = "DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT x.ctid FROM {table} x WHERE x.tenant_id = %s LIMIT {limit}))"
_TENANT = "DELETE FROM jobs_tenant WHERE id = %s AND deleting_at IS NOT NULL AND subject IS NOT NULL"


class Looked(NamedTuple):
    """One look at a tenant's jobs: the last one seen, those that have not ended, whether some must wait, what is gone.

    `last` is None where none was left behind the place from which it looked.
    """

    last: str | None
    active: list[str]
    waits: bool
    gone: Counter[str]


def tenants_jobs(tenant_id: int, after: str, limit: int, *, untold: bool, leave: bool = False) -> Looked:
    """Delete the next jobs of a tenant that have ended and whose end was told, or `untold` too.

    With them goes what tells of their ends. `leave`: look, and delete nothing.
    """
    seen = rows(_NEXT.format(limit=int(limit)), [tenant_id, after, untold])
    active = [id_ for id_, _, ended, _ in seen if not ended]
    past = [] if leave else [(id_, chain) for id_, chain, _, may_go in seen if may_go]
    waits = any(ended and not may_go for _, _, ended, may_go in seen)
    gone: Counter[str] = Counter()
    if past:
        keys = [TELLING.format(job=id_, chain=n) for id_, chain in past for n in range(1, chain + 1)]
        tellings = [r[0] for r in rows(_TELLING_IDS, [packed(keys), tenant_id])]
        senders = [r[0] for r in rows(_SENDERS, [packed([id_ for id_, _ in past])])]
        gone = _delete(packed([id_ for id_, _ in past] + tellings + senders))
    return Looked(seen[-1][0] if seen else None, active, waits, gone)


def rest_of_tenant(tenant_id: int, limit: int = BATCH) -> Counter[str]:
    """Delete what the tenant has beside jobs, so many rows of each table at most; how many. None: nothing is left."""
    gone: Counter[str] = Counter()
    if n := run(_REQUESTS.format(limit=int(limit)), [tenant_id]):
        gone["jobs_claim_request"] = n
        if n == limit:
            return gone
    for table in OF_TENANT:
        if n := run(_REST.format(table=table, limit=int(limit)), [tenant_id]):
            gone[table] = n
    return gone


def tenant(tenant_id: int) -> int:
    """Delete the tenant itself, once it is marked so; the commit refuses where anything still refers to it."""
    return run(_TENANT, [tenant_id])
