"""Counting live attempts under caps that were set after they were claimed: tenants', groups' and throttles'."""

from __future__ import annotations

from jobs.store import throttling
from jobs.store.admission import LIMITS, group_max, group_scope
from jobs.store.sql import array, packed, rows, run

# Live attempts that a cap does not count: they were claimed before it was set, or under another scope.
_UNCOUNTED = f"""SELECT u.job_id::text, u.attempt_id, u.name FROM (
        SELECT s.*, 'tenant:' || s.tenant_id AS name FROM s
        WHERE coalesce(s.own_cap, s.ws_cap) IS NOT NULL AND s.worker_group <> 'system'
        UNION ALL
        SELECT s.*, CASE WHEN s.scope = 'workspace' THEN 'group:w' || s.workspace_id ELSE 'group:' || s.tenant_id END
            || ':' || s.exclusive_group FROM s WHERE s.exclusive_group IS NOT NULL AND s.group_max IS NOT NULL
        UNION ALL
        SELECT s.*, {throttling.NAME} FROM s JOIN jobs_throttle t ON t.most IS NOT NULL
            AND (t.workspace_id IS NULL OR t.workspace_id = s.workspace_id)
            AND (t.kind = 'queue' AND t.name = s.queue OR t.kind = 'worker_group' AND t.name = s.worker_group
                OR t.kind = 'type' AND t.name = s.type) WHERE s.worker_group <> 'system') u
    WHERE NOT EXISTS (SELECT 1 FROM jobs_attempt_cap c WHERE c.attempt_id = u.attempt_id
        AND c.cap_key = hashtextextended(u.name, 0))"""
_LIVE = f"""SELECT a.job_id, a.id AS attempt_id, job.workspace_id, job.tenant_id, job.worker_group, job.queue,
        job.type, job.exclusive_group, own.tenant_concurrency AS own_cap, ws.tenant_concurrency AS ws_cap,
        {group_max('job.exclusive_group')} AS group_max, {group_scope('job.exclusive_group')} AS scope
    FROM (SELECT x.job_id, x.id FROM jobs_attempt x WHERE x.ended_at IS NULL AND {{where}}
        ORDER BY x.job_id LIMIT {{limit}}) a
    JOIN jobs_job job ON job.id = a.job_id {LIMITS.format(t='job')}"""
_LOCK_HELD = f"""SELECT id::text FROM jobs_job WHERE id = ANY({array('uuid')}) ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED"""
_COUNT = "INSERT INTO jobs_attempt_cap (attempt_id, cap_key) SELECT u.attempt_id, hashtextextended(u.name, 0) FROM (" \
    "WITH s AS ({live}) {uncounted}) u ON CONFLICT DO NOTHING"


def count_live(after: str, limit: int) -> tuple[int, str | None]:
    """Count live attempts under the caps that are set by now; how many rows that took, and where to go on (None: done).

    The jobs are locked first: an attempt cannot end, and leave its rows behind, while we write them.
    """
    where = "x.job_id > %s::uuid"
    batch = rows(f"SELECT x.job_id::text FROM jobs_attempt x WHERE x.ended_at IS NULL AND {where}"
                 f" ORDER BY x.job_id LIMIT {int(limit)}", [after])
    found = rows(f"WITH s AS ({_LIVE.format(where=where, limit=int(limit))}) {_UNCOUNTED}", [after])
    counted = 0
    if found:
        mine = [r[0] for r in rows(_LOCK_HELD, [packed(sorted({f[0] for f in found}))])]
        if mine:
            live = _LIVE.format(where=f"x.job_id = ANY({array('uuid')})", limit=int(limit))
            counted = run(_COUNT.format(live=live, uncounted=_UNCOUNTED), [packed(mine)])
    return counted, batch[-1][0] if len(batch) == limit else None
