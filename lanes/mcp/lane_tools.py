"""Quorums and lanes as tools: make, read, list, and move on the three axes (D7 to D12).

What a key may do here its grant in the workspace says, whatever permissions it has; the services ask for it before they
look at the lane.
"""

from __future__ import annotations

from typing import Any, Final

from jobs.api import fields, parsing
from jobs.api.describing import Schema, anything, boolean, listed, or_null, text, thing, whole
from jobs.api.security import Principal
from jobs.services.keys import Permission
from lanes import axes, selectors, words
from lanes.actors import of_key
from lanes.api import shapes
from lanes.api.lanes import MAX_NUMBER
from lanes.axes import Axis
from lanes.mcp.tools import Body, tool
from lanes.services import lane_jobs, lanes, quorums
from lanes.services.lanes import LaneDraft

_LANE: Final = {"lane": text("The id of the lane")}
_MOVE: Final = {
    "version": or_null(whole(1, means="The lane's version that you have read: refused where it has changed since")),
    "reason": or_null(text("Why; it stands in the lane's history", most=words.REASON_LIMIT))}
_PAGE: Final = {"limit": whole(1, selectors.MOST, "Most entries of the answer", default=selectors.LIMIT),
                "cursor": or_null(text("As `next_cursor` said"))}


def _verb(axis: Axis, means: str) -> dict[str, Schema]:
    return {words.VERB_FIELDS[axis]: text(means, among=axes.verbs(axis))}


def _states(axis: Axis) -> dict[str, Schema]:
    return {axis.value: or_null(text("Only lanes that stand so", among=axes.STATES[axis]))}


@tool("List quorums", Permission.LANES, {
    "closed": or_null(boolean("Those that are closed, or those that are not; by default both")), **_PAGE}, reads=True)
def quorum_list(who: Principal, body: Body) -> Any:
    """List the quorums that you may see, newest first. A quorum is one agreement, from which lanes go out."""
    closed = fields.boolean(body, "closed", False) if body.get("closed") is not None else None
    found = quorums.listing(by=of_key(who.key), closed=closed, **_page(body))
    return {"quorums": [shapes.quorum(row) for row in found.items], "next_cursor": found.next}


@tool("Create a lane", Permission.LANES, {
    "quorum": text("The id of the quorum that it belongs to"),
    "name": text("Once in its quorum: a-z 0-9 . _ -", most=words.NAME_LIMIT),
    "branch": text("Its one branch, as git names it", most=words.BRANCH_LIMIT),
    "assignee": text("Whose it is: user:NAME or key:PREFIX, with the role of assignee or conductor"),
    "task": text("Its one task thread: an address or a name", most=words.TASK_LIMIT),
    "title": or_null(text("For people", most=words.TITLE_LIMIT)),
    "depends_on": listed(text(), "Lanes of the same quorum that come first, by id or name",
                         most=words.MOST_DEPENDENCIES),
    "reconcile": or_null(thing({"type": text(), "input": anything()}, "The job that puts it right when it stands still",
                               optional=("input",)))}, "quorum", "name", "branch", "assignee", "task")
def lane_create(who: Principal, body: Body) -> Any:
    """Create a lane: a named stream of work with one branch, one assignee and one task thread. For conductors.

    It is in the workspace of its quorum for good. What it depends on is checked now, and circles are refused. A single
    job needs no lane.
    """
    wanted = LaneDraft(**{name: fields.text(body, name) for name in ("name", "branch", "assignee", "task")},
                       title=fields.text(body, "title", default=""), depends_on=body.get("depends_on", ()),
                       reconcile=body.get("reconcile"))
    with parsing.beneath("reconcile/input"):
        return _told(lanes.create(fields.text(body, "quorum"), wanted, by=of_key(who.key)), who)


@tool("Read a lane", Permission.LANES, {
    **_LANE, "history": boolean("With its receipts: who changed what, and why", default=False),
    "after": whole(0, means="Of the history, what came after this number", default=0)}, "lane", reads=True)
