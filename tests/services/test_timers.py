"""Timers as people put, pause, run and remove them, and every refusal of what may not be said (D13)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from jobs import RetryPolicy, clock
from jobs.errors import Conflict, Invalid, JobsError, Refused, RevisionMismatch
from jobs.models import Firing, Job, Tenant, Timer
from jobs.services import recurring, tenancy, timers
from jobs.services.firing import Timers
from jobs.services.timers import Draft, TimerExists, TimerNotFound, TimerNotPaused
from tests import database as db
from tests.driver import check
from tests.services.test_hostile_calls import VALUES, tried

BY = "user:ann"
HOURLY = Draft("echo", {"value": "x"}, cron="0 * * * *")


@pytest.fixture
def tenant(database: None) -> Iterator[Tenant]:
    """A tenant with nothing yet, at twelve seconds past a quarter past an hour."""
    now = clock.now()
    ahead = now.replace(minute=15, second=12, microsecond=0) + timedelta(hours=1)
    db.pass_time((ahead - now).total_seconds())
    return tenancy.tenant(tenancy.workspace(), "acme", make=True)


def put(tenant: Tenant, draft: Draft = HOURLY, name: str = "tick", **more: Any) -> Timer:
    return timers.put(tenant, name, draft, by=BY, **more)


def come(timer: Timer) -> None:
    """A second after its next moment."""
    assert timer.next_at is not None
    db.pass_time((timer.next_at - clock.now()).total_seconds() + 1)


def refusal(work: Any) -> JobsError:
    with pytest.raises(JobsError) as caught:
        work()
    return caught.value


# --- putting -------------------------------------------------------------------------------------------------------


def test_a_timer_fires_first_at_the_first_moment_ahead(tenant: Tenant) -> None:
    """D13: never at once, never for what lies behind."""
    now = clock.now()
    assert put(tenant).next_at == now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    made = put(tenant, Draft("echo", every_s=90), "often")
    assert made.anchor_at is not None
    assert made.next_at == made.anchor_at + timedelta(seconds=90)
    assert now < made.next_at <= now + timedelta(seconds=91)
    assert (made.by, made.revision, made.workspace.slug, made.tenant.subject) == (BY, 1, "default", "acme")


def test_what_is_put_again_says_all_anew_and_keeps_the_moment_of_a_schedule_that_stays(tenant: Tenant) -> None:
    """D13: also after the moment has come, and the anchor of an interval that names none."""
    hourly, often = put(tenant), put(tenant, Draft("echo", every_s=90), "often")
    db.pass_time(7_200)
    again = put(tenant, Draft("noop", cron="0  *  * * *", options={"priority": 4}))
    assert (again.pk, again.next_at, again.revision, again.type) == (hourly.pk, hourly.next_at, 2, "noop")
    assert put(tenant, Draft("echo", every_s=90), "often").anchor_at == often.anchor_at
    # Another schedule begins ahead.
    other = put(tenant, Draft("noop", cron="30 * * * *"))
    assert other.next_at is not None
    assert other.next_at > clock.now()


def test_an_interval_may_name_its_anchor(tenant: Tenant) -> None:
    """D13: one that lies ahead is the first moment."""
    anchor = clock.now() + timedelta(days=2)
    assert put(tenant, Draft("echo", every_s=60, anchor_at=anchor)).next_at == anchor.replace(microsecond=0)


def test_who_has_read_an_older_revision_changes_nothing(tenant: Tenant) -> None:
    """House rule: the ETag of every change."""
    read = put(tenant)
    put(tenant, Draft("noop", cron="0 * * * *"), revision=1)
    for late in (lambda: put(tenant, revision=1), lambda: timers.pause(read, by=BY, reason="x", revision=1),
                 lambda: timers.resume(read, by=BY, revision=1), lambda: timers.remove(read, by=BY, revision=1)):
        assert isinstance(refusal(late), RevisionMismatch)
    assert Timer.objects.get().revision == 2


def test_a_name_is_one_timer_of_a_tenant(tenant: Tenant) -> None:
    """D13: to make it twice is refused, another tenant's is another."""
    mine = put(tenant)
    assert isinstance(refusal(lambda: put(tenant, create=True)), TimerExists)
    assert isinstance(refusal(lambda: put(tenant, name="other", revision=1)), TimerNotFound)
    other = put(tenancy.tenant(tenancy.workspace(), None), create=True)
    assert other.pk != mine.pk
    assert Timer.objects.count() == 2


