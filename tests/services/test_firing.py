"""What comes due fires once: each moment its job, whatever was missed, is in the way, refused or goes wrong (D13)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DataError, OperationalError, connection

from jobs import clock, ids, publish, sightings
from jobs.models import Firing, Job, Tenant, Timer
from jobs.services import erasure, explain, firing, tenancy, timers
from jobs.services.firing import AT_ONCE, Timers
from jobs.services.retention import Retention
from jobs.services.timers import Draft
from jobs.store import timers as store
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, check
from tests.making import limit, statements

BY = "user:ann"
EVERY_TEN = Draft("echo", {"value": "x"}, every_s=10)


@pytest.fixture
def tenant(database: None) -> Tenant:
    return tenancy.tenant(tenancy.workspace(), "acme", make=True)


def put(tenant: Tenant, draft: Draft = EVERY_TEN, name: str = "tick") -> Timer:
    return timers.put(tenant, name, draft, by=BY)


def come(timer: Timer, later_s: float = 0.5) -> None:
    """To a moment behind its next one."""
    timer.refresh_from_db()
    assert timer.next_at is not None
    db.pass_time((timer.next_at - clock.now()).total_seconds() + later_s)


def tick_all() -> int:
    """Tick until nothing is left; how often."""
    duty, n = Timers(), 1
    while duty.tick():
        n += 1
        assert n < 1_000
    return n


def outcomes(timer: Timer) -> list[str]:
    """From the oldest moment on."""
    return [f.outcome for f in reversed(timers.history(timer, limit=200))]


# --- once ----------------------------------------------------------------------------------------------------------


def test_each_moment_makes_one_job(tenant: Tenant) -> None:
    """D13: with the origin of the house, under the key of its moment; not before it, and not again after it."""
    timer = put(tenant)
    moment = timer.next_at
    assert not Timers().tick()
    assert not Job.objects.exists()
    come(timer)
    for _ in range(3):
        assert not Timers().tick()
    made = Firing.objects.get()
    job = Job.objects.get()
    assert (made.moment, made.outcome, made.job_id, made.tenant_id) == (moment, "enqueued", job.pk, tenant.pk)
    assert (job.origin, job.idempotency_key) == ("scheduler", f"timer:{timer.pk}:{clock.jsonable(moment)}")
    check(job.pk)
    timer.refresh_from_db()
    assert timer.next_at is not None
    assert moment is not None
    assert (timer.last_job_id, timer.last_at, timer.next_at - moment) == (job.pk, moment, timedelta(seconds=10))
    # To fire is nobody's change.
    assert timer.revision == 1


def test_a_clock_that_is_put_back_doubles_nothing(tenant: Tenant) -> None:
    """case-E07, D13: an hour back, and on again; also where the timer is put anew meanwhile."""
    timer = put(tenant)
    for _ in range(3):
        come(timer)
        Timers().tick()
    moments = [f.moment for f in Firing.objects.all()]
    db.pass_time(-3_600)
    assert not Timers().tick()
    put(tenant, Draft("echo", {"value": "x"}, every_s=5))
    put(tenant)
    again = Timer.objects.get()
    assert again.next_at is not None
    assert again.next_at < moments[0]
    db.pass_time(3_600)
    tick_all()
    assert Job.objects.count() == Firing.objects.filter(outcome="enqueued").count()
    assert len({f.moment for f in Firing.objects.all()}) == Firing.objects.count()


def test_a_clock_that_is_put_on_fires_by_what_was_missed(tenant: Tenant) -> None:
    """case-E07: an hour on is an hour in which nobody was there."""
    timer = put(tenant)
    come(timer)
    Timers().tick()
    db.pass_time(3_600)
    Timers().tick()
    assert outcomes(timer) == ["enqueued", "missed", "enqueued"]
    assert Firing.objects.get(outcome="missed").missed in (359, 360)


@pytest.mark.parametrize("wrong_s", [-120, 120, -3_600])
def test_clocks_of_processes_decide_nothing(tenant: Tenant, monkeypatch: pytest.MonkeyPatch, wrong_s: int) -> None:
    """case-E08: everything is due and is written by the database's moment."""
    right = time.time_ns
    monkeypatch.setattr(ids.time, "time_ns", lambda: right() + wrong_s * 1_000_000_000)
    timer = put(tenant)
    assert timer.next_at is not None
    assert 0 < (timer.next_at - clock.now()).total_seconds() <= 10
    Timers().tick()
    assert not Firing.objects.exists()
    come(timer)
    Timers().tick()
    made = Firing.objects.get()
    assert made.moment == timer.next_at
    assert abs((made.made_at - clock.now()).total_seconds()) < 1


