"""What becomes of jobs when their tenant's owner goes, changes or comes back (B23, B24, B35).

Ending the live attempts in the transaction that changes the owner is what fences late output: nothing on the path of
a settlement asks for revocations. Only an expiry, which nobody writes, is asked for there (`owning.BELIEVED`).
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.outcomes import Interrupted
from jobs.states import Verb
from jobs.store import moves
from jobs.store.owning import LIVE
from jobs.store.sql import array, packed, rows
from jobs.store.verbs import Move

UNAVAILABLE = "owner_unavailable"
ROTATED = "credential_rotated"
BACK = "owner_back"

# By the owner's cap, which every attempt under it counts to; the tenant is checked, since hashes may collide. Nothing
# is read out of the binding: one that was spoilt by hand must not keep its owner from being revoked.
_BOUND = """SELECT a.job_id::text, a.id::text FROM jobs_attempt_cap c JOIN jobs_attempt a ON a.id = c.attempt_id
        JOIN jobs_job job ON job.id = a.job_id
    WHERE c.cap_key = hashtextextended('owner:' || %s::bigint, 0) AND a.ended_at IS NULL
        AND job.tenant_id = %s AND job.credential = 'owner'"""


def bound(tenant_id: int) -> list[tuple[str, str]]:
    """The live attempts under the owner of this tenant, as (job, attempt)."""
    return [(job, attempt) for job, attempt in rows(_BOUND, [tenant_id, tenant_id])]


def interrupt(attempts: Sequence[tuple[str, str]], by: str) -> list[moves.Answer]:
    """End attempts whose credential was replaced: their jobs wait again, and it is nobody's failure (B24)."""
    outcome = Interrupted(ROTATED)
    return moves.apply([Move(job, Verb.INTERRUPT, by=by, fence=fence, outcome=outcome) for job, fence in attempts],
                       release=False)


def stop(attempts: Sequence[tuple[str, str]], by: str) -> list[moves.Answer]:
    """End attempts whose owner is gone: their jobs are paused (B35)."""
    return moves.apply([Move(job, Verb.PAUSE, by=by, fence=fence, reason=UNAVAILABLE) for job, fence in attempts],
                       release=False)


def pause(job_ids: Sequence[str], by: str) -> list[moves.Answer]:
    """Pause waiting jobs, locked by us, whose tenant has no owner (B35)."""
    return moves.apply([Move(id_, Verb.PAUSE, by=by, reason=UNAVAILABLE) for id_ in job_ids])


_STANDS = f"EXISTS (SELECT 1 FROM jobs_owner o WHERE o.tenant_id = s.tenant_id AND {LIVE})"
_PAUSED = f"""SELECT s.id::text, s.tenant_id, {_STANDS} FROM (SELECT job.id, job.tenant_id FROM jobs_job job
    WHERE job.state = 'paused' AND job.reason = '{UNAVAILABLE}' AND job.id > %s::uuid
    ORDER BY job.id LIMIT {{limit}}) s ORDER BY s.id"""
# By id alone, so that no partial index of a backlog is offered; what another holds has its turn later.
_LOCK = f"""WITH s AS MATERIALIZED (SELECT id, state, reason, tenant_id FROM jobs_job WHERE id = ANY({array('uuid')})
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) SELECT s.id::text FROM s
    WHERE s.state = 'paused' AND s.reason = '{UNAVAILABLE}' AND {_STANDS}"""


def resumable(after: str, limit: int, tenant_id: int | None = None) -> tuple[list[str], str | None]:
    """Of so many jobs paused for want of an owner those whose owner is back, and where to go on (None: done)."""
    found = rows(_PAUSED.format(limit=int(limit)), [after])
    back = [id_ for id_, tenant, stands in found if stands and tenant_id in (None, tenant)]
    return back, found[-1][0] if len(found) == limit else None


def resume(found: Sequence[str], by: str) -> list[moves.Answer]:
    """Resume these, as far as they are still paused for that reason alone, and their owner still stands (E7)."""
    mine = rows(_LOCK, [packed(found)])
    return moves.apply([Move(r[0], Verb.RESUME, by=by, reason=BACK) for r in mine])


_EXPIRED = """SELECT tenant_id FROM jobs_owner WHERE revoked_at IS NULL AND expires_at <= jobs_now()
    ORDER BY expires_at LIMIT {limit}"""


def expired(limit: int) -> list[int]:
    """Tenants whose owner has expired and was not seen to yet."""
    return [r[0] for r in rows(_EXPIRED.format(limit=int(limit)))]
