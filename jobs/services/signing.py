"""Signatures of callbacks by Standard Webhooks, and their secrets: made and shown once, kept sealed (E11).

A tenant's callbacks are signed with its own live secrets, two at most, or else with those of the workspace's untenanted
tenant. A signature needs the secret itself, so that it cannot be kept as a digest: it is encrypted under `SECRET_KEY`,
and whoever changes that names the old one in `SECRET_KEY_FALLBACKS`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from jobs import clock
from jobs.clock import Now
from jobs.errors import Conflict, NotFound, Refused
from jobs.ids import uuid7
from jobs.models import CallbackSecret, Tenant
from jobs.store import calling
from jobs.store.sql import joining

PREFIX = "whsec_"
MOST = 2
_SALT = b"jobs.callbacks.secrets:"


class TooManySecrets(Conflict):
    """Two secrets are live already: revoke the old one first, or rotate, which does."""

    code = "too_many_secrets"


class SecretNotFound(NotFound):
    """There is no such secret, or it is not yours."""

    code = "secret_not_found"


class Unreadable(Exception):
    """A secret was sealed under a SECRET_KEY that is neither the site's nor among its fallbacks."""


def _box() -> Any:
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError:
        raise Refused("This site cannot keep secrets: install the extra `callbacks`.",
                      code="callbacks_disabled") from None
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(_SALT + str(key).encode()).digest()))
                        for key in keys])


@sensitive_variables()
def _opened(row: CallbackSecret) -> bytes:
    from cryptography.fernet import InvalidToken

    try:
        return bytes(_box().decrypt(row.sealed.encode()))
    except InvalidToken:
        raise Unreadable() from None


@sensitive_variables()
def make(tenant: Tenant, *, by: str) -> tuple[CallbackSecret, str]:
    """A new secret and its only showing, `whsec_...`. Raises TooManySecrets; from now on it signs too."""
    with joining(savepoint=True):
        if len(_locked(tenant)) >= MOST:
            raise TooManySecrets()
        return _made(tenant, by)


@sensitive_variables()
def rotate(tenant: Tenant, *, by: str) -> tuple[CallbackSecret, str]:
    """A new secret beside the newest one; an older one ends. Both sign until the older of the two is revoked."""
    with joining(savepoint=True):
        live = _locked(tenant)
        for row in live[: max(0, len(live) - 1)]:
            _end(row)
        return _made(tenant, by)


@sensitive_variables()
def _made(tenant: Tenant, by: str) -> tuple[CallbackSecret, str]:
    raw = secrets.token_bytes(32)
    shown = PREFIX + base64.b64encode(raw).decode()
    sealed = _box().encrypt(raw).decode()
    row = CallbackSecret.objects.create(tenant=tenant, sealed=sealed, hint=shown[-5:-1], by=by[:200])
    row.refresh_from_db()
    return row, shown


def _locked(tenant: Tenant) -> list[CallbackSecret]:
    """The live ones, the oldest first; the tenant's row is what two callers wait for."""
    calling.lock_tenant(tenant.pk)
    return live(tenant.pk)


def live(tenant_id: int) -> list[CallbackSecret]:
    """The secrets that sign this tenant's callbacks and are its own, the oldest first."""
    return list(CallbackSecret.objects.filter(tenant_id=tenant_id, revoked_at=None).order_by("pk"))


def all_of(tenant_id: int, limit: int = 50) -> list[CallbackSecret]:
    """Its secrets, revoked ones too, the newest first."""
    return list(CallbackSecret.objects.filter(tenant_id=tenant_id).order_by("-pk")[:limit])


def revoke(tenant: Tenant, pk: int, *, by: str) -> CallbackSecret:
    """End one at once; ended already: a quiet yes. Raises SecretNotFound."""
    row = CallbackSecret.objects.filter(tenant=tenant, pk=pk).first() if 0 < pk < 2**63 else None
    if row is None:
        raise SecretNotFound()
    _end(row)
    row.refresh_from_db()
    return row


def _end(row: CallbackSecret) -> None:
    CallbackSecret.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=Now())


@sensitive_variables()
def headers(tenant_id: int, workspace_id: int, delivery: str, seconds: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks; without a secret there is no signature. Raises Unreadable."""
    told = {"webhook-id": delivery, "webhook-timestamp": str(seconds)}
    keys = _keys(tenant_id, workspace_id)
    if keys:
        said = f"{delivery}.{seconds}.".encode() + body
        told["webhook-signature"] = " ".join(
            "v1," + base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode() for key in keys)
    return told


def trial_headers(tenant: Tenant, body: bytes) -> dict[str, str]:
    """The same for a message about no job."""
    return headers(tenant.pk, tenant.workspace_id, f"test-{uuid7()}", int(clock.now().timestamp()), body)


@sensitive_variables()
def _keys(tenant_id: int, workspace_id: int) -> Sequence[bytes]:
    rows = live(tenant_id) or list(CallbackSecret.objects.filter(
        tenant__workspace_id=workspace_id, tenant__subject=None, revoked_at=None).order_by("pk"))
    # The newest first: receivers try them in this order.
    return [_opened(row) for row in reversed(rows)]
