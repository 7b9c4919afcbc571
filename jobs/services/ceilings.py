"""What a new job may not exceed: its tenant's caps on what a request asks, and the ceilings of what waits (C10, E3.3).

Ceilings take no lock, since a caller's transaction would hold it: enqueues at the same moment do not see each other,
and may exceed one by as many jobs as they make before their commits. A count reads as many index entries as its
ceiling says: up to EXACT it is made anew each time, beyond it serves a process for a second or for an eighth of the
room that it found, whichever ends first. What cancel or supersede are about to free is not counted, and whoever makes
no job is not asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jobs import clock
from jobs.errors import Invalid, Refused
from jobs.money import shown
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM
from jobs.services import limits
from jobs.services.draft import Request
from jobs.services.words import Place
from jobs.store import ceilings as store
from jobs.store.lookup import Caps

# Without jobs of one's own in line there is nothing to estimate by.
UNKNOWN_S, MOST_S = 10, 300
EXACT = 1_000
KEPT_S, SHARE, KEPT = 1.0, 8, 10_000


class QueueSaturated(Refused):
    """So many jobs wait already: try again later."""

    code = "queue_saturated"

    @property
    def scope(self) -> str:
        """Whose ceiling is reached: `tenant` or `workspace`."""
        return str(self.facts["scope"])

    @property
    def retry_after_s(self) -> int:
        """When there may be room, in seconds: an estimate by the tenant's own jobs."""
        return int(self.facts["retry_after_s"])


def admit(requests: Sequence[Request], rows: Sequence[dict[str, Any]], spots: Sequence[Place]) -> None:
    """Let these rows become jobs, or refuse before the first write; each in its place.

    Raises Invalid retry_policy_exceeds_cap and max_cost_usd_exceeds_cap, and QueueSaturated. A policy that the request
    did not ask for is cut to the cap instead.
    """
    caps = {spot: Caps(*map(limits.within_platform, Caps._fields, spot.caps)) for spot in set(spots)}
    if not any(most is not None for found in caps.values() for most in found):
        return
    for request, row, spot in zip(requests, rows, spots, strict=True):
        _cap_attempts(request, row, caps[spot].max_attempts_cap)
        _cap_cost(row, caps[spot].max_cost_usd_cap)
    outside = [spot for row, spot in zip(rows, spots, strict=True) if row["worker_group"] != SYSTEM]
    for spot, n in Counter(outside).items():
        most = caps[spot].tenant_ceiling
        # A tenant that comes into being with this job has nothing that waits.
        waiting = _waiting("tenant", spot.tenant_id, most, n) if most is not None and spot.tenant_id else 0
        _refuse_beyond(most, waiting + n, "tenant", spot)
    for workspace_id, n in Counter(s.workspace_id for s in outside).items():
        spot = next(s for s in outside if s.workspace_id == workspace_id)
        most = caps[spot].workspace_ceiling
        if most is not None:
            _refuse_beyond(most, _waiting("workspace", workspace_id, most, n) + n, "workspace", spot)


@dataclass(slots=True)
class _Count:
    """What waited when it was counted, and how many more this process may add on the strength of that, until when."""

    most: int
    waiting: int
    free: int
    until: float


_PROBES = {"tenant": store.waiting_of_tenant, "workspace": store.waiting_of_workspace}
_counts: dict[tuple[str, int], _Count] = {}


def _waiting(scope: str, id_: int, most: int, n: int) -> int:
    """How many wait, no further than the ceiling, for `n` that are to be added."""
    probe = _PROBES[scope]
    if most <= EXACT:
        return probe(id_, most)
    seen = _counts.get((scope, id_))
    if seen is not None and seen.most == most and clock.monotonic() < seen.until and (
            seen.waiting >= most or n <= seen.free):
        seen.free -= n
        return seen.waiting
    if len(_counts) >= KEPT:
        _counts.clear()
    waiting = probe(id_, most)
    _counts[scope, id_] = _Count(most, waiting, (most - waiting) // SHARE - n, clock.monotonic() + KEPT_S)
    return waiting


def _refuse_beyond(most: int | None, would_wait: int, scope: str, spot: Place) -> None:
    if most is None or would_wait <= most:
        return
    raise QueueSaturated(f"{most} jobs of this {scope} may wait, and with this they would be more.", scope=scope,
                         retry_after_s=_retry_after_s(spot.tenant_id, most if scope == "tenant" else None))


def _retry_after_s(tenant_id: int, waiting: int | None) -> int:
    """By Little's law, and by nothing but the tenant's own jobs: how many wait, and how long the first of them has."""
    waits_s = store.first_waits_s(tenant_id) if tenant_id else None
    if waits_s is None:
        return UNKNOWN_S
    n = store.waiting_of_tenant(tenant_id, EXACT) if waiting is None else waiting
    return min(MOST_S, max(1, math.ceil(waits_s / max(1, n))))


def _cap_attempts(request: Request, row: dict[str, Any], most: int | None) -> None:
    if most is None or row["max_attempts"] is None or row["max_attempts"] <= most:
        return
    if isinstance(request.options.retry, RetryPolicy) and not request.clamps:
        raise Invalid(f"must be at most {most}", field="retry.max_attempts", code="retry_policy_exceeds_cap")
    row["max_attempts"] = most


def _cap_cost(row: dict[str, Any], most: Decimal | None) -> None:
    if most is not None and row["max_cost_usd"] is not None and row["max_cost_usd"] > most:
        raise Invalid(f"must be at most {shown(most)} US dollars", field="max_cost_usd",
                      code="max_cost_usd_exceeds_cap")