def test_what_has_fired_is_there_before_the_timer_moves_on(tenant: Tenant) -> None:
    """D13: where a timer stands before a moment that has its firing, that one is passed over."""
    timer = put(tenant)
    come(timer)
    Timers().tick()
    Timer.objects.update(next_at=timer.next_at)
    Timers().tick()
    assert Job.objects.count() == 1
    timer.refresh_from_db()
    assert timer.next_at is not None
    assert timer.next_at > clock.now()


def test_what_was_refused_is_not_made_later(tenant: Tenant) -> None:
    """D13: a moment has one firing, whatever became of it."""
    timer = put(tenant)
    tenancy.archive(tenant, by=BY, reason="over")
    come(timer)
    Timers().tick()
    tenancy.restore(tenant, by=BY)
    Timer.objects.update(next_at=Firing.objects.get().moment)
    Timers().tick()
    assert outcomes(timer) == ["refused"]
    assert not Job.objects.exists()


def test_a_key_that_somebody_took_is_a_refusal_and_no_second_meaning(tenant: Tenant) -> None:
    """D13: a caller cannot slip its own job under a moment."""
    from jobs import enqueue

    timer = put(tenant)
    enqueue("noop", tenant="acme", idempotency_key=f"timer:{timer.pk}:{clock.jsonable(timer.next_at)}")
    come(timer)
    Timers().tick()
    assert Firing.objects.values_list("outcome", "code").get() == ("refused", "idempotency_key_reused")


# --- what was missed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("catch_up", "most", "told"), [
    ("skip", None, ["missed"]),
    ("last", None, ["missed", "enqueued"]),
    ("all", 3, ["missed", "enqueued", "enqueued", "enqueued"]),
    ("all", 12, ["enqueued"] * 11),
], ids=str)
def test_after_an_outage_it_catches_up_as_its_timer_says(tenant: Tenant, catch_up: str, most: int | None,
                                                         told: list[str]) -> None:
    """D13: ten minutes late, every hour for ten hours and more; what is not made is one row that counts it."""
    timer = put(tenant, Draft("echo", {"value": "x"}, cron="0 * * * *", catch_up=catch_up, catch_up_most=most))
    come(timer, 10 * 3_600 + 600)
    tick_all()
    assert outcomes(timer) == told
    missed = sum(f.missed or 0 for f in Firing.objects.all())
    assert missed + told.count("enqueued") == 11
    first = Firing.objects.order_by("moment").first()
    assert first is not None
    assert first.moment == timer.next_at
    # Nothing is left of it.
    come(timer)
    tick_all()
    assert outcomes(timer) == [*told, "enqueued"]


def test_a_moment_that_is_not_a_minute_late_is_none_that_was_missed(tenant: Tenant) -> None:
    """D13: catch-up `skip`."""
    timer = put(tenant, Draft("echo", {"value": "x"}, cron="0 * * * *"))
    come(timer, 55)
    Timers().tick()
    assert outcomes(timer) == ["enqueued"]


@pytest.mark.parametrize("catch_up", ["skip", "last"])
def test_the_pace_of_ticks_lets_no_second_pass(tenant: Tenant, catch_up: str) -> None:
    """D13: of an interval of a second all moments of the last five are made; of a minute the others were missed."""
    timer = put(tenant, Draft("echo", {"value": "x"}, every_s=1, catch_up=catch_up))
    come(timer, 2.2)
    Timers().tick()
    assert set(outcomes(timer)) == {"enqueued"}
    assert 3 <= len(outcomes(timer)) <= 5
    made = Job.objects.count()
    come(timer, 40)
    tick_all()
    assert outcomes(timer).count("missed") == 1
    assert 5 <= Job.objects.count() - made <= 6


