"""Limits of a workspace or of one tenant: set here, so that what is already waiting follows them at once (C36, C37)."""

from __future__ import annotations

from typing import Any

from jobs.clock import Now
from jobs.errors import Invalid
from jobs.models import Limits, Tenant, Workspace
from jobs.services.recovery import Repair
from jobs.store import admission
from jobs.store.sql import durable, joining

COUNTS = ("tenant_concurrency", "exclusive_group_max", "tenant_ceiling", "workspace_ceiling", "max_attempts_cap",
          "claim_max_wait_s", "release_max_delay_s")
MAY_BE_ZERO = frozenset({"claim_max_wait_s", "tenant_ceiling", "workspace_ceiling"})
SCOPES = ("tenant", "workspace")
MOST = 2_000_000_000
BATCH = 1_000


def set_limits(workspace: Workspace, tenant: Tenant | None = None, /, **limits: Any) -> Limits:
    """Set some limits; None takes one away. Raises Invalid for an unknown name or an impossible value.

    Jobs beyond a new group limit leave the claim's index in batches, each in a transaction of its own, and what a
    raised limit lets in comes back at once; a process that dies here leaves the rest to the claim and the repair loop.
    """
    for name, value in limits.items():
        _check(name, value)
    with joining():
        row, _ = Limits.objects.update_or_create(workspace=workspace, tenant=tenant,
                                                 defaults={**limits, "updated_at": Now()})
    if "exclusive_group_max" in limits or "exclusive_group_scope" in limits:
        while durable(lambda: admission.hold_excess(workspace.pk, BATCH)):
            pass
    Repair().tick()
    return row


def _check(name: str, value: Any) -> None:
    if name == "exclusive_group_scope":
        if value is not None and value not in SCOPES:
            raise Invalid(f"must be one of {', '.join(SCOPES)}, or null", field=name, code="invalid_limit")
        return
    if name not in COUNTS:
        raise Invalid(f"There is no limit {name!r}; known are {', '.join(COUNTS)}, exclusive_group_scope.", field=name,
                      code="unknown_limit")
    least = 0 if name in MAY_BE_ZERO else 1
    if value is not None and (type(value) is not int or not least <= value <= MOST):
        raise Invalid(f"must be a whole number from {least} to {MOST}, or null", field=name, code="invalid_limit")
