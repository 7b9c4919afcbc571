"""The order of questions of every verb: is there such a lane or quorum for this actor, and may it do this; only then is
it locked and looked at, and the same asked again.

Who has stood in line may have lost meanwhile what it came in by: its grant, its role, or the lane that was its own. The
grant is then held until the commit, so that whoever takes it away waits for what is being done by it, and nothing is
done by it afterwards.
"""

from __future__ import annotations

import uuid
from typing import Any

from lanes import axes
from lanes.actors import Actor
from lanes.axes import Move
from lanes.errors import LaneNotFound, QuorumNotFound, RoleRequired
from lanes.models import Lane, Quorum
from lanes.selectors import lane_door, quorum_door
from lanes.store import doors, rows
from lanes.store.doors import Door

# What a conductor may, and nobody else.
CONDUCTED = Move("")


def lane(lane_id: Any, by: Actor, move: Move = CONDUCTED) -> tuple[uuid.UUID, Door]:
    """The lane that is meant, and what this actor is to it. Raises LaneNotFound and RoleRequired."""
    id_, door = lane_door(lane_id, by)
    check(door.role, move, door.is_assignee)
    return id_, door


def quorum(quorum_id: Any, by: Actor) -> tuple[uuid.UUID, Door]:
    """The quorum that is meant, to its conductors. Raises QuorumNotFound and RoleRequired."""
    id_, door = quorum_door(quorum_id, by)
    check(door.role)
    return id_, door


def check(role: str | None, move: Move = CONDUCTED, is_assignee: bool = False) -> None:
    """Whether a role is enough. Raises RoleRequired."""
    if not axes.may(move, role, is_assignee):
        raise RoleRequired(move.role, or_assignee=move.or_assignee)


def locked_lane(lane_id: uuid.UUID, by: Actor, move: Move = CONDUCTED) -> Lane:
    """The lane as it is now and stays, for who still may. Raises LaneNotFound and RoleRequired."""
    found = rows.lock_lane(lane_id)
    role = doors.held_role(found.workspace_id, by) if found is not None else None
    if found is None or role is None:
        raise LaneNotFound()
    check(role, move, by.is_one_of(found.assignee_user, found.assignee_key))
    return found


def locked_quorum(quorum_id: uuid.UUID, by: Actor, *, alone: bool) -> Quorum:
    """The quorum as `rows.lock_quorum` locks it, for who still may. Raises QuorumNotFound and RoleRequired."""
    found = rows.lock_quorum(quorum_id, alone=alone)
    role = doors.held_role(found.workspace_id, by) if found is not None else None
    if found is None or role is None:
        raise QuorumNotFound()
    check(role)
    return found
