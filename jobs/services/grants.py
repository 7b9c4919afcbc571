"""Members of workspaces: who has which role, what each role may do, and who may enqueue where a role is demanded (E2).

A grant is always given by somebody: superusers, staff and rights over the whole site imply none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from django.db import transaction

from jobs.errors import Invalid, NotFound, Refused
from jobs.models import Grant, Key, Workspace
from jobs.services.keys import Permission

log = logging.getLogger("jobs.grants")


class Role(StrEnum):
    """What a principal is in a workspace, from the least to the most."""

    MEMBER = "member"
    ASSIGNEE = "assignee"
    CONDUCTOR = "conductor"


_MEMBER = frozenset({Permission.READ, Permission.ENQUEUE, Permission.DEAD_LETTERS, Permission.LANES})
_ASSIGNEE = _MEMBER | {Permission.CONTROL}
# The one table of what people may do over the API, by their role. Nobody of them claims: that is for runners' keys.
# What is not named here is for keys and for the console alone.
MAY: Mapping[Role, frozenset[str]] = MappingProxyType({
    Role.MEMBER: _MEMBER,
    Role.ASSIGNEE: _ASSIGNEE,
    Role.CONDUCTOR: _ASSIGNEE | {Permission.OWNERS, "limits", "throttle", "callbacks"},
})


class GrantRequired(Refused):
    """Here only conductors enqueue, and this caller is none."""

    code = "grant_required"


class WorkspaceNotFound(NotFound):
    """There is no such workspace, or it is not yours."""

    code = "workspace_not_found"


class WorkspaceRequired(Invalid):
    """You belong to several workspaces: name one by X-Workspace or `workspace`."""

    code = "workspace_required"


def check(workspace: Workspace, role: str, *, user: Any = None, key: Key | None = None) -> None:
    """Raises Invalid unknown_role and invalid_principal: neither or both, or a key of another workspace."""
    if role not in set(Role):
        raise Invalid(f"must be one of {', '.join(Role)}", field="role", code="unknown_role")
    if (user is None) == (key is None) or (key is not None and key.workspace_id != workspace.pk):
        raise Invalid("A grant is a user's, or a key's of the same workspace.", field="principal",
                      code="invalid_principal")


def give(workspace: Workspace, role: str, *, by: str, user: Any = None, key: Key | None = None) -> Grant:
    """Give a user or a key this role, in the place of the one that it has. Joins the caller's transaction.

    Raises as `check` does.
    """
    check(workspace, role, user=user, key=key)
    with transaction.atomic():
        row, _ = Grant.objects.update_or_create(workspace=workspace, **_whose(user, key),
                                                defaults={"role": role, "by": by[:200]})
    log.info("grant %d: %s in %s, by %s", row.pk, role, workspace.slug, by)
    return row


def take(workspace: Workspace, *, user: Any = None, key: Key | None = None) -> bool:
    """Take the role away, from the next request on; false where there was none."""
    row = Grant.objects.filter(workspace=workspace, **_whose(user, key)).first()
    return row is not None and take_row(row)


def take_row(row: Grant) -> bool:
    """The same of a grant that was read."""
    return bool(Grant.objects.filter(pk=row.pk).delete()[0])


def _whose(user: Any, key: Key | None) -> dict[str, Any]:
    return {"key": key} if key is not None else {"user_id": str(user.pk)}


def forget(user_id: Any) -> None:
    """A user is gone, and its grants with it."""
    Grant.objects.filter(user_id=str(user_id)).delete()


def of_user(user_id: Any, slug: str | None) -> Grant:
    """The grant by which a user acts: in the workspace that it names, or in its only one.

    Raises WorkspaceNotFound alike for unknown and foreign ones, WorkspaceRequired, and Refused where it has none.
    """
    mine = Grant.objects.filter(user_id=str(user_id)).select_related("workspace")
    if slug is not None:
        found = mine.filter(workspace__slug=slug).first() if slug.isprintable() else None
        if found is None:
            raise WorkspaceNotFound(field="workspace")
        return found
    some = list(mine.order_by("workspace_id")[:2])
    if not some:
        raise Refused("You are a member of no workspace.", code="permission_denied")
    if len(some) > 1:
        raise WorkspaceRequired(field="workspace")
    return some[0]


def role(user_id: Any, workspace_id: int) -> Role:
    """What a user is there at this moment. Raises Refused permission_denied where it is nothing any more."""
    found = Grant.objects.filter(user_id=str(user_id), workspace_id=workspace_id).values_list("role", flat=True).first()
    if found is None:
        raise Refused("You are no member of this workspace.", code="permission_denied")
    return Role(found)


def check_key_enqueues(key: Key) -> None:
    """Raises GrantRequired where the workspace demands a conductor and this key is none (E2, D2)."""
    demanded = key.workspace.create_requires_grant
    if demanded and not Grant.objects.filter(key=key, workspace_id=key.workspace_id, role=Role.CONDUCTOR).exists():
        raise GrantRequired()


def check_user_enqueues(workspace: Workspace, user_id: Any) -> None:
    """The same of a user, whatever else it may do."""
    mine = Grant.objects.filter(user_id=str(user_id), workspace=workspace, role=Role.CONDUCTOR)
    if workspace.create_requires_grant and not mine.exists():
        raise GrantRequired()
