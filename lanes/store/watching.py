"""What a watchdog sees: lanes in progress in the order of their ids, and of each its active work (A49). Only reads."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from lanes.store.looking import MOST_JOBS, NEWEST

FIRST = uuid.UUID(int=0)
_NEWEST = NEWEST.format(lane="seen.id", most=MOST_JOBS)

# Heard of: its latest receipt or its holder's latest heartbeat, and not before its time has come or it was made the
# lane's. Of an earlier phase: its target has a newer generation, or the lane has changed since it got the job.
_SEEN = """WITH seen AS MATERIALIZED (SELECT x.* FROM lanes_lane x
        WHERE x.execution = 'in_progress' AND x.ended_at IS NULL AND {which} ORDER BY x.id LIMIT {limit}),
    work AS MATERIALIZED (SELECT seen.id AS lane_id, job.ended_at, job.ended_at IS NULL AS active,
            coalesce(job.generation < t.generation, false) OR mine.created_at < seen.moved_at AS earlier,
            greatest(mine.created_at,
                (SELECT r.at FROM jobs_receipt r WHERE r.job_id = job.id AND r.number = job.number),
                (SELECT a.lease_until - job.lease_ms * interval '1 ms' FROM jobs_attempt a WHERE a.id = job.attempt_id),
                CASE WHEN job.state = 'queued' THEN least(job.available_at, jobs_now() + interval '1 day') END) AS heard
        FROM seen CROSS JOIN LATERAL (SELECT x.job_id, x.created_at FROM lanes_job x WHERE {newest}) mine
        -- One by one: a planner that does not know how few lanes there are would rather read all jobs.
        CROSS JOIN LATERAL (SELECT j.* FROM jobs_job j WHERE j.id = mine.job_id LIMIT 1) job
        LEFT JOIN jobs_target t ON t.id = job.target_id)
    SELECT seen.id, w.id, w.slug, seen.name, seen.version, seen.moved_at, seen.reconcile_type, seen.reconcile_input,
        jobs_now(), k.ended_at, coalesce(k.heard, '{{}}'), coalesce(k.earlier, '{{}}')
    FROM seen JOIN jobs_workspace w ON w.id = seen.workspace_id
        LEFT JOIN (SELECT lane_id, max(ended_at) AS ended_at, array_agg(heard ORDER BY heard) FILTER (WHERE active)
                AS heard, array_agg(earlier ORDER BY heard) FILTER (WHERE active) AS earlier
            FROM work GROUP BY lane_id) k ON k.lane_id = seen.id ORDER BY seen.id"""


class Seen(NamedTuple):
    """A lane in progress as it was seen at `now`. Of each active job when it was heard of, and whether it is of an
    earlier phase; of those that have ended the latest end.
    """

    id: uuid.UUID
    workspace_id: int
    workspace: str
    name: str
    version: int
    moved_at: datetime
    reconcile_type: str | None
    reconcile_input: str | None
    now: datetime
    ended_at: datetime | None
    heard: Sequence[datetime]
    earlier: Sequence[bool]


def after(lane_id: uuid.UUID, limit: int) -> list[Seen]:
    """The next lanes in progress behind this one, by their ids; of each the newest `MOST_JOBS` jobs are looked at."""
    return _seen("x.id > %s", [lane_id], limit)


def among(lane_ids: Collection[uuid.UUID]) -> list[Seen]:
    """Those of these lanes that are in progress."""
    return _seen("x.id = ANY(%s)", [list(lane_ids)], len(lane_ids)) if lane_ids else []


def _seen(which: str, params: list[Any], limit: int) -> list[Seen]:
    with connection.cursor() as cursor:
        cursor.execute(_SEEN.format(which=which, limit=int(limit), newest=_NEWEST), params)
        return [Seen._make(row) for row in cursor.fetchall()]
