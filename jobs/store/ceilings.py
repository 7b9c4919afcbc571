"""How much waits, counted no further than a ceiling: by the claim's own index, pair by pair of group and queue (C10).

Waiting is what the claim may take and what an exclusive group or a throttled type holds back; jobs that are not due yet
wait for their time and not for a worker, and the house's own jobs count for nobody. A probe reads at most as many index
entries as its ceiling says, whatever waits, and takes no lock.
"""

from __future__ import annotations

from jobs.routing import SYSTEM
from jobs.store.sql import rows

# The pairs in use are few and next to each other in the index: a seek each.
_PAIRS = f"""pair AS (
    (SELECT worker_group, queue FROM jobs_job WHERE state = 'queued' AND gate IS NULL
        ORDER BY worker_group, queue LIMIT 1)
    UNION ALL SELECT n.* FROM pair CROSS JOIN LATERAL (
        SELECT j.worker_group, j.queue FROM jobs_job j WHERE j.state = 'queued' AND j.gate IS NULL
            AND (j.worker_group, j.queue) > (pair.worker_group, pair.queue)
        ORDER BY j.worker_group, j.queue LIMIT 1) n),
    line AS MATERIALIZED (SELECT worker_group, queue, %s::bigint AS tenant_id FROM pair
        WHERE worker_group <> '{SYSTEM}')"""
# A tenant may have two lines for a moment.
_LINES = f"""line AS MATERIALIZED (
    SELECT DISTINCT worker_group, queue, tenant_id FROM jobs_claim_line
    WHERE workspace_id = %s AND worker_group <> '{SYSTEM}')"""
# Types with jobs behind their gate, of which a paused one may have any number: a seek each.
_TYPES = """held AS (
    (SELECT type FROM jobs_job WHERE gate = 'type' ORDER BY type LIMIT 1)
    UNION ALL SELECT n.type FROM held CROSS JOIN LATERAL (SELECT j.type FROM jobs_job j WHERE j.gate = 'type'
        AND j.type > held.type ORDER BY j.type LIMIT 1) n)"""
_OF = {"tenant_id": "h.workspace_id = (SELECT workspace_id FROM jobs_tenant WHERE id = %s) AND h.tenant_id = %s",
       "workspace_id": "h.workspace_id = %s AND %s::bigint IS NOT NULL"}
# Ordered as the indexes are: a planner that takes all rows for waiting ones would rather read the table.
_COUNT = f"""WITH RECURSIVE {{lines}}, {_TYPES}
    SELECT count(*) FROM (
        (SELECT 1 FROM line CROSS JOIN LATERAL (
            SELECT 1 FROM jobs_job j WHERE j.state = 'queued' AND j.gate IS NULL
                AND j.worker_group = line.worker_group AND j.queue = line.queue AND j.tenant_id = line.tenant_id
            ORDER BY j.priority DESC, j.available_at, j.id LIMIT {{most}}) one LIMIT {{most}})
        UNION ALL (SELECT 1 FROM jobs_job h WHERE h.gate = 'exclusive' AND h.{{column}} = %s
            ORDER BY h.exclusive_group, h.priority DESC, h.available_at, h.id LIMIT {{most}})
        UNION ALL (SELECT 1 FROM held CROSS JOIN LATERAL (
            SELECT 1 FROM jobs_job h WHERE h.gate = 'type' AND h.type = held.type AND {{of}}
            ORDER BY h.workspace_id, h.tenant_id, h.priority DESC, h.available_at, h.id LIMIT {{most}}) two
            LIMIT {{most}})
        LIMIT {{most}}) c"""
_OLDEST = f"""WITH RECURSIVE {_PAIRS}
    SELECT max(extract(epoch FROM jobs_now() - (SELECT j.available_at FROM jobs_job j
        WHERE j.state = 'queued' AND j.gate IS NULL AND j.worker_group = line.worker_group AND j.queue = line.queue
            AND j.tenant_id = line.tenant_id
        ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1)))::float8 FROM line"""


def waiting_of_tenant(tenant_id: int, most: int) -> int:
    """How many jobs of the tenant wait; `most` for as many or more."""
    return _count(_PAIRS, "tenant_id", tenant_id, most)


def waiting_of_workspace(workspace_id: int, most: int) -> int:
    """How many jobs of all tenants of the workspace wait; `most` for as many or more."""
    return _count(_LINES, "workspace_id", workspace_id, most)


def _count(lines: str, column: str, id_: int, most: int) -> int:
    if most <= 0:
        return 0
    sql = _COUNT.format(lines=lines, column=column, of=_OF[column], most=int(most))
    return int(rows(sql, [id_] * 4)[0][0])


def first_waits_s(tenant_id: int) -> float | None:
    """How long the first in one of this tenant's lines has waited, the longest of them; None where nothing waits."""
    waits_s = rows(_OLDEST, [tenant_id])[0][0]
    return None if waits_s is None else max(0.0, waits_s)
