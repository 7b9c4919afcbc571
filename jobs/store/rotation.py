"""Reading the lines: which tenants are next in each pair, with their limits and with the throttles; locks nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobs import clock
from jobs.store import throttling
from jobs.store.picking import Pair
from jobs.store.sql import array, packed, rows

RECALLED_S = 5
_LINES = """SELECT s.n, s.id, s.workspace_id, s.tenant_id, coalesce(own.tenant_concurrency, ws.tenant_concurrency),
    coalesce(own.exclusive_group_max, ws.exclusive_group_max),
    coalesce(own.exclusive_group_scope, ws.exclusive_group_scope, 'tenant'), {paused}
    FROM (SELECT p.n, line.* FROM unnest({arrays}) WITH ORDINALITY p(worker_group, queue, after, n)
        CROSS JOIN LATERAL (SELECT * FROM (
            (SELECT x.id, x.workspace_id, x.tenant_id FROM jobs_claim_line x WHERE {where} AND x.tenant_id > p.after
                ORDER BY {order} LIMIT {limit})
            UNION ALL
            (SELECT x.id, x.workspace_id, x.tenant_id FROM jobs_claim_line x WHERE {where} AND x.tenant_id <= p.after
                ORDER BY {order} LIMIT {limit})) y LIMIT {limit}) line) s
    LEFT JOIN jobs_limits own ON own.tenant_id = s.tenant_id
    LEFT JOIN jobs_limits ws ON ws.workspace_id = s.workspace_id AND ws.tenant_id IS NULL{throttles}"""
_ARRAYS = f"{array('text')}, {array('text')}, {array('bigint')}"
_ANY = "EXISTS (SELECT FROM jobs_throttle)"
_PAUSED = f"coalesce({throttling.PAUSED}, false)"
_THROTTLES = f""" LEFT JOIN jobs_throttle t ON t.tenant_id = s.tenant_id
    UNION ALL {throttling.READ} AND (%s::bigint[] IS NULL OR t.workspace_id IS NULL
        OR t.workspace_id = ANY(%s::bigint[]))"""
# The first and the last tenant of each pair: two probes of the index.
_ENDS = f"""SELECT p.n, (SELECT x.tenant_id FROM jobs_claim_line x WHERE {{where}} ORDER BY {{order}} LIMIT 1),
        (SELECT x.tenant_id FROM jobs_claim_line x WHERE {{where}} ORDER BY {{back}} LIMIT 1)
    FROM unnest({array('text')}, {array('text')}) WITH ORDINALITY p(worker_group, queue, n)"""

# When throttles were met: for the rest of that time they are read at once.
_met_in = -1


class Scope(NamedTuple):
    """Whose lines are read; None: everybody's."""

    workspaces: tuple[int, ...] | None
    tenant_id: int | None

    @property
    def where(self) -> str:
        """SQL: an open line of the pair that this scope may see."""
        where = "x.worker_group = p.worker_group AND x.queue = p.queue AND x.parked IS NULL"
        if self.workspaces is not None:
            where += f" AND x.workspace_id IN ({', '.join(str(int(one)) for one in self.workspaces)})"
        if self.tenant_id is not None:
            where += f" AND x.tenant_id = {int(self.tenant_id)}"
        return where

    @property
    def order(self) -> tuple[str, ...]:
        """Only the open lines' own index ends with the id: without statistics the planner also liked that of all."""
        return ("x.tenant_id", "x.id") if self.workspaces is None else ("x.tenant_id",)


def look(scope: Scope, pairs: Sequence[Pair], cursors: Sequence[int], limit: int,
         shut: Mapping[Pair, set[int]]) -> list[tuple[Any, ...]]:
    """The next lines behind each cursor, numbered by pair, and as number 0 the throttles, if there are any by now.

    Reading no throttles costs more than asking whether there is one; who hears of one reads again.
    """
    global _met_in
    where = scope.where
    for pair, full in shut.items():
        if pair in pairs and full:
            where += f" AND NOT (p.n = {pairs.index(pair) + 1} AND x.workspace_id IN ({', '.join(map(str, full))}))"

    def sql(paused: str, throttles: str) -> str:
        return _LINES.format(arrays=_ARRAYS, where=where, order=", ".join(scope.order), limit=int(limit),
                             paused=paused, throttles=throttles)

    groups, queues = packed([p[0] for p in pairs]), packed([p[1] for p in pairs])
    params = [groups, queues, packed(cursors)]
    now = clock.epoch(RECALLED_S)
    if _met_in != now:
        found = rows(sql(_ANY, ""), params)
        if not found or not found[0][-1]:
            return found
        _met_in = now
    mine = None if scope.workspaces is None else list(scope.workspaces)
    return rows(sql(_PAUSED, _THROTTLES), [*params, queues, groups, mine, mine])


def anywhere(scope: Scope, pairs: Sequence[Pair]) -> list[int]:
    """For each pair a point somewhere among its tenants, behind which a new process begins.

    If all began at the first one, tenants of high ids would come last after each restart.
    """
    order = scope.order
    sql = _ENDS.format(where=scope.where, order=", ".join(order), back=", ".join(f"{name} DESC" for name in order))
    found = rows(sql, [packed([p[0] for p in pairs]), packed([p[1] for p in pairs])])
    return [0 if first is None else random.randrange(first - 1, last) for _, first, last in sorted(found)]
