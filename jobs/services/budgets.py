"""The retry budget of a tenant: so many restarts after failures, and requeues, in a window of time (C20, E4).

Failures and lapses spend it where they settle (`store.moves`); over it they end as dead letters of reason
`retry_budget_exhausted`. Whoever requeues spends it here. No other tenant is affected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from jobs.errors import Refused
from jobs.store import windows
from jobs.store.sql import joining
from jobs.store.windows import Kind, Spent

__all__ = ["RateLimited", "Spent", "left", "spend", "take"]


class RateLimited(Refused):
    """This tenant has used its retries for the window."""

    code = "rate_limited"


def left(tenant_id: int) -> Spent | None:
    """What the tenant may still spend, and when its window ends; None: it has no budget, and is not limited."""
    return windows.read(Kind.RETRY, [tenant_id]).get(tenant_id)


def take(wanted: Mapping[int, int]) -> dict[int, int]:
    """Spend up to so many restarts of each tenant, in the caller's transaction; how many each was granted.

    Exact: the tenant's row is held until the caller commits, and what it rolls back was not spent. Call it once the
    jobs are locked (DESIGN 4), and commit soon: failures of the same tenant wait meanwhile. Tenants without a budget
    are granted all, and nothing is written for them.
    """
    with joining():
        return windows.take(Kind.RETRY, wanted)


def spend(tenant_id: int, n: int = 1) -> None:
    """Spend `n` restarts of a tenant, all or none, in the caller's transaction.

    Raises RateLimited with `retry_after_s`: when the tenant's window ends.
    """
    with joining(savepoint=True):
        if take({tenant_id: n})[tenant_id] < n:
            raise refusal(tenant_id)


def refusal(tenant_id: int, kind: Kind = Kind.RETRY) -> RateLimited:
    """What a requeue over the budget, or the rate, is told; for those who `take` for many."""
    window = windows.read(kind, [tenant_id]).get(tenant_id)
    return RateLimited(field="tenant_subject" if kind is Kind.REQUEUE else None,
                       retry_after_s=max(1, math.ceil(window.left_s)) if window else 1)
