"""Attempts in the hands of their holders: claim, extend, give back. Durable verbs (DESIGN 4)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.clock import Every
from jobs.services.recovery import Recovery, promote
from jobs.states import State, Verb
from jobs.store import due
from jobs.store.claim import Batch, Claimer, claim
from jobs.store.moves import Answer, apply
from jobs.store.sql import durable
from jobs.store.verbs import Move


@dataclass(frozen=True, slots=True)
class Beat:
    """What a holder learns from a heartbeat: whether to stop, and why."""

    state: str
    abort: str | None


class Upkeep:
    """What every claimer does for the claim's sake, at its own pace: promotion, and recovery once a second (C35, E8)."""

    def __init__(self) -> None:
        self._promote = Every(0.2)
        self._recover = Every(1.0)
        self._recovery = Recovery()
        self._lock = threading.Lock()

    def tick(self) -> None:
        """Run what is due; another thread of this process that is at it already suffices."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._promote.due():
                while promote():
                    pass
            if self._recover.due():
                self._recovery.tick()
        finally:
            self._lock.release()


_upkeep = Upkeep()


def take(claimer: Claimer, slots: int) -> Batch:
    """Claim up to `slots` jobs in a transaction of its own, after the upkeep that claims depend on."""
    _upkeep.tick()
    batch = durable(lambda: claim(claimer, slots))
    return batch


def extend(fences: Sequence[str]) -> dict[str, Beat]:
    """Renew leases; attempts that are missing in the answer are no longer live (`stale_claim`)."""
    if not fences:
        return {}
    return {fence: Beat(state, abort) for fence, (state, abort) in durable(lambda: due.extend(fences)).items()}


def start(jobs: Sequence[tuple[str, str]], by: str) -> list[Answer]:
    """The first heartbeat of (job, attempt) pairs: leased becomes running (A9)."""
    if not jobs:
        return []
    return durable(lambda: apply([Move(job, Verb.START, by=by, fence=fence) for job, fence in jobs]))


def begun(state: str) -> bool:
    """Whether the first heartbeat has been recorded."""
    return state == State.RUNNING
