"""Commands: steer, follow_up and abort, sent to active jobs, read by their holders, consumed once (A6, A54, A55)."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

import pytest
from django.db import transaction

from jobs import publish
from jobs.errors import Invalid, JobEnded, JobNotFound, KeyReused, StaleFence
from jobs.models import Command, Receipt
from jobs.outcomes import Stopped
from jobs.receipts import Kind
from jobs.services import assignments, commands, intake, settlement
from jobs.services.commands import MOST_UNREAD, PAYLOAD_BYTES, TooManyCommands
from jobs.services.settlement import Report
from jobs.states import TERMINAL, CommandKind, State
from jobs.store.sql import NotInTransaction
from tests import database as db
from tests.driver import Driver, check, claimer, story
from tests.making import in_state, statements

ACTIVE = (State.QUEUED, State.LEASED, State.RUNNING, State.PAUSED)


def said(job_id: str) -> list[tuple[str, str, bool]]:
    """Kind, payload and whether it was consumed, in order."""
    return [(c.kind, c.payload, c.consumed_at is not None)
            for c in Command.objects.filter(job_id=job_id).order_by("created_at", "pk")]


def kinds(job_id: str) -> list[str]:
    return [r.kind for r in story(job_id)]


def test_queue_commands_are_steer_follow_up_and_abort_and_abort_is_no_queue(driver: Driver) -> None:
    """A6, E15: three kinds; a queue of commands is steer or follow_up, and an abort is none."""
    assert [*CommandKind] == ["steer", "follow_up", "abort"]
    for queue in ("steer", "follow_up"):
        assert driver.job(driver.enqueue(queue=queue)).queue == queue
    with pytest.raises(Invalid) as refusal:
        intake.enqueue("echo", queue="abort")
    assert refusal.value.reason_code == "unknown_queue"


@pytest.mark.parametrize("state", ACTIVE)
@pytest.mark.parametrize("kind", ["steer", "follow_up"])
def test_a_command_to_an_active_job_is_kept_with_its_receipt(driver: Driver, state: State, kind: str) -> None:
    """A6, A54, E12: durable, hashed into the history, never shown there, and no move."""
    made = in_state(driver, state)
    before = driver.job(made.id)
    sent = driver.send(made.id, kind, {"do": "the other", "at": [1, None]})
    after = driver.job(made.id)
    assert (after.state, after.revision, after.number) == (state, before.revision, before.number + 1)
    assert said(made.id) == [(kind, '{"at":[1,null],"do":"the other"}', False)]
    body = json.loads(story(made.id)[-1].body)
    command = Command.objects.get(pk=sent.command)
    assert body == {"by": "user:test", "command": kind, "id": sent.command,
                    "payload": bytes(command.payload_hash).hex()}
    assert "other" not in "".join(r.body for r in story(made.id))
    assert (command.by, command.tenant_id, command.attempt_id) == ("user:test", after.tenant_id, None)


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("kind", ["steer", "follow_up"])
def test_an_ended_job_takes_no_command(driver: Driver, state: State, kind: str) -> None:
    """A54: 409 that names how it ended; nothing is written."""
    made = in_state(driver, state)
    before = db.row_hash(made.id)
    with pytest.raises(JobEnded, match=f"The job is {state}") as refusal:
        driver.send(made.id, kind)
    assert (refusal.value.reason_code, refusal.value.facts["status"]) == ("job_ended", state)
    assert (db.row_hash(made.id), Command.objects.count()) == (before, 0)


@pytest.mark.parametrize("state", [State.QUEUED, State.PAUSED])
def test_an_abort_of_a_job_that_nobody_holds_stops_it_at_once(driver: Driver, state: State) -> None:
    """E5: there is nobody to ask. Once more is a quiet yes."""
    made = in_state(driver, state)
    sent = driver.send(made.id, "abort", reason="no longer wanted")
    job = driver.job(made.id)
    assert (sent.command, sent.repeated, job.state, job.reason) == (None, False, "cancelled", "no longer wanted")
    assert kinds(made.id)[-1] == Kind.CANCELLED
    assert driver.send(made.id, "abort").repeated
    assert driver.job(made.id).number == job.number


@pytest.mark.parametrize("state", [State.LEASED, State.RUNNING])
def test_an_abort_of_a_held_job_is_pending_until_its_holder_stops(driver: Driver, state: State) -> None:
    """A35, A55, E5, E8: the heartbeat tells it; the first reason stays; the job ends as cancelled with it."""
    made = in_state(driver, state)
    fence = str(made.fence)
    first = driver.send(made.id, "abort", reason="first")
    again = driver.send(made.id, "abort", reason="second")
    assert (again.command, again.repeated) == (first.command, True)
    assert (driver.state(made.id), assignments.extend([fence])[fence].abort) == (state, "first")
    assert not assignments.peek([fence])[fence].unread, "an abort is told by its reason, not as something to read"
    settlement.settle([Report(made.id, fence, Stopped())], "test")
    check(made.id)
    job = driver.job(made.id)
    assert (job.state, job.reason, job.abort_reason) == ("cancelled", "first", None)
    command = Command.objects.get(pk=first.command)
    assert (str(command.attempt_id), command.consumed_at is not None) == (fence, True)
    assert kinds(made.id)[-2:] == [Kind.COMMAND, Kind.CANCELLED], "one move, one receipt"


@pytest.mark.parametrize("end", ["fail", "release", "interrupt", "cancel", "pause", "lapse"])
def test_every_end_but_a_completion_honours_a_pending_abort(driver: Driver, end: str) -> None:
    """E1: cancelled, whatever the holder reported; the abort is no longer pending."""
    driver.enqueue()
    job = driver.claim_one()
    driver.send(job.id, "abort", reason="enough")
    match end:
        case "lapse":
            driver.pass_time(100)
            assert driver.recover() == 1
        case "cancel" | "pause":
            getattr(driver, end)(job.id)
        case _:
            getattr(driver, end)(job)
    assert driver.state(job.id) == "cancelled"
    assert [done for _, _, done in said(job.id)] == [True]


def test_a_completion_wins_over_a_pending_abort_which_stays_unread(driver: Driver) -> None:
    """E1, E3: nobody honoured it, and the result says so."""
    driver.enqueue()
    job = driver.claim_one()
    driver.send(job.id, "abort")
    driver.complete(job)
    assert driver.state(job.id) == "completed"
    assert said(job.id) == [("abort", "{}", False)]
    with pytest.raises(JobEnded):
        driver.send(job.id, "abort")


def test_a_job_that_is_not_there_takes_no_command(driver: Driver) -> None:
    """A54, A55."""
    for unknown in (str(uuid.uuid4()), "nothing"):
        for kind in CommandKind:
            with pytest.raises(JobNotFound):
                commands.send(unknown, kind, by="user:test")


@pytest.mark.parametrize(("kind", "options", "code", "field"), [
    ("stear", {}, "unknown_command_kind", "kind"),
    (None, {}, "unknown_command_kind", "kind"),
    ("steer", {"payload": ["no object"]}, "invalid_payload", "payload"),
    ("steer", {"payload": {"n": float("nan")}}, "invalid_number", "/n"),
    ("steer", {"payload": {"x": "x" * PAYLOAD_BYTES}}, "too_large", ""),
    ("abort", {"reason": ""}, "invalid_reason", "reason"),
    ("abort", {"reason": "a\nb"}, "invalid_reason", "reason"),
    ("steer", {"idempotency_key": ""}, "invalid_idempotency_key", "idempotency_key"),
])
def test_what_is_no_command_is_refused_and_changes_nothing(driver: Driver, kind: Any, options: dict[str, Any],
                                                           code: str, field: str) -> None:
    """A6, A54, A55, E15: each refusal has a code of its own and names the field."""
    job_id = driver.enqueue()
    before = db.row_hash(job_id)
    with pytest.raises(Invalid) as refusal:
        commands.send(job_id, kind, by="user:test", **options)
    assert (refusal.value.reason_code, refusal.value.field) == (code, field)
    assert (db.row_hash(job_id), Command.objects.count()) == (before, 0)


def test_a_misspelt_kind_is_told_the_nearest(driver: Driver) -> None:
    """A6."""
    with pytest.raises(Invalid, match="follow_up"):
        commands.send(driver.enqueue(), "followup", by="user:test")


def test_unread_commands_of_a_job_are_bounded(driver: Driver) -> None:
    """E4: what nobody reads must not grow for ever; reading makes room, and an abort always gets through."""
    driver.enqueue()
    job = driver.claim_one()
    sent = [commands.steer(job.id, {"n": n}, by="user:test").command for n in range(MOST_UNREAD)]
    with pytest.raises(TooManyCommands) as refusal:
        driver.send(job.id, "steer", {})
    assert (refusal.value.reason_code, refusal.value.facts["unread"]) == ("too_many_commands", MOST_UNREAD)
    assert Command.objects.count() == MOST_UNREAD
    assert driver.consume(job, str(sent[0])) == 1
    driver.send(job.id, "steer", {"n": "more"})
    driver.send(job.id, "abort")
    assert driver.extend(job)[job.fence].abort == "abort_requested"


# --- reading and consuming -----------------------------------------------------------------------------------------


def test_a_command_is_consumed_once_with_a_receipt(driver: Driver) -> None:
    """A6, E12: durable, under the live attempt; once more by the same one is a quiet yes."""
    driver.enqueue()
    job = driver.claim_one()
    ids = [str(driver.send(job.id, kind, {"n": n}).command) for n, kind in enumerate(("steer", "follow_up", "steer"))]
    read = commands.unread([job.id], fence=job.fence)[job.id]
    assert [(c.id, c.kind, c.payload, c.by) for c in read] == [
        (ids[0], "steer", {"n": 0}, "user:test"), (ids[1], "follow_up", {"n": 1}, "user:test"),
        (ids[2], "steer", {"n": 2}, "user:test")]
    assert assignments.peek([job.fence])[job.fence].unread
    assert driver.consume(job, ids[0], ids[1], ids[0]) == 2
    assert json.loads(story(job.id)[-1].body) == {
        "attempt": job.fence, "by": driver.claimer.by, "commands": sorted(ids[:2])}
    number = driver.job(job.id).number
    assert driver.consume(job, ids[0]) == 0
    assert driver.job(job.id).number == number
    assert [c.id for c in commands.unread([job.id])[job.id]] == [ids[2]]
    assert driver.consume(job, *ids) == 1
    assert kinds(job.id).count(Kind.CONSUMED) == 2
    assert not assignments.peek([job.fence])[job.fence].unread
    assert {str(c.attempt_id) for c in Command.objects.all()} == {job.fence}


@pytest.mark.parametrize("end", ["lapse", "interrupt", "release", "fail", "requeue"])
def test_unread_commands_are_the_next_attempts(driver: Driver, end: str) -> None:
    """A6, E12: they survive a lost worker, an interruption and a requeue; a late reader consumes nothing."""
    driver.enqueue()
    job = driver.claim_one()
    kept, dealt = (str(driver.send(job.id, "steer", {"n": n}).command) for n in range(2))
    driver.consume(job, dealt)
    match end:
        case "lapse":
            driver.pass_time(100)
            driver.recover()
        case "requeue":
            driver.fail(job, retryable=False)
            driver.requeue(job.id)
        case _:
            getattr(driver, end)(job)
    driver.pass_time(100)
    after = driver.claim_one(by=claimer())
    assert [c.id for c in commands.unread([job.id], fence=after.fence)[job.id]] == [kept]
    assert commands.unread([job.id], fence=job.fence) == {}
    before = db.row_hash(job.id)
    with pytest.raises(StaleFence):
        driver.consume(job, kept)
    assert (db.row_hash(job.id), said(job.id)[0][2]) == (before, False)
    assert driver.consume(after, kept) == 1


def test_only_commands_to_this_job_that_are_for_reading_are_consumed(driver: Driver) -> None:
    """E12: another job's, an abort's and what is no id at all are refused, and nothing is consumed."""
    other = driver.enqueue()
    driver.claim_one()
    driver.enqueue()
    job = driver.claim_one()
    mine, foreign = str(driver.send(job.id, "steer").command), str(driver.send(other, "steer").command)
    stop = str(driver.send(job.id, "abort").command)
    for strange in (foreign, stop, str(uuid.uuid4()), "nothing", "é\x00"):
        with pytest.raises(Invalid) as refusal:
            driver.consume(job, mine, strange)
        assert (refusal.value.reason_code, refusal.value.field) == ("unknown_command", "consumed")
    assert Command.objects.filter(consumed_at=None).count() == 3


def test_consuming_is_durable_and_refuses_to_hide_in_a_transaction(driver: Driver) -> None:
    """DESIGN 4: a verb of the holder."""
    driver.enqueue()
    job = driver.claim_one()
    command = str(driver.send(job.id, "steer").command)
    with transaction.atomic(), pytest.raises(NotInTransaction):
        commands.consume(job.id, job.fence, [command], "test")


def test_under_a_strict_lease_a_late_reader_consumes_nothing(driver: Driver) -> None:
    """B23, C35."""
    driver.enqueue("strict")
    job = driver.claim_one()
    command = str(driver.send(job.id, "steer").command)
    driver.pass_time(100)
    with pytest.raises(StaleFence):
        driver.consume(job, command)


# --- keys, transactions, news --------------------------------------------------------------------------------------


def test_the_same_request_with_its_key_is_said_once(driver: Driver) -> None:
    """A54, E6: a repeat is a quiet yes, after the end of the job too; another request is refused."""
    driver.enqueue()
    job = driver.claim_one()
    first = driver.send(job.id, "steer", {"n": 1}, idempotency_key="k")
    before = db.row_hash(job.id)
    again = driver.send(job.id, "steer", {"n": 1}, idempotency_key="k")
    assert (again.command, again.repeated) == (first.command, True)
    for kind, payload in (("steer", {"n": 2}), ("follow_up", {"n": 1})):
        with pytest.raises(KeyReused) as refusal:
            driver.send(job.id, kind, payload, idempotency_key="k")
        assert (refusal.value.reason_code, refusal.value.field) == ("idempotency_key_reused", "idempotency_key")
    assert (db.row_hash(job.id), Command.objects.count()) == (before, 1)
    driver.complete(job)
    assert driver.send(job.id, "steer", {"n": 1}, idempotency_key="k").repeated


def test_keys_of_jobs_and_of_commands_are_one_space_of_a_tenant(driver: Driver) -> None:
    """E2, E6: a key names one request, whatever that was; other tenants have keys of their own."""
    job_id = driver.enqueue(idempotency_key="job")
    with pytest.raises(KeyReused):
        driver.send(job_id, "steer", idempotency_key="job")
    driver.send(job_id, "steer", idempotency_key="command")
    with pytest.raises(KeyReused):
        intake.enqueue("echo", idempotency_key="command")
    with pytest.raises(KeyReused):
        driver.send(driver.enqueue(), "steer", idempotency_key="command")
    other = driver.enqueue(tenant="other", idempotency_key="command")
    assert not driver.send(other, "steer", idempotency_key="job").repeated


def test_sending_joins_the_callers_transaction(driver: Driver) -> None:
    """case-D01: a rolled back command was never sent, and leaves no gap in the history."""
    driver.enqueue()
    job = driver.claim_one()
    before = db.row_hash(job.id)
    for kind in CommandKind:
        with transaction.atomic():
            commands.send(job.id, kind, by="user:test")
            transaction.set_rollback(True)
    check(job.id)
    assert (db.row_hash(job.id), Command.objects.count()) == (before, 0)


def test_a_command_wakes_its_holder_and_those_who_follow_after_the_commit(driver: Driver,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """E14.18: workers for a held job, followers for every one; nobody before the commit."""
    woken: list[str] = []
    monkeypatch.setattr(publish._waker, "ask", lambda: woken.append("wake"))
    monkeypatch.setattr(publish._reporter, "add", lambda news, tenants: woken.append(news[0][0]))
    driver.enqueue()
    job = driver.claim_one()
    woken.clear()
    with transaction.atomic():
        commands.steer(job.id, by="user:test")
        assert woken == []
    assert sorted(woken) == sorted(["wake", job.id])
    woken.clear()
    commands.consume(job.id, job.fence, [c.id for c in commands.unread([job.id])[job.id]], "test")
    assert woken == [job.id]


def test_an_after_commit_hook_that_fails_undoes_no_command(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A51: what stands beside the receipts may fail, is logged, and never fails the receipt; commands pass through."""
    heard: list[str] = []

    def broken(news: Any) -> None:
        heard.extend(id_ for id_, _, _ in news)
        raise RuntimeError("the ledger is away")

    driver.enqueue()
    job = driver.claim_one()
    publish.after_commit(broken)
    try:
        with caplog.at_level(logging.ERROR, "jobs.publish"):
            sent = driver.send(job.id, "steer", {"n": 1})
            driver.consume(job, str(sent.command))
    finally:
        publish.forget(broken)
    assert (heard, len(caplog.records)) == ([job.id, job.id], 2)
    assert kinds(job.id)[-2:] == [Kind.COMMAND, Kind.CONSUMED]
    assert said(job.id) == [("steer", '{"n":1}', True)]


def test_a_command_costs_two_statements(driver: Driver) -> None:
    """The lock in one of its own, so that so many unread ones and no more are written; then the write."""
    driver.enqueue()
    job = driver.claim_one()
    with statements() as found:
        sent = commands.steer(job.id, {"n": 1}, by="user:test")
    assert len(found) == 2
    with statements() as found:
        commands.consume(job.id, job.fence, [str(sent.command)], "test")
    assert len(found) == 2


def test_a_stopped_move_without_an_abort_reads_no_commands(driver: Driver) -> None:
    """The unused path: settling costs what it did."""
    driver.enqueue()
    job = driver.claim_one()
    with statements() as found:
        driver.fail(job)
    assert not [sql for sql, _ in found if "UPDATE jobs_command" in sql]


def test_receipts_never_hold_what_was_said(driver: Driver) -> None:
    """E12, E15: only its hash."""
    driver.enqueue(session_key="s")
    job = driver.claim_one()
    driver.send(job.id, "steer", {"token": "canary-1"})
    intake.enqueue("echo", {"value": "canary-2"}, session_key="s", singleton="steer")
    assert not Receipt.objects.filter(body__contains="canary").exists()
    assert sum("canary" in payload for _, payload, _ in said(job.id)) == 2
