"""What a worker is asked to serve, and the count of what it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.registry import Definition
from jobs.routing import SYSTEM


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
    # The house's own jobs alone, as a pump (D13); and of whose workspaces, None: of all.
    house: bool = False
    workspaces: tuple[int, ...] | None = None

    @property
    def role(self) -> str:
        """What this process calls itself when it is ready and when it ends."""
        return "pump" if self.house else "worker"

    def runs(self, definition: Definition) -> bool:
        """Whether this process vouches for it."""
        return definition.executor != "external" and (not self.house or definition.worker_group == SYSTEM)


@dataclass
class Tally:
    """What a worker has done."""

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    other: int = 0
    by_state: dict[str, int] = field(default_factory=dict)