def test_a_long_catch_up_goes_in_batches(tenant: Tenant) -> None:
    """D13: at most 50 of one timer a tick, so that others have their turns; in the end exactly as many as it may."""
    timer = put(tenant, Draft("echo", {"value": "x"}, every_s=1, catch_up="all", catch_up_most=120))
    come(timer, 3_600)
    assert Timers().tick()
    assert Job.objects.count() == AT_ONCE
    assert tick_all() <= 4
    assert 120 <= Job.objects.count() <= 130
    moments = [f.moment for f in reversed(timers.history(timer, limit=200)) if f.outcome == "enqueued"]
    assert all(b - a == timedelta(seconds=1) for a, b in pairwise(moments))


# --- what is in the way --------------------------------------------------------------------------------------------


def test_while_its_job_is_active_a_timer_may_let_its_moments_pass(tenant: Tenant, driver: Driver) -> None:
    """D13: overlap `skip`; paused and held jobs are active, ended ones are not."""
    timer = put(tenant, Draft("echo", {"value": "x"}, every_s=10, overlap="skip"))
    come(timer)
    Timers().tick()
    come(timer)
    Timers().tick()
    job = driver.claim_one()
    come(timer)
    Timers().tick()
    driver.complete(job)
    come(timer)
    Timers().tick()
    assert outcomes(timer) == ["enqueued", "overlapped", "overlapped", "enqueued"]
    assert job.id in (Firing.objects.filter(outcome="overlapped").first() or Firing()).detail
    assert Job.objects.count() == 2


def test_what_is_caught_up_does_not_overlap_itself(tenant: Tenant) -> None:
    """D13: overlap `skip` and catch-up `all`: the first is made, the others find it active."""
    timer = put(tenant, Draft("echo", {"value": "x"}, every_s=10, overlap="skip", catch_up="all", catch_up_most=5))
    come(timer, 200)
    tick_all()
    assert outcomes(timer) == ["missed", "enqueued", *["overlapped"] * 4]


def test_a_newer_firing_can_end_the_older_one(tenant: Tenant) -> None:
    """D13, B16: overlap `supersede` is the target's next generation; of its own target where it names none."""
    timer = put(tenant, Draft("echo", {"value": "x"}, every_s=10, overlap="supersede", catch_up="all",
                              catch_up_most=3))
    come(timer, 200)
    tick_all()
    jobs = list(Job.objects.order_by("id"))
    assert [j.state for j in jobs] == ["superseded", "superseded", "queued"]
    assert jobs[-1].target is not None
    assert (jobs[-1].target.key, jobs[-1].generation) == ("echo:timer tick", 3)
    for job in jobs:
        check(job.pk)


def test_others_let_them_run_side_by_side(tenant: Tenant) -> None:
    """D13: overlap `allow`."""
    timer = put(tenant)
    for _ in range(3):
        come(timer)
        Timers().tick()
    assert Job.objects.filter(state="queued").count() == 3


# --- what is refused -----------------------------------------------------------------------------------------------


BROKEN = {
    "unknown_job_type": {"type": "gone"}, "unregistered_version": {"version": 7},
    "invalid_input": {"input": '{"value":5}'}, "invalid_options": {"options": '{"colour":1}'},
    "unknown_zone": {"zone": "Mars/Phobos"}, "unknown_queue": {"options": '{"queue":"gone"}'},
    "invalid_retry_policy": {"options": '{"retry":{"max_attempts":0}}'}, "not_text": {"options": "{", "input": "{"}}


