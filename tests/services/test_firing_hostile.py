"""Timers among what would stop them: locks of others, who stands still, very many that are late at once (D13)."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, ProgrammingError, transaction

from jobs import clock, enqueue, publish
from jobs.errors import Conflict
from jobs.models import Firing, Job, Tenant, Timer
from jobs.services import firing, tenancy, timers
from jobs.services.firing import Timers
from jobs.services.timers import Draft
from jobs.store import timers as store
from tests import database as db
from tests.making import statements
from tests.races.threads import elsewhere, together
from tests.services.test_firing import BY, come, outcomes, put, tick_all
from tests.store import noise

SUPERSEDES = Draft("echo", {"value": "x"}, every_s=10, overlap="supersede")
# Of a tenant that makes up an outage of two hours.
LATE = """INSERT INTO jobs_timer (id, workspace_id, tenant_id, name, type, input, options, every_s, anchor_at, zone,
        catch_up, catch_up_most, overlap, next_at, revision, by, declared, created_at, updated_at)
    SELECT gen_random_uuid(), t.workspace_id, t.id, 'late' || n, %s, '{{"value":"x"}}', '{{}}', 1, t.created_at, 'UTC',
        'all', 1000, 'allow', jobs_now() - interval '2 hours', 1, 'x', false, jobs_now(), jobs_now()
    FROM jobs_tenant t, generate_series(1, %s) n WHERE t.id = %s"""


@pytest.fixture
def tenant(database: None) -> Tenant:
    return tenancy.tenant(tenancy.workspace(), "acme", make=True)


@pytest.fixture
def greedy(tenant: Tenant) -> Tenant:
    return tenancy.tenant(tenancy.workspace(), "greedy", make=True)


# --- what others hold ----------------------------------------------------------------------------------------------


def test_a_target_that_a_caller_holds_stops_one_timer_and_no_other(tenant: Tenant) -> None:
    """D13: a caller's long transaction, which enqueued for the target of one timer, is no trouble of the others."""
    waits, free = put(tenant, SUPERSEDES, "waits"), put(tenant, name="free")
    enqueue("echo", {"value": "x"}, tenant="acme", target="timer waits")
    come(free, 2)
    began = time.monotonic()
    with elsewhere("SELECT id FROM jobs_target WHERE key = 'echo:timer waits' FOR UPDATE"):
        for _ in range(2):
            Timers().tick()
        assert (outcomes(free), outcomes(waits)) == (["enqueued"], [])
    # Far less than a statement may take.
    assert time.monotonic() - began < 9
    Timers().tick()
    assert outcomes(waits) == ["enqueued"]


def test_a_hook_that_meets_trouble_of_its_own_stops_one_timer_and_no_other(tenant: Tenant, greedy: Tenant) -> None:
    """D13: a table that a site's hook reads is gone: its timer waits until it is there again, and makes its moment."""
    bad, good = put(greedy), put(tenant)

    @publish.in_transaction
    def breaks(news: Any) -> None:
        if Job.objects.filter(pk__in=[id_ for id_, _, _ in news], tenant=greedy).exists():
            db.rows("SELECT 1 FROM no_such_table")

    try:
        come(bad, 2)
        assert not Timers().tick()
        assert (outcomes(good), outcomes(bad)) == (["enqueued"], [])
        # Alone it looks as if the storage had failed: the loop is put off.
        with pytest.raises(ProgrammingError):
            Timers().tick()
    finally:
        publish.forget(breaks)
    Timers().tick()
    assert outcomes(bad) == ["enqueued"]


