"""The end of attempts whose time is over: a timeout is a failure like others, a duration ends the job (C34, E8).

Workers look at the clock themselves; this is for runners, at their calls and, where they say nothing, by a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jobs.errors import Conflict, StaleFence
from jobs.leases import Overtime, told
from jobs.outcomes import Failed
from jobs.selectors import Assignment
from jobs.states import Verb
from jobs.store import due
from jobs.store.moves import Answer, apply
from jobs.store.verbs import Move

SPENT: Final = Failed("duration_exceeded", told("duration_exceeded"), retryable=False)


class DurationExceeded(Conflict):
    """The job took longer than its definition allows it to, and has ended with that."""

    code = "duration_exceeded"


def outcome(over: Overtime) -> Failed:
    """What it means for the job: a timeout may be retried, the end of its duration may not (C17, E8)."""
    return SPENT if over == "duration_exceeded" else Failed(over, told(over))


def end(found: Sequence[tuple[str, str, Overtime]], by: str) -> list[Answer]:
    """End these (job, attempt, bound), as far as nobody holds their rows and they are live still."""
    free = due.unlocked([job for job, _, _ in found])
    return apply([Move(job, Verb.FAIL, by=by, fence=fence, outcome=outcome(over)) for job, fence, over in found
                  if job in free])


def refusal(ended: Assignment, **facts: Any) -> Conflict:
    """What the holder of an attempt that has ended without it is told: why, where that was its time."""
    if ended.reason_code == DurationExceeded.code:
        return DurationExceeded(status=ended.state, **facts)
    why = told("attempt_timeout") if ended.reason_code == "attempt_timeout" else ""
    return StaleFence(why, status=ended.state, **facts)
