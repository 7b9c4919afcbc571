"""Rows whose moment has come: scheduled jobs, lapsed leases, passed deadlines, spent chains.

Each duty takes a bounded batch, skips what others hold, and says where to go on, so that a full batch of rows
that cannot be moved hides nothing behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from jobs import failpoints, publish
from jobs.leases import Bounds, Overtime
from jobs.states import Gate, Verb
from jobs.store import admission, moves
from jobs.store.admission import Group
from jobs.store.owning import BELIEVED
from jobs.store.sql import array, packed, rows, run
from jobs.store.verbs import Move

_PROMOTABLE = """SELECT id::text, workspace_id, worker_group, queue, tenant_id, exclusive_group FROM jobs_job
    WHERE gate = 'scheduled' AND available_at <= jobs_now() ORDER BY available_at, jobs_job.id LIMIT {limit}
    FOR NO KEY UPDATE SKIP LOCKED"""
_OPEN_GATE = "UPDATE jobs_job SET gate = {gate} WHERE id = ANY(" + array("uuid") + ") AND gate = 'scheduled'"


def promote(limit: int) -> int:
    """Let due jobs into the claim index (or behind their full group); how many. One index probe when none is due."""
    due = rows(_PROMOTABLE.format(limit=int(limit)))
    if not due:
        return 0
    gates = admission.gates([Group(r[1], r[4], r[5]) if r[5] else None for r in due])
    ready = [r for r, gate in zip(due, gates, strict=True) if gate is None]
    held = [r[0] for r, gate in zip(due, gates, strict=True) if gate == Gate.EXCLUSIVE]
    if held:
        run(_OPEN_GATE.format(gate="'exclusive'"), [packed(held)])
    if ready:
        run(_OPEN_GATE.format(gate="NULL"), [packed([r[0] for r in ready])])
        admission.open_lines([(r[1], r[2], r[3], r[4]) for r in ready])
        publish.wake_after_commit()
    failpoints.at("promote.written")
    return len(due)


_LIVE = """SELECT job_id::text, id::text, lease_until < jobs_now() - {grace} * interval '1 microsecond',
        worker_id IS NULL
    FROM jobs_attempt WHERE ended_at IS NULL AND job_id > %s::uuid
    ORDER BY jobs_attempt.job_id LIMIT {limit}"""
# Jobs before attempts, as everybody locks; the attempt's lock keeps a late heartbeat from renewing under us.
_LOCK_JOBS = (f"SELECT id::text FROM jobs_job WHERE id = ANY({array('uuid')})"
              " ORDER BY id FOR NO KEY UPDATE SKIP LOCKED")
_WAIT_FOR_JOBS = _LOCK_JOBS.removesuffix(" SKIP LOCKED")
_LOCK_LAPSED = """SELECT job_id::text, id::text FROM jobs_attempt WHERE id = ANY({ids}) AND job_id = ANY({jobs})
    AND ended_at IS NULL AND lease_until < jobs_now() - {grace} * interval '1 microsecond'
    FOR NO KEY UPDATE SKIP LOCKED"""

FIRST = "00000000-0000-0000-0000-000000000000"
Spot = tuple[datetime, str]  # deadline, job: where the look at passed deadlines goes on
FIRST_SPOT: Spot = (datetime.min.replace(tzinfo=UTC), FIRST)


class Look(NamedTuple):
    """Of one batch of live attempts, as (job, attempt): the lapsed ones, the others that no worker of ours holds, and
    where to go on (None: done).
    """

    lapsed: list[tuple[str, str]]
    outside: list[tuple[str, str]]
    after: str | None


def look(grace_us: int, after: str, limit: int) -> Look:
    """One batch of live attempts; lapsed are those whose lease ran out by more than the grace.

    Reads live attempts by their unique partial index: no index may stand on a column that heartbeats change.
    """
    live = rows(_LIVE.format(grace=int(grace_us), limit=int(limit)), [after])
    return Look([(job, attempt) for job, attempt, late, _ in live if late],
                [(job, attempt) for job, attempt, late, alone in live if alone and not late],
                live[-1][0] if len(live) == limit else None)


_BOUNDED = f"""SELECT a.job_id::text, a.id::text, jobs_now(), a.leased_at, job.chain_started_at, job.timeout_ms,
        job.max_duration_ms, job.duration_scope
    FROM jobs_attempt a JOIN jobs_job job ON job.id = a.job_id
    WHERE a.id = ANY({array('uuid')}) AND a.outcome IS NULL
        -- What a hand has put beyond every moment says nothing about time, and must not hide the others.
        AND isfinite(a.leased_at) AND isfinite(job.chain_started_at)"""


def overtime(found: Sequence[tuple[str, str]]) -> list[tuple[str, str, Overtime]]:
    """Those of these (job, attempt) whose time is over, and by which bound (C34, E8)."""
    bounded = rows(_BOUNDED, [packed([attempt for _, attempt in found])]) if found else []
    return [(job, attempt, over) for job, attempt, now, *bounds in bounded if (over := Bounds(*bounds).over(now))]


def is_lapsed(attempt: str, grace_us: int) -> bool:
    """Whether this attempt is live and its lease ran out by more than the grace."""
    return bool(rows("SELECT 1 FROM jobs_attempt WHERE id = %s::uuid AND ended_at IS NULL"
                     f" AND lease_until < jobs_now() - {int(grace_us)} * interval '1 microsecond'", [attempt]))


def lapse(found: Sequence[tuple[str, str]], grace_us: int, by: str, *, joining: bool = False,
          waits: bool = False) -> list[moves.Answer]:
    """End these attempts, as far as they are still lapsed when locked (C35, E4).

    The loop skips what others hold; `waits` does not. `joining` leaves to a duty what the attempts held (DESIGN 4).
    """
    jobs = [job for job, _ in found]
    mine = {r[0] for r in rows(_WAIT_FOR_JOBS, [packed(jobs)])} if waits else unlocked(jobs)
    if not mine:
        return []
    sql = _LOCK_LAPSED.format(ids=array("uuid"), jobs=array("uuid"), grace=int(grace_us))
    late = rows(sql, [packed([attempt for _, attempt in found]), packed(mine)])
    if not late:
        return []
    failpoints.at("recovery.found")
    answers = moves.apply([Move(job, Verb.LAPSE, by=by, fence=attempt) for job, attempt in late], release=not joining)
    failpoints.at("recovery.written")
    return answers


_LATE = """SELECT deadline_at, id::text FROM jobs_job WHERE state = 'queued' AND deadline_at IS NOT NULL
    AND deadline_at <= jobs_now() AND (deadline_at, id) > (%s::timestamptz, %s::uuid)
    ORDER BY deadline_at, jobs_job.id LIMIT {limit}"""
_SPENT = "SELECT id::text FROM jobs_job WHERE gate = 'spent' AND id > %s::uuid ORDER BY jobs_job.id LIMIT {limit}"
# Judged by what the lock shows; by id alone, so that no partial index of a backlog is offered.
_LOCK_DUE = f"""WITH mine AS MATERIALIZED (SELECT id, state, reason, gate, deadline_at FROM jobs_job
    WHERE id = ANY({array('uuid')}) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) SELECT id::text FROM mine WHERE """


def late(after: Spot, limit: int) -> tuple[list[str], Spot | None]:
    """Queued jobs whose deadline has passed, and where to go on (None: done)."""
    found = rows(_LATE.format(limit=int(limit)), list(after))
    return [r[1] for r in found], (found[-1][0], found[-1][1]) if len(found) == limit else None


def spent(after: str, limit: int) -> tuple[list[str], str | None]:
    """Queued jobs that have used up their claims, and where to go on (None: done)."""
    found = [r[0] for r in rows(_SPENT.format(limit=int(limit)), [after])]
    return found, found[-1] if len(found) == limit else None


def expire(found: Sequence[str], by: str) -> list[moves.Answer]:
    """Fail these, as far as their deadline has still passed when locked (C21)."""
    mine = rows(_LOCK_DUE + "state = 'queued' AND deadline_at <= jobs_now()", [packed(found)])
    return moves.apply([Move(r[0], Verb.EXPIRE, by=by) for r in mine])


def exhaust(found: Sequence[str], by: str) -> list[moves.Answer]:
    """Fail these, as far as their claims are still used up when locked (E4)."""
    return moves.apply([Move(r[0], Verb.EXHAUST, by=by) for r in rows(_LOCK_DUE + "gate = 'spent'", [packed(found)])])


_UNREGISTERED = f"""SELECT id::text FROM jobs_job WHERE state = 'paused' AND reason = 'unregistered_type'
    AND (type, version) IN (SELECT * FROM unnest({array('text')}, {array('int')}))
    AND (%s::boolean OR worker_group = ANY({array('text')})) AND id > %s::uuid
    ORDER BY jobs_job.id LIMIT {{limit}}"""


def unregistered(types: Sequence[tuple[str, int]], after: str, limit: int,
                 groups: Sequence[str] | None = None) -> tuple[list[str], str | None]:
    """Jobs of these types that were paused because nobody knew them, and where to go on (None: done).

    Of these worker groups alone, where they are said.
    """
    known = [packed([t for t, _ in types]), packed([v for _, v in types]), groups is None, packed(groups or ())]
    found = [r[0] for r in rows(_UNREGISTERED.format(limit=int(limit)), [*known, after])]
    return found, found[-1] if len(found) == limit else None


def resume(found: Sequence[str], by: str) -> list[moves.Answer]:
    """Resume these, as far as they are still paused for that reason alone when locked (E7)."""
    mine = rows(_LOCK_DUE + "state = 'paused' AND reason = 'unregistered_type'", [packed(found)])
    return moves.apply([Move(r[0], Verb.RESUME, by=by, reason="registered") for r in mine])


# The head of each line: where nobody claims it grows old as well, whatever waits behind it.
_HEADS = """SELECT line.id, (SELECT job.available_at <= jobs_now() - %s::bigint * interval '1 us' FROM jobs_job job
        WHERE job.state = 'queued' AND job.gate IS NULL AND job.worker_group = line.worker_group
            AND job.queue = line.queue AND job.tenant_id = line.tenant_id
        ORDER BY job.priority DESC, job.available_at, job.id LIMIT 1)
    FROM (SELECT id, worker_group, queue, tenant_id FROM jobs_claim_line
        WHERE parked IS NULL AND id > %s ORDER BY id LIMIT {limit}) line ORDER BY line.id"""


def waiting(old_s: float, after: int, limit: int) -> tuple[bool, int]:
    """Whether the head of one of these lines has been claimable for so long, and the line to go on from (0: done)."""
    heads = rows(_HEADS.format(limit=int(limit)), [int(old_s * 1e6), after])
    return any(old for _, old in heads), heads[-1][0] if len(heads) == limit else 0


def unlocked(job_ids: Sequence[str]) -> set[str]:
    """Lock those of these jobs that nobody holds; which."""
    return {r[0] for r in rows(_LOCK_JOBS, [packed(job_ids)])}


Beat = tuple[str, str | None, bool]  # the job's state, why an abort is pending, whether commands are unread

# No EXISTS, which the planner may answer by reading all that is unread anywhere.
_HAS_UNREAD = """coalesce((SELECT true FROM jobs_command c
        WHERE c.job_id = job.id AND c.consumed_at IS NULL AND c.kind <> 'abort' LIMIT 1), false)"""
_EXTEND = """WITH live AS MATERIALIZED (
        SELECT a.id, a.job_id FROM jobs_attempt a WHERE a.id = ANY({ids}) AND a.ended_at IS NULL),
    mine AS MATERIALIZED (SELECT a.id FROM jobs_attempt a WHERE a.id IN (SELECT id FROM live) AND a.ended_at IS NULL
        FOR NO KEY UPDATE SKIP LOCKED),
    beat AS (UPDATE jobs_attempt a
        SET lease_until = greatest(a.lease_until, jobs_now() + job.lease_ms * interval '1 millisecond')
        FROM mine, jobs_job job WHERE a.id = mine.id AND job.id = a.job_id
            AND {believed}
        RETURNING a.id, a.lease_until)
    SELECT live.id::text, job.state, job.abort_reason, beat.lease_until,
        NOT job.strict_lease AND job.credential = 'none' OR beat.id IS NOT NULL OR mine.id IS NULL, {unread}
    FROM live JOIN jobs_job job ON job.id = live.job_id LEFT JOIN beat ON beat.id = live.id
        LEFT JOIN mine ON mine.id = live.id"""


_COMPLETED = f"SELECT id::text FROM jobs_attempt WHERE id = ANY({array('uuid')}) AND outcome = 'completed'"


def extend(fences: Sequence[str]) -> dict[str, Beat]:
    """Renew these leases; what there is to know of each attempt that is still live (A45, E8).

    Touches attempts alone and skips locked ones: whoever holds one is ending or renewing it at this moment.
    """
    found = rows(_EXTEND.format(ids=array("uuid"), believed=BELIEVED.format(fence="a.id"), unread=_HAS_UNREAD),
                 [packed(fences)])
    return {id_: (state, abort, unread) for id_, state, abort, _, believed, unread in found if believed}


_PEEK = f"""SELECT a.id::text, job.state, job.abort_reason, {_HAS_UNREAD}
    FROM jobs_attempt a JOIN jobs_job job ON job.id = a.job_id
    WHERE a.id = ANY({array('uuid')}) AND a.ended_at IS NULL"""
_OF_WORKER = f"""SELECT job_id::text, id::text FROM jobs_attempt WHERE ended_at IS NULL AND worker_id = %s
    AND NOT id = ANY({array('uuid')})"""


def peek(fences: Sequence[str]) -> dict[str, Beat]:
    """What `extend` would answer, without renewing anything."""
    return {id_: (state, abort, unread) for id_, state, abort, unread in rows(_PEEK, [packed(fences)])}


def completed(fences: Sequence[str]) -> set[str]:
    """Those of these attempts that have ended with their work done, which nobody but their holders can say."""
    return {id_ for id_, in rows(_COMPLETED, [packed(fences)])}


def live_of_worker(worker_id: str, known: Sequence[str]) -> list[tuple[str, str]]:
    """Live attempts of a worker but for these, as (job, attempt)."""
    return [(job, attempt) for job, attempt in rows(_OF_WORKER, [worker_id, packed(known)])]
