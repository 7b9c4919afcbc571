"""Singletons: what an enqueue does with the active jobs of its session key, in E3's order (A14 to A17)."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from jobs import clock
from jobs.errors import Invalid, JobsError, KeyReused, Refused
from jobs.models import Command, Job, Target, Tenant
from jobs.services import commands, intake
from jobs.services.commands import MOST_UNREAD
from jobs.services.intake import KeyMismatch, Options, Request
from jobs.states import SingletonMode, State
from tests import database as db
from tests.definitions import echo, staged
from tests.driver import Driver, check
from tests.making import archive, default_workspace, in_state, limit, statements, tenant_id
from tests.store import noise

ACTIVE = (State.QUEUED, State.LEASED, State.RUNNING, State.PAUSED)
ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED, State.SUPERSEDED)


def again(driver: Driver, mode: Any, value: str = "new", *, check_all: bool = True,
          **options: Any) -> intake.Enqueued:
    """An enqueue with a singleton of the key `s`; every job there is is checked after it."""
    try:
        return intake.enqueue("echo", {"value": value}, **{"session_key": "s", "singleton": mode, **options})
    finally:
        for id_, in Job.objects.values_list("id") if check_all else ():
            check(id_)


def everything() -> list[Any]:
    """What there is, to compare."""
    return [Command.objects.count(), Tenant.objects.count(), Target.objects.count(),
            *(db.row_hash(id_) for id_, in Job.objects.order_by("id").values_list("id"))]


def told(job_id: str) -> list[tuple[str, Any]]:
    """The commands to a job: kind and payload."""
    return [(c.kind, json.loads(c.payload)) for c in Command.objects.filter(job_id=job_id).order_by("created_at", "pk")]


# --- what a request says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [
    {"session_key": "s", "singleton": "steer"},
    {"session_key": "s", "singleton": SingletonMode.STEER},
    {"session_key": "s", "singleton": {"mode": "steer"}},
    {"singleton": {"key": "s", "mode": "steer"}},
    {"session_key": "s", "singleton": {"key": "s", "mode": "steer"}},
])
def test_a_singleton_has_two_forms(driver: Driver, said: dict[str, Any]) -> None:
    """A14: by session key and mode, or as an object; they may both be said where they agree."""
    first = driver.job(driver.enqueue("echo", **said))
    assert (first.session_key, first.singleton) == ("s", "steer")
    assert intake.enqueue("echo", {"value": "more"}, **said).steered


def test_the_default_is_allow(driver: Driver) -> None:
    """A14: a session key alone, or the mode allow, acts on nobody."""
    ids = [driver.enqueue("echo", session_key="s"), driver.enqueue("echo", session_key="s", singleton="allow"),
           driver.enqueue("echo", singleton={"key": "s"}), driver.enqueue("echo", singleton="allow"),
           driver.enqueue("echo", singleton={"key": "s", "mode": "allow"})]
    assert {driver.state(id_) for id_ in ids} == {"queued"}
    assert [(driver.job(id_).session_key, driver.job(id_).singleton) for id_ in ids] == [
        ("s", "allow"), ("s", "allow"), ("s", "allow"), (None, "allow"), ("s", "allow")]


@pytest.mark.parametrize(("said", "code", "field"), [
    ({"session_key": "s", "singleton": "replace"}, "unknown_singleton_mode", "singleton"),
    ({"session_key": "s", "singleton": 1}, "unknown_singleton_mode", "singleton"),
    ({"session_key": "s", "singleton": {"mode": "stear"}}, "unknown_singleton_mode", "singleton.mode"),
    ({"session_key": "s", "singleton": ["steer"]}, "unknown_singleton_mode", "singleton"),
    ({"singleton": "cancel"}, "missing_session_key", "session_key"),
    ({"singleton": {"mode": "steer"}}, "missing_session_key", "session_key"),
    ({"session_key": "s", "singleton": {"key": "t", "mode": "steer"}}, "session_key_mismatch", "singleton.key"),
    ({"session_key": "s", "singleton": {"key": "t"}}, "session_key_mismatch", "singleton.key"),
    ({"singleton": {"key": "", "mode": "steer"}}, "invalid_session_key", "singleton.key"),
    ({"singleton": {"key": 5, "mode": "steer"}}, "invalid_session_key", "singleton.key"),
    ({"singleton": {"key": "s", "mode": "steer", "scope": "x"}}, "unknown_field", "singleton.scope"),
    ({"session_key": "é", "singleton": "steer"}, "invalid_session_key", "session_key"),
])
def test_what_is_no_singleton_is_refused_before_anything_is_written(driver: Driver, said: dict[str, Any], code: str,
                                                                    field: str) -> None:
    """A14: each with a code of its own and the field; also in a batch, and for a tenant that is not there."""
    driver.enqueue("echo", session_key="s")
    before = everything()
    for options in (said, {**said, "tenant": "new"}):
        with pytest.raises(Invalid) as refusal:
            intake.enqueue("echo", **options)
        assert (refusal.value.reason_code, refusal.value.field) == (code, field)
        with pytest.raises(Invalid):
            intake.enqueue_many([Request("echo"), Request("echo", {}, Options(**options)), Request("echo")])
    assert everything() == before


def test_a_job_function_takes_a_singleton(driver: Driver) -> None:
    """A14: `using(...)` takes what enqueue takes."""
    chat = echo.using(session_key="s", singleton="steer")
    first = chat.enqueue(value="a")
    second = chat.enqueue(value="b")
    assert (first.steered, second.steered, second.id) == (False, True, first.id)


# --- cancel --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.QUEUED, State.PAUSED])
def test_cancel_ends_at_once_what_nobody_holds(driver: Driver, state: State) -> None:
    """A15, E1: queued and paused jobs are cancelled with the reason singleton_cancel, then the new one is made."""
    old = in_state(driver, state, session_key="s").id
    new = again(driver, "cancel")
    assert (new.repeated, new.steered, driver.state(new.id)) == (False, False, "queued")
    assert (driver.state(old), driver.job(old).reason) == ("cancelled", "singleton_cancel")
    assert Command.objects.count() == 0


@pytest.mark.parametrize("state", [State.LEASED, State.RUNNING])
def test_cancel_asks_the_holder_of_what_is_held(driver: Driver, state: State) -> None:
    """A15, E5: only its worker can stop it; the abort is durable, once, and honoured as singleton_cancel."""
    old = in_state(driver, state, session_key="s")
    first, second = again(driver, "cancel"), again(driver, "cancel")
    assert (driver.state(old.id), driver.job(old.id).abort_reason) == (state, "singleton_cancel")
    assert told(old.id) == [("abort", {})]
    # The first of the two was queued, and gave way to the second.
    assert (driver.state(first.id), driver.state(second.id)) == ("cancelled", "queued")
    assert db.rows("SELECT reason FROM jobs_command") == [("singleton_cancel",)]
    held = Job.objects.get(pk=old.id)
    assert str(held.attempt_id) == old.fence, "its claim is not void: it stops by itself"


def test_a_held_job_that_was_asked_ends_as_cancelled_or_completes(driver: Driver) -> None:
    """A15, E1: a completion wins."""
    for end, state, reason in (("stop", "cancelled", "singleton_cancel"), ("complete", "completed", None),
                               ("fail", "cancelled", "singleton_cancel")):
        driver.enqueue("echo", session_key="s", priority=9)
        job = driver.claim_one()
        new = again(driver, "cancel").id
        getattr(driver, end)(job)
        assert (driver.state(job.id), driver.job(job.id).reason) == (state, reason)
        driver.cancel(new)


def test_cancel_stops_all_of_the_key_and_nobody_else(driver: Driver) -> None:
    """A15, E2: every active one, scheduled ones too; other keys, tenants and ended jobs are nothing to it."""
    mine = [driver.enqueue("echo", session_key="s") for _ in range(3)]
    mine.append(driver.enqueue("echo", session_key="s", delay_s=500))
    mine.append(driver.enqueue("staged", session_key="s", queue="chat"))
    others = [driver.enqueue("echo", session_key="t"), driver.enqueue("echo"),
              driver.enqueue("echo", session_key="s", tenant="other")]
    driver.claim_one()
    gone = in_state(driver, State.PAUSED, session_key="u", target="x").id
    new = again(driver, "cancel").id
    held = [id_ for id_ in mine if driver.state(id_) == "leased"]
    assert [driver.job(id_).abort_reason for id_ in held] == ["singleton_cancel"]
    assert {driver.state(id_) for id_ in mine if id_ not in held} == {"cancelled"}
    assert [driver.state(id_) for id_ in (*others, gone, new)] == ["queued", "queued", "queued", "paused", "queued"]


@pytest.mark.parametrize("state", ENDED)
def test_ended_jobs_are_no_business_of_a_singleton(driver: Driver, state: State) -> None:
    """A15, A16: neither stopped nor steered: a new job is made."""
    old = in_state(driver, state, session_key="s").id
    before = db.row_hash(old)
    for mode in ("cancel", "steer"):
        new = again(driver, mode)
        assert (new.steered, new.id != old) == (False, True)
        driver.cancel(new.id)
    assert (db.row_hash(old), Command.objects.count()) == (before, 0)


def test_a_repeat_of_a_cancel_does_not_cancel_the_job_that_it_made(driver: Driver) -> None:
    """E3.1: a network's retry has no effect, whatever has become of the key meanwhile."""
    made = again(driver, "cancel", idempotency_key="k")
    later = again(driver, "allow", "another")
    before = everything()
    repeated = again(driver, "cancel", idempotency_key="k")
    assert (repeated.id, repeated.repeated, repeated.steered) == (made.id, True, False)
    assert everything() == before
    assert driver.state(later.id) == "queued"


