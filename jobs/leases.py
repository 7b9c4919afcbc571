"""How long an attempt is believed without a heartbeat, and how often a holder must beat (REQUIREMENTS E8).

A lease is about liveness only; how long a job may run is the definition's timeout and duration.
"""

from __future__ import annotations

DEFAULT_LEASE_S = 30.0
GRACE_S = 5.0


def heartbeat_s(lease_s: float, override_s: float | None = None) -> float:
    """Seconds between heartbeats: a third of the lease (of 600 at most), at least 1; overrides only lower it (A45)."""
    beat = max(1.0, min(lease_s, 600.0) / 3)
    return beat if override_s is None else min(beat, override_s)


def timeout_s(lease_s: float) -> float:
    """A44's execution timeout for definitions that declare none of their own: lease less a second, at least 5 s."""
    return max(5.0, lease_s - 1.0)
