"""Which open dead letters are meant: by their cluster, type, tenant and the like; listed, counted, grouped.

Everything goes along a partial index of open letters, newest first or oldest first, and stops at a bound.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from jobs.store.sql import array, packed, rows

# More than so many are not counted one by one, nor grouped.
COUNTED = 100_000
# The cluster of letters that nobody has put into one yet.
NO_CLUSTER = ""


class Match(NamedTuple):
    """Open letters that are meant; None means any. `house`: those of the house's own jobs and no others (E11)."""

    workspace_id: int | None = None
    tenant_id: int | None = None
    type: str | None = None
    reason: str | None = None
    cluster: str | None = None
    since: datetime | None = None
    house: bool = False
    letters: tuple[int, ...] | None = None
    upto: int | None = None


_CONDITIONS = (
    ("workspace_id", "d.workspace_id = %s"), ("tenant_id", "d.tenant_id = %s"), ("type", "d.type = %s"),
    ("reason", "d.reason = %s"), ("since", "d.opened_at >= %s"), ("upto", "d.id <= %s"),
)


def _where(match: Match) -> tuple[str, list[Any]]:
    """The condition; a text of its own for each combination, so that each has the plan that fits it."""
    parts, params = ["d.resolved_at IS NULL"], []
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


def oldest(match: Match, after: int, limit: int) -> list[int]:
    """The ids of the oldest letters above `after`, oldest first."""
    where, params = _where(match)
    return [r[0] for r in rows(f"SELECT d.id FROM jobs_dead_letter d WHERE {where} AND d.id > %s ORDER BY d.id"
                               f" LIMIT {int(limit)}", [*params, after])]


def count(match: Match, most: int = COUNTED) -> int:
    """How many there are, counted up to one more than `most`."""
    where, params = _where(match)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM jobs_dead_letter d WHERE {where} LIMIT {int(most) + 1}) d"
    return int(rows(sql, params)[0][0])


class Group(NamedTuple):
    """The letters of one cluster that match: how many, of how many tenants, and one of them."""

    cluster: str
    size: int
    tenants: int
    top: list[int]
    first_at: datetime
    last_at: datetime
    sample: int


# By tenants first: what is distinct inside a cluster then costs no sort. The tenants of those shown alone are ranked.
_GROUPS = """WITH seen AS MATERIALIZED (
        SELECT cluster, tenant_id, count(*) AS n, min(opened_at) AS first_at, max(opened_at) AS last_at, max(id) AS id
        FROM (SELECT coalesce(d.cluster, '') AS cluster, d.tenant_id, d.opened_at, d.id FROM jobs_dead_letter d
            WHERE {where} ORDER BY d.id DESC LIMIT {most}) d GROUP BY cluster, tenant_id),
    groups AS MATERIALIZED (SELECT cluster, sum(n)::bigint AS n, count(*) AS tenants, min(first_at) AS first_at,
        max(last_at) AS last_at, max(id) AS id FROM seen GROUP BY cluster),
    shown AS MATERIALIZED (SELECT * FROM groups ORDER BY {order} LIMIT {limit} OFFSET {offset}),
    ranked AS (SELECT seen.cluster, seen.tenant_id,
            row_number() OVER (PARTITION BY seen.cluster ORDER BY seen.n DESC, seen.tenant_id) AS place
        FROM seen JOIN shown ON shown.cluster = seen.cluster),
    top AS (SELECT cluster, array_agg(tenant_id ORDER BY place) AS tenants FROM ranked WHERE place <= 3
        GROUP BY cluster)
    SELECT shown.cluster, shown.n, shown.tenants, top.tenants, shown.first_at, shown.last_at, shown.id,
        (SELECT count(*) FROM groups), (SELECT sum(n)::bigint FROM groups)
    FROM shown JOIN top ON top.cluster = shown.cluster ORDER BY {outer}"""
_ORDERS = {"count": "{0}n DESC, {0}id DESC", "latest": "{0}id DESC"}


class Groups(NamedTuple):
    """Some clusters in order, and of how many clusters and letters; `cut`: there are more letters, older ones."""

    shown: list[Group]
    clusters: int
    letters: int
    cut: bool


def groups(match: Match, order: str, limit: int, offset: int, most: int = COUNTED) -> Groups:
    """The newest letters that match, at most `most`, in their clusters; by `count` or by the `latest` letter."""
    where, params = _where(match)
    found = rows(_GROUPS.format(where=where, most=int(most) + 1, order=_ORDERS[order].format(""),
                                outer=_ORDERS[order].format("shown."), limit=int(limit), offset=int(offset)), params)
    if not found:
        return Groups([], 0, 0, False)
    letters = int(found[0][8])
    return Groups([Group._make(r[:7]) for r in found], int(found[0][7]), min(letters, most), letters > most)