def test_a_timer_is_there_if_and_only_if_its_transaction_commits(tenant: Tenant) -> None:
    """DESIGN 4: verbs of people join; a refusal leaves the caller's transaction usable."""
    with transaction.atomic():
        put(tenant)
        assert isinstance(refusal(lambda: put(tenant, Draft("nothing", cron="* * * * *"), "bad")), Invalid)
        put(tenant, name="too")
        transaction.set_rollback(True)
    assert not Timer.objects.exists()


def test_a_tenant_has_no_more_timers_than_the_site_allows(tenant: Tenant, settings: Any) -> None:
    """D13: too_many_timers; those that are there can still be changed."""
    settings.JOBS = {**settings.JOBS, "TIMERS_PER_TENANT": 2}
    put(tenant), put(tenant, name="two")
    assert refusal(lambda: put(tenant, name="three")).reason_code == "too_many_timers"
    put(tenant, Draft("noop", cron="5 * * * *"))
    assert Timer.objects.count() == 2


ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("said", "code", "field"), [
    ({"cron": None}, "invalid_schedule", "cron"),
    ({"every_s": 60}, "invalid_schedule", "cron"),
    ({"cron": "61 * * * *"}, "invalid_cron", "cron"),
    ({"cron": "0 0 31 2 *"}, "timer_never_fires", "cron"),
    ({"cron": None, "every_s": 0}, "invalid_every_s", "every_s"),
    ({"zone": "Europe/Berln"}, "unknown_zone", "zone"),
    ({"anchor_at": ANCHOR}, "invalid_anchor_at", "anchor_at"),
    ({"cron": None, "every_s": 60, "anchor_at": datetime(2026, 1, 1)}, "invalid_anchor_at", "anchor_at"),
    ({"catch_up": "most"}, "unknown_catch_up", "catch_up"),
    ({"catch_up": None}, "unknown_catch_up", "catch_up"),
    ({"catch_up_most": 3}, "invalid_catch_up_most", "catch_up_most"),
    ({"catch_up": "all", "catch_up_most": 0}, "invalid_catch_up_most", "catch_up_most"),
    ({"catch_up": "all", "catch_up_most": 1_001}, "invalid_catch_up_most", "catch_up_most"),
    ({"catch_up": "all", "catch_up_most": True}, "invalid_catch_up_most", "catch_up_most"),
    ({"overlap": "never"}, "unknown_overlap", "overlap"),
    ({"overlap": ["skip"]}, "unknown_overlap", "overlap"),
    ({"moment_field": "a b"}, "invalid_moment_field", "moment_field"),
    ({"moment_field": "value"}, "invalid_moment_field", "moment_field"),
    ({"input": [], "moment_field": "value"}, "invalid_moment_field", "moment_field"),
    ({"options": []}, "invalid_options", "options"),
    ({"options": {"idempotency_key": "x"}}, "unknown_field", "options.idempotency_key"),
    ({"options": {"tenant": "x"}}, "unknown_field", "options.tenant"),
    ({"options": {"prority": 1}}, "unknown_field", "options.prority"),
    ({"options": {"retry": {"max": 1}}}, "unknown_field", "options.retry.max"),
    ({"options": {"retry": RetryPolicy(deadline_at=ANCHOR)}}, "invalid_retry_policy", "options.retry.deadline_at"),
    ({"options": {"session_key": "x" * 20_000}}, "too_large", None),
    # What enqueue refuses.
    ({"options": {"priority": 101}}, "invalid_priority", "priority"),
    ({"options": {"queue": "cht"}}, "unknown_queue", "queue"),
    ({"options": {"retry": {"max_attempts": 0}}}, "invalid_retry_policy", None),
    ({"options": {"delay_s": -1}}, "invalid_availability", "delay_s"),
    ({"options": {"target": ""}}, "invalid_target", "target"),
    ({"options": {"callback_url": "https://example.org"}}, "callbacks_disabled", "callback_url"),
    ({"type": "ecko"}, "unknown_job_type", "type"),
    ({"type": None}, "unknown_job_type", "type"),
    ({"version": 9}, "unregistered_version", "version"),
    ({"type": "disabled", "input": {}}, "definition_disabled", "type"),
    ({"input": {"value": 5}}, "invalid_input", None),
    ({"input": {"value": "x" * 300_000}}, "too_large", None),
    ({"input": {1: "x"}}, "not_json", None),
])
def test_what_may_not_be_said_is_refused_when_it_is_put(tenant: Tenant, settings: Any, said: dict[str, Any], code: str,
                                                        field: str | None) -> None:
    """D13: each with its code and its field, and nothing is left behind."""
    settings.JOBS = {**settings.JOBS, "CALLBACKS": False}
    draft = Draft(**{"type": "echo", "input": {"value": "x"}, "cron": "0 * * * *", **said})
    for work in (lambda: put(tenant, draft), lambda: timers.check(tenant, "tick", draft)):
        error = refusal(work)
        assert error.reason_code == code
        assert field is None or error.field == field
        assert error.message
    assert not Timer.objects.exists()


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "\u00e4", "a" * 101, "a\n", None, 5])
def test_what_is_no_name_is_refused(tenant: Tenant, name: Any) -> None:
    """D13: 1 to 100 of a-z 0-9 . _ -; and such a one is not found."""
    error = refusal(lambda: put(tenant, name=name))
    assert (error.reason_code, error.field) == ("invalid_timer_name", "name")
    assert isinstance(refusal(lambda: timers.get(tenant.pk, name)), TimerNotFound)