@pytest.mark.parametrize("code", BROKEN)
def test_a_timer_that_cannot_fire_any_more_says_so_and_stops_nobody(tenant: Tenant, code: str) -> None:
    """D13: after a deploy that took its type, say; its next moment is tried again."""
    bad, good = put(tenant, name="bad"), put(tenant, name="good")
    Timer.objects.filter(pk=bad.pk).update(**BROKEN[code])
    come(good, 2)
    assert not Timers().tick()
    made = Firing.objects.get(timer=bad)
    assert made.code == ("invalid_options" if code == "not_text" else code)
    assert (made.outcome, made.job_id) == ("refused", None)
    assert made.detail
    assert outcomes(good) == ["enqueued"]
    bad.refresh_from_db()
    assert bad.next_at is not None
    assert bad.next_at > clock.now()


def test_a_ceiling_refuses_a_firing(tenant: Tenant) -> None:
    """D13, C10: as it refuses any enqueue."""
    limit(tenant="acme", tenant_ceiling=1)
    timer = put(tenant)
    for _ in range(2):
        come(timer)
        Timers().tick()
    assert list(Firing.objects.order_by("id").values_list("outcome", "code")) == [
        ("enqueued", None), ("refused", "queue_saturated")]


def test_an_archived_tenant_fires_nothing(tenant: Tenant) -> None:
    """B37, D13: until it is restored; others go on."""
    timer, other = put(tenant), put(tenancy.tenant(tenancy.workspace(), "other", make=True))
    tenancy.archive(tenant, by=BY, reason="over")
    come(timer, 2)
    Timers().tick()
    assert [(f.outcome, f.code) for f in timers.history(timer)] == [("refused", "tenant_archived")]
    assert outcomes(other) == ["enqueued"]
    tenancy.restore(tenant, by=BY)
    come(timer)
    Timers().tick()
    assert outcomes(timer) == ["refused", "enqueued"]


@pytest.fixture
def bad_hook(tenant: Tenant) -> Iterator[int]:
    """A hook of the site that breaks where this tenant's job comes into being."""
    bad = tenancy.tenant(tenancy.workspace(), "bad", make=True)

    @publish.in_transaction
    def breaks(news: Any) -> None:
        if Job.objects.filter(pk__in=[id_ for id_, _, _ in news], tenant=bad).exists():
            raise LookupError("not this one")

    yield bad.pk
    publish.forget(breaks)


def test_a_timer_that_breaks_its_batch_is_fired_apart_and_noted(tenant: Tenant, bad_hook: int) -> None:
    """D13: whatever a hook of the site raises."""
    good = [put(tenant, name=f"good{n}") for n in range(3)]
    bad = put(Tenant.objects.get(pk=bad_hook), name="bad")
    come(bad, 2)
    Timers().tick()
    assert [(f.outcome, f.code) for f in timers.history(bad)] == [("refused", "timer_failed")]
    assert [outcomes(t) for t in good] == [["enqueued"]] * 3
    assert Job.objects.count() == 3
    come(bad)
    Timers().tick()
    assert outcomes(bad) == ["refused", "refused"]


