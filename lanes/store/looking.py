"""Reads that would read too much if they were written plainly: pages of lanes, and what lanes' jobs are doing.

Each touches as many rows as it shows, however many lanes and jobs there are.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.db import OperationalError, connection, transaction

from jobs.selectors import LIST_PATIENCE_MS, QUERY_CANCELED, TooSlow

T = TypeVar("T")
# Of a lane's jobs the newest so many are looked at.
MOST_JOBS = 200

# Each workspace by a part of its own, named by a constant: asked with a parameter the database would go back through
# everybody's rows for those of a small workspace.
_PART = "(SELECT x.id FROM {table} x WHERE x.workspace_id = %s{narrowed} ORDER BY x.id DESC LIMIT %s)"
# Of one statement.
MOST_PARTS = 50


def page(table: str, spots: Sequence[int], narrowed: dict[str, Any], *, limit: int,
         before: uuid.UUID | None) -> list[uuid.UUID]:
    """Ids of the newest rows of a table of lanes in these workspaces, below `before`.

    `narrowed` are conditions of our own on columns of `x`, and their values. Raises TooSlow.
    """
    conditions = {**narrowed, **({"x.id < %s": before} if before is not None else {})}
    part = _PART.format(table=table, narrowed="".join(f" AND {one}" for one in conditions))
    values = [value for condition, value in conditions.items() if "%s" in condition]

    def read() -> list[uuid.UUID]:
        found: list[uuid.UUID] = []
        for begin in range(0, len(spots), MOST_PARTS):
            some = spots[begin : begin + MOST_PARTS]
            params = [word for spot in some for word in (spot, *values, limit)]
            found += [id_ for id_, in _rows(" UNION ALL ".join([part] * len(some)), params)]
        return sorted(found, reverse=True)[:limit]

    return patiently(read) if spots else []


def patiently(read: Callable[[], T]) -> T:
    """Read for so long and no longer. Raises TooSlow."""
    # In somebody's transaction the limit would stay for all of their statements: theirs is the patience.
    if connection.in_atomic_block:
        return read()
    try:
        with transaction.atomic():
            _run(f"SET LOCAL statement_timeout = {LIST_PATIENCE_MS}")
            return read()
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED:
            raise TooSlow() from error
        raise


def _rows(sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()  # type: ignore[no-any-return]


def _run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


# The newest jobs of a lane, by the lane's own index. Asked with `lane_id = ...` the database may take the order for the
# whole question, and go back through the jobs of all lanes for those of a small one beside a very large one.
NEWEST = f"""(x.lane_id, x.job_id) >= ({{lane}}, '{uuid.UUID(int=0)}'::uuid)
            AND (x.lane_id, x.job_id) <= ({{lane}}, '{uuid.UUID(int=2 ** 128 - 1)}'::uuid)
            ORDER BY x.lane_id DESC, x.job_id DESC LIMIT {{most}}"""
# LIMIT 1: joined plainly, the database would sooner read a million jobs than look ten thousand up.
# The latest sign of life: of a job that has ended its end, else its latest receipt or its holder's latest heartbeat.
_WORK = f"""WITH mine AS MATERIALIZED (SELECT asked.lane_id, found.job_id, found.n > {MOST_JOBS} AS beyond
        FROM unnest(%s::uuid[]) asked(lane_id) CROSS JOIN LATERAL (
            SELECT x.job_id, row_number() OVER (ORDER BY x.lane_id DESC, x.job_id DESC) AS n FROM lanes_job x
            WHERE {NEWEST.format(lane="asked.lane_id", most=MOST_JOBS + 1)}) found)
    SELECT mine.lane_id, job.state, count(*) FILTER (WHERE NOT mine.beyond), bool_or(mine.beyond),
        max(coalesce(job.ended_at, greatest(
            (SELECT r.at FROM jobs_receipt r WHERE r.job_id = job.id AND r.number = job.number),
            (SELECT a.lease_until - job.lease_ms * interval '1 ms' FROM jobs_attempt a WHERE a.id = job.attempt_id)))),
        sum(CASE WHEN job.state = 'failed' AND EXISTS (SELECT 1 FROM jobs_dead_letter d
            WHERE d.job_id = job.id AND d.resolved_at IS NULL) THEN 1 ELSE 0 END)
    FROM mine LEFT JOIN LATERAL (SELECT * FROM jobs_job x WHERE x.id = mine.job_id LIMIT 1) job ON true
    WHERE %s::bigint IS NULL OR job.tenant_id = %s GROUP BY 1, 2"""


class Part(NamedTuple):
    """The jobs of a lane that are in one state; None: they are gone. `beyond`: there are more than are looked at."""

    lane_id: uuid.UUID
    state: str | None
    jobs: int
    beyond: bool
    latest: datetime | None
    letters: int


def work(lane_ids: Sequence[uuid.UUID], tenant_id: int | None) -> list[Part]:
    """What the newest jobs of these lanes are doing, in one statement; of one tenant's, where one is named."""
    found = _rows(_WORK, [[str(one) for one in lane_ids], tenant_id, tenant_id])
    return [Part._make([*row[:-1], int(row[-1])]) for row in found]