def test_what_a_cancelled_job_held_is_released_after_the_commit(driver: Driver) -> None:
    """DESIGN 4: a place of an exclusive group."""
    limit(exclusive_group_max=1)
    first = driver.enqueue("echo", exclusive_group="g", session_key="s")
    second = driver.enqueue("echo", exclusive_group="g")
    assert (driver.job(first).gate, driver.job(second).gate) == (None, "exclusive")
    again(driver, "cancel")
    assert driver.state(first) == "cancelled"


# --- steer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ACTIVE)
def test_steer_tells_the_active_job_and_makes_none(driver: Driver, state: State) -> None:
    """A16, E1, E3: paused ones are active; the payload is the new input and where it comes from."""
    old = in_state(driver, state, session_key="s").id
    before = driver.job(old)
    answer = again(driver, "steer", "left")
    assert (answer.id, answer.steered, answer.repeated) == (old, True, False)
    assert told(old) == [("steer", {"value": "left", "path": "", "from_session_key": "s", "from_enqueue": True})]
    after = driver.job(old)
    assert (after.state, after.revision, after.number) == (before.state, before.revision, before.number + 1)
    assert Job.objects.exclude(state="superseded").count() == 1


def test_steer_hits_the_newest_active_job_of_the_key(driver: Driver) -> None:
    """A16: not an older one, an ended one, one of another key or of another tenant."""
    driver.enqueue("echo", session_key="s")
    newest = driver.enqueue("echo", session_key="s", delay_s=900)
    driver.cancel(driver.enqueue("echo", session_key="s"))
    driver.enqueue("echo", session_key="t")
    driver.enqueue("echo", session_key="s", tenant="other")
    assert again(driver, "steer").id == newest


