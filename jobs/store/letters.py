"""Dead letters under lock: the job first, then its letter."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from jobs import meters
from jobs.store.sql import rows


class LockedJob(NamedTuple):
    """The job of an open letter, locked until the commit."""

    id: str
    type: str
    version: int
    target_id: int | None
    generation: int | None
    archived: bool


# The target is locked before the job where there is one: the order of everybody else (E3).
_LOCK = """SELECT job.id::text, job.type, job.version, job.target_id, job.generation,
    (SELECT t.archived_at IS NOT NULL FROM jobs_tenant t WHERE t.id = job.tenant_id)
    FROM jobs_job job WHERE job.id = (SELECT d.job_id FROM jobs_dead_letter d WHERE d.id = %s)
    AND EXISTS (SELECT 1 FROM jobs_dead_letter d WHERE d.id = %s AND d.resolved_at IS NULL) FOR NO KEY UPDATE OF job"""
_LOCK_TARGET = """SELECT 1 FROM jobs_target t WHERE t.id = (SELECT job.target_id FROM jobs_job job
    JOIN jobs_dead_letter d ON d.job_id = job.id WHERE d.id = %s) FOR NO KEY UPDATE"""


def lock_job(letter_id: int) -> LockedJob | None:
    """Lock the job of this letter; None when the letter is not open."""
    rows(_LOCK_TARGET, [letter_id])
    found = rows(_LOCK, [letter_id, letter_id])
    return LockedJob._make(found[0]) if found else None


def resolve(letter_id: int, resolution: str, by: str, reason: str) -> bool:
    """Close an open letter; false when somebody else did."""
    sql = ("UPDATE jobs_dead_letter d SET resolved_at = jobs_now(), resolution = %s, resolved_by = %s,"
           " resolve_reason = %s FROM jobs_job job WHERE d.id = %s AND d.resolved_at IS NULL AND job.id = d.job_id"
           " RETURNING job.worker_group, job.queue")
    closed = rows(sql, [resolution, by[:200], reason, letter_id])
    meters.note(["letters_answered"], closed, itemgetter(0, 1))
    return bool(closed)
