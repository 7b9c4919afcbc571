"""Quorums: agreements of a workspace, made and closed by its conductors (D7)."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from jobs.models import Workspace
from jobs.services.grants import WorkspaceNotFound
from lanes import news, words
from lanes.actors import Actor
from lanes.errors import QuorumClosed, QuorumExists
from lanes.models import Quorum
from lanes.selectors import quorum as get
from lanes.selectors import quorums as listing
from lanes.services import asking
from lanes.store import doors, rows
from lanes.store.doors import places

__all__ = ["close", "create", "get", "listing", "places"]


def create(workspace: Workspace, name: str, title: str = "", *, by: Actor) -> Quorum:
    """A new quorum of a workspace.

    Raises WorkspaceNotFound where the actor has no grant, RoleRequired where it is no conductor, QuorumExists, and
    Invalid invalid_name and invalid_title.
    """
    words.name(name)
    words.title(title)
    made = Quorum(workspace=workspace, name=name, title=title, by=by.name)
    with transaction.atomic():
        role = doors.held_role(workspace.pk, by)
        if role is None:
            raise WorkspaceNotFound(field="workspace")
        asking.check(role)
        if not rows.add_quorum(made):
            raise QuorumExists(field="name")
        news.after_commit(news.News(workspace.pk, made.pk))
        return get(made.pk, by=by)


def close(quorum_id: Any, *, by: Actor, reason: str = "") -> Quorum:
    """Take no new lanes; those that there are go on. Raises QuorumNotFound, RoleRequired and QuorumClosed."""
    words.reason(reason)
    id_, door = asking.quorum(quorum_id, by)
    with transaction.atomic():
        asking.locked_quorum(id_, by, alone=True)
        if not rows.close(id_, by.name, reason):
            raise QuorumClosed("This quorum is closed already.")
        news.after_commit(news.News(door.workspace_id, id_))
        return get(id_, by=by)
