"""Keys of the API: made and shown once, looked up by prefix, compared in constant time, revoked."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from django.db import transaction
from django.db.models import Q

from jobs import clock, selectors
from jobs.errors import Invalid, NotFound
from jobs.models import Key, Tenant, Workspace
from jobs.selectors import Scope, TenantNotFound

USED_EVERY = timedelta(minutes=1)
# How long a process believes what it has read: a revoked key is refused within it by every other process too (C25).
STANDS_S = 0.5
_MOST_REMEMBERED = 10_000
_NOBODY = hashlib.sha256(b"nobody").digest()


class Permission(StrEnum):
    """What a key may do."""

    ENQUEUE = "enqueue"
    READ = "read"
    CONTROL = "control"
    CLAIM = "claim"
    DEAD_LETTERS = "dead_letters"
    OWNERS = "owners"
    ERASE = "erase"
    CALLBACKS = "callbacks"
    LIMITS = "limits"
    THROTTLE = "throttle"
    LANES = "lanes"


class Kind(StrEnum):
    """What a key is for; it is told by what hangs on it."""

    WORKSPACE = "workspace"
    TENANT = "tenant"
    RUNNER = "runner"
    PLANNER = "planner"


# The one table of what a key of each kind may be given; a runner sees what it holds, and nothing else (6.1).
MAY: Mapping[Kind, frozenset[Permission]] = MappingProxyType({
    Kind.WORKSPACE: frozenset(Permission),
    Kind.TENANT: frozenset(Permission),
    Kind.RUNNER: frozenset({Permission.CLAIM}),
    Kind.PLANNER: frozenset({Permission.ENQUEUE, Permission.READ, Permission.CONTROL}),
})


def kind(key: Key) -> Kind:
    """What this key is for."""
    if list(key.permissions) == [Permission.CLAIM]:
        return Kind.RUNNER
    if key.origin == Kind.PLANNER:
        return Kind.PLANNER
    return Kind.WORKSPACE if key.tenant_id is None else Kind.TENANT


def make(workspace: Workspace, name: str, permissions: Sequence[str], *, tenant: Tenant | None = None,
         worker_groups: Sequence[str] | None = None, expires_at: datetime | None = None,
         kind: Kind | None = None, requests_per_s: int | None = None,
         request_burst: int | None = None) -> tuple[Key, str]:
    """A new key and its only showing, `prefix.secret`; what a planner enqueues is stamped so (B13).

    Requests a second and at once: null as the site says, 0 a second as many as it likes. Raises Invalid
    unknown_permission, also for what a key of this kind cannot have.
    """
    known = MAY[kind or Kind.WORKSPACE]
    unknown = sorted(set(permissions) - known)
    if unknown or not permissions:
        raise Invalid(f"permissions are among {', '.join(sorted(known))}", field="permissions",
                      code="unknown_permission")
    secret = secrets.token_urlsafe(32)
    key = Key.objects.create(
        prefix=secrets.token_hex(6), digest=_digest(secret), name=name, workspace=workspace, tenant=tenant,
        permissions=sorted(set(permissions)), worker_groups=None if worker_groups is None else list(worker_groups),
        expires_at=expires_at, origin="planner" if kind is Kind.PLANNER else "user",
        requests_per_s=requests_per_s, request_burst=request_burst)
    return key, f"{key.prefix}.{secret}"


def find(text: str) -> Key | None:
    """The live key that this text is, or None; a miss costs the same comparison as a hit."""
    prefix, _, secret = text.partition(".")
    known = Key.objects.select_related("workspace", "tenant").annotate(now=clock.Now())
    key = known.filter(prefix=prefix[:16]).first() if prefix.isascii() and "\x00" not in prefix else None
    right = hmac.compare_digest(_digest(secret), bytes(key.digest) if key else _NOBODY)
    if key is None or not right or key.revoked_at is not None or (key.expires_at and key.expires_at <= key.now):
        return None
    _note_use(key)
    return key


def living(key: Key, permission: Permission) -> Key | None:
    """The same key as it is now, if it lives and may do this still; for those who have waited since it was found."""
    alive = Q(expires_at=None) | Q(expires_at__gt=clock.Now())
    found = Key.objects.select_related("workspace", "tenant").filter(alive, pk=key.pk, revoked_at=None).first()
    return found if found is not None and permission in found.permissions else None


_remembered: dict[bytes, tuple[float, Key]] = {}
_forgotten = 0


def live(text: str) -> Key | None:
    """As `find`, at most STANDS_S old. The key is everybody's who asks: nothing may be written on it."""
    name = _digest(text)
    until, key = _remembered.get(name, (0.0, None))
    if key is not None and clock.monotonic() < until:
        return key
    # Counted from before it was read: what was revoked meanwhile is not believed longer for that.
    until, turn = clock.monotonic() + STANDS_S, _forgotten
    key = find(text)
    if key is None:
        _remembered.pop(name, None)
        return None
    if len(_remembered) >= _MOST_REMEMBERED:
        _remembered.clear()
    # Not what was read before somebody revoked it.
    if turn == _forgotten:
        _remembered[name] = until, key
    return key


def forget() -> None:
    """Read every key anew; this process's own revocations do it."""
    global _forgotten
    _forgotten += 1
    _remembered.clear()


def _forget_then() -> None:
    # Before the commit others still read what was.
    forget()
    transaction.on_commit(forget, robust=True)


def _note_use(key: Key) -> None:
    if key.last_used_at is None or key.now - key.last_used_at > USED_EVERY:  # type: ignore[attr-defined]
        Key.objects.filter(pk=key.pk).update(last_used_at=clock.Now())


def subject(key: Key, named: str | None) -> str | None:
    """The tenant that a request of this key is about. Raises TenantNotFound when a tenant's key names another (C25)."""
    own = key.tenant
    if own is None:
        return named
    if named is not None and named != own.subject:
        raise TenantNotFound(field="tenant_subject")
    return own.subject


def scope(key: Key, named: str | None) -> Scope:
    """What the key sees under this name; of a tenant that it does not have, nothing."""
    try:
        return selectors.scope(key.workspace_id, subject(key, named))
    except TenantNotFound:
        return Scope(key.workspace_id, None)


def revoke(prefix: str) -> Key:
    """End a key at once. Raises NotFound."""
    key = Key.objects.filter(prefix=prefix).first()
    if key is None:
        raise NotFound(f"There is no key {prefix!r}.", field="prefix", code="key_not_found")
    Key.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=clock.Now())
    _forget_then()
    return key


def limit(prefix: str, *, requests_per_s: int | None, request_burst: int | None) -> Key:
    """Say how many requests a key may make, as `make` does; at once, by every process within STANDS_S. NotFound."""
    if not Key.objects.filter(prefix=prefix).update(requests_per_s=requests_per_s, request_burst=request_burst):
        raise NotFound(f"There is no key {prefix!r}.", field="prefix", code="key_not_found")
    _forget_then()
    return Key.objects.get(prefix=prefix)


def _digest(secret: str) -> bytes:
    # Long random secrets need no slow hash, and every request pays for this one.
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
