"""The watchdog of the factory: which objectives stand still, why, and the control job that looks at each (A49).

The rule is `lanes.standstill`'s, as for lanes. Who gathers the facts is whoever serves `factory.objective.watchdog`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from jobs.services.draft import Options, Request
from jobsite.factory.contracts import CONTROL
from lanes import standstill
from lanes.standstill import SCAN_LIMIT, Cause

# Work is stale when nothing has been heard of it for so long; in a sandbox it may be quiet while its files are synced.
STALE_S: Final = 300.0
SANDBOX_STALE_S: Final = standstill.PATIENCE_S


@dataclass(frozen=True, slots=True)
class Work:
    """One active job of an objective: the phase it was made for, and how long ago it was heard of."""

    phase: str
    quiet_s: float
    sandboxed: bool = False


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective as it was seen: its phase, its active work, and `revision`, which changes when it does."""

    id: str
    phase: str
    auth_context: dict[str, Any]
    revision: int
    work: tuple[Work, ...] = field(default=())
    ended: bool = False


def reason(objective: Objective) -> Cause | None:
    """Why this objective should be looked at; None while it is at work, or has ended."""
    return None if objective.ended else standstill.cause(
        standstill.Work(work.quiet_s, work.phase == objective.phase, SANDBOX_STALE_S if work.sandboxed else STALE_S)
        for work in objective.work)


def reconcile(objective: Objective, cause: Cause) -> Request:
    """The control job for one. One observed state is asked about once, however often a round repeats."""
    payload = {"authContext": objective.auth_context, "objectiveId": objective.id, "reason": standstill.REASON,
               "cause": cause}
    key = standstill.key(objective.id, objective.revision, cause)
    return Request("factory.objective.control", payload, Options(agent=CONTROL, idempotency_key=key))


def round_(objectives: Iterable[Objective], limit: int = SCAN_LIMIT) -> Iterator[Request]:
    """The control jobs of one round, which looks at no more than `limit` objectives, clamped to 1..2,000."""
    for objective, _ in zip(objectives, range(standstill.clamped(limit)), strict=False):
        if cause := reason(objective):
            yield reconcile(objective, cause)
