"""What tenants have spent in windows of time: restarts of their retry budgets, requeues of their rates (C20, C28, E4).

A window begins with the first spending in it and starts anew with the first one after its end, so that a row says all
there is to know. It is locked from the spending until the commit: after jobs and before attempts, by kind, tenants by
id (DESIGN 4). Tenants without a limit come to no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from jobs import failpoints
from jobs.conf import conf
from jobs.store.sql import array, packed, rows, run

REQUEUE_WINDOW_S = 60


class Kind(StrEnum):
    """What is spent."""

    RETRY = "retry"
    REQUEUE = "requeue"


class Spent(NamedTuple):
    """A tenant's window: what it may spend in it, what it has, and in how many seconds it ends."""

    budget: int
    spent: int
    left_s: float

    @property
    def left(self) -> int:
        """How many remain."""
        return max(0, self.budget - self.spent)


# The limit of a job's tenant, its workspace's where it has none.
_LIMIT = """coalesce((SELECT own.{column} FROM jobs_limits own WHERE own.tenant_id = {t}.tenant_id),
    (SELECT ws.{column} FROM jobs_limits ws WHERE ws.workspace_id = {t}.workspace_id AND ws.tenant_id IS NULL))"""
_COLUMNS = {Kind.RETRY: ("retry_budget", "retry_budget_window_s"), Kind.REQUEUE: ("requeue_rate", "requeue_window_s")}
_OPEN = f"""INSERT INTO jobs_tenant_window (tenant_id, kind, began_at, spent)
    SELECT u.id, %s, jobs_now(), 0 FROM unnest({array('bigint')}) u(id)
    WHERE NOT EXISTS (SELECT 1 FROM jobs_tenant_window w WHERE w.tenant_id = u.id AND w.kind = %s)
    ORDER BY u.id ON CONFLICT DO NOTHING"""
_LOCK = f"""SELECT tenant_id FROM jobs_tenant_window WHERE kind = %s AND tenant_id = ANY({array('bigint')})
    ORDER BY tenant_id FOR NO KEY UPDATE"""
# A beginning ahead of us is a clock that was set back: the window begins anew rather than never ending.
_READ = f"""SELECT s.tenant_id, s.budget, CASE WHEN s.open THEN s.spent ELSE 0 END,
        CASE WHEN s.open THEN s.window_s - extract(epoch FROM jobs_now() - s.began_at) ELSE s.window_s END::float8
    FROM (SELECT x.*, coalesce(x.began_at <= jobs_now()
                AND x.began_at + x.window_s * interval '1 s' > jobs_now(), false) AS open
        FROM (SELECT t.tenant_id, w.spent, w.began_at, {{budget}} AS budget, coalesce({{window}}, %s) AS window_s
            FROM (SELECT id AS tenant_id, workspace_id FROM jobs_tenant WHERE id = ANY({array('bigint')})) t
            LEFT JOIN jobs_tenant_window w ON w.tenant_id = t.tenant_id AND w.kind = %s) x) s"""
_SPEND = f"""UPDATE jobs_tenant_window w SET spent = u.was + u.n,
        began_at = CASE WHEN u.was = 0 THEN jobs_now() ELSE w.began_at END
    FROM unnest({array('bigint')}, {array('int')}, {array('int')}) u(id, was, n)
    WHERE w.tenant_id = u.id AND w.kind = %s"""
_BACK = f"""UPDATE jobs_tenant_window w SET spent = greatest(0, w.spent - u.n)
    FROM unnest({array('bigint')}, {array('int')}) u(id, n) WHERE w.tenant_id = u.id AND w.kind = %s"""


def limit(kind: Kind, table: str) -> str:
    """SQL: the limit of the tenant of this row, which has `tenant_id` and `workspace_id`; null for none of its own."""
    return _LIMIT.format(column=_COLUMNS[kind][0], t=table)


def platform() -> int | None:
    """The retry budget of tenants that have none of their own; None: unlimited."""
    return conf().PLATFORM_LIMITS.get(_COLUMNS[Kind.RETRY][0])


def read(kind: Kind, tenants: Sequence[int]) -> dict[int, Spent]:
    """The windows of those of these tenants that have a limit, as they stand."""
    found = {}
    most = conf().PLATFORM_LIMITS.get(_COLUMNS[kind][0])
    default_s = conf().RETRY_WINDOW_S if kind is Kind.RETRY else REQUEUE_WINDOW_S
    sql = _READ.format(budget=limit(kind, "t"), window=_LIMIT.format(column=_COLUMNS[kind][1], t="t"))
    for tenant, budget, spent, left_s in rows(sql, [default_s, packed(tenants), kind.value]):
        if budget is None and kind is Kind.RETRY:
            budget = most
        if budget is not None:
            found[int(tenant)] = Spent(budget if most is None else min(budget, most), spent, max(0.0, left_s))
    return found


def take(kind: Kind, wanted: Mapping[int, int]) -> dict[int, int]:
    """Spend up to so many of each tenant; how many each was granted. Holds its row until the commit.

    Exact: what the caller rolls back was not spent. Tenants without a limit are granted all, and have no row.
    """
    limited = sorted(read(kind, sorted(wanted))) if wanted else []
    if not limited:
        return dict(wanted)
    run(_OPEN, [kind.value, packed(limited), kind.value])
    rows(_LOCK, [kind.value, packed(limited)])
    windows = read(kind, limited)
    granted = {t: min(wanted[t], windows[t].left) if t in windows else wanted[t] for t in limited}
    spends = [t for t in limited if t in windows and granted[t]]
    if spends:
        run(_SPEND, [packed(spends), packed([windows[t].spent for t in spends]), packed([granted[t] for t in spends]),
                     kind.value])
        failpoints.at("window.spent")
    return {**wanted, **granted}


def give_back(kind: Kind, spent: Mapping[int, int]) -> None:
    """What was spent on something that did not come about, and had a row locked by us or none."""
    tenants = sorted(spent)
    run(_BACK, [packed(tenants), packed([spent[t] for t in tenants]), kind.value])
