"""Dead letters under lock: the target where there is one, the job, then its letter; and the clusters they are of."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from jobs import meters
from jobs.clusters import normal
from jobs.routing import SYSTEM
from jobs.store.sql import array, packed, rows, run

# What makes letters alike, as 16 hex digits; 0x1f cannot stand in any of the words.
CLUSTER = ("left(encode(sha256(convert_to(concat_ws(E'\\x1f', {type}, {version}, {reason}, coalesce({code}, ''),"
           " coalesce({error}, '')), 'UTF8')), 'hex'), 16)")


class Letter(NamedTuple):
    """An open letter whose job is locked until the commit, and what decides whether the job may start again."""

    id: int
    job_id: str
    type: str
    version: int
    archived: bool
    superseded: bool
    redacted: bool
    tenant_id: int
    house: bool


# Targets before jobs, each by id: the order of everybody else (E3).
_LOCK_TARGETS = f"""SELECT t.id FROM jobs_target t WHERE t.id IN (SELECT job.target_id FROM jobs_job job
    JOIN jobs_dead_letter d ON d.job_id = job.id WHERE d.id = ANY({array('bigint')}) AND job.target_id IS NOT NULL)
    ORDER BY t.id FOR NO KEY UPDATE OF t"""
# Waits for whoever holds one: a person's answer is given or refused, and never forgotten.
_LOCK_JOBS = f"""SELECT job.id FROM jobs_job job WHERE job.id IN (SELECT d.job_id FROM jobs_dead_letter d
    WHERE d.id = ANY({array('bigint')})) ORDER BY job.id FOR NO KEY UPDATE OF job"""
# A statement of its own: the one that waited for a lock has read the letters before.
_OPEN = f"""SELECT d.id, job.id::text, job.type, job.version, tenant.archived_at IS NOT NULL,
        job.generation IS NOT NULL AND t.generation IS DISTINCT FROM job.generation, job.input = '',
        job.tenant_id, d.house
    FROM jobs_dead_letter d JOIN jobs_job job ON job.id = d.job_id JOIN jobs_tenant tenant ON tenant.id = job.tenant_id
    LEFT JOIN jobs_target t ON t.id = job.target_id
    WHERE d.id = ANY({array('bigint')}) AND d.resolved_at IS NULL"""


def lock(letter_ids: Sequence[int], *, targets: bool = True) -> dict[int, Letter]:
    """Lock the jobs of these letters, with `targets` what they are about first; those that are open, as asked for."""
    mine = packed(letter_ids)
    if targets:
        rows(_LOCK_TARGETS, [mine])
    rows(_LOCK_JOBS, [mine])
    found = {r[0]: Letter._make(r) for r in rows(_OPEN, [mine])}
    # Where not all have room, the first to be asked for has it.
    return {pk: found[pk] for pk in letter_ids if pk in found}


_RESOLVE = f"""UPDATE jobs_dead_letter d SET resolved_at = jobs_now(), resolution = %s, resolved_by = %s,
    resolve_reason = %s, bulk_id = %s FROM jobs_job job WHERE d.id = ANY({array('bigint')}) AND d.resolved_at IS NULL
    AND job.id = d.job_id RETURNING d.id, job.worker_group, job.queue"""


def resolve(letter_ids: Sequence[int], resolution: str, by: str, reason: str, bulk: int | None = None) -> set[int]:
    """Close open letters; which of them were."""
    closed = rows(_RESOLVE, [resolution, by[:200], reason, bulk, packed(letter_ids)])
    meters.note(["letters_answered"], closed, itemgetter(1, 2))
    return {r[0] for r in closed}


_SIGN = f"""UPDATE jobs_dead_letter d SET answer_key = %s, actor_kind = %s, actor_ref = %s
    WHERE d.id = ANY({array('bigint')})"""


def sign(letter_ids: Sequence[int], key: str | None, kind: str | None, ref: str | None) -> None:
    """Note with an answer, in its transaction, who gave it and under which idempotency key (C27, C28)."""
    run(_SIGN, [key, kind, ref, packed(letter_ids)])


# Letters that say of themselves why there is no further attempt, and not of a last failure, have no code.
_UNREAD = """SELECT d.id, (SELECT left(a.message, 20000) FROM jobs_attempt a WHERE a.job_id = d.job_id
        AND a.chain = d.chain AND d.reason_code IS NOT NULL ORDER BY a.number DESC LIMIT 1)
    FROM jobs_dead_letter d WHERE d.resolved_at IS NULL AND d.cluster IS NULL ORDER BY d.id LIMIT {limit}
    FOR NO KEY UPDATE OF d SKIP LOCKED"""
_READ = f"""UPDATE jobs_dead_letter d SET version = job.version, house = job.worker_group = '{SYSTEM}', error = v.error,
        cluster = {CLUSTER.format(type='d.type', version='job.version', reason='d.reason', code='d.reason_code',
                                  error='v.error')}
    FROM (SELECT u.id, coalesce(u.error, '') AS error
        FROM unnest({array('bigint')}, {array('text')}) u(id, error)) v
    JOIN jobs_dead_letter own ON own.id = v.id JOIN jobs_job job ON job.id = own.job_id
    WHERE d.id = v.id"""


def read(limit: int) -> int:
    """Put open letters that a release before this one wrote into their clusters, in one batch; how many it was."""
    found = rows(_UNREAD.format(limit=int(limit)))
    if found:
        rows(_READ + " RETURNING d.id", [packed([r[0] for r in found]), packed([normal(r[1]) or None for r in found])])
    return len(found)
