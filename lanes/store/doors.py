"""What an actor is, asked before anything else: one statement that starts from its grants (D10, E2).

What is foreign and what does not exist bring the same nothing, by the same statement; no more of a lane is read than
whose it is.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from django.db import connection

from jobs import ids
from jobs.models import Grant, Workspace
from lanes.actors import Actor


class Door(NamedTuple):
    """What an actor is where a lane or quorum is; `is_assignee`: the lane is its own."""

    role: str
    workspace_id: int
    quorum_id: uuid.UUID
    is_assignee: bool = False


def of_lane(lane_id: uuid.UUID, by: Actor) -> Door | None:
    """What this actor is to a lane; None where it has no grant in its workspace, or there is none."""
    whose = "workspace__lanes__"
    found = (Grant.objects.filter(**by.granted, **{f"{whose}pk": lane_id})
             .values_list("role", "workspace_id", *(f"{whose}{name}" for name in (
                 "quorum_id", "assignee_user", "assignee_key"))).first())
    if found is None:
        return None
    role, workspace_id, quorum_id, user_id, key_id = found
    return Door(role, workspace_id, quorum_id, by.is_one_of(user_id, key_id))


def of_quorum(quorum_id: uuid.UUID, by: Actor) -> Door | None:
    """What this actor is where a quorum is; None alike for a foreign and a missing one."""
    found = (Grant.objects.filter(**by.granted, workspace__quorums__pk=quorum_id)
             .values_list("role", "workspace_id").first())
    return Door(*found, quorum_id) if found else None


def role_in(workspace_id: int, by: Actor) -> str | None:
    """The role of this actor in a workspace; None where it has none."""
    return Grant.objects.filter(**by.granted, workspace_id=workspace_id).values_list("role", flat=True).first()


def held_role(workspace_id: int, by: Actor) -> str | None:
    """The role of this actor in a workspace, which nobody changes or takes away until the commit."""
    (who, id_), = by.granted.items()
    # Django has no FOR SHARE, and those who act by one grant need not wait for each other.
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT role FROM jobs_grant WHERE {who} = %s AND workspace_id = %s FOR SHARE",
                       [id_, workspace_id])
        found = cursor.fetchone()
    return found[0] if found else None


def spots(by: Actor, workspace_id: int | None = None, quorum_id: uuid.UUID | None = None) -> list[int]:
    """The ids of the workspaces in which this actor is something; of those the one named, or the quorum's."""
    mine = Grant.objects.filter(**by.granted)
    if workspace_id is not None:
        mine = mine.filter(workspace_id=workspace_id)
    if quorum_id is not None:
        mine = mine.filter(workspace__quorums__pk=quorum_id)
    return list(mine.order_by("workspace_id").values_list("workspace_id", flat=True))


def places(by: Actor) -> list[tuple[Workspace, str]]:
    """The workspaces in which this actor is something, and what."""
    mine = Grant.objects.filter(**by.granted).select_related("workspace").order_by("workspace__slug")
    return [(grant.workspace, grant.role) for grant in mine]


def identifier(value: Any) -> uuid.UUID | None:
    """An id as rows have it; None for what can be none: it is not asked for."""
    if isinstance(value, uuid.UUID):
        return value
    # UUID itself takes braces, `urn:uuid:`, and the digits of any script.
    return uuid.UUID(value) if isinstance(value, str) and ids.shaped(value) else None
