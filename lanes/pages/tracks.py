"""The three axes of a lane as its page draws them: where it stands, what may come next, by whom, and why not now."""

from __future__ import annotations

from typing import NamedTuple

from lanes import axes
from lanes.axes import Axis, Merge, Role
from lanes.models import Lane

ASKS = {Axis.EXECUTION: "How far is the work?", Axis.REVIEW: "Is it agreed to?",
        Axis.MERGE: "What became of the branch?"}


class Deed(NamedTuple):
    """A button: what it says, what it does to which axis, and what that means."""

    name: str
    axis: Axis
    verb: str
    label: str
    done: str
    means: str
    danger: bool = False


DEEDS = {deed.name: deed for deed in (
    Deed("start", Axis.EXECUTION, "in_progress", "Start", "started",
         "The lane is in progress from now on. Its review and its merge stay as they are."),
    Deed("finish", Axis.EXECUTION, "done", "Finish", "done",
         "The work is done. Review and merge can still follow; it is not started again."),
    Deed("fail", Axis.EXECUTION, "failed", "Mark as failed", "marked as failed",
         "The lane is given up as failed: nothing of it changes any more.", danger=True),
    Deed("cancel", Axis.EXECUTION, "cancelled", "Cancel the lane", "cancelled",
         "The lane is cancelled: nothing of it changes any more. Its jobs go on as they are.", danger=True),
    Deed("submit", Axis.REVIEW, "submit", "Submit for review", "submitted for review",
         "A conductor is asked to approve it, or to request changes."),
    Deed("approve", Axis.REVIEW, "approve", "Approve", "approved", "What was submitted is agreed to."),
    Deed("request-changes", Axis.REVIEW, "request_changes", "Request changes", "sent back for changes",
         "It is not agreed to as it is. Its assignee submits it again."),
    Deed("merged", Axis.MERGE, "merged", "Record as merged", "recorded as merged",
         "Says that the branch was merged and where. Nothing is merged by it, and nothing of the lane changes after."),
    Deed("conflicted", Axis.MERGE, "conflicted", "Record a conflict", "recorded as conflicted",
         "Says that the branch could not be merged. It may be merged or abandoned later."),
    Deed("abandoned", Axis.MERGE, "abandoned", "Record as abandoned", "recorded as abandoned",
         "Says that the branch will not be merged.", danger=True),
)}


class Step(NamedTuple):
    """One state of an axis: `mark` says whether the lane is here, may come here next, or neither."""

    state: str
    label: str
    mark: str


class Next(NamedTuple):
    """A deed that leads on from here: whether this reader may do it, who may, and what is still missing for it."""

    deed: Deed
    may: bool
    who: str
    lacks: str


class Track(NamedTuple):
    """One axis of a lane."""

    axis: Axis
    label: str
    asks: str
    state: str
    steps: list[Step]
    nexts: list[Next]
    end: str


def tracks(lane: Lane, role: Role | None, user_id: str) -> list[Track]:
    """All three, for somebody with this role."""
    return [_track(lane, axis, role, user_id) for axis in Axis]


def possible(lane: Lane, deed: Deed) -> bool:
    """Whether the lane's state lets this be done now, by whoever may."""
    return deed.verb in axes.possible(lane.standing, deed.axis)


def words(state: str) -> str:
    """A state as people read it."""
    return state.replace("_", " ")


def _track(lane: Lane, axis: Axis, role: Role | None, user_id: str) -> Track:
    now = lane.standing
    nexts = [] if now.over else [
        _next(lane, deed, role, user_id) for deed in DEEDS.values()
        if deed.axis is axis and (now.on(axis), deed.verb) in axes.MOVES[axis]]
    ahead = {axes.MOVES[axis][now.on(axis), one.deed.verb].to for one in nexts}
    steps = [Step(state, words(state), "here" if state == now.on(axis) else "next" if state in ahead else "")
             for state in axes.STATES[axis]]
    return Track(axis, axis.value.capitalize(), ASKS[axis], now.on(axis), steps, nexts, _end(lane, axis))


def _next(lane: Lane, deed: Deed, role: Role | None, user_id: str) -> Next:
    move = axes.needed(deed.axis, deed.verb)
    may = axes.may(move, role, lane.assignee_user == user_id)
    lacks = "" if possible(lane, deed) else "takes a lane that is done and approved"
    return Next(deed, may, "a conductor, or its assignee" if move.or_assignee else "a conductor", lacks)


def _end(lane: Lane, axis: Axis) -> str:
    """Why nothing comes after this."""
    now = lane.standing
    if now.merge == Merge.MERGED:
        return "It is merged: nothing of it changes any more."
    if now.over:
        return f"The lane is {words(now.execution)}{' and abandoned' if now.merge == Merge.ABANDONED else ''}: " \
               "nothing of it changes any more."
    return {"done": "The work is over; review and merge may follow.", "abandoned": "It will not be merged."}.get(
        now.on(axis), "")
