"""What happens to a job after an attempt ended: again, and after how long, or never (REQUIREMENTS E4).

Pure arithmetic over values; spans are whole microseconds and the moment `now` comes from the statement
that locked the row. The order in which reasons are tried is the order of E4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from jobs.errors import Invalid, Refused

TERMINAL_CODES = frozenset({
    "budget_exhausted", "secret_in_diff", "duration_exceeded", "invalid_persisted_input", "no_handler",
})
TERMINAL_SUFFIX = "_refused"
# Nobody may ask for more; a site may allow less by JOBS["MAX_ATTEMPTS"].
MAX_ATTEMPTS = 1_000
MAX_RELEASES = 100
MAX_INTERRUPTIONS = 100
SECOND = 1_000_000
# Rows keep whole milliseconds.
MIN_DELAY_S = 0.001
MAX_DELAY_S = 366 * 86_400
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


class TooManyReleases(Refused):
    """This job was given back too often in its present chain."""

    code = "too_many_releases"


def _is_delay(value: object) -> bool:
    return type(value) in (int, float) and MIN_DELAY_S <= value <= MAX_DELAY_S  # type: ignore[operator]


def _is_span(value: object) -> bool:
    # One beyond a site's longest is another refusal than one that is none.
    return value is None or (type(value) in (int, float) and 0 < value <= 1e12)  # type: ignore[operator]


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None and 1970 <= value.year < 2200


def _are_codes(value: object) -> bool:
    return value is None or (isinstance(value, tuple)
                             and all(isinstance(code, str) and _CODE.fullmatch(code) for code in value))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which wait a failed job runs again; delays in seconds (C13, E4).

    `retry_on` lists the reason codes that may be retried; None means every retryable failure. After `deadline_s` from a
    chain's first start, or from `deadline_at` on, nothing is tried again; not both (C15, C21).
    """

    max_attempts: int = 5
    base_delay_s: float = 5.0
    max_delay_s: float = 300.0
    retry_on: tuple[str, ...] | None = None
    deadline_s: float | None = None
    deadline_at: datetime | None = None

    def __post_init__(self) -> None:
        base, most = _is_delay(self.base_delay_s), _is_delay(self.max_delay_s)
        if isinstance(self.retry_on, list):
            object.__setattr__(self, "retry_on", tuple(self.retry_on))
        faults = [
            {"field": field, "message": message}
            for field, message, right in (
                ("max_attempts", "must be a whole number of at least 1",
                 type(self.max_attempts) is int and 1 <= self.max_attempts < 2**31),
                ("base_delay_s", f"must be from {MIN_DELAY_S} to {MAX_DELAY_S}", base),
                ("max_delay_s", f"must not be below base_delay_s, and at most {MAX_DELAY_S}",
                 most and (not base or self.max_delay_s >= self.base_delay_s)),
                ("retry_on", "must be reason codes in snake_case, or None", _are_codes(self.retry_on)),
                ("deadline_s", "must be a number of seconds above 0", _is_span(self.deadline_s)),
                ("deadline_at", "must be a moment with a time zone, and not be said beside deadline_s",
                 self.deadline_at is None or (self.deadline_s is None and _is_moment(self.deadline_at))),
            )
            if not right
        ]
        if faults:
            raise Invalid("The retry policy is not valid.", code="invalid_retry_policy", faults=faults)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a locked job row says about its chain: the policy's columns and the counters so far."""

    max_attempts: int | None
    base_delay_us: int
    max_delay_us: int
    retry_on: tuple[str, ...] | None
    failures: int
    lapses: int
    releases: int
    interruptions: int
    lapse_counts: bool
    max_lapses: int
    deadline_at: datetime | None
    # The tenant has no restart left in its window (C20).
    broke: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Back to queued after `after_us`; `failure` says whether retry budget was used."""

    after_us: int
    failure: bool = False


@dataclass(frozen=True, slots=True)
class Over:
    """No further attempt in this chain; `letter` is the dead letter's reason."""

    letter: str
    failure: bool = True


Decision = Again | Over


def is_terminal(code: str) -> bool:
    """Whether failures with this code are never retried (C17)."""
    return code in TERMINAL_CODES or code.endswith(TERMINAL_SUFFIX)


def backoff_us(n: int, base_us: int, max_us: int, jitter: float) -> int:
    """The wait before the attempt after the n-th failure: min(max, base x 2^(n-1)), jittered to [half, whole] (C16)."""
    shift = max(0, n - 1)
    whole = max_us if shift >= max_us.bit_length() else min(max_us, base_us << shift)
    half = whole - whole // 2
    return half + int((whole // 2) * min(max(jitter, 0.0), 1.0))


def _again_or_late(budget: Budget, after_us: int, now: datetime, failure: bool) -> Decision:
    if budget.deadline_at is not None:
        left_us = (budget.deadline_at - now).total_seconds() * SECOND
        if after_us >= left_us:
            return Over("deadline_exceeded", failure)
    return Again(after_us, failure)


def _restart(budget: Budget, after_us: int, now: datetime, failure: bool) -> Decision:
    """Another attempt after a failure or a lapse: it spends the tenant's retry budget (C20)."""
    decision = _again_or_late(budget, after_us, now, failure)
    return Over("retry_budget_exhausted", failure) if budget.broke and isinstance(decision, Again) else decision


def after_failure(budget: Budget, code: str, retryable: bool, now: datetime, jitter: float) -> Decision:
    """What a reported failure means (C13 to C21, E4)."""
    n = budget.failures + 1
    if not retryable or is_terminal(code):
        return Over("terminal_error")
    if budget.max_attempts is None or (budget.retry_on is not None and code not in budget.retry_on):
        return Over("retry_not_allowed")
    if n >= budget.max_attempts:
        return Over("attempts_exhausted")
    return _restart(budget, backoff_us(n, budget.base_delay_us, budget.max_delay_us, jitter), now, True)


def after_lapse(budget: Budget, now: datetime, jitter: float) -> Decision:
    """What a lapsed lease means: a failure unless the definition says otherwise, bounded by max_lapses (C35, E4).

    Backoff counts failures, this one too if it is one; lapses that are none still wait longer each time (E1).
    """
    lapses = budget.lapses + 1
    counts = budget.lapse_counts and budget.max_attempts is not None
    if lapses >= budget.max_lapses:
        return Over("quarantined", counts)
    if counts and budget.max_attempts is not None and budget.failures + 1 >= budget.max_attempts:
        return Over("attempts_exhausted", True)
    n = max(budget.failures + counts, lapses - 1)
    after = 0 if lapses == 1 else backoff_us(n, budget.base_delay_us, budget.max_delay_us, jitter)
    return _restart(budget, after, now, counts)


def after_release(budget: Budget, after_us: int, now: datetime) -> Again:
    """A holder gave the job back; refused when done too often or beyond the deadline (C32, E4, E8)."""
    if budget.releases >= MAX_RELEASES:
        raise TooManyReleases(f"A job may be released {MAX_RELEASES} times in a chain.", retry_after_s=60)
    if isinstance(_again_or_late(budget, after_us, now, False), Over):
        raise Invalid("The job's deadline lies before the end of this delay.", field="delay_s", code="invalid_release")
    return Again(after_us)


def after_interruption(budget: Budget, after_us: int, now: datetime, jitter: float) -> Decision:
    """A holder could not go on; uncounted up to a bound, then a failure (E4)."""
    if budget.interruptions >= MAX_INTERRUPTIONS:
        # Nobody reported this failure, and `retry_on` filters reported ones only.
        return after_failure(replace(budget, retry_on=None), "interrupted_too_often", True, now, jitter)
    return Again(after_us)