def lane_get(who: Principal, body: Body) -> Any:
    """Read a lane: its three axes, what leads on from here (`next`), its version, and what its jobs come to."""
    name, by = fields.text(body, "lane"), of_key(who.key)
    history, after = fields.boolean(body, "history", False), fields.count(body, "after", 0, 0, MAX_NUMBER)
    told = _told(lanes.get(name, by=by), who)
    if history:
        found = lanes.receipts(name, by=by, after=after)
        told |= {"receipts": [shapes.receipt(one) for one in found.items], "next_after": found.next}
    return told


@tool("List lanes", Permission.LANES, {
    "quorum": or_null(text("Only lanes of this quorum, by its id")), **_states(Axis.EXECUTION), **_states(Axis.REVIEW),
    **_states(Axis.MERGE), "assignee": or_null(text("Only lanes of this assignee: user:NAME or key:PREFIX")), **_PAGE},
      reads=True)
def lane_list(who: Principal, body: Body) -> Any:
    """List the lanes that you may see, newest first; what you may not see is left out without a word."""
    by = of_key(who.key)
    names = ("quorum", "execution", "review", "merge", "assignee")
    wanted: dict[str, Any] = {name: fields.named(body, name) for name in names}
    found = lanes.listing(by=by, **wanted, **_page(body))
    work = lane_jobs.standing([row.pk for row in found.items], by=by)
    return {"lanes": [shapes.lane(row, work[row.pk]) for row in found.items], "next_cursor": found.next}


@tool("Move a lane's execution", Permission.LANES, {
    **_LANE, **_verb(Axis.EXECUTION, "Where to: open leads to in_progress, that to done or failed, both to cancelled"),
    **_MOVE}, "lane", "state", ends=True)
def lane_set_state(who: Principal, body: Body) -> Any:
    """Move a lane on its axis of execution. For conductors. Review and merge stay as they are."""
    return _told(lanes.set_state(fields.text(body, "lane"), fields.text(body, "state"), **_moved(who, body)), who)


@tool("Review a lane", Permission.LANES, {
    **_LANE, **_verb(Axis.REVIEW, "submit is for conductors and the lane's assignee, the others for conductors"),
    **_MOVE}, "lane", "review")
def lane_review(who: Principal, body: Body) -> Any:
    """Submit a lane for review, approve it, or request changes. Completing its jobs never does."""
    return _told(lanes.review(fields.text(body, "lane"), fields.text(body, "review"), **_moved(who, body)), who)


@tool("Record a merge", Permission.LANES, {
    **_LANE, **_verb(Axis.MERGE, "What became of the branch"),
    "commit": or_null(text("The commit that it became, 7 to 64 hexadecimal digits; merged needs it", most=64)),
    **_MOVE}, "lane", "outcome", ends=True)
def lane_merge(who: Principal, body: Body) -> Any:
    """Record what became of a lane's branch: nothing is merged here. For conductors.

    `merged` takes a lane that is done and approved, and the commit; after it nothing of the lane changes.
    """
    return _told(lanes.merge(fields.text(body, "lane"), fields.text(body, "outcome"),
                             commit=fields.named(body, "commit"), **_moved(who, body)), who)


def _moved(who: Principal, body: Body) -> dict[str, Any]:
    """What every change says: who, which version was read, why."""
    return {"by": of_key(who.key), "version": body.get("version"), "reason": fields.text(body, "reason", default="")}


def _page(body: Body) -> dict[str, Any]:
    return {"limit": body.get("limit", selectors.LIMIT), "cursor": fields.named(body, "cursor")}


def _told(row: Any, who: Principal) -> dict[str, Any]:
    """A lane as a single read shows it."""
    return shapes.in_full(row, lane_jobs.standing([row.pk], by=of_key(who.key))[row.pk])
