"""Attempts in the hands of their holders: claim, extend, give back. Durable verbs (DESIGN 4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from django.db import OperationalError, connections

from jobs import clock, meters
from jobs.conf import conf
from jobs.errors import Conflict
from jobs.models import Job
from jobs.outcomes import Interrupted
from jobs.routing import UNROUTED
from jobs.services.duties import Upkeep
from jobs.services.recovery import each
from jobs.states import Verb
from jobs.store import due
from jobs.store.claim import Batch, Claimed, Claimer, claim
from jobs.store.moves import Answer, Moved, apply
from jobs.store.spoilt import ALONE_S, FAULTS, Unclaimable
from jobs.store.sql import durable, run, sqlstate
from jobs.store.verbs import Move

log = logging.getLogger("jobs.claim")
LOCK_NOT_AVAILABLE = "55P03"
# How many jobs with spoilt rows one claim finds at most; the next one goes on.
MOST_SPOILT = 20
__all__ = ["FAULTS", "Answer", "Batch", "Beat", "Claimed", "Claimer", "Locked", "Moved", "completed", "extend",
           "hand_back_unknown", "look_after", "peek", "start", "take"]


@dataclass(frozen=True, slots=True)
class Beat:
    """What a holder learns from a heartbeat: whether to stop, and why; whether commands wait to be read."""

    state: str
    abort: str | None
    unread: bool = False


_upkeep = Upkeep()
_background = ThreadPoolExecutor(1, thread_name_prefix="jobs-upkeep")
_looked = clock.Every(1.0)
_looking = threading.Lock()
_recovering: Future[None] = Future()
_recovering.set_result(None)


def take(claimer: Claimer, slots: int) -> Batch:
    """Claim up to `slots` jobs in a transaction of its own, after the upkeep that claims depend on."""
    _upkeep.tick()
    return claim_now(claimer, slots)


def tick() -> None:
    """The upkeep that claims depend on, as far as it is due (C35)."""
    _upkeep.tick()


def claim_now(claimer: Claimer, slots: int) -> Batch:
    """Claim in a transaction of its own; the upkeep is the caller's."""
    with meters.timed("claim"):
        try:
            return durable(lambda: claim_within(claimer, slots))
        except Unclaimable:
            return claim_around(claimer, slots)


def claim_around(claimer: Claimer, slots: int) -> Batch:
    """Claim one by one where the row of some job keeps the database from taking any: that one is left alone.

    Nobody can say more of it than the log does; it waits until its row is mended, and is tried again each minute.
    """
    jobs: list[Claimed] = []
    for _ in range(slots + MOST_SPOILT):
        if len(jobs) == slots:
            break
        try:
            one = durable(lambda: claim_within(claimer, 1))
        except Unclaimable as error:
            leave_alone(claimer, error)
            continue
        if not one.jobs and not one.again:
            break
        jobs += one.jobs
    return Batch(jobs, again=True)


def leave_alone(claimer: Claimer, error: Unclaimable) -> None:
    """Claim none of these for a while. Raises the error where it names none."""
    if not error.job_ids:
        raise error
    log.error("job %s cannot be claimed for what its row holds; it is left alone for %g s",
              ", ".join(error.job_ids), ALONE_S, exc_info=error.__cause__)
    claimer.spoilt.leave(error.job_ids)


def claim_within(claimer: Claimer, slots: int) -> Batch:
    """Claim inside the present transaction; jobs of unknown agents whatever their type, since they only fail (A26)."""
    if claimer.types is None or all(group != UNROUTED for group, _ in claimer.pairs):
        return claim(claimer, slots)
    routed = claim(replace(claimer, pairs=[p for p in claimer.pairs if p[0] != UNROUTED]), slots)
    lost = [p for p in claimer.pairs if p[0] == UNROUTED]
    others = claim(replace(claimer, pairs=lost, types=None), slots - len(routed.jobs))
    return Batch([*routed.jobs, *others.jobs], routed.again or others.again)


def extend(fences: Sequence[str]) -> dict[str, Beat]:
    """Renew leases; attempts that are missing in the answer are no longer live (`stale_claim`).

    One whose row the database refuses is not renewed, which is no reason to let the others lapse.
    """
    if not fences:
        return {}
    try:
        return _beats(fences, durable(lambda: due.extend(fences)))
    except FAULTS as error:
        if len(fences) > 1:
            return {fence: beat for one in fences for fence, beat in extend([one]).items()}
        found = peek(fences)
        log.error("a lease cannot be renewed for what its job's row holds: %s", str(error).strip())
        return found


def _beats(asked: Sequence[str], found: dict[str, tuple[str, str | None, bool]]) -> dict[str, Beat]:
    """By the ids as they were said: rows spell them in lower case, whoever holds one may not."""
    return {fence: Beat(*found[fence.lower()]) for fence in asked if fence.lower() in found}


class Locked(Conflict):
    """Somebody holds this job's row for longer than we wait; say it again."""

    code = "job_locked"

    def __init__(self) -> None:
        super().__init__(retry_after_s=1)


def start(jobs: Sequence[tuple[str, str]], by: str, *, patience_ms: int = 0) -> list[Answer]:
    """The first heartbeat of (job, attempt) pairs: leased becomes running (A9).

    With patience it raises Locked, and moves nothing, where a row is not free in time: whoever renews leases must not
    wait behind a caller that cancelled a job and keeps its transaction open.
    """
    if not jobs:
        return []

    def work() -> list[Answer]:
        if patience_ms:
            run(f"SET LOCAL lock_timeout = {int(patience_ms)}")
        return apply([Move(job.lower(), Verb.START, by=by, fence=fence.lower()) for job, fence in jobs])

    try:
        return durable(work)
    except OperationalError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            raise Locked from error
        raise


def peek(fences: Sequence[str]) -> dict[str, Beat]:
    """What `extend` answers, without renewing anything."""
    return _beats(fences, due.peek(fences))


def completed(fences: Sequence[str]) -> set[str]:
    """Those of these attempts that their holders have completed: of another one nothing is believed (A2)."""
    return due.completed(fences)


def hand_back_unknown(worker_id: str, known: Sequence[str], by: str) -> int:
    """Release, uncounted as failures, live attempts in this worker's name that it does not know (E8).

    A claim whose COMMIT was answered into a broken connection leaves such attempts; how many there were.
    """
    strays = due.live_of_worker(worker_id, known)
    if not strays:
        return 0
    outcome = Interrupted("attempt_unknown")
    moves = [Move(job, Verb.INTERRUPT, by=by, fence=fence, outcome=outcome) for job, fence in strays]
    return each(moves, apply)


def look_after(job: Job) -> bool:
    """Have lapsed attempts recovered in the background, if this job's is one: it is read, and nobody may claim (A56).

    At most once a second a process, in a thread and transactions of its own; whether it was begun.
    """
    if job.attempt_id is None or not due.is_lapsed(str(job.attempt_id), int(conf().RECOVERY_GRACE_S * 1_000_000)):
        return False
    global _recovering
    with _looking:
        # A slow database is asked by one at a time, and nothing piles up behind it.
        if not _recovering.done() or not _looked.due():
            return False
        _recovering = _background.submit(_recover)
    return True


def _recover() -> None:
    try:
        _upkeep.now()
        _upkeep.tick()
    finally:
        connections.close_all()
