"""Who acts on lanes over HTTP: the caller as an actor, in the workspace that it names.

What it may do there its grant says, and the services ask for it. A request is about one workspace: a lane of another
one is not there, also where a person has a grant in that one too.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from jobs.api.security import caller
from jobs.api.views import View
from jobs.services.keys import Permission
from lanes import actors, selectors
from lanes.actors import Actor
from lanes.api.forms import FORMS
from lanes.errors import LaneNotFound, QuorumNotFound


class OfLanes(View):
    """A resource of this package."""

    forms: ClassVar[Any] = FORMS


class OfLane(OfLanes):
    """What is below `/lanes/{id}`."""

    named = "The id of the lane"


class OfQuorum(OfLanes):
    """What is below `/quorums/{id}`."""

    named = "The id of the quorum"


def actor(request: Request) -> Actor:
    """The caller."""
    who: Any = caller(request)
    return Actor(who.by, user_id=who.user_id) if who.member else actors.of_key(who.key)


def for_lane(request: Request, name: str) -> Actor:
    """The caller, at a lane of the workspace that it acts in. Raises LaneNotFound."""
    by = actor(request)
    if selectors.lane_door(name, by)[1].workspace_id != caller(request).place.pk:
        raise LaneNotFound()
    return by


def for_quorum(request: Request, name: str) -> Actor:
    """The same at a quorum. Raises QuorumNotFound."""
    by = actor(request)
    if selectors.quorum_door(name, by)[1].workspace_id != caller(request).place.pk:
        raise QuorumNotFound()
    return by


def demand(request: Request, needed: Permission) -> None:
    """What a request takes beside its view's own permission. Raises PermissionDenied, and GrantRequired of enqueues."""
    who = caller(request)
    if not who.may(needed):
        raise PermissionDenied(f"This {'role' if who.member else 'key'} lacks the permission {str(needed)!r}.")
    if needed == Permission.ENQUEUE:
        who.check_enqueues()