def test_a_ticker_that_stands_still_in_the_middle_keeps_its_timers_for_a_while(
        tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, case-E04: frozen between two statements; another makes the moment while it is no minute late, and alone."""
    assert store.LATE.total_seconds() >= 2 * firing.FROZEN_S
    monkeypatch.setattr(firing, "FROZEN_S", 1)
    timer = put(tenant)
    come(timer)
    stands, go = threading.Event(), threading.Event()
    right = firing.store.advance

    def still(steps: Any) -> int:
        if threading.current_thread().name == "race-0" and not stands.is_set():
            stands.set()
            assert go.wait(60)
        return right(steps)

    monkeypatch.setattr(firing.store, "advance", still)

    def frozen() -> None:
        # It finds its transaction undone, and the moment made.
        with suppress(Error):
            Timers().tick()

    def other() -> None:
        assert stands.wait(60)
        until = time.monotonic() + 30
        while not Firing.objects.exists() and time.monotonic() < until:
            Timers().tick()
            time.sleep(0.1)
        assert Firing.objects.count() == 1
        go.set()

    together([frozen, other])
    assert outcomes(timer) == ["enqueued"]
    assert Job.objects.count() == 1


# --- many ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["echo", "gone"])
def test_a_thousand_that_make_up_an_outage_make_nobody_else_late(tenant: Tenant, greedy: Tenant, type_: str) -> None:
    """D13: each could make a thousand moments; a tick does some hundreds, and the others' that are due now first."""
    noise.execute(LATE.replace("%s", "'{}'", 1).replace("%s", "{}").format(type_, 1_000, greedy.pk))
    mine = put(tenant)
    come(mine)
    assert Timers().tick()
    assert len(timers.history(mine)) == 1
    made = Firing.objects.filter(missed=None).count()
    assert 100 <= made <= firing.TOGETHER + firing.AT_ONCE
    # They have their turn whatever else is due.
    assert made > 1


def test_what_is_late_has_its_share_of_each_batch(tenant: Tenant, greedy: Tenant) -> None:
    """D13: as many as fill a batch are due now, and one is late."""
    draft = Draft("echo", {"value": "x"}, every_s=600, anchor_at=clock.now() + timedelta(minutes=5))
    late, *_ = put(greedy, draft), *[put(tenant, draft, f"t{n}") for n in range(10)]
    come(late)
    Timer.objects.filter(pk=late.pk).update(next_at=clock.now() - timedelta(hours=1))
    Timers().tick(8)
    assert Firing.objects.filter(timer=late).exists()
    assert Firing.objects.exclude(timer=late).count() == 8


@pytest.mark.parametrize("catch_up", ["skip", "last", "all"])
def test_a_second_that_a_tick_comes_late_loses_no_moment(tenant: Tenant, catch_up: str) -> None:
    """D13: ticks come as they can, and moments each second; only who was away has missed some."""
    most = 2 if catch_up == "all" else None
    timer = put(tenant, Draft("echo", {"value": "x"}, every_s=1, catch_up=catch_up, catch_up_most=most))
    come(timer, 3.5)
    Timers().tick()
    told = outcomes(timer)
    assert len(told) >= 4
    assert set(told) == {"enqueued"}
    come(timer, 600)
    tick_all()
    assert "missed" in outcomes(timer)


def test_after_a_week_a_timer_of_each_second_is_caught_up_at_once(tenant: Tenant) -> None:
    """D13: 600,000 moments are counted and not gone through, of an expression 1,000."""
    fast = [put(tenant, Draft("echo", {"value": "x"}, every_s=1, catch_up=c), c) for c in ("skip", "last")]
    cron = put(tenant, Draft("echo", {"value": "x"}, cron="* * * * *", catch_up="all", catch_up_most=1_000), "cron")
    come(cron, 7 * 86_400)
    began = time.process_time()
    Timers().tick()
    assert time.process_time() - began < 5
    for timer in fast:
        missed = Firing.objects.get(timer=timer, outcome="missed").missed
        assert missed is not None
        assert missed > 604_000


# --- by hand -------------------------------------------------------------------------------------------------------


def test_a_run_by_hand_takes_no_moment_of_the_schedule(tenant: Tenant) -> None:
    """D13: a caller's key that reads as the next moment is a key of its own."""
    timer = put(tenant)
    by_hand = timers.run_now(timer, by=BY, key=clock.jsonable(timer.next_at))
    come(timer)
    Timers().tick()
    made = list(Firing.objects.filter(manual=False))
    assert [f.outcome for f in made] == ["enqueued"]
    assert made[0].job_id != by_hand.job_id
    again = timers.run_now(timer, by=BY, key=clock.jsonable(made[0].moment))
    assert again.pk == by_hand.pk
    assert Job.objects.count() == 2


def test_run_at_once_by_many_under_one_key_it_runs_once(tenant: Tenant) -> None:
    """D13, C11: and under keys of their own with one job at a time, one of them."""
    timer = put(tenant)
    found = together([lambda: timers.run_now(timer, by=BY, key="k")] * 6)
    assert len({f.pk for f in found}) == 1
    assert Job.objects.count() == 1
    single = put(tenant, Draft("echo", {"value": "x"}, every_s=3600, overlap="skip"), "single")

    def run(n: int) -> str:
        try:
            timers.run_now(single, by=BY, key=f"k{n}")
        except Conflict as error:
            return error.reason_code
        return "made"

    assert sorted(together([lambda n=n: run(n) for n in range(4)])) == ["made", *["timer_job_active"] * 3]  # type: ignore[misc]


def test_the_firing_of_a_job_is_found_by_its_index(tenant: Tenant) -> None:
    """D13: what a run under a known key reads of very many firings."""
    timer = put(tenant)
    timers.run_now(timer, by=BY, key="k")
    noise.execute("INSERT INTO jobs_firing (timer_id, tenant_id, moment, made_at, outcome, manual, job_id) "
                  f"SELECT '{timer.pk}', 1, jobs_now() - n * interval '1 s', jobs_now(), 'enqueued', false, "
                  "gen_random_uuid() FROM generate_series(1, 20000) n")
    noise.execute("ANALYZE jobs_firing")
    with transaction.atomic(), statements() as seen:
        timers.run_now(timer, by=BY, key="k")
    for sql, params in seen:
        if "jobs_firing" in sql:
            plan = noise._explain(sql, params)
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30, sql


def test_a_clock_that_was_hours_ahead_is_waited_for(tenant: Tenant) -> None:
    """case-E07: what fired while it was ahead is not made again when the moment comes a second time."""
    timer = put(tenant)
    db.pass_time(3 * 3_600)
    tick_all()
    n = Job.objects.count()
    db.pass_time(-3 * 3_600)
    tick_all()
    timers.run_now(timer, by=BY)
    assert Job.objects.count() == n + 1
    db.pass_time(3 * 3_600 + 60)
    tick_all()
    moments = list(Firing.objects.values_list("moment", flat=True))
    assert len(moments) == len(set(moments))
    assert Job.objects.count() == Firing.objects.filter(outcome="enqueued").count()
