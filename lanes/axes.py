"""The three axes of a lane and the one table of moves of each: from where, by which verb, to where, and who may.

Plain Python. The axes are independent: a move on one leaves the others as they are. What binds them is said here too:
`merged` takes a lane that is done and approved, and a lane that is over does not change on any of them (D9 to D11).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from lanes.errors import LaneEnded, LaneMoveRefused, NotMergeable


class Axis(StrEnum):
    """What a lane is asked by: is the work done, is it agreed to, is it in."""

    EXECUTION = "execution"
    REVIEW = "review"
    MERGE = "merge"


class Execution(StrEnum):
    """How far the work is. The last three are terminal."""

    OPEN = "open"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Review(StrEnum):
    """What has been agreed."""

    NONE = "none"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"


class Merge(StrEnum):
    """What became of the branch, as somebody recorded it; nothing here merges."""

    NONE = "none"
    MERGED = "merged"
    CONFLICTED = "conflicted"
    ABANDONED = "abandoned"


class Role(StrEnum):
    """What a principal is in a workspace, as grants say it, from the least to the most."""

    MEMBER = "member"
    ASSIGNEE = "assignee"
    CONDUCTOR = "conductor"


class Move(NamedTuple):
    """What a verb makes of a state, who may, and whether the lane's own assignee may too."""

    to: str
    role: Role = Role.CONDUCTOR
    or_assignee: bool = False


Table = Mapping[tuple[str, str], Move]


def _table(*lines: tuple[tuple[str, ...], str, Move]) -> Table:
    return MappingProxyType({(start, verb): move for starts, verb, move in lines for start in starts})


# The verbs of execution and merge are the states that they lead to.
EXECUTION: Table = _table(
    (("open",), "in_progress", Move(Execution.IN_PROGRESS)),
    (("in_progress",), "done", Move(Execution.DONE)),
    (("in_progress",), "failed", Move(Execution.FAILED)),
    (("open", "in_progress"), "cancelled", Move(Execution.CANCELLED)),
)
REVIEW: Table = _table(
    (("none", "changes_requested"), "submit", Move(Review.SUBMITTED, or_assignee=True)),
    (("submitted",), "approve", Move(Review.APPROVED)),
    (("submitted", "approved"), "request_changes", Move(Review.CHANGES_REQUESTED)),
)
MERGE: Table = _table(
    (("none", "conflicted"), "merged", Move(Merge.MERGED)),
    (("none",), "conflicted", Move(Merge.CONFLICTED)),
    (("none", "conflicted"), "abandoned", Move(Merge.ABANDONED)),
)
MOVES: Mapping[Axis, Table] = MappingProxyType({Axis.EXECUTION: EXECUTION, Axis.REVIEW: REVIEW, Axis.MERGE: MERGE})
STATES: Mapping[Axis, tuple[str, ...]] = MappingProxyType({
    Axis.EXECUTION: tuple(Execution), Axis.REVIEW: tuple(Review), Axis.MERGE: tuple(Merge)})
# A lane that was given up takes neither review nor merge.
GIVEN_UP = frozenset({Execution.FAILED, Execution.CANCELLED})


class Standing(NamedTuple):
    """Where a lane stands on its three axes."""

    execution: str = Execution.OPEN
    review: str = Review.NONE
    merge: str = Merge.NONE

    @property
    def over(self) -> bool:
        """Whether nothing of the lane changes any more: it was given up, merged, or is done and abandoned (E14.16)."""
        return (self.execution in GIVEN_UP or self.merge == Merge.MERGED
                or (self.execution == Execution.DONE and self.merge == Merge.ABANDONED))

    def on(self, axis: Axis) -> str:
        """The state on one axis."""
        return str(getattr(self, axis.value))


def verbs(axis: Axis) -> tuple[str, ...]:
    """The verbs of an axis, in the order of its table."""
    return tuple(dict.fromkeys(verb for _, verb in MOVES[axis]))


def needed(axis: Axis, verb: str) -> Move:
    """Who may say this verb, whatever the lane's state is; a state to which nothing leads is a conductor's word too."""
    return next((move for (_, said), move in MOVES[axis].items() if said == verb), Move(verb))


def may(move: Move, role: str | None, is_assignee: bool) -> bool:
    """Whether who has this role may make a move; the lane's assignee needs its role still."""
    if role is None:
        return False
    return role == move.role or (move.or_assignee and is_assignee and role != Role.MEMBER)


def moved(now: Standing, axis: Axis, verb: str) -> Standing:
    """Where the lane stands after this verb.

    Raises LaneEnded where it has ended (on the axis execution: as soon as that is terminal), LaneMoveRefused, and
    NotMergeable for `merged` of a lane that is not done and approved.
    """
    state = now.on(axis)
    terminal = axis is Axis.EXECUTION and state in (Execution.DONE, *GIVEN_UP)
    if now.over or terminal:
        raise LaneEnded(_ended(now), execution=now.execution, merge=now.merge)
    move = MOVES[axis].get((state, verb))
    if move is None:
        raise LaneMoveRefused(f"{axis.value.capitalize()} is {state}, from where {verb} does not lead on; "
                              f"possible: {', '.join(possible(now, axis)) or 'nothing'}.", axis=axis.value, state=state)
    if verb == Merge.MERGED and (now.execution, now.review) != (Execution.DONE, Review.APPROVED):
        raise NotMergeable(f"Merged takes a lane that is done and approved: this one is {now.execution}, its review "
                           f"{now.review}.", execution=now.execution, review=now.review)
    return now._replace(**{axis.value: move.to})


def _ended(now: Standing) -> str:
    if now.merge == Merge.MERGED:
        return "This lane is merged: it does not change any more."
    if now.merge == Merge.ABANDONED and now.execution == Execution.DONE:
        return "This lane is done and abandoned: it does not change any more."
    return f"The execution of this lane has ended as {now.execution}."


def possible(now: Standing, axis: Axis) -> tuple[str, ...]:
    """The verbs that lead on from here on this axis."""
    if now.over:
        return ()
    ready = (now.execution, now.review) == (Execution.DONE, Review.APPROVED)
    return tuple(verb for (state, verb) in MOVES[axis]
                 if state == now.on(axis) and (verb != Merge.MERGED or ready))
