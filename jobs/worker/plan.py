"""What a worker is asked to serve, and the count of what it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """What a worker serves. `groups` and `queues` are checked by whoever makes the plan."""

    name: str
    slots: int
    groups: Sequence[str]
    queues: Sequence[str]
    strict: bool = False
    once: bool = False
    until_empty: bool = False
    listen: bool = True
    loops: bool = True
    # When to make room for a fresh process; None: never.
    max_jobs: int | None = None
    max_age_s: float | None = None
    max_memory_mb: float | None = None
    liveness_file: str | None = None


@dataclass
class Tally:
    """What a worker has done."""

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    other: int = 0
    by_state: dict[str, int] = field(default_factory=dict)
