"""Who answers a dead letter: a person of the workspace, or a key that says for whom it speaks (C25, C28, C29)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rest_framework.request import Request

from jobs.api.describing import or_null, text
from jobs.api.security import Principal, caller, named_tenant
from jobs.errors import Invalid, Refused
from jobs.selectors import Scope

_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
REF_LIMIT = 120
SAID = {"tenant_subject": or_null(text("Whose letter it is", most=255)),
        "actor_kind": or_null(text("For whom a key speaks, as `user`", most=32, pattern=f"^{_KIND.pattern}$")),
        "actor_ref": or_null(text("And its name there", most=REF_LIMIT))}


class AttestationRequired(Refused):
    """A key of the workspace says whose letter it is and for whom it speaks: tenant_subject, actor_kind, actor_ref."""

    code = "actor_attestation_required"


class Answerer(NamedTuple):
    """Who answers: the name in receipts, whom the key speaks for, what it sees, and whether rates bind it."""

    by: str
    kind: str | None
    ref: str | None
    scope: Scope
    limited: bool


def is_member(who: Principal) -> bool:
    """Whether the caller is a person of the workspace, who needs nobody's word."""
    return bool(getattr(who, "member", False))


def seen_letters(request: Request, said: dict[str, Any] | None = None) -> Scope:
    """Whose letters a list is of. Raises Invalid tenant_subject_required for a tenant's key that names none (C25)."""
    named = named_tenant(request, (said or {}).get("tenant_subject"))
    _check_named(caller(request), named)
    return caller(request).scope(named)


def answerer(request: Request, said: dict[str, Any]) -> Answerer:
    """Who gives an answer, by the fields of its body (or query).

    Raises AttestationRequired for a workspace's key that leaves one out, Invalid tenant_subject_required for a
    tenant's key that names no tenant, and Invalid for what is no kind or reference of an actor.
    """
    who = caller(request)
    named = named_tenant(request, said.get("tenant_subject"))
    if is_member(who):
        return Answerer(who.by, None, None, who.scope(named), limited=False)
    if who.key.tenant_id is None:
        missing = next((name for name in SAID if said.get(name) is None), None)
        if missing is not None:
            raise AttestationRequired(field=missing)
    _check_named(who, named)
    kind, ref = _kind(said.get("actor_kind")), _ref(said.get("actor_ref"))
    spoken = "" if kind is None and ref is None else f" for {kind or 'actor'}:{ref or '-'}"
    return Answerer(who.by + spoken, kind, ref, who.scope(named), limited=True)


def _check_named(who: Principal, named: str | None) -> None:
    if not is_member(who) and who.key.tenant_id is not None and named is None:
        raise Invalid("A tenant's key names its tenant here, by X-Tenant-Subject or tenant_subject.",
                      field="tenant_subject", code="tenant_subject_required")


def _kind(said: Any) -> str | None:
    if said is not None and not (isinstance(said, str) and _KIND.fullmatch(said)):
        raise Invalid("must be a lowercase word like user or service, at most 32 characters", field="actor_kind",
                      code="invalid_actor_kind")
    return said


def _ref(said: Any) -> str | None:
    if said is not None and not (isinstance(said, str) and 0 < len(said) <= REF_LIMIT and said.isprintable()):
        raise Invalid(f"must be 1 to {REF_LIMIT} printable characters", field="actor_ref", code="invalid_actor_ref")
    return said
