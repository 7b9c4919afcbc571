"""Limits of a workspace or of one tenant: set here, so that what is already waiting follows them at once (C36, C37)."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from django.db.models import F

from jobs import selectors
from jobs.clock import Now
from jobs.codecs import printable
from jobs.conf import conf
from jobs.errors import Invalid, RevisionMismatch
from jobs.models import Limits, Tenant, Workspace
from jobs.money import amount
from jobs.retry import MAX_ATTEMPTS
from jobs.services import tenancy
from jobs.services.recovery import Repair
from jobs.store import admission, counting, due
from jobs.store.sql import durable, joining

# Whole numbers, and the least and the most that each may be.
MOST = 2_000_000_000
_BOUNDS = {
    "tenant_concurrency": (1, MOST), "exclusive_group_max": (1, MOST), "tenant_ceiling": (0, MOST),
    "workspace_ceiling": (0, MOST), "max_attempts_cap": (1, MAX_ATTEMPTS), "retry_budget": (0, MOST),
    "retry_budget_window_s": (1, 366 * 86_400), "requeue_rate": (0, MOST), "requeue_window_s": (1, 366 * 86_400),
    "claim_max_wait_s": (0, MOST), "release_max_delay_s": (1, MOST),
}
COUNTS = tuple(_BOUNDS)
NAMES = (*COUNTS, "max_cost_usd_cap", "exclusive_group_scope")
# Of a tenant's own row they would say nothing.
# The claim counts by rows alone: where none says a number, nothing is counted.
UNSAID = frozenset({"tenant_concurrency", "exclusive_group_max", "claim_max_wait_s", "release_max_delay_s",
                    "exclusive_group_scope"})
OF_WORKSPACES = frozenset({"workspace_ceiling"})
SCOPES = ("tenant", "workspace")
BATCH = 1_000
# C37: how requirements and other systems name them.
PUBLIC = {
    "exclusive_group_max": "jobs.exclusive_group_max", "claim_max_wait_s": "jobs.claim_max_wait_seconds",
    "release_max_delay_s": "jobs.release_max_delay_s",
}
log = logging.getLogger("jobs.limits")


def set_limits(workspace: Workspace, tenant: Tenant | None = None, /, *, revision: int | None = None,
               by: str = "system", **limits: Any) -> Limits:
    """Set some limits; None takes one away, what is not said stays. `revision` is an If-Match, 0 for a row to be made.

    Raises Invalid with every fault at once (unknown_limit, invalid_limit, limit_exceeds_platform), RevisionMismatch.
    After the commit (the caller's, if there is one) live attempts are counted under them, jobs beyond a new group limit
    leave the claim's index in batches, and what a raised limit lets in comes back; each in a transaction of its own. A
    process that dies here leaves the rest to the claim and the repair loop.
    """
    limits = checked(limits, of_tenant=tenant is not None)
    with joining(savepoint=True):
        row, _ = Limits.objects.get_or_create(workspace=workspace, tenant=tenant, defaults={"revision": 0})
        guard = {} if revision is None else {"revision": revision}
        if not Limits.objects.filter(pk=row.pk, **guard).update(**limits, revision=F("revision") + 1, updated_at=Now()):
            raise RevisionMismatch("These limits have changed since they were read.", revision=row.revision)
        row.refresh_from_db()
    transaction.on_commit(lambda: log.info("limits of workspace %s, tenant %s were set by %s: %s", workspace.pk,
                                           tenant and tenant.pk, by, limits), robust=True)
    transaction.on_commit(lambda: _follow(workspace.pk), robust=True)
    return row


def set_for(workspace: Workspace, subject: str | None, **said: Any) -> Limits:
    """The same for a tenant by its subject, who is made with them; None: the workspace's. A refusal leaves nothing.

    Raises TenantDeleting too.
    """
    with joining(savepoint=True):
        tenant = None if subject is None else tenancy.tenant(workspace, subject, make=True)
        if tenant is not None and tenant.deleting_at is not None:
            raise tenancy.TenantDeleting(field="tenant_subject")
        return set_limits(workspace, tenant, **said)


def of(workspace: Workspace, tenant: Tenant | None) -> Limits:
    """The limits as they were set; a row that is not there says nothing, at revision 0."""
    found = Limits.objects.filter(workspace=workspace, tenant=tenant).first()
    return found or Limits(workspace=workspace, tenant=tenant, revision=0)


def effective(workspace: Workspace, tenant: Tenant | None) -> dict[str, Any]:
    """What holds in the end, by name: the tenant's own word, else the workspace's, within the platform's; None:
    unlimited."""
    found = [of(workspace, tenant), *([] if tenant is None else [of(workspace, None)])]
    said = {name: next((v for row in found if (v := getattr(row, name)) is not None), None) for name in NAMES}
    return {name: _within(name, value) for name, value in said.items()}


def _within(name: str, value: Any) -> Any:
    defaults = {"exclusive_group_scope": "tenant", "retry_budget_window_s": conf().RETRY_WINDOW_S,
                "claim_max_wait_s": selectors.CLAIM_MAX_WAIT_S, "release_max_delay_s": selectors.RELEASE_MAX_DELAY_S,
                "max_attempts_cap": conf().MAX_ATTEMPTS}
    value = defaults.get(name) if value is None else value
    return within_platform(name, value)


def within_platform(name: str, value: Any) -> Any:
    """A limit cut to what the platform allows; its number where nobody has said any, but for counts of what runs."""
    most = conf().PLATFORM_LIMITS.get(name)
    if most is None:
        return value
    if value is None:
        return None if name in UNSAID else most
    return min(value, most)


def _follow(workspace_id: int) -> None:
    after: str | None = due.FIRST
    while after is not None:
        _, after = durable(lambda here=after: counting.count_live(here, BATCH))  # type: ignore[misc]
    while durable(lambda: admission.hold_excess(workspace_id, BATCH)):
        pass
    Repair().tick()


def checked(said: dict[str, Any], *, of_tenant: bool = False) -> dict[str, Any]:
    """These limits as rows keep them. Raises Invalid with every fault at once, its code that of the first."""
    kept, faults, first = {}, [], None
    for name, value in said.items():
        try:
            kept[name] = check(name, value, of_tenant=of_tenant)
        except Invalid as error:
            first = first or error
            faults += error.faults
    if first is not None:
        first.faults = faults
        raise first
    return kept


def check(name: str, value: Any, *, of_tenant: bool = False) -> Any:
    """The value that rows keep of this limit; raises Invalid for an unknown name or an impossible value."""
    if name not in NAMES:
        raise Invalid(f"There is no limit {printable(str(name), 64)!r}; known are {', '.join(NAMES)}.", field=name,
                      code="unknown_limit")
    if value is None:
        return None
    if of_tenant and name in OF_WORKSPACES:
        raise Invalid("is a limit of the workspace, and none of a tenant", field=name, code="invalid_limit")
    if name == "exclusive_group_scope":
        if value not in SCOPES:
            raise Invalid(f"must be one of {', '.join(SCOPES)}, or null", field=name, code="invalid_limit")
        return value
    if name == "max_cost_usd_cap":
        value = amount(value, name, code="invalid_limit")
    else:
        least, most = _BOUNDS[name]
        if type(value) is not int or not least <= value <= most:
            raise Invalid(f"must be a whole number from {least} to {most}, or null", field=name, code="invalid_limit")
    ceiling = conf().PLATFORM_LIMITS.get(name)
    if ceiling is not None and value > ceiling:
        raise Invalid(f"must be at most {ceiling}, the platform's own", field=name, code="limit_exceeds_platform")
    return value