def test_a_steer_with_nobody_to_steer_makes_a_job(driver: Driver) -> None:
    """A16: whose successor steers it."""
    first = again(driver, "steer")
    assert (first.steered, driver.job(first.id).singleton, driver.job(first.id).session_key) == (False, "steer", "s")
    second = again(driver, "steer", tenant="other")
    assert (second.steered, second.id != first.id) == (False, True)
    assert again(driver, "steer").id == first.id


def test_what_steers_is_validated_by_the_posted_type(driver: Driver) -> None:
    """E3: not by that of the job that it steers."""
    old = driver.enqueue("staged", session_key="s")
    before = everything()
    for input_, code in (({"value": 5}, "invalid_input"), ({"strange": 1}, "invalid_input")):
        with pytest.raises(Invalid) as refusal:
            intake.enqueue("echo", input_, session_key="s", singleton="steer")
        assert refusal.value.reason_code == code
    with pytest.raises(JobsError):
        intake.enqueue("nothing-of-ours", {}, session_key="s", singleton="steer")
    assert everything() == before
    assert again(driver, "steer", "x").id == old
    assert staged.using(session_key="s", singleton="steer").enqueue().id == old
    assert told(old)[1] == ("steer", {"from_session_key": "s", "from_enqueue": True})


@pytest.mark.parametrize("name", ["idempotency_key", "job_id"])
def test_a_steer_keeps_the_keys_of_its_request(driver: Driver, name: str) -> None:
    """E3: its repeat answers with the same job and tells it nothing twice, when that has ended as well."""
    old = driver.enqueue("echo", session_key="s")
    first = again(driver, "steer", "x", **{name: "k"})
    before = everything()
    second = again(driver, "steer", "x", **{name: "k"})
    assert (first.repeated, second.repeated, second.steered, second.id) == (False, True, True, old)
    driver.cancel(old)
    after = again(driver, "steer", "x", **{name: "k"})
    assert (after.id, after.repeated, after.steered) == (old, True, True)
    assert before[0] == Command.objects.count() == 1
    assert Job.objects.count() == 1