def test_an_archived_tenant_gets_no_timers(tenant: Tenant) -> None:
    """B37: as it gets no jobs."""
    tenancy.archive(tenant, by=BY, reason="over")
    assert refusal(lambda: put(tenant)).reason_code == "tenant_archived"


def test_the_moment_of_a_firing_can_stand_in_the_input(tenant: Tenant) -> None:
    """D13: in a field that its codec knows; checked with one when it is put."""
    assert put(tenant, Draft("echo", cron="0 * * * *", moment_field="value")).moment_field == "value"
    error = refusal(lambda: put(tenant, Draft("echo", cron="0 * * * *", moment_field="moment")))
    assert error.reason_code == "invalid_input"


def test_every_option_of_enqueue_that_makes_sense_is_taken(tenant: Tenant) -> None:
    """D13: and arrives in the job."""
    timer = put(tenant, Draft("echo", {"value": "x"}, cron="0 * * * *", version=1, options={
        "queue": "chat", "priority": -7, "session_key": "s", "singleton": "allow", "exclusive_group": "g",
        "target": "t", "delay_s": 60, "deadline_s": 600, "max_cost_usd": "1.5",
        "retry": {"max_attempts": 3, "retry_on": ["attempt_error"]}}))
    come(timer)
    assert not Timers().tick()
    job = Job.objects.get()
    assert (job.queue, job.priority, job.session_key, job.exclusive_group, job.target.key) == (
        "chat", -7, "s", "g", "echo:t")
    assert (job.max_attempts, job.retry_on, job.deadline_ms, str(job.max_cost_usd)[:3]) == (
        3, ["attempt_error"], 600_000, "1.5")
    assert (job.available_at - job.created_at).total_seconds() == 60
    check(job.pk)


FIELDS = [f for f in Draft.__dataclass_fields__ if f != "options"]
# Those that are kept in another form than they were said; of the others enqueue's own test knows.
OPTIONS = ["singleton", "max_cost_usd", "callback_events", "retry", "retry.max_attempts", "retry.retry_on"]


def _said(field: str, value: Any) -> Draft:
    said: dict[str, Any] = {"type": "outside", "input": {}, "cron": "0 * * * *"}
    if field in FIELDS:
        said |= {"cron": None, "every_s": 60} if field == "anchor_at" else {}
        said |= {"cron": None} if field == "every_s" else {"catch_up": "all"} if field == "catch_up_most" else {}
        return Draft(**{**said, field: value})
    name, _, inner = field.partition(".")
    return Draft(**said, options={name: {inner: value} if inner else value})


