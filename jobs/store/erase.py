"""Deletion of jobs and of what belongs to them: the only module that does it, by bounded batches of ids (E13).

What may go is judged again on the locked row. Locked jobs are skipped, and nobody who claims waits for ours: they
have ended. Targets stay, since a generation never falls.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        SELECT 1 FROM jobs_dead_letter d WHERE d.job_id = t.id AND d.resolved_at IS NULL)))"""
_LOCK = f"""WITH job AS MATERIALIZED (SELECT id, type, version, ended_at, chain, workspace_id FROM jobs_job
        WHERE id = ANY({array('uuid')}) AND ended_at IS NOT NULL ORDER BY id FOR UPDATE SKIP LOCKED)
    SELECT job.id::text FROM job JOIN {_KEEPS} ON k.type = job.type AND k.version = job.version
    WHERE {_PAST} AND {_TOLD}"""
# Children first; of attempts too, though only live ones count under a cap.
_OF_JOBS = (
    "DELETE FROM jobs_receipt WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_artifact WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_command WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_dead_letter WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_attempt_cap WHERE attempt_id IN (SELECT id FROM jobs_attempt WHERE job_id = ANY({ids}))",
    "DELETE FROM jobs_attempt_log WHERE attempt_id IN (SELECT id FROM jobs_attempt WHERE job_id = ANY({ids}))",
    "DELETE FROM jobs_attempt WHERE job_id = ANY({ids})",
    "DELETE FROM jobs_job WHERE id = ANY({ids})",
)


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
    # The triggers of receipts and artifacts let a DELETE through for us alone, until the commit.
    run("SET LOCAL jobs.erasing = 'on'")
    done = 0
    for sql in _OF_JOBS:
        done = run(sql.format(ids=array("uuid")), [mine])
    return done


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


_BULKS = """DELETE FROM jobs_bulk_answer WHERE id IN (SELECT id FROM jobs_bulk_answer
    WHERE ended_at < jobs_now() - %s::bigint * interval '1 ms' ORDER BY id LIMIT {limit})"""


def bulk_answers(ms: int, limit: int = BATCH) -> int:
    """Delete bulk answers that ended so long ago; how many."""
    return run(_BULKS.format(limit=int(limit)), [ms])