def test_trouble_with_the_storage_is_no_refusal(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: nothing is written, and the next tick makes it."""
    timer = put(tenant)
    come(timer)

    def full(*_: Any) -> None:
        raise OperationalError("the disk is full")

    with monkeypatch.context() as m:
        m.setattr(firing.store, "advance", full)
        with pytest.raises(OperationalError):
            Timers().tick()
    assert not Firing.objects.exists()
    assert not Job.objects.exists()
    Timers().tick()
    assert outcomes(timer) == ["enqueued"]


def test_one_that_the_database_cannot_take_is_noted(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: what is wrong with a value is the timer's trouble, not the storage's."""
    bad, good = put(tenant, name="bad"), put(tenant, name="good")
    right = firing.recurring.request

    def wrong(row: Timer, *rest: Any) -> Any:
        if row.pk == bad.pk:
            raise DataError("out of range")
        return right(row, *rest)

    monkeypatch.setattr(firing.recurring, "request", wrong)
    come(good, 2)
    Timers().tick()
    assert (outcomes(bad), outcomes(good)) == (["refused"], ["enqueued"])


@pytest.mark.parametrize("spoilt", [
    "next_at = '-infinity'", "anchor_at = 'infinity', next_at = jobs_now() - interval '1 s'",
    "anchor_at = '9999-12-31', next_at = jobs_now() - interval '1 s'", "next_at = '0001-01-01'",
    "last_at = 'infinity', next_at = jobs_now() - interval '1 s'", "input = '', options = ''",
    "paused_at = '-infinity', paused_until = jobs_now(), paused_by = '', paused_reason = '', anchor_at = 'infinity'"])
def test_a_row_that_a_hand_has_spoilt_stops_nobody(tenant: Tenant, spoilt: str) -> None:
    """E15, D13: whatever stands in it; it comes back after an hour, with its trouble in the log."""
    bad, good = put(tenant, name="bad"), put(tenant, name="good")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobs_timer SET {spoilt} WHERE id = %s", [bad.pk])
    come(good, 2)
    for _ in range(2):
        Timers().tick()
    assert outcomes(good) == ["enqueued"]
    assert not store.look()[0]


# --- what goes -----------------------------------------------------------------------------------------------------


def test_firings_are_kept_for_a_month(tenant: Tenant) -> None:
    """D13: bounded batches, whether or not jobs are kept longer."""
    timer = put(tenant)
    come(timer)
    Timers().tick()
    durable(lambda: store.forget(60_000, 10))
    assert Firing.objects.count() == 1
    db.pass_time(31 * 86_400)
    Timers().tick()
    duty = Retention()
    while duty.tick():
        pass
    assert outcomes(timer)[-1] == "enqueued"
    assert Firing.objects.filter(made_at__lt=clock.now() - timedelta(days=30)).count() == 0


def test_a_tenant_that_is_deleted_takes_its_timers_along(tenant: Tenant) -> None:
    """B38, D13: and nothing fires meanwhile."""
    timer, other = put(tenant), put(tenancy.tenant(tenancy.workspace(), "other", make=True))
    come(timer, 2)
    Timers().tick()
    erasure.delete(tenant, by=BY, reason="asked for")
    come(timer, 2)
    Timers().tick()
    assert timers.history(timer)[0].code == "tenant_deleting"
    duty = erasure.Erasures()
    for _ in range(50):
        if not duty.tick(500):
            db.pass_time(5)
    assert not Tenant.objects.filter(pk=tenant.pk).exists()
    assert set(Firing.objects.values_list("tenant_id", flat=True)) == {other.tenant_id}
    assert list(Timer.objects.values_list("pk", flat=True)) == [other.pk]


def test_a_tick_without_anything_due_is_one_statement(tenant: Tenant) -> None:
    """DESIGN 5: every process of a site may ask each second."""
    put(tenant)
    with statements() as seen:
        Timers().tick()
    assert len(seen) == 1


def test_the_moment_of_a_job_is_the_timers_and_not_the_ticks(tenant: Tenant) -> None:
    """D13: a handler that asks for it knows for when it works, however late it runs."""
    timer = put(tenant, Draft("echo", cron="0 3 * * *", zone="Europe/Berlin", moment_field="value", catch_up="last"))
    moment = timer.next_at
    come(timer, 3_000)
    Timers().tick()
    assert isinstance(moment, datetime)
    assert Job.objects.get().input == f'{{"path":"","value":"{clock.jsonable(moment)}"}}'


def test_a_job_of_a_timer_says_so(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN 7.1, D13: the command, and JSON; also once the timer is gone. Nobody else's job is looked up."""
    timer = put(tenant)
    moment = clock.jsonable(timer.next_at)
    come(timer)
    Timers().tick()
    job = Job.objects.get()
    call_command("explain", str(job.pk))
    assert f"made by timer tick for {moment}\n" in capsys.readouterr().out
    told = explain.as_json(explain.story(job))["timer"]
    assert told == {"id": str(timer.pk), "name": "tick", "moment": moment, "by": None}
    run = timers.run_now(timer, by="user:bob")
    call_command("explain", str(run.job_id))
    assert "made by timer tick, run by user:bob\n" in capsys.readouterr().out
    timers.remove(timer, by=BY)
    call_command("explain", str(job.pk))
    assert f"made by a timer that is gone for {moment}\n" in capsys.readouterr().out
    with statements() as seen:
        assert sightings.fired(Job(origin="user")) is None
    assert seen == []
