"""Who calls, and whether it may: keys as `Authorization: Bearer prefix.secret`, permissions, tenants.

Denied unless a view says which permission a method needs. A tenant that is not the caller's is one that it does
not have: what is foreign reads like what is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import MethodNotAllowed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from jobs import selectors
from jobs.api.errors import Unauthenticated
from jobs.errors import Invalid, JobNotFound
from jobs.models import Key
from jobs.selectors import Scope
from jobs.services import keys, runners, tenancy
from jobs.services.draft import Door

SCHEME = "key"
TENANT_HEADER = "HTTP_X_TENANT_SUBJECT"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: a live key and what hangs on it."""

    key: Key

    @property
    def by(self) -> str:
        """The name in receipts."""
        return runners.actor(self.key)

    @property
    def workspace(self) -> str:
        """The slug of its workspace."""
        return self.key.workspace.slug

    def may(self, permission: str) -> bool:
        """Whether the key was given this permission."""
        return permission in self.key.permissions

    def door(self, endpoint: str) -> Door:
        """The door that its enqueues come through: the key stamps the origin (B13)."""
        return Door(endpoint, self.key.origin, self.by)

    def subject(self, named: str | None) -> str | None:
        """The tenant that a request is about. Raises TenantNotFound when a tenant's key names another one (C25)."""
        return keys.subject(self.key, named)

    def scope(self, named: str | None) -> Scope:
        """What it sees under this name; of a tenant that it does not have, nothing."""
        return keys.scope(self.key, named)


class KeyAuthentication(BaseAuthentication):
    """Reads the key of a request."""

    def authenticate(self, request: Request) -> tuple[Principal, Key]:
        """The caller. Raises Unauthenticated, alike for no key, an unknown, a revoked and an expired one."""
        scheme, _, said = request._request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        key = keys.live(said.strip()) if scheme.lower() == "bearer" and "." in said else None
        if key is None:
            raise Unauthenticated("Send a live key as `Authorization: Bearer prefix.secret`.")
        return Principal(key), key

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return Unauthenticated.auth_header


class HasPermission(BasePermission):
    """Lets a request through if its view names a permission for the method and the key has it; else denies."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises MethodNotAllowed for a method without a permission of its own, PermissionDenied without the right."""
        method = "GET" if request.method == "HEAD" else request.method
        needed = getattr(view, "permissions", {}).get(method)
        if needed is None:
            raise MethodNotAllowed(str(request.method), detail="This resource does not take this method.")
        if not caller(request).may(needed):
            raise PermissionDenied(f"This key lacks the permission {str(needed)!r}.")
        return True


def caller(request: Request) -> Principal:
    """The caller of an authenticated request."""
    return request.user  # type: ignore[return-value]


def named_tenant(request: Request, sent: Any = None) -> str | None:
    """The tenant that a request names by header, query or field. Raises Invalid when they differ or are no subject."""
    if not isinstance(sent, str | None):
        raise Invalid("must be a string", field="tenant_subject", code="invalid_tenant_subject")
    places = (_header(request), request._request.GET.get("tenant_subject"), sent)
    said = {subject for subject in places if subject is not None}
    if len(said) > 1:
        raise Invalid("The header, the query and the field name different tenants.", field="tenant_subject",
                      code="invalid_tenant_subject")
    for subject in said:
        tenancy.check_subject(subject)
        return subject
    return None


def _header(request: Request) -> str | None:
    said = request._request.META.get(TENANT_HEADER)
    try:
        # Servers hand headers over as latin-1; what callers mean is UTF-8.
        return None if said is None else said.encode("latin-1").decode()
    except UnicodeError:
        raise Invalid("must be UTF-8", field="X-Tenant-Subject", code="invalid_tenant_subject") from None


def tenant_scope(request: Request) -> Scope:
    """What the caller of a read sees."""
    return caller(request).scope(named_tenant(request))


def enqueued(actor: Principal, named: str | None, ids: list[str]) -> dict[str, Any]:
    """The jobs of these ids, by id. Raises JobNotFound where one was deleted meanwhile, with its tenant."""
    found = selectors.enqueued(actor.key.workspace_id, actor.subject(named), ids)
    if len(found) < len(set(ids)):
        raise JobNotFound()
    return found
