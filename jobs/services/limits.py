"""Limits of a workspace or of one tenant: set here, so that what is already waiting follows them at once (C36, C37)."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from jobs.clock import Now
from jobs.errors import Invalid
from jobs.models import Limits, Tenant, Workspace
from jobs.services.recovery import Repair
from jobs.store import admission, due
from jobs.store.sql import durable, joining

# What the product enforces; the other columns of the row wait for it.
COUNTS = ("tenant_concurrency", "exclusive_group_max", "claim_max_wait_s", "release_max_delay_s",
          "requeue_rate", "requeue_window_s")
MAY_BE_ZERO = frozenset({"claim_max_wait_s", "requeue_rate"})
SCOPES = ("tenant", "workspace")
MOST = 2_000_000_000
BATCH = 1_000


def set_limits(workspace: Workspace, tenant: Tenant | None = None, /, **limits: Any) -> Limits:
    """Set some limits; None takes one away. Raises Invalid for an unknown name or an impossible value.

    After the commit (the caller's, if there is one) live attempts are counted under them, jobs beyond a new group limit
    leave the claim's index in batches, and what a raised limit lets in comes back; each in a transaction of its own. A
    process that dies here leaves the rest to the claim and the repair loop.
    """
    for name, value in limits.items():
        check(name, value)
    with joining():
        row, _ = Limits.objects.update_or_create(workspace=workspace, tenant=tenant,
                                                 defaults={**limits, "updated_at": Now()})
    transaction.on_commit(lambda: _follow(workspace.pk), robust=True)
    return row


def _follow(workspace_id: int) -> None:
    after: str | None = due.FIRST
    while after is not None:
        _, after = durable(lambda here=after: admission.count_live(here, BATCH))  # type: ignore[misc]
    while durable(lambda: admission.hold_excess(workspace_id, BATCH)):
        pass
    Repair().tick()


def check(name: str, value: Any) -> None:
    """Whether this limit may be set to this value; raises Invalid for an unknown name or an impossible value."""
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
