"""Which open dead letters are meant: by their cluster, type, tenant and the like; listed, counted, grouped.

Everything goes along a partial index of open letters, newest first or oldest first, and stops at a bound.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from jobs.store.sql import array, packed, rows

# More than so many are not counted one by one, nor grouped.
COUNTED = 100_000
# So many are looked at to tell what fails just now.
NEWEST = 1_000
# The cluster of letters that nobody has put into one yet.
NO_CLUSTER = ""


class Match(NamedTuple):
    """Open letters that are meant, or answered ones; None means any. `bulk`: those that one bulk operation answered.

    `house`: those of the house's own jobs and no others (E11).
    """

    workspace_id: int | None = None
    tenant_id: int | None = None
    type: str | None = None
    reason: str | None = None
    cluster: str | None = None
    since: datetime | None = None
    house: bool = False
    letters: tuple[int, ...] | None = None
    upto: int | None = None
    answered: bool = False
    bulk: int | None = None
    until: datetime | None = None


_CONDITIONS = (
    ("workspace_id", "d.workspace_id = %s"), ("tenant_id", "d.tenant_id = %s"), ("type", "d.type = %s"),
    ("reason", "d.reason = %s"), ("since", "d.opened_at >= %s"), ("upto", "d.id <= %s"),
    ("until", "d.opened_at < %s"),
    ("bulk", "d.bulk_id = %s"),
)


def _where(match: Match) -> tuple[str, list[Any]]:
    """The condition; a text of its own for each combination, so that each has the plan that fits it."""
    parts, params = [f"d.resolved_at IS {'NOT ' if match.answered else ''}NULL"], []
    if match.letters is not None:
        parts.append(f"d.id = ANY({array('bigint')})")
        params.append(packed(match.letters))
    else:
        parts.append("d.house" if match.house else "NOT d.house")
    for name, sql in _CONDITIONS:
        if (value := getattr(match, name)) is not None:
            parts.append(sql)
            params.append(value)
    if match.cluster is not None:
        parts.append("d.cluster = %s" if match.cluster != NO_CLUSTER else "d.cluster IS NULL")
        params += [match.cluster] if match.cluster != NO_CLUSTER else []
    return " AND ".join(parts), params


def newest(match: Match, before: int | None, limit: int) -> list[int]:
    """The ids of the newest letters below `before`, newest first."""
    where, params = _where(match)
    if before is not None:
        where, params = where + " AND d.id < %s", [*params, before]
    return [r[0] for r in rows(f"SELECT d.id FROM jobs_dead_letter d WHERE {where} ORDER BY d.id DESC"
                               f" LIMIT {int(limit)}", params)]


_GATHER = """WITH wanted AS MATERIALIZED (SELECT d.id, d.job_id FROM jobs_dead_letter d WHERE {where} AND d.id > %s
        ORDER BY d.id LIMIT {limit}),
    put AS (INSERT INTO jobs_bulk_item (bulk_id, number, job_id, letter_id)
        SELECT %s::bigint, %s::int + row_number() OVER (ORDER BY id), job_id, id FROM wanted)
    SELECT count(*), max(id) FROM wanted"""


def gather(match: Match, bulk: int, mark: str | None, gathered: int, limit: int) -> tuple[int, str | None]:
    """Put the next letters behind `mark` into the set of a bulk operation; how many, and the mark (None: all)."""
    where, params = _where(match)
    number, last = rows(_GATHER.format(where=where, limit=int(limit)), [*params, int(mark or 0), bulk, gathered])[0]
    return int(number), str(last) if number == limit else None


def count(match: Match, most: int = COUNTED) -> int:
    """How many there are, counted up to one more than `most`."""
    where, params = _where(match)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM jobs_dead_letter d WHERE {where} LIMIT {int(most) + 1}) d"
    return int(rows(sql, params)[0][0])


class Group(NamedTuple):
    """The letters of one cluster that match: how many, the first and the last of them, and whose they are."""

    cluster: str
    size: int
    first: int
    last: int
    tenants: int
    top: list[int]


class Groups(NamedTuple):
    """Some clusters in order, and of how many clusters and letters; `cut`: there are more letters, older ones."""

    shown: list[Group]
    clusters: int
    letters: int
    cut: bool


# By windows and not by a join with the sums: a planner that takes open letters for few would join row by row.
_GROUPS = """WITH groups AS MATERIALIZED (SELECT cluster, count(*) AS n, min(id) AS first, max(id) AS last
        FROM (SELECT coalesce(d.cluster, '') AS cluster, d.id FROM jobs_dead_letter d
            WHERE {where} ORDER BY d.id DESC LIMIT {most}) d GROUP BY cluster)
    SELECT cluster, n, first, last, count(*) OVER (), (sum(n) OVER ())::bigint, min(first) OVER ()
    FROM groups ORDER BY {order} LIMIT {limit} OFFSET {offset}"""
_ORDERS = {"size": "n DESC, last DESC", "latest": "last DESC"}
# Of the clusters that are shown alone: of all of them it would take longer than the grouping itself.
_TENANTS = """SELECT cluster, count(*), (array_agg(tenant_id ORDER BY n DESC, tenant_id))[1:3]
    FROM (SELECT coalesce(d.cluster, '') AS cluster, d.tenant_id, count(*) AS n FROM jobs_dead_letter d
        JOIN (SELECT coalesce(u, '') AS name FROM unnest({clusters}) u) c ON c.name = coalesce(d.cluster, '')
        WHERE {where} AND d.id >= %s GROUP BY 1, 2) d GROUP BY cluster"""


_GROWN = """SELECT cluster, count(*) AS n, max(id) AS last
    FROM (SELECT coalesce(d.cluster, '') AS cluster, d.id, d.opened_at FROM jobs_dead_letter d
        WHERE {where} ORDER BY d.id DESC LIMIT {most}) d
    WHERE opened_at >= %s GROUP BY cluster ORDER BY n DESC, last DESC LIMIT {limit}"""


def grown(since: datetime, limit: int, most: int = NEWEST) -> list[tuple[str, int, int]]:
    """The clusters that grew most since then, among the `most` newest letters: name, by how many, the last letter."""
    where, params = _where(Match())
    sql = _GROWN.format(where=where, most=int(most), limit=int(limit))
    return [(str(cluster), int(n), int(last)) for cluster, n, last in rows(sql, [*params, since])]


def groups(match: Match, order: str, limit: int, offset: int, most: int = COUNTED) -> Groups:
    """The newest letters that match, at most `most`, in their clusters; by `size` or by the `latest` letter."""
    where, params = _where(match)
    found = rows(_GROUPS.format(where=where, most=int(most), order=_ORDERS[order], limit=int(limit),
                                offset=int(offset)), params)
    if not found:
        return Groups([], 0, 0, False)
    clusters, letters, oldest = found[0][4:]
    sql = _TENANTS.format(where=where, clusters=array("text"))
    tenants = {r[0]: r[1:] for r in rows(sql, [packed([r[0] or None for r in found]), *params, oldest])}
    shown = [Group(*r[:4], *tenants.get(r[0], (0, []))) for r in found]
    return Groups(shown, int(clusters), int(letters), int(letters) >= most)
