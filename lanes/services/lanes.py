"""Lanes: made, moved on their three axes, given to somebody, made to wait for others (D7 to D12).

Every verb asks in the same order: is the request well-formed, is there such a lane for this actor, may it do this;
only then is the lane locked and looked at, and the rule (`axes`) asked. A refusal leaves nothing behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from jobs.conf import registry
from jobs.errors import Invalid
from lanes import axes, graph, news, words
from lanes.actors import Actor
from lanes.axes import Axis, Merge, Role
from lanes.errors import (
    BranchTaken,
    DependencyCycle,
    InvalidAssignee,
    InvalidDependency,
    LaneEnded,
    LaneExists,
    LaneMoveRefused,
    LaneNotFound,
    LaneVersionChanged,
    QuorumClosed,
    QuorumNotFound,
    RoleRequired,
)
from lanes.models import Lane
from lanes.selectors import dependents, lane_door, quorum_door, read, receipts
from lanes.selectors import lane as get
from lanes.selectors import lanes as listing
from lanes.store import people, rows, waiting
from lanes.store.doors import Door, role_in

__all__ = ["LaneDraft", "create", "depend", "dependents", "get", "listing", "merge", "reassign", "receipts", "review",
           "role_in", "set_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDraft:
    """What a new lane shall be: one branch, one assignee (`user:ann`, `key:ab12cd34`), one task thread (D7).

    `depends_on`: lanes of the same quorum, by id or name. `reconcile`: `{"type": ..., "input": {...}}`, the job that
    puts the lane right when it stands still (A49).
    """

    name: str
    branch: str
    assignee: str
    task: str
    title: str = ""
    depends_on: Sequence[str] = ()
    reconcile: Mapping[str, Any] | None = None


def create(quorum_id: Any, draft: LaneDraft, *, by: Actor) -> Lane:
    """A new lane of a quorum, in its workspace for good; everything about it is right now, not later (D8).

    Raises QuorumNotFound, RoleRequired, QuorumClosed, LaneExists, BranchTaken, and Invalid: invalid_name,
    invalid_title, invalid_branch, invalid_task, invalid_assignee, invalid_dependency, dependency_cycle,
    invalid_reconcile and what the codec of that job refuses.
    """
    lane, wanted = _drafted(draft), words.dependencies(draft.depends_on)
    id_, door = quorum_door(quorum_id, by)
    _demand(door, Role.CONDUCTOR)
    with transaction.atomic():
        quorum = rows.lock_quorum(id_, alone=False)
        if quorum is None:
            raise QuorumNotFound()
        if quorum.closed_at is not None:
            raise QuorumClosed()
        lane.quorum, lane.workspace_id, lane.by = quorum, door.workspace_id, by.name
        _give(lane, draft.assignee)
        if lane.name in wanted:
            raise DependencyCycle("A lane cannot wait for itself.", field="depends_on")
        on = _named(id_, wanted)
        if not rows.add_lane(lane):
            raise LaneExists(field="name") if rows.has_name(lane) else BranchTaken(field="branch")
        rows.add_dependencies(lane.pk, on)
        rows.receipt(lane.pk, "created", by=by.name, version=1, after=lane.assignee)
        return _told(lane.pk)


def _drafted(draft: LaneDraft) -> Lane:
    type_, input_ = _reconcile(draft.reconcile)
    return Lane(name=words.name(draft.name), title=words.title(draft.title), branch=words.branch(draft.branch),
                task=words.task(draft.task), reconcile_type=type_, reconcile_input=input_)


def _reconcile(said: Any) -> tuple[str | None, str | None]:
    if said is None:
        return None, None
    if not isinstance(said, Mapping) or not isinstance(said.get("type"), str) or said.keys() - {"type", "input"}:
        raise Invalid('must be null, or {"type": ..., "input": {...}}', field="reconcile", code="invalid_reconcile")
    try:
        definition = registry().current(said["type"])
    except Invalid as error:
        # A lane has no type of its own.
        error.field, error.faults = "reconcile.type", [{**fault, "field": "reconcile.type"} for fault in error.faults]
        raise
    return said["type"], definition.input.normal(said.get("input", {}))


def _give(lane: Lane, name: Any) -> None:
    found = people.assignable(lane.workspace_id, name)
    if found is None:
        raise InvalidAssignee("must be user:NAME or key:PREFIX, with the role of assignee or conductor in this "
                              "workspace", field="assignee")
    lane.assignee, lane.assignee_user, lane.assignee_key = found.name, found.user_id, found.key_id


def _named(quorum_id: uuid.UUID, wanted: Sequence[str]) -> list[uuid.UUID]:
    found = waiting.named(quorum_id, wanted)
    missing = [word for word, id_ in found.items() if id_ is None]
    if missing:
        raise InvalidDependency(f"There is no lane {missing[0]} in this quorum.", field="depends_on")
    return list(dict.fromkeys(id_ for id_ in found.values() if id_ is not None))


# --- moves -----------------------------------------------------------------------------------------------------------


def set_state(lane_id: Any, to: str, *, by: Actor, version: int | None = None, reason: str = "") -> Lane:
    """Move the execution: open to in_progress to done or failed; what has not ended to cancelled (D9). By conductors.

    Raises LaneNotFound, RoleRequired, LaneVersionChanged where `version` is not the lane's, LaneEnded, LaneMoveRefused,
    and Invalid unknown_state and invalid_reason.
    """
    return _move(lane_id, Axis.EXECUTION, to, by, version, reason)


def review(lane_id: Any, verdict: str, *, by: Actor, version: int | None = None, reason: str = "") -> Lane:
    """`submit` by a conductor or the lane's assignee, `approve` or `request_changes` by a conductor (D10).

    Raises as `set_state` does; Invalid unknown_review.
    """
    return _move(lane_id, Axis.REVIEW, verdict, by, version, reason)


def merge(lane_id: Any, outcome: str, *, by: Actor, commit: str | None = None, version: int | None = None,
          reason: str = "") -> Lane:
    """Record what became of the branch: `merged` (done, approved, and with its commit), `conflicted` or `abandoned`.

    It records and never merges (D11). Raises as `set_state` does, NotMergeable, and Invalid unknown_outcome,
    commit_required and invalid_commit.
    """
    pointer = words.commit(commit, required=outcome == Merge.MERGED)
    return _move(lane_id, Axis.MERGE, outcome, by, version, reason, pointer)


def _move(lane_id: Any, axis: Axis, verb: Any, by: Actor, version: int | None, reason: str,
          commit: str | None = None) -> Lane:
    words.verb(axis, verb)
    words.version(version)
    words.reason(reason)
    id_, door = lane_door(lane_id, by)
    needed = axes.needed(axis, verb)
    if not axes.may(needed, door.role, door.is_assignee):
        raise RoleRequired(needed.role, or_assignee=needed.or_assignee)
    with transaction.atomic():
        lane = _locked(id_, version)
        after = axes.moved(lane.standing, axis, verb)
        _changed(rows.move(lane, axis, after, commit))
        kind = "state" if axis is Axis.EXECUTION else axis.value
        rows.receipt(id_, kind, by=by.name, version=lane.version + 1, axis=axis, before=lane.standing.on(axis),
                     after=after.on(axis), commit=commit, reason=reason)
        return _told(id_)


# --- whose, and after whom -------------------------------------------------------------------------------------------


def reassign(lane_id: Any, assignee: str, *, by: Actor, version: int | None = None, reason: str = "") -> Lane:
    """Give a lane to somebody else: it has one assignee (D7). By conductors.

    Raises LaneNotFound, RoleRequired, LaneVersionChanged, LaneEnded, LaneMoveRefused where it is theirs already, and
    Invalid invalid_assignee and invalid_reason.
    """
    id_, _ = _opened(lane_id, by, version, reason)
    with transaction.atomic():
        lane = _open(_locked(id_, version))
        before, was = lane.assignee, (lane.assignee_user, lane.assignee_key)
        _give(lane, assignee)
        if was == (lane.assignee_user, lane.assignee_key):
            raise LaneMoveRefused(f"This lane is {lane.assignee}'s already.")
        _changed(rows.assign(lane, lane.assignee, lane.assignee_user, lane.assignee_key))
        rows.receipt(id_, "assignee", by=by.name, version=lane.version + 1, before=before, after=lane.assignee,
                     reason=reason)
        return _told(id_)


def depend(lane_id: Any, depends_on: Sequence[str], *, by: Actor, version: int | None = None,
           reason: str = "") -> Lane:
    """Let a lane depend on these lanes of its quorum, by id or name, and on no others. By conductors.

    Raises as `reassign` does, and Invalid invalid_dependency and dependency_cycle. Two at once stand in line by the
    quorum, so that no two of them close a circle together.
    """
    wanted = words.dependencies(depends_on)
    id_, door = _opened(lane_id, by, version, reason)
    with transaction.atomic():
        rows.lock_quorum(door.quorum_id, alone=True)
        lane = _open(_locked(id_, version))
        on = _named(door.quorum_id, wanted)
        _check_circle(lane, on)
        before = waiting.names_on(id_)
        _changed(rows.depend(lane, on))
        rows.receipt(id_, "dependencies", by=by.name, version=lane.version + 1, before=before,
                     after=waiting.names_on(id_), reason=reason)
        return _told(id_)


def _check_circle(lane: Lane, on: Sequence[uuid.UUID]) -> None:
    circle = graph.circle(lane.pk, on, waiting.edges(on))
    if circle is not None:
        names = waiting.names(circle)
        raise DependencyCycle(f"Lanes would wait for each other: {' > '.join(names[one] for one in circle)}.",
                              field="depends_on")


# --- the order of questions ------------------------------------------------------------------------------------------


def _opened(lane_id: Any, by: Actor, version: int | None, reason: str) -> tuple[uuid.UUID, Door]:
    words.version(version)
    words.reason(reason)
    id_, door = lane_door(lane_id, by)
    _demand(door, Role.CONDUCTOR)
    return id_, door


def _demand(door: Door, role: Role) -> None:
    if door.role != role:
        raise RoleRequired(role)


def _locked(lane_id: uuid.UUID, version: int | None) -> Lane:
    lane = rows.lock_lane(lane_id)
    if lane is None:
        raise LaneNotFound()
    if version is not None and version != lane.version:
        raise LaneVersionChanged(version=lane.version)
    return lane


def _open(lane: Lane) -> Lane:
    if lane.ended_at is not None:
        raise LaneEnded()
    return lane


def _changed(done: bool) -> None:
    if not done:
        raise LaneVersionChanged()


def _told(lane_id: uuid.UUID) -> Lane:
    lane = read(lane_id)
    news.after_commit(news.News(lane.workspace_id, lane.quorum_id, lane.pk, lane.version))
    return lane
