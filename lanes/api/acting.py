"""Who acts on lanes over HTTP: the caller as an actor, in the workspace that it names.

What it may do there its grant says, and the services ask for it. A request is about one workspace: a lane of another
one is not there, also where a person has a grant in that one too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from jobs import selectors as selectors_of_jobs
from jobs.api.security import caller, named_tenant
from jobs.api.views import View
from jobs.selectors import TenantNotFound
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


def actor(request: Request, *, makes: bool = False) -> Actor:
    """The caller. A lane is no tenant's: where a request names one, or the key is of one, it is shown that one's jobs.

    Raises TenantNotFound for a tenant that is not there or not the caller's; `makes`: one that is not there is made.
    """
    who: Any = caller(request)
    subject = who.subject(named_tenant(request))
    tenant_id = None if subject is None else selectors_of_jobs.scope(who.place.pk, subject).tenant_id
    if subject is not None and tenant_id is None and not makes:
        raise TenantNotFound(field="tenant_subject")
    mine = Actor(who.by, user_id=who.user_id) if who.member else actors.of_key(who.key)
    return replace(mine, tenant_id=tenant_id)


def for_lane(request: Request, name: str, *, makes: bool = False) -> Actor:
    """The caller, at a lane of the workspace that it acts in. Raises LaneNotFound, and as `actor` does."""
    by = actor(request, makes=makes)
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