def test_another_request_with_the_key_of_a_steer_is_refused(driver: Driver) -> None:
    """C3, E6, A18: an explicit job_id, though, answers with what it named, whatever the payload."""
    old = driver.enqueue("echo", session_key="s")
    again(driver, "steer", "x", idempotency_key="k", job_id="mine")
    for options in ({"value": "y"}, {"value": "x", "priority": 5}):
        with pytest.raises(KeyReused):
            again(driver, "steer", idempotency_key="k", **options)
    with pytest.raises(KeyReused):
        intake.enqueue("echo", {"value": "x"}, idempotency_key="k")
    assert again(driver, "steer", "y", job_id="mine").id == old
    other = driver.enqueue("echo", job_id="theirs")
    with pytest.raises(KeyMismatch):
        again(driver, "steer", "x", idempotency_key="k", job_id="theirs")
    assert (Command.objects.count(), driver.state(other)) == (1, "queued")


def test_a_steer_into_a_full_job_is_refused_and_changes_nothing(driver: Driver) -> None:
    """E3: refused like any command, with nothing recovered or written."""
    old = driver.enqueue("echo", session_key="s")
    for n in range(MOST_UNREAD):
        commands.steer(old, {"n": n}, by="user:test")
    before = everything()
    with pytest.raises(Refused) as refusal:
        again(driver, "steer")
    assert refusal.value.reason_code == "too_many_commands"
    assert everything() == before


