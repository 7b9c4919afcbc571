"""Who calls, and whether it may: keys as `Authorization: Bearer prefix.secret`, members by their session, tenants.

Denied unless a view says which permission a method needs. A tenant that is not the caller's is one that it does
not have: what is foreign reads like what is unknown. A request with an Authorization header is a key's, whatever
cookies it carries; one without is a person's, who is what a grant says in the workspace that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.conf import settings
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.exceptions import MethodNotAllowed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from jobs import selectors
from jobs.api.errors import Unauthenticated
from jobs.errors import Invalid, JobNotFound, Refused
from jobs.live import access
from jobs.models import Grant, Key, Workspace
from jobs.selectors import Scope
from jobs.services import grants, keys, runners, tenancy
from jobs.services.draft import Door

SCHEME = "key"
TENANT_HEADER = "HTTP_X_TENANT_SUBJECT"
WORKSPACE_HEADER = "HTTP_X_WORKSPACE"
WORKSPACE_PARAMETER = "workspace"


class CsrfFailed(Refused):
    """A change by session needs the CSRF token, as X-CSRFToken."""

    code = "csrf_failed"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: a live key and what hangs on it."""

    key: Key
    # Whether it is a person, and not a key.
    member: ClassVar[bool] = False

    @property
    def by(self) -> str:
        """The name in receipts."""
        return runners.actor(self.key)

    @property
    def holder(self) -> str:
        """Whose requests are counted together."""
        return f"key:{self.key.pk}"

    @property
    def workspace(self) -> str:
        """The slug of its workspace."""
        return self.key.workspace.slug

    @property
    def place(self) -> Workspace:
        """Its workspace."""
        return self.key.workspace

    @property
    def whole(self) -> bool:
        """Whether it speaks for the whole workspace, and not for one tenant of it."""
        return self.key.tenant_id is None

    @property
    def origin(self) -> str:
        """What its enqueues are stamped with (B13)."""
        return self.key.origin

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

    def bearer(self, named: str | None) -> access.Bearer:
        """What it may follow. Raises NotAllowed without `read`."""
        return access.of_key(self.key, named)

    def check_enqueues(self) -> None:
        """Raises GrantRequired where its workspace demands a conductor, which it is not."""
        grants.check_key_enqueues(self.key)


@dataclass(frozen=True, slots=True)
class Member:
    """The caller: a person with a session, and its grant in a workspace. The same words as a Principal has."""

    user_id: str
    name: str
    session_key: str
    grant: Grant
    member: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    origin: ClassVar[str] = "user"

    @property
    def key(self) -> Key:
        """It has none. Raises Refused."""
        raise Refused("This is for keys.", code="permission_denied")

    @property
    def by(self) -> str:
        """The name in receipts, as the console writes it."""
        return f"user:{self.name}"[:200]

    @property
    def holder(self) -> str:
        """Whose requests are counted together."""
        return f"user:{self.user_id}"

    @property
    def workspace(self) -> str:
        """The slug of the workspace that it acts in."""
        return self.grant.workspace.slug

    @property
    def place(self) -> Workspace:
        """The workspace that it acts in."""
        return self.grant.workspace

    def may(self, permission: str) -> bool:
        """Whether its role has this permission: the table is `grants.MAY`."""
        return permission in grants.MAY[grants.Role(self.grant.role)]

    def door(self, endpoint: str) -> Door:
        """The door that its enqueues come through."""
        return Door(endpoint, self.origin, self.by)

    def subject(self, named: str | None) -> str | None:
        """The tenant that it names; none is the workspace's own."""
        return named

    def scope(self, named: str | None) -> Scope:
        """What it sees under this name."""
        return selectors.scope(self.grant.workspace_id, named)

    def bearer(self, named: str | None) -> access.Following:
        """What it may follow."""
        return access.Following(self.user_id, self.session_key, access.active(self.scope(named)))

    def check_enqueues(self) -> None:
        """Raises GrantRequired where the workspace demands a conductor, which it is not."""
        grants.check_user_enqueues(self.grant.workspace, self.user_id)


