"""Who may follow, and for how long: people by their session, keys by the rules of the API; looked at again and again.

Questions to the database are asked in a few threads of the process's own: a connection that goes away does not wait for
its answer, and nothing of the database is held between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from django.apps import apps
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, load_backend
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import Q
from django.utils.crypto import constant_time_compare

from jobs.clock import Now
from jobs.errors import JobNotFound, JobsError, Refused
from jobs.models import Key, Tenant
from jobs.models.permissions import Permission
from jobs.selectors import Scope
from jobs.services import grants, keys, tenancy

T = TypeVar("T")
THREADS = 4
PATIENCE_MS = 5_000


class Unauthenticated(Refused):
    """Sign in, or send a live key."""

    code = "unauthenticated"


class NotAllowed(Refused):
    """This login or key may not follow jobs."""

    code = "permission_denied"


class TooMany(Refused):
    """Too many connections are open already."""

    code = "too_many_connections"


class Person(NamedTuple):
    """Somebody signed in to the console, who sees the whole site."""

    user_id: str
    session_key: str

    @property
    def holder(self) -> str:
        """Whose connections are counted together."""
        return f"user:{self.user_id}"


class Bearer(NamedTuple):
    """A caller with a key, who sees one tenant."""

    key_id: int
    scope: Scope

    @property
    def holder(self) -> str:
        """Whose connections are counted together."""
        return f"key:{self.key_id}"


class Following(NamedTuple):
    """A member of a workspace, who follows one tenant of it by its session, over the API (E2)."""

    user_id: str
    session_key: str
    scope: Scope

    @property
    def holder(self) -> str:
        """Whose connections are counted together."""
        return f"user:{self.user_id}"


class Guest(NamedTuple):
    """Somebody signed in who follows something of another app's. `over` says why they may not any more, or None."""

    user_id: str
    session_key: str
    over: Callable[[Any], JobsError | None]

    @property
    def holder(self) -> str:
        """Whose connections are counted together."""
        return f"user:{self.user_id}"


Grant = Person | Bearer | Following | Guest


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-live")


async def asked(question: Callable[..., T], *args: Any) -> T:
    """The answer of a question to the database, asked in a thread; cancelled, it is not waited for (case-H05)."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), _asked, question, args)


def _asked(question: Callable[..., T], args: tuple[Any, ...]) -> T:
    try:
        with transaction.atomic(using=DEFAULT_DB_ALIAS):
            with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
            return question(*args)
    finally:
        connections.close_all()


# --- people --------------------------------------------------------------------------------------------------------


def person(session_key: str | None) -> Person:
    """Whose session this is, if they may see jobs. Raises Unauthenticated and NotAllowed.

    Nothing is written: a session that is over is left to the next page.
    """
    user = signed_in(session_key)
    if user is None or session_key is None:
        raise Unauthenticated()
    if not user.has_perm(Permission.VIEW.label):
        raise NotAllowed()
    return Person(str(user.pk), session_key)


def signed_in(session_key: str | None) -> Any:
    """The active user whose session this is, or None. Nothing is written."""
    if not session_key or not apps.is_installed("django.contrib.auth"):
        return None
    user = _user(import_module(settings.SESSION_ENGINE).SessionStore(session_key))
    return user if user is not None and user.is_active else None


def _user(session: Any) -> Any:
    path = session.get(BACKEND_SESSION_KEY)
    if path not in settings.AUTHENTICATION_BACKENDS:
        return None
    user: Any = load_backend(path).get_user(session.get(SESSION_KEY))
    said = session.get(HASH_SESSION_KEY) or ""
    # A changed password ends the sessions that were opened with the old one.
    right = user is not None and any(constant_time_compare(said, known) for known in
                                     (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()))
    return user if right else None


# --- keys ----------------------------------------------------------------------------------------------------------


def bearer(secret: str, named: str | None) -> Bearer:
    """What this key sees under the tenant's name that was sent, by the rules of the API (C25).

    Raises Unauthenticated alike for every key that is not live, NotAllowed without `read`, Invalid for what is no
    subject; of a tenant that is unknown, foreign or archived it sees nothing.
    """
    key = keys.find(secret) if "." in secret else None
    if key is None:
        raise Unauthenticated()
    if named is not None:
        tenancy.check_subject(named)
    return of_key(key, named)


def of_key(key: Key, named: str | None) -> Bearer:
    """The same for a key that was found."""
    if keys.Permission.READ not in key.permissions:
        raise NotAllowed("This key lacks the permission 'read'.")
    return Bearer(key.pk, active(keys.scope(key, named)))


def active(seen: Scope) -> Scope:
    """The same scope, which sees nothing where its tenant is archived."""
    return seen if _open({seen.tenant_id}) else seen._replace(tenant_id=None)


def _open(tenant_ids: Collection[int | None]) -> set[int]:
    found = Tenant.objects.filter(pk__in=[pk for pk in tenant_ids if pk is not None], archived_at=None)
    return set(found.values_list("pk", flat=True))


# --- again and again -----------------------------------------------------------------------------------------------


def ended(grants: Iterable[Grant]) -> dict[Grant, JobsError]:
    """Which of these are over, and how: two statements for all keys, a few for each person."""
    held = set(grants)
    over: dict[Grant, JobsError] = {}
    for grant in held:
        if isinstance(grant, Person):
            try:
                if person(grant.session_key).user_id != grant.user_id:
                    over[grant] = Unauthenticated()
            except Refused as error:
                over[grant] = error
        elif not isinstance(grant, Bearer):
            gone = _ended_member(grant) if isinstance(grant, Following) else _ended_guest(grant)
            over |= {} if gone is None else {grant: gone}
    return over | _ended_keys([grant for grant in held if isinstance(grant, Bearer)])


def _ended_member(grant: Following) -> JobsError | None:
    user = signed_in(grant.session_key)
    if user is None or str(user.pk) != grant.user_id:
        return Unauthenticated()
    try:
        grants.role(user.pk, grant.scope.workspace_id)
    except Refused as error:
        return error
    return None if _open({grant.scope.tenant_id}) else _gone()


def _ended_guest(grant: Guest) -> JobsError | None:
    user = signed_in(grant.session_key)
    return Unauthenticated() if user is None or str(user.pk) != grant.user_id else grant.over(user)


def _gone() -> JobNotFound:
    return JobNotFound("There is no such tenant, or it is not yours.", code="tenant_not_found")


def _ended_keys(held: list[Bearer]) -> dict[Grant, JobsError]:
    if not held:
        return {}
    known = Key.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), pk__in={b.key_id for b in held},
                               revoked_at=None)
    live: dict[int, list[str]] = dict(known.values_list("pk", "permissions"))
    tenants = _open({b.scope.tenant_id for b in held})
    over: dict[Grant, JobsError] = {}
    for grant in held:
        if grant.key_id not in live:
            over[grant] = Unauthenticated()
        elif keys.Permission.READ not in live[grant.key_id]:
            over[grant] = NotAllowed("This key lacks the permission 'read'.")
        elif grant.scope.tenant_id not in tenants:
            over[grant] = _gone()
    return over
