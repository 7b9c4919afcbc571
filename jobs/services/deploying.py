"""Before a deploy: which `type@version` rows still name that the new code does not register (E7, E15)."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.conf import registry
from jobs.store import deployed
from jobs.store.sql import durable

CAP = 10_000
PLACES = deployed.PLACES


@dataclass(slots=True)
class Left:
    """What is left of one version: rows by place, counted up to CAP rows of a place."""

    type: str
    version: int
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def active(self) -> int:
        """Jobs that wait, run or are paused."""
        return sum(n for place, n in self.rows.items() if place != "dead_letters")

    @property
    def letters(self) -> int:
        """Open dead letters: a requeue would need the version."""
        return self.rows.get("dead_letters", 0)


def left(patience_s: float) -> tuple[list[Left], bool]:
    """Each version that rows name and this code does not register, and whether a count stopped at the cap.

    Raises OperationalError (57014) where a look takes longer than the patience.
    """
    known = [(d.type, d.version) for d in registry()]
    found: dict[tuple[str, int], Left] = {}
    capped = False
    for place in PLACES:
        strange = _look(place, known, patience_s)
        capped |= sum(n for _, _, n in strange) >= CAP
        for type_, version, number in strange:
            found.setdefault((type_, version), Left(type_, version)).rows[place] = number
    return [found[name] for name in sorted(found)], capped


def _look(place: str, known: list[tuple[str, int]], patience_s: float) -> list[tuple[str, int, int]]:
    def work() -> list[tuple[str, int, int]]:
        deployed.patience(patience_s)
        return deployed.strange(place, known, CAP)

    return durable(work)
