"""The states of a job as a picture: where it stands, and the moves that it made, numbered (E1).

Values for an SVG that a template draws; colours are the sheet's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jobs.states import State

WIDE, HIGH = 118, 38
# Two rows: the usual way, and what leaves it.
PLACES: dict[State, tuple[int, int]] = {
    State.QUEUED: (75, 92), State.LEASED: (275, 92), State.RUNNING: (475, 92), State.COMPLETED: (675, 92),
    State.PAUSED: (75, 228), State.FAILED: (275, 228), State.CANCELLED: (475, 228), State.SUPERSEDED: (675, 228),
}
# Shown faintly although they were not made: the way that a job goes when nothing happens.
USUAL = [(State.QUEUED, State.LEASED), (State.LEASED, State.RUNNING), (State.RUNNING, State.COMPLETED)]
# Two ways between the same states run beside each other.
APART = 13
_KNOWN = {state.value: state for state in State}
NAMED = 3


@dataclass(frozen=True, slots=True)
class Node:
    """A state: its box, and whether the job stands there or has been there."""

    name: str
    x: float
    y: float
    here: bool
    been: bool

    @property
    def middle(self) -> tuple[float, float]:
        """Where its word stands."""
        return self.x + WIDE / 2, self.y + HIGH / 2


@dataclass(frozen=True, slots=True)
class Edge:
    """A move: its path, and the label of its numbers at (x, y), none for one that was not made."""

    path: str
    label: str = ""
    x: float = 0
    y: float = 0

    @property
    def label_wide(self) -> int:
        """The width of the label's box."""
        return 12 + 8 * len(self.label)

    @property
    def label_top(self) -> float:
        """Where it begins, downwards."""
        return self.y - 10

    @property
    def label_left(self) -> float:
        """Where the label's box begins."""
        return self.x - self.label_wide / 2


@dataclass(frozen=True, slots=True)
class Drawing:
    """The picture, and the same in words."""

    nodes: list[Node]
    faint: list[Edge]
    made: list[Edge]
    said: str
    top: int = 62
    high: int = 194
    wide: int = 750
    box_wide: int = WIDE
    box_high: int = HIGH


def drawing(present: str, runs: Iterable[Sequence[str]]) -> Drawing:
    """The picture of a job in state `present` that went through these states; more than one run where some are unknown.

    A run begins with the state that the job came into first.
    """
    moves: dict[tuple[State, State], list[int]] = {}
    been, number, told = {State(present)}, 0, []
    for run in runs:
        states = [_KNOWN[word] for word in run if word in _KNOWN]
        been.update(states)
        told.append(", ".join(states))
        for pair in pairwise(states):
            number += 1
            moves.setdefault(pair, []).append(number)
    nodes = [Node(state.value, x - WIDE / 2, y - HIGH / 2, state == present, state in been)
             for state, (x, y) in PLACES.items()]
    made = [_edge(*pair, label=_label(numbers)) for pair, numbers in moves.items() if pair[0] is not pair[1]]
    faint = [_edge(*pair) for pair in USUAL if pair not in moves]
    way = "; then, after some that are not shown, ".join(told) or "unknown"
    # As high as it needs to be: most jobs go no way around.
    top = int(min(62, *(edge.label_top - 6 for edge in made))) if made else 62
    low = int(max(256, *(edge.label_top + 26 for edge in made))) if made else 256
    said = f"The job is {present}. It went through these states: {way}."
    return Drawing(nodes, faint, made, said, top, low - top)


def _label(numbers: list[int]) -> str:
    if len(numbers) <= NAMED:
        return " ".join(map(str, numbers))
    return f"{len(numbers)}\N{MULTIPLICATION SIGN}"


def _edge(begin: State, end: State, label: str = "") -> Edge:
    (x1, y1), (x2, y2) = PLACES[begin], PLACES[end]
    if y1 == y2 and x2 - x1 != 200:
        return _arc(x1, x2, y1, label)
    if y1 == y2:
        return _line(x1 + WIDE / 2, y1, x2 - WIDE / 2 - 7, y2, label, 0.5)
    # To its own left, so that the way back has the other side.
    down = y2 > y1
    side = APART if down else -APART
    lean = max(-40.0, min(40.0, (x2 - x1) / 6))
    return _line(x1 + side + lean, y1 + (HIGH / 2 if down else -HIGH / 2), x2 + side - lean,
                 y2 + (-HIGH / 2 - 7 if down else HIGH / 2 + 7), label, 0.42)


def _line(x1: float, y1: float, x2: float, y2: float, label: str, at: float) -> Edge:
    return Edge(f"M{x1:.0f} {y1:.0f} L{x2:.0f} {y2:.0f}", label, x1 + (x2 - x1) * at, y1 + (y2 - y1) * at)


def _arc(x1: int, x2: int, y: int, label: str) -> Edge:
    """Around the boxes between: above the upper row, below the lower one; back further out than forth."""
    out = -1 if y == PLACES[State.QUEUED][1] else 1
    far = 24 + 12 * abs(x2 - x1) / 200 + (10 if x2 < x1 else 0)
    top = y + out * (HIGH / 2)
    shift = 24 if x2 > x1 else -24
    begin, end = x1 + shift, x2 - shift
    bend = top + out * far
    return Edge(f"M{begin:.0f} {top:.0f} C{begin:.0f} {bend:.0f} {end:.0f} {bend:.0f} {end:.0f} {top + out * 7:.0f}",
                label, (begin + end) / 2, top + out * far * 0.76)
