"""Which jobs a bulk operation means: sampled, counted, gathered into its set. Every look stops at a bound.

No index serves all filters, so gathering goes through jobs by id, a window at a time, and asks each of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from jobs import clock, ids
from jobs.routing import SYSTEM
from jobs.store.sql import array, packed, rows

# More than so many are not counted one by one.
COUNTED = 100_000


class JobMatch(NamedTuple):
    """Jobs that are meant; None means any. `since` and `until` are of their making, `upto` the newest that is meant.

    `house`: those that the house makes for itself, and no others (E11); `jobs` a selection by hand.
    """

    workspace_id: int | None = None
    tenant_id: int | None = None
    type: str | None = None
    version: int | None = None
    queue: str | None = None
    worker_group: str | None = None
    states: tuple[str, ...] = ()
    reason: str | None = None
    agent: str | None = None
    exclusive_group: str | None = None
    session_key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    house: bool = False
    jobs: tuple[str, ...] | None = None
    upto: str | None = None

    def told(self) -> dict[str, Any]:
        """As JSON, without what means any."""
        said = {name: value for name, value in self._asdict().items() if value not in (None, (), False)}
        return {name: value.isoformat() if isinstance(value, datetime) else list(value) if isinstance(value, tuple)
                else value for name, value in said.items()}


def read(told: dict[str, Any]) -> JobMatch:
    """The match that this JSON came from."""
    said = dict(told)
    for name in ("since", "until"):
        if name in said:
            said[name] = datetime.fromisoformat(said[name])
    for name in ("states", "jobs"):
        if name in said:
            said[name] = tuple(said[name])
    return JobMatch(**said)


# What an index may bring in the order of ids, and what each job in a window is asked.
_EQUAL = ("workspace_id", "type", "version", "queue", "worker_group", "reason", "agent", "exclusive_group",
          "session_key")


def _range(match: JobMatch) -> tuple[str, list[Any]]:
    parts, params = ["true"], []
    for sql, value in (("job.tenant_id = %s", match.tenant_id), ("job.id <= %s::uuid", match.upto),
                       ("job.id >= %s::uuid", _earliest(match.since)), ("job.id < %s::uuid", _earliest(match.until))):
        if value is not None:
            parts.append(sql)
            params.append(value)
    if match.jobs is not None:
        parts.append(f"job.id = ANY({array('uuid')})")
        params.append(packed(match.jobs))
    return " AND ".join(parts), params


def _earliest(moment: datetime | None) -> str | None:
    # Ids are ordered by time, so that moments are ranges of them.
    return None if moment is None else str(ids.earliest((clock.micros(moment) or 0) // 1_000))


def _asked(match: JobMatch) -> tuple[str, list[Any]]:
    parts, params = [f"job.worker_group {'=' if match.house else '<>'} '{SYSTEM}'"], []
    for name in _EQUAL:
        if (value := getattr(match, name)) is not None:
            parts.append(f"job.{name} = %s")
            params.append(value)
    if match.states:
        parts.append(f"job.state = ANY({array('text')})")
        params.append(packed(match.states))
    return " AND ".join(parts), params


def _where(match: JobMatch) -> tuple[str, list[Any]]:
    near, params = _range(match)
    asked, more = _asked(match)
    return f"{near} AND {asked}", [*params, *more]


def newest_of_all() -> str | None:
    """The newest job that there is: whatever is made later is not meant."""
    # `ORDER BY id` would mean the text that is selected, and sort all jobs.
    found = rows("SELECT job.id::text FROM jobs_job job ORDER BY job.id DESC LIMIT 1")
    return str(found[0][0]) if found else None


def sample(match: JobMatch, limit: int) -> list[str]:
    """The ids of the newest jobs that match, newest first."""
    where, params = _where(match)
    return [r[0] for r in rows(f"SELECT job.id::text FROM jobs_job job WHERE {where} ORDER BY job.id DESC"
                               f" LIMIT {int(limit)}", params)]


def count(match: JobMatch, most: int = COUNTED) -> int:
    """How many there are, counted up to one more than `most`."""
    where, params = _where(match)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM jobs_job job WHERE {where} LIMIT {int(most) + 1}) j"
    return int(rows(sql, params)[0][0])


_GATHER = """WITH seen AS MATERIALIZED (SELECT job.id, job.state, job.{columns} FROM jobs_job job
        WHERE {near} AND job.id > %s::uuid ORDER BY job.id LIMIT {limit}),
    wanted AS MATERIALIZED (SELECT job.id FROM seen job WHERE {asked}),
    put AS (INSERT INTO jobs_bulk_item (bulk_id, number, job_id)
        SELECT %s::bigint, %s::int + row_number() OVER (ORDER BY id), id FROM wanted)
    SELECT (SELECT count(*) FROM wanted), (SELECT count(*) FROM seen),
        (SELECT id::text FROM seen ORDER BY id DESC LIMIT 1)"""
_FIRST = "00000000-0000-0000-0000-000000000000"


def gather(match: JobMatch, bulk: int, mark: str | None, gathered: int, limit: int) -> tuple[int, str | None]:
    """Look at the next jobs behind `mark`, put those that match into the set; how many, and the mark (None: all)."""
    near, params = _range(match)
    asked, more = _asked(match)
    sql = _GATHER.format(near=near, asked=asked, limit=int(limit), columns=", job.".join(_EQUAL))
    number, seen, last = rows(sql, [*params, mark or _FIRST, *more, bulk, gathered])[0]
    return int(number), str(last) if seen == limit else None