class KeyAuthentication(BaseAuthentication):
    """Reads the key of a request."""

    def authenticate(self, request: Request) -> tuple[Principal, Key] | None:
        """The caller; None without an Authorization header.

        Raises Unauthenticated, alike for an unknown, a revoked and an expired key, and WorkspaceNotFound where a
        workspace is named that is not the key's.
        """
        plain = request._request
        if "HTTP_AUTHORIZATION" not in plain.META:
            return None
        scheme, _, said = plain.META["HTTP_AUTHORIZATION"].partition(" ")
        key = keys.live(said.strip()) if scheme.lower() == "bearer" and "." in said else None
        if key is None:
            raise Unauthenticated(_UNKNOWN)
        if plain.META.get(WORKSPACE_HEADER, key.workspace.slug) != key.workspace.slug:
            raise grants.WorkspaceNotFound(field=WORKSPACE_PARAMETER)
        return Principal(key), key

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return Unauthenticated.auth_header


_UNKNOWN = "Send a live key as `Authorization: Bearer prefix.secret`."


class MemberAuthentication(BaseAuthentication):
    """Reads the session of a request that carries no key; changes need the CSRF token."""

    def authenticate(self, request: Request) -> tuple[Member, None]:
        """The caller. Raises Unauthenticated, CsrfFailed, and what `grants.of_user` raises."""
        plain = request._request
        session_key = plain.COOKIES.get(settings.SESSION_COOKIE_NAME)
        user = access.signed_in(session_key)
        if user is None or session_key is None:
            raise Unauthenticated(_UNKNOWN)
        self._check_csrf(request)
        grant = grants.of_user(user.pk, _named_workspace(request))
        return Member(str(user.pk), str(user.get_username()), session_key, grant), None

    @staticmethod
    def _check_csrf(request: Request) -> None:
        check = CSRFCheck(lambda request: None)  # type: ignore[arg-type, return-value]
        check.process_request(request._request)
        if check.process_view(request._request, lambda request: None, (), {}):  # type: ignore[arg-type, return-value]
            raise CsrfFailed()


def _named_workspace(request: Request) -> str | None:
    said = {name for name in (request._request.META.get(WORKSPACE_HEADER),
                              request._request.GET.get(WORKSPACE_PARAMETER)) if name is not None}
    if len(said) > 1:
        raise Invalid("The header and the query name different workspaces.", field=WORKSPACE_PARAMETER,
                      code="invalid_workspace")
    return said.pop() if said else None


class HasPermission(BasePermission):
    """Lets a request through if its view names a permission for the method and the key has it; else denies."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises MethodNotAllowed for a method without a permission of its own, PermissionDenied without the right."""
        method = "GET" if request.method == "HEAD" else request.method
        needed = getattr(view, "permissions", {}).get(method)
        if needed is None:
            raise MethodNotAllowed(str(request.method), detail="This resource does not take this method.")
        who = caller(request)
        if not who.may(needed):
            raise PermissionDenied(f"This {'role' if who.member else 'key'} lacks the permission {str(needed)!r}.")
        if needed == keys.Permission.ENQUEUE:
            who.check_enqueues()
        return True


def caller(request: Request) -> Principal:
    """The caller of an authenticated request."""
    return request.user  # type: ignore[return-value]


def named_tenant(request: Request, sent: Any = None) -> str | None:
    """The tenant that a request names by header, query or field. Raises Invalid when they differ or are no subject."""
    if not isinstance(sent, str | None):
        raise Invalid("must be a string", field="tenant_subject", code="invalid_tenant_subject")
    taken = getattr(request._request, "jobs_subject", None)
    places = (_header(request), request._request.GET.get("tenant_subject"), sent, taken)
    said = {subject for subject in places if subject is not None}
    if len(said) > 1:
        raise Invalid("The header, the query and the field name different tenants.", field="tenant_subject",
                      code="invalid_tenant_subject")
    for subject in said:
        tenancy.check_subject(subject)
        return subject
    return None


def without_subject(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """The body without its `tenant_subject`, which `named_tenant` reads from now on. Raises as that does."""
    if "tenant_subject" in body:
        request._request.jobs_subject = body["tenant_subject"]  # type: ignore[attr-defined]
        named_tenant(request, body["tenant_subject"])
    return {name: value for name, value in body.items() if name != "tenant_subject"}


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


def whole_workspace(request: Request) -> Workspace:
    """The workspace of a caller who speaks for all of it. Raises PermissionDenied for a tenant's key."""
    who = caller(request)
    if not who.whole:
        raise PermissionDenied("This is for keys and members of the whole workspace.")
    return who.place


def enqueued(actor: Principal | Member, named: str | None, ids: list[str]) -> dict[str, Any]:
    """The jobs of these ids, by id. Raises JobNotFound where one was deleted meanwhile, with its tenant."""
    found = selectors.enqueued(actor.place.pk, actor.subject(named), ids)
    if len(found) < len(set(ids)):
        raise JobNotFound()
    return found