def test_a_steer_that_is_too_large_for_a_command_is_refused(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A16: the longest input of a definition fits as it is; where one allows more, only a first one makes a job."""
    longest = "x" * (commands.PAYLOAD_BYTES - len('{"path":"","value":""}'))
    old = again(driver, "steer", longest)
    assert again(driver, "steer", longest).id == old.id
    monkeypatch.setattr(commands, "PAYLOAD_BYTES", 1_000)
    before = everything()
    with pytest.raises(Invalid) as refusal:
        again(driver, "steer", longest)
    assert refusal.value.reason_code == "too_large"
    assert everything() == before


def test_an_archived_tenant_takes_no_steer(driver: Driver) -> None:
    """E3.3: refusals come before singletons."""
    driver.enqueue("echo", session_key="s", tenant="old")
    archive("old")
    before = everything()
    for mode in ("cancel", "steer"):
        with pytest.raises(Refused) as refusal:
            again(driver, mode, tenant="old")
        assert refusal.value.reason_code == "tenant_archived"
    assert everything() == before


# --- dead workers --------------------------------------------------------------------------------------------------


def test_a_dead_workers_job_does_not_swallow_a_steer(driver: Driver) -> None:
    """A17, E3.4, E14.7: its lease is looked at before the scan, without the grace; the next attempt reads the steer."""
    driver.enqueue("echo", session_key="s")
    dead = driver.claim_one()
    driver.pass_time(31)
    answer = again(driver, "steer", "go on")
    assert (answer.steered, answer.id) == (True, dead.id)
    job = driver.job(dead.id)
    assert (job.state, job.lapses, job.attempt_id) == ("queued", 1, None)
    successor = driver.claim_one()
    [command] = commands.unread([dead.id], fence=successor.fence)[dead.id]
    assert command.payload["value"] == "go on"


def test_a_job_that_died_for_good_is_not_steered(driver: Driver) -> None:
    """A17: its last lapse ends it, so that a new job is made."""
    driver.enqueue("breaks", session_key="s")
    for _ in range(2):
        dead = driver.claim_one()
        driver.pass_time(31)
        answer = again(driver, "steer")
        if answer.steered:
            driver.pass_time(10)
    assert (driver.state(dead.id), answer.steered, answer.id != dead.id) == ("failed", False, True)
    assert driver.state(answer.id) == "queued"


def test_a_dead_workers_job_is_cancelled_at_once(driver: Driver) -> None:
    """A15, A17: nobody would hear an abort; one that was asked before its worker died ends as cancelled too."""
    for asked in (False, True):
        driver.enqueue("echo", session_key="s", priority=9)
        dead = driver.claim_one()
        if asked:
            driver.send(dead.id, "abort", reason="before")
        driver.pass_time(31)
        new = again(driver, "cancel").id
        job = driver.job(dead.id)
        assert (job.state, job.reason, job.lapses) == ("cancelled", "before" if asked else "singleton_cancel", 1)
        driver.cancel(new)


def test_a_living_worker_is_believed_until_its_lease_has_run_out(driver: Driver) -> None:
    """A17, E8: a heartbeat in time keeps its attempt."""
    driver.enqueue("echo", session_key="s")
    job = driver.claim_one()
    driver.pass_time(29)
    driver.extend(job)
    driver.pass_time(29)
    assert again(driver, "steer").steered
    assert (driver.state(job.id), driver.job(job.id).lapses) == ("leased", 0)
    driver.complete(job)


def test_recovery_touches_the_jobs_of_the_key_alone(driver: Driver) -> None:
    """E3.4: other lapsed attempts are the loop's."""
    for key in ("s", "t"):
        driver.enqueue("echo", session_key=key)
    jobs = driver.claim(2)
    driver.pass_time(31)
    again(driver, "steer")
    assert sorted(driver.state(job.id) for job in jobs) == ["leased", "queued"]


# --- with the others -----------------------------------------------------------------------------------------------


def test_siblings_of_a_key_retry_lapse_and_end_without_each_other(driver: Driver) -> None:
    """case-F05: a session key is no unique index: what fails beside a queued sibling waits beside it."""
    first = driver.enqueue("echo", session_key="s", priority=1)
    job = driver.claim_one()
    second = driver.enqueue("echo", session_key="s")
    driver.fail(job)
    assert (driver.state(first), driver.state(second)) == ("queued", "queued")
    driver.pass_time(10)
    job = driver.claim_one()
    driver.pass_time(100)
    driver.recover()
    assert (driver.state(first), driver.state(second)) == ("queued", "queued")
    driver.pass_time(100)
    for held in driver.claim(2):
        driver.complete(held)
    assert (driver.state(first), driver.state(second)) == ("completed", "completed")


def test_a_singleton_and_a_target_act_both_in_that_order(driver: Driver) -> None:
    """E3: three controls that a job may carry at once; one that is steered into another makes no generation."""
    by_key = driver.enqueue("echo", session_key="s")
    by_target = driver.enqueue("echo", target="t")
    new = again(driver, "cancel", target="t")
    assert (driver.state(by_key), driver.state(by_target)) == ("cancelled", "superseded")
    assert (driver.job(new.id).generation, driver.job(new.id).session_key) == (2, "s")
    assert again(driver, "steer", target="t").id == new.id
    assert (driver.state(new.id), Target.objects.get().generation) == ("queued", 2)


def test_a_batch_acts_in_its_order(driver: Driver) -> None:
    """E3: the second of two steers the first, or cancels it; plain ones go in between."""
    def one(mode: str, key: str, value: str) -> Request:
        return Request("echo", {"value": value}, Options(session_key=key, singleton=mode))

    answers = intake.enqueue_many([one("steer", "a", "1"), one("cancel", "b", "2"), Request("echo"),
                                   one("steer", "a", "3"), one("cancel", "b", "4")])
    for answer in answers:
        check(answer.id)
    assert [a.steered for a in answers] == [False, False, False, True, False]
    assert answers[3].id == answers[0].id
    assert [driver.state(a.id) for a in answers] == ["queued", "cancelled", "queued", "queued", "queued"]


def test_a_batch_is_undone_as_a_whole(driver: Driver) -> None:
    """E3: a refusal of the last takes the cancels and steers of the first back, inside the caller's transaction."""
    driver.enqueue("echo", session_key="a")
    driver.enqueue("echo", session_key="b")
    before = everything()
    requests = [Request("echo", {}, Options(session_key="a", singleton="cancel")),
                Request("echo", {}, Options(session_key="b", singleton="steer")), Request("echo", {"value": 5})]
    with transaction.atomic():
        with pytest.raises(Invalid):
            intake.enqueue_many(requests)
        assert everything() == before


def test_a_singleton_joins_the_callers_transaction(driver: Driver) -> None:
    """case-D01: rolled back, nothing was cancelled, steered or recovered."""
    driver.enqueue("echo", session_key="s")
    driver.claim_one()
    driver.enqueue("echo", session_key="s")
    driver.pass_time(31)
    before = everything()
    for mode in ("cancel", "steer"):
        with transaction.atomic():
            again(driver, mode)
            assert everything() != before
            transaction.set_rollback(True)
        assert everything() == before


@pytest.mark.parametrize("mode", ["cancel", "steer"])
def test_above_read_committed_a_singleton_is_refused(driver: Driver, mode: str) -> None:
    """E3: such a transaction cannot see what others did while it waited for the key; it is told so."""
    driver.enqueue("echo", session_key="s")
    before = everything()
    with transaction.atomic():
        noise.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(Refused) as refusal:
            intake.enqueue("echo", session_key="s", singleton=mode)
        assert (refusal.value.reason_code, refusal.value.field) == ("needs_read_committed", "singleton")
        assert not intake.enqueue("echo", session_key="t").repeated
    assert everything()[3] == before[3]


def test_a_singletons_object_is_part_of_the_request(driver: Driver) -> None:
    """E6: as it was said, so that its repeat is known and another mode is another request."""
    said = {"key": "s", "mode": SingletonMode.CANCEL}
    at = clock.now() + timedelta(hours=1)
    first = intake.enqueue("outside", {"n": 1}, singleton=said, idempotency_key="k", available_at=at)
    assert intake.enqueue("outside", {"n": 1}, singleton=said, idempotency_key="k", available_at=at).id == first.id
    assert driver.state(first.id) == "queued"


# --- what it costs -------------------------------------------------------------------------------------------------


def test_who_uses_no_singleton_pays_nothing(driver: Driver) -> None:
    """No statement more than without: the place, what a key already names, the lines' lock and the insert."""
    driver.enqueue("echo")
    for options, count in (({}, 3), ({"session_key": "s"}, 3), ({"session_key": "s", "singleton": "allow"}, 3),
                           ({"idempotency_key": uuid.uuid4().hex}, 4)):
        with statements() as found:
            intake.enqueue("echo", **options)
        assert len(found) == count, (options, [sql for sql, _ in found])


def test_a_singleton_finds_its_jobs_by_an_index_of_active_ones(driver: Driver) -> None:
    """Nothing O(history), nothing O(backlog): neither ended jobs of the key nor others of the tenant are looked at."""
    place = default_workspace().pk
    noise.jobs(5_000, place, tenant_id(), state="completed", ended="jobs_now()")
    noise.execute("UPDATE jobs_job SET session_key = 's'")
    noise.jobs(5_000, place, tenant_id())
    first = driver.enqueue("echo", session_key="s")
    noise.execute("ANALYZE jobs_job, jobs_attempt, jobs_command")
    for mode in ("steer", "cancel"):
        with transaction.atomic():
            with statements() as found:
                assert again(driver, mode, check_all=False).id == first or mode == "cancel"
            transaction.set_rollback(True)
        scans = [sql for sql, _ in found if "session_key" in sql and sql.lstrip().startswith("SELECT")]
        assert scans
        for sql, params in found:
            if sql in scans:
                plan = "\n".join(r[0] for r in db.rows(f"EXPLAIN {sql}", *(params or ())))
                assert "job_session" in plan, plan
