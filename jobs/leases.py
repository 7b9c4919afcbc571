"""How long an attempt is believed without a heartbeat, and how often a holder must beat (REQUIREMENTS E8).

A lease is about liveness only; how long a job may run is the definition's timeout and duration.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

Overtime = Literal["attempt_timeout", "duration_exceeded"]

DEFAULT_LEASE_S = 30.0
GRACE_S = 5.0
# Three thousand years: what a hand has put beyond is no moment any more.
MOST_MS = 10**14


def heartbeat_s(lease_s: float, override_s: float | None = None) -> float:
    """Seconds between heartbeats: a third of the lease (of 600 at most), at least 1; overrides only lower it (A45)."""
    beat = max(1.0, min(lease_s, 600.0) / 3)
    return beat if override_s is None else min(beat, override_s)


def timeout_s(lease_s: float) -> float:
    """A44's execution timeout for definitions that declare none of their own: lease less a second, at least 5 s."""
    return max(5.0, lease_s - 1.0)


def duration_s(lease_s: float) -> float:
    """A46's bound of one invocation, for definitions that ask for it: lease and a minute, at least 120 s."""
    return max(120.0, lease_s + 60.0)


class Bounds(NamedTuple):
    """How long an attempt may run, and since when: `chain_at` is where the span of a whole chain began (E8)."""

    leased_at: datetime
    chain_at: datetime
    timeout_ms: int | None
    max_duration_ms: int | None
    duration_scope: str

    def over(self, now: datetime) -> Overtime | None:
        """Which bound has passed, if one has: the duration's end is the job's, so it comes first (C34, E8)."""
        since = self.chain_at if self.duration_scope == "chain" else self.leased_at
        if _has_passed(since, self.max_duration_ms, now):
            return "duration_exceeded"
        return "attempt_timeout" if _has_passed(self.leased_at, self.timeout_ms, now) else None


def _has_passed(since: datetime, span_ms: int | None, now: datetime) -> bool:
    return span_ms is not None and now >= since + timedelta(milliseconds=min(span_ms, MOST_MS))


def told(over: Overtime) -> str:
    """What people read of an attempt that was ended so."""
    return "The attempt ran longer than its timeout." if over == "attempt_timeout" else \
        "The job took longer than its definition allows it to."