@pytest.mark.parametrize("field", [*FIELDS, *OPTIONS])
def test_no_value_of_any_field_breaks_a_put(tenant: Tenant, field: str) -> None:
    """5.7, B8: what is said in process is refused by name, or taken, whatever it is; and what is taken can fire."""
    for name, value in VALUES.items():
        try:
            taken = not tried(lambda field=field, value=value: put(tenant, _said(field, value)))
        except Exception as error:
            pytest.fail(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        if taken:
            row = Timer.objects.get()
            assert recurring.request(row, "default", "acme", clock.now()).type, name
            assert recurring.schedule_of(row).next(clock.now()) is not None, name
            Timer.objects.all().delete()


def test_no_value_breaks_a_verb(tenant: Tenant) -> None:
    """5.7: names, reasons, ends, keys, ids and moments."""
    timer = put(tenant)
    for value in VALUES.values():
        for call in (lambda v: timers.put(tenant, v, HOURLY, by=BY), lambda v: timers.get(tenant.pk, v),
                     lambda v: timers.read(v), lambda v: timers.pause(timer, by=BY, reason=v),
                     lambda v: timers.pause(timer, by=BY, reason="r", until=v),
                     lambda v: timers.run_now(timer, by=BY, key=v), lambda v: timers.history(timer, before=v)):
            if refused := tried(lambda call=call, value=value: call(value)):
                str(refused).encode()


# --- pausing -------------------------------------------------------------------------------------------------------


def test_a_pause_says_why_by_whom_and_until_when_and_its_moments_are_not_made_up(tenant: Tenant) -> None:
    """D13: whatever its catch-up says."""
    timer = put(tenant, Draft("echo", cron="*/10 * * * *", catch_up="all", catch_up_most=100))
    paused = timers.pause(timer, by="user:bob", reason="vendor down")
    assert (paused.paused_by, paused.paused_reason, paused.paused_until) == ("user:bob", "vendor down", None)
    assert timers.upcoming(paused) == []
    db.pass_time(3_600)
    assert not Timers().tick()
    assert not Firing.objects.exists()
    resumed = timers.resume(paused, by=BY)
    assert resumed.paused_at is None
    assert resumed.next_at is not None
    assert resumed.next_at > clock.now()
    Timers().tick()
    assert not Firing.objects.exists()
    db.pass_time(600)
    Timers().tick()
    assert Firing.objects.count() == 1


def test_a_pause_ends_by_itself_at_its_end(tenant: Tenant) -> None:
    """D13: moments from its end on count, also where nobody was there when it came."""
    timer = put(tenant, Draft("echo", cron="*/10 * * * *", catch_up="all", catch_up_most=100))
    # 15:12 to 45:12 past the hour.
    until = clock.now() + timedelta(minutes=30)
    paused = timers.pause(timer, by=BY, reason="half an hour", until=until)
    assert timers.upcoming(paused, 1) == [until.replace(minute=50, second=0, microsecond=0)]
    db.pass_time(1_795)
    Timers().tick()
    assert Timer.objects.get().paused_at is not None
    db.pass_time(16 * 60)
    assert not Timers().tick()
    back = Timer.objects.get()
    assert (back.paused_at, back.revision) == (None, paused.revision + 1)
    assert [f.moment.minute for f in timers.history(back)] == [0, 50]


def test_what_is_paused_stays_so_while_it_is_put(tenant: Tenant) -> None:
    """D13: to say something else is not to resume."""
    paused = timers.pause(put(tenant), by=BY, reason="x")
    assert put(tenant, Draft("noop", cron="1 * * * *")).paused_at == paused.paused_at


@pytest.mark.parametrize(("said", "code"), [
    ({"reason": ""}, "invalid_reason"), ({"reason": "a\nb"}, "invalid_reason"),
    ({"reason": "x", "until": datetime(2020, 1, 1, tzinfo=UTC)}, "invalid_until"),
    ({"reason": "x", "until": datetime(2199, 1, 1, tzinfo=UTC)}, "invalid_until"),
    ({"reason": "x", "until": datetime(2199, 1, 1)}, "invalid_until"),
    ({"reason": "x", "until": "tomorrow"}, "invalid_until")])
def test_what_is_no_pause_is_refused(tenant: Tenant, said: dict[str, Any], code: str) -> None:
    """D13."""
    timer = put(tenant)
    assert refusal(lambda: timers.pause(timer, by=BY, **said)).reason_code == code
    assert isinstance(refusal(lambda: timers.resume(timer, by=BY)), TimerNotPaused)


# --- running it now ------------------------------------------------------------------------------------------------


def test_it_can_be_run_beside_its_schedule(tenant: Tenant) -> None:
    """D13: a manual firing of its own moment; who asked stands there and in the job's first receipt."""
    timer = put(tenant, Draft("echo", cron="0 * * * *", moment_field="value"))
    timers.pause(timer, by=BY, reason="x")
    made = timers.run_now(timer, by="user:bob")
    assert (made.manual, made.by, made.outcome, made.moment.microsecond > 0) == (True, "user:bob", "enqueued", True)
    job = Job.objects.get(pk=made.job_id)
    assert (job.origin, job.tenant_id) == ("scheduler", tenant.pk)
    assert f'"{clock.jsonable(made.moment)}"' in job.input
    assert Timer.objects.get().next_at == timer.next_at
    check(job.pk)
    # Another time is another job.
    assert timers.run_now(timer, by="user:bob").job_id != made.job_id


def test_run_under_a_key_it_runs_once(tenant: Tenant) -> None:
    """D13: a click that is sent twice."""
    timer = put(tenant, Draft("echo", cron="0 * * * *", moment_field="value"))
    made = [timers.run_now(timer, by=BY, key="click-1").pk for _ in range(3)]
    assert len(set(made)) == 1 == Job.objects.count()
    for key in ("", "x" * 101, "\u00e4", 5):
        assert refusal(lambda key=key: timers.run_now(timer, by=BY, key=key)).reason_code == "invalid_idempotency_key"


def test_one_at_a_time_holds_for_people_too(tenant: Tenant) -> None:
    """D13: overlap `skip`."""
    timer = put(tenant, Draft("echo", cron="0 * * * *", overlap="skip"))
    first = timers.run_now(timer, by=BY)
    error = refusal(lambda: timers.run_now(timer, by=BY))
    assert isinstance(error, Conflict)
    assert (error.reason_code, error.facts) == ("timer_job_active", {"job_id": str(first.job_id)})


def test_a_refused_run_leaves_nothing(tenant: Tenant) -> None:
    """D13: the person is told; no firing says what did not happen."""
    timer = put(tenant)
    tenancy.archive(tenant, by=BY, reason="over")
    assert isinstance(refusal(lambda: timers.run_now(timer, by=BY)), Refused)
    assert not Firing.objects.exists()
    with transaction.atomic():
        assert isinstance(refusal(lambda: timers.run_now(timer, by=BY)), Refused)
        assert Timer.objects.count() == 1


def test_a_run_at_a_full_second_is_no_moment_of_the_schedule(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: both happen."""
    timer = put(tenant)
    moment = timer.next_at
    with monkeypatch.context() as m:
        m.setattr(clock, "now", lambda: moment)
        timers.run_now(timer, by=BY)
        timers.run_now(timer, by=BY)
    come(timer)
    Timers().tick()
    assert Firing.objects.filter(outcome="enqueued").count() == 3 == Job.objects.count()


# --- removing and reading ------------------------------------------------------------------------------------------


def test_what_is_removed_fires_no_more_and_its_jobs_stay(tenant: Tenant) -> None:
    """D13: its name is free again, for another timer."""
    timer = put(tenant)
    made = timers.run_now(timer, by=BY)
    timers.remove(timer, by=BY)
    for gone in (lambda: timers.remove(timer, by=BY), lambda: timers.pause(timer, by=BY, reason="x"),
                 lambda: timers.run_now(timer, by=BY), lambda: timers.read(timer.pk),
                 lambda: timers.get(tenant.pk, "tick"), lambda: timers.resume(timer, by=BY)):
        assert isinstance(refusal(gone), TimerNotFound)
    db.pass_time(7_200)
    assert not Timers().tick()
    assert [str(j.pk) for j in Job.objects.all()] == [str(made.job_id)]
    assert put(tenant, create=True).pk != timer.pk


def test_timers_are_read_by_name_by_id_and_in_pages(tenant: Tenant) -> None:
    """D13: in the order in which they were made, of a workspace or a tenant."""
    made = [put(tenant, name=f"t{n}") for n in range(5)]
    other = put(tenancy.tenant(tenancy.make_workspace("other"), "acme", make=True))
    timers.pause(made[1], by=BY, reason="x")
    assert timers.get(tenant.pk, "t3") == timers.read(str(made[3].pk)) == made[3]
    first = timers.listing(tenant_id=tenant.pk, limit=2)
    assert first + timers.listing(tenant_id=tenant.pk, after=first[-1].pk) == made
    assert timers.listing(workspace_id=other.workspace_id) == [other]
    assert timers.listing(paused=True) == [made[1]]
    assert len(timers.listing(paused=False)) == 5
    for wrong in (uuid.uuid4(), "x", None, "x" * 10_000, "\x00"):
        assert isinstance(refusal(lambda wrong=wrong: timers.read(wrong)), TimerNotFound)


def test_the_next_moments_are_told(tenant: Tenant) -> None:
    """D13: five, or as many as one asks for, up to a hundred."""
    timer = put(tenant)
    hour = timedelta(hours=1)
    assert timers.upcoming(timer) == [timer.next_at + n * hour for n in range(5)]
    assert len(timers.upcoming(timer, 1_000)) == 100
    # What nobody has dealt with yet lies behind.
    db.pass_time(7_200)
    assert timers.upcoming(timer, 1) == [timer.next_at + 2 * hour]
