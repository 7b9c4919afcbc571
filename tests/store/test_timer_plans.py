"""What a tick and a page read of very many timers and firings: an index's worth, whatever else is there (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import transaction

from jobs.models import Timer, Workspace
from jobs.services import tenancy, timers
from jobs.services.timers import Draft
from jobs.store import timers as store
from tests.making import statements
from tests.races.threads import LONG
from tests.store import noise

MOST = 100_000 if LONG else 20_000
MANY = """INSERT INTO jobs_timer (id, workspace_id, tenant_id, name, type, input, options, cron, zone, catch_up,
        catch_up_most, overlap, paused_at, paused_by, paused_reason, paused_until, next_at, revision, by, declared,
        created_at, updated_at)
    SELECT gen_random_uuid(), t.workspace_id, t.id, 'many' || n, 'echo', '{{}}', '{{}}', '* * * * *', 'UTC', 'skip', 1,
        'allow', p.at, p.text, p.text, p.at + interval '1 year', jobs_now() + {step}, 1, 'x', false, jobs_now(),
        jobs_now()
    FROM jobs_tenant t, generate_series(1, {count}) n,
        LATERAL (SELECT CASE WHEN {paused} THEN jobs_now() END AS at, CASE WHEN {paused} THEN 'x' END AS text) p
    WHERE t.subject = 'acme'"""
FIRINGS = """INSERT INTO jobs_firing (timer_id, tenant_id, moment, made_at, outcome, manual)
    SELECT t.id, t.tenant_id, jobs_now() - n * interval '1 s', jobs_now(), 'overlapped', false
    FROM jobs_timer t, generate_series(1, 20000) n WHERE t.name = 'due'"""


@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
def test_a_tick_reads_an_index_and_no_timer_that_is_not_due(database: None, analyzed: bool) -> None:
    """D13: very many that come later, and half as many that stand still and were due long ago."""
    tenant = tenancy.tenant(tenancy.workspace(), "acme", make=True)
    due = timers.put(tenant, "due", Draft("echo", cron="* * * * *"), by="user:ann")
    noise.execute(MANY.format(count=MOST, step="interval '1 hour' + n * interval '1 s'", paused="false"))
    still = MANY.replace("'many'", "'held'")
    noise.execute(still.format(count=MOST // 2, step="n * interval '-1 s'", paused="true"))
    noise.execute("UPDATE jobs_timer SET next_at = jobs_now() - interval '1 s' WHERE name = 'due'")
    if analyzed:
        noise.execute("ANALYZE jobs_timer")
    looks: list[tuple[Callable[[], object], int]] = [
        (store.look, 30), (lambda: store.due(100), 60), (lambda: store.end_pauses(100), 30),
        (lambda: store.due_ids(100), 30)]
    for look, most in looks:
        with transaction.atomic(), statements() as seen:
            look()
        sql, params = seen[0]
        plan = noise._explain(sql, params)
        assert not {kind for kind, relation, _ in noise._walk(plan) if relation == "jobs_timer"} & {"Seq Scan"}, sql
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < most, plan
    with transaction.atomic():
        assert [t.pk for t in store.due(100)] == [due.pk]
    assert store.look() == (True, False)


def test_the_history_of_a_timer_is_read_by_pages(database: None) -> None:
    """D13: a page of 20,000 firings, by their moments; and the oldest go by their own key."""
    tenant = tenancy.tenant(tenancy.workspace(), "acme", make=True)
    timer = timers.put(tenant, "due", Draft("echo", every_s=1), by="user:ann")
    noise.execute(FIRINGS)
    noise.execute("ANALYZE jobs_firing")
    page = timers.history(timer)
    for look in (lambda: timers.history(timer), lambda: timers.history(timer, before=page[-1].moment),
                 lambda: store.forget(60_000, 500)):
        with transaction.atomic(), statements() as seen:
            look()
        plan = noise._explain(*seen[0])
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200, plan
        assert "Seq Scan" not in {kind for kind, relation, _ in noise._walk(plan) if relation == "jobs_firing"}
    assert Timer.objects.count() == 1


def test_a_page_of_a_tenant_or_workspace_reads_none_of_the_others_timers(database: None) -> None:
    """D13: one timer of its own, behind very many that were made before it and are somebody else's."""
    workspace = tenancy.workspace()
    tenancy.tenant(workspace, "acme", make=True)
    noise.execute(MANY.format(count=MOST, step="interval '1 hour' + n * interval '1 s'", paused="false"))
    other = Workspace.objects.create(slug="other")
    mine = timers.put(tenancy.tenant(other, "mine", make=True), "one", Draft("echo", cron="* * * * *"), by="user:ann")
    noise.execute("ANALYZE jobs_timer")
    for which in ({"tenant_id": mine.tenant_id}, {"workspace_id": other.pk}):
        with statements() as seen:
            assert timers.listing(**which) == [mine]
        plan = noise._explain(*seen[0])
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30, plan
