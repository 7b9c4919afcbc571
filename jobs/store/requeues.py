"""How often tenants may requeue: exact windows, counted under a lock of their own, after the jobs (C28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jobs.store.sql import array, packed, rows, run

WINDOW_S = 60
# A tenant's own word, else its workspace's; tenants without a rate are not told of, and cost no row.
_RATES = f"""SELECT tenant.id, coalesce(own.requeue_rate, site.requeue_rate),
        coalesce(own.requeue_window_s, site.requeue_window_s, {WINDOW_S})
    FROM jobs_tenant tenant LEFT JOIN jobs_limits own ON own.tenant_id = tenant.id
    LEFT JOIN jobs_limits site ON site.workspace_id = tenant.workspace_id AND site.tenant_id IS NULL
    WHERE tenant.id = ANY({array('bigint')}) AND coalesce(own.requeue_rate, site.requeue_rate) IS NOT NULL
    ORDER BY tenant.id"""
# Locks the window until the commit; one that is over begins anew.
_WINDOW = """INSERT INTO jobs_requeue_window AS w (tenant_id, began_at, spent) VALUES (%s, jobs_now(), 0)
    ON CONFLICT (tenant_id) DO UPDATE SET
        spent = CASE WHEN w.began_at <= jobs_now() - %s * interval '1 second' THEN 0 ELSE w.spent END,
        began_at = CASE WHEN w.began_at <= jobs_now() - %s * interval '1 second' THEN jobs_now() ELSE w.began_at END
    RETURNING w.spent, greatest(0, extract(epoch FROM w.began_at + %s * interval '1 second' - jobs_now()))::float8"""
_SPEND = "UPDATE jobs_requeue_window SET spent = spent + %s WHERE tenant_id = %s"


class Room(NamedTuple):
    """How many of those that were wanted may go, and in how many seconds there is room again."""

    granted: int
    retry_after_s: float


def take(wanted: Mapping[int, int]) -> dict[int, Room]:
    """Count so many requeues of each tenant, as far as there is room; those that have no rate are left out."""
    if not wanted:
        return {}
    room = {}
    for tenant_id, rate, window_s in rows(_RATES, [packed(sorted(wanted))]):
        spent, wait = rows(_WINDOW, [tenant_id, window_s, window_s, window_s])[0]
        granted = max(0, min(wanted[tenant_id], rate - spent))
        if granted:
            run(_SPEND, [granted, tenant_id])
        room[tenant_id] = Room(granted, round(float(wait), 3))
    return room
