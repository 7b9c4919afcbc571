"""The rule of the watchdog: which objectives stand still, why, and the control job that looks at each (A49).

A pure rule over facts; who gathers them and how often it runs is the timer's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from jobs.services.draft import Options, Request
from jobsite.factory.contracts import CONTROL

Reason = Literal["no_active_objective_work", "phase_supersession_has_active_stale_job",
                 "active_objective_work_stalled"]

SCAN_LIMIT: Final = 200
MOST: Final = 2_000
# Work is stale when nothing has been heard of it for so long; in a sandbox it may be quiet while its files are synced.
STALE_S: Final = 300.0
SANDBOX_STALE_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Work:
    """One active job of an objective: the phase it was made for, and how long ago it was heard of."""

    phase: str
    quiet_s: float
    sandboxed: bool = False

    @property
    def stale(self) -> bool:
        """Whether it is to be believed no more."""
        return self.quiet_s > (SANDBOX_STALE_S if self.sandboxed else STALE_S)


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective as it was seen: its phase, its active work, and `revision`, which changes when it does."""

    id: str
    phase: str
    auth_context: dict[str, Any]
    revision: int
    work: tuple[Work, ...] = field(default=())
    ended: bool = False


def reason(objective: Objective) -> Reason | None:
    """Why this objective should be looked at; None while it is at work, or has ended."""
    if objective.ended:
        return None
    if not objective.work:
        return "no_active_objective_work"
    if any(work.stale and work.phase != objective.phase for work in objective.work):
        return "phase_supersession_has_active_stale_job"
    return "active_objective_work_stalled" if all(work.stale for work in objective.work) else None


def reconcile(objective: Objective, cause: Reason) -> Request:
    """The control job for one. One observed state is asked about once, however often a round repeats."""
    payload = {"authContext": objective.auth_context, "objectiveId": objective.id, "reason": "reconcile",
               "cause": cause}
    seen = hashlib.sha256(f"{objective.id}\0{objective.revision}\0{cause}".encode()).hexdigest()[:32]
    key = f"watchdog:{seen}"
    return Request("factory.objective.control", payload, Options(agent=CONTROL, idempotency_key=key))


def round_(objectives: Iterable[Objective], limit: int = SCAN_LIMIT) -> Iterator[Request]:
    """The control jobs of one round, which looks at no more than `limit` objectives, clamped to 1..2,000."""
    most = max(1, min(limit, MOST))
    for objective, _ in zip(objectives, range(most), strict=False):
        if cause := reason(objective):
            yield reconcile(objective, cause)
