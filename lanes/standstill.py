"""Whether work stands still, and why: the one rule of every watchdog (A49). Plain Python, over others' facts.

What is watched is a lane here, an objective in `jobsite.factory`. A standstill that was seen is asked about once: its
`key` names what was seen, so that looking again, late or twice at once makes no second job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Cause = Literal["no_active_objective_work", "phase_supersession_has_active_stale_job",
                "active_objective_work_stalled"]

# For people.
WORDS: Final[dict[Cause, str]] = {
    "no_active_objective_work": "none of its jobs is active",
    "phase_supersession_has_active_stale_job": "a job from before its latest change is active, and silent",
    "active_objective_work_stalled": "its active jobs are silent",
}
# How many are looked at in a round, and the most that may be asked for.
SCAN_LIMIT: Final = 200
MOST: Final = 2_000
# Work that has not been heard of for so long is believed no more.
PATIENCE_S: Final = 900.0
# Why the job that looks into it was made, beside the cause.
REASON: Final = "reconcile"


@dataclass(frozen=True, slots=True)
class Work:
    """One active job: how long ago it was heard of, and whether it is of the phase that what is watched is in now."""

    quiet_s: float
    current: bool = True
    patience_s: float = PATIENCE_S

    @property
    def stale(self) -> bool:
        """Whether it is to be believed no more."""
        return self.quiet_s > self.patience_s


def cause(work: Iterable[Work]) -> Cause | None:
    """Why something with this active work should be looked into; None while it is at work."""
    active = list(work)
    if not active:
        return "no_active_objective_work"
    if any(one.stale and not one.current for one in active):
        return "phase_supersession_has_active_stale_job"
    return "active_objective_work_stalled" if all(one.stale for one in active) else None


def key(*seen: object) -> str:
    """The idempotency key of the job that looks into what was seen: the same for the same, and for nothing else."""
    return "watchdog:" + hashlib.sha256("\0".join(map(str, seen)).encode()).hexdigest()[:32]


def clamped(limit: int) -> int:
    """A scan limit within its bounds."""
    return max(1, min(limit, MOST))
