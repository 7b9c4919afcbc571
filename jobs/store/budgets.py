"""What tenants have spent of their retry budgets: a row each, locked from the spending until the commit (C20, E4).

A window begins with the first restart in it and starts anew with the first one after its end, so that a row says all
there is to know. Locked after jobs and before attempts, tenants by id (DESIGN 4). Only tenants with a budget come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs.conf import conf
from jobs.store.sql import array, packed, rows, run

MICROS = 1_000_000


class Spent(NamedTuple):
    """A tenant's window: what it may spend in it, what it has, and in how many seconds it ends."""

    budget: int
    spent: int
    left_s: float

    @property
    def left(self) -> int:
        """How many restarts remain."""
        return max(0, self.budget - self.spent)


# The budget of a job's tenant, the platform's where neither it nor its workspace has one.
BUDGET = """coalesce((SELECT own.retry_budget FROM jobs_limits own WHERE own.tenant_id = {t}.tenant_id),
    (SELECT ws.retry_budget FROM jobs_limits ws WHERE ws.workspace_id = {t}.workspace_id AND ws.tenant_id IS NULL))"""
WINDOW = BUDGET.replace("retry_budget", "retry_budget_window_s")
_OPEN = f"""INSERT INTO jobs_retry_window (tenant_id, started_at, spent)
    SELECT u.id, jobs_now(), 0 FROM unnest({array('bigint')}) u(id)
    WHERE NOT EXISTS (SELECT 1 FROM jobs_retry_window w WHERE w.tenant_id = u.id)
    ORDER BY u.id ON CONFLICT DO NOTHING"""
_LOCK = f"""SELECT tenant_id FROM jobs_retry_window WHERE tenant_id = ANY({array('bigint')})
    ORDER BY tenant_id FOR NO KEY UPDATE"""
# A start ahead of us is a clock that was set back: the window begins anew rather than never ending.
_READ = f"""SELECT s.tenant_id, s.budget, CASE WHEN s.open THEN s.spent ELSE 0 END,
        CASE WHEN s.open THEN s.window_s - extract(epoch FROM jobs_now() - s.started_at) ELSE s.window_s END::float8
    FROM (SELECT x.*, coalesce(x.started_at <= jobs_now()
                AND x.started_at + x.window_s * interval '1 s' > jobs_now(), false) AS open
        FROM (SELECT t.tenant_id, w.spent, w.started_at, {BUDGET.format(t='t')} AS budget,
                coalesce({WINDOW.format(t='t')}, %s) AS window_s
            FROM (SELECT id AS tenant_id, workspace_id FROM jobs_tenant WHERE id = ANY({array('bigint')})) t
            LEFT JOIN jobs_retry_window w ON w.tenant_id = t.tenant_id) x) s"""
_SPEND = f"""UPDATE jobs_retry_window w SET spent = u.was + u.n,
        started_at = CASE WHEN u.was = 0 THEN jobs_now() ELSE w.started_at END
    FROM unnest({array('bigint')}, {array('int')}, {array('int')}) u(id, was, n) WHERE w.tenant_id = u.id"""
_BACK = f"""UPDATE jobs_retry_window w SET spent = greatest(0, w.spent - u.n)
    FROM unnest({array('bigint')}, {array('int')}) u(id, n) WHERE w.tenant_id = u.id"""


def platform() -> int | None:
    """The budget of tenants that have none of their own; None: unlimited."""
    return conf().PLATFORM_LIMITS.get("retry_budget")


def read(tenants: Sequence[int]) -> dict[int, Spent]:
    """The windows of those of these tenants that have a budget, as they stand."""
    found = {}
    most = platform()
    for tenant, budget, spent, left_s in rows(_READ, [conf().RETRY_WINDOW_S, packed(tenants)]):
        if budget is None:
            budget = most
        if budget is not None:
            found[int(tenant)] = Spent(budget if most is None else min(budget, most), spent, max(0.0, left_s))
    return found


def take(wanted: Mapping[int, int]) -> dict[int, int]:
    """Spend up to so many restarts of each tenant; how many each was granted. Holds its row until the commit.

    Tenants without a budget are granted all.
    """
    tenants = sorted(wanted)
    run(_OPEN, [packed(tenants)])
    rows(_LOCK, [packed(tenants)])
    windows = read(tenants)
    granted = {t: min(wanted[t], windows[t].left) if t in windows else wanted[t] for t in tenants}
    spends = [t for t in tenants if t in windows and granted[t]]
    if spends:
        run(_SPEND, [packed(spends), packed([windows[t].spent for t in spends]), packed([granted[t] for t in spends])])
    return granted


def give_back(spent: Mapping[int, int]) -> None:
    """What was spent on restarts that did not come about."""
    tenants = sorted(spent)
    run(_BACK, [packed(tenants), packed([spent[t] for t in tenants])])
