"""Why an attempt did not complete, in A39's words: stored for ends, answered to holders who came too late (E5)."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace

import pytest

from jobs.errors import StaleFence
from jobs.models import Receipt
from jobs.outcomes import End, ResultStatus, final_status, refused_status, result_status
from jobs.services import assignments, settlement
from jobs.states import State
from jobs.worker.heartbeat import Heartbeats
from jobs.worker.output import Output
from jobs.worker.plan import Tally
from jobs.worker.reports import Reports
from jobs.worker.runner import Worker
from tests import database as db
from tests.driver import check, done, quiet_recovery
from tests.edges.caller import held, problem

ONCE = {"retry": {"max_attempts": 1}}


def told(job_id):
    """What the receipts say, in order; None where one says nothing."""
    return [json.loads(body).get("result_status")
            for body in Receipt.objects.filter(job_id=job_id).order_by("number").values_list("body", flat=True)]


def test_each_end_has_its_word():
    """A39, E5: seven words; what completed, was handed back or lives on has none."""
    quiet = (None, End.COMPLETED, End.RELEASED, End.INTERRUPTED, End.PAUSED)
    assert {result_status(end) for end in quiet} == {None}
    assert {result_status(end) for end in (End.CANCELLED, End.SUPERSEDED)} == {ResultStatus.CANCELED}
    assert {result_status(end) for end in (End.FAILED, End.LAPSED)} == {ResultStatus.FAILED}
    assert result_status(End.FAILED, "attempt_timeout") == "execution_timeout"
    assert [final_status(state) for state in State] == [
        None, None, None, None, None, "failed", "canceled", "canceled"]
    assert final_status(State.FAILED, "attempt_timeout") == "execution_timeout"
    assert [refused_status("stale_claim", s) for s in (None, State.QUEUED, State.PAUSED, State.COMPLETED)] == [
        "stale_attempt", "stale_attempt", "stale_attempt", "terminal_state"]
    assert [refused_status(code) for code in ("job_ended", "settlement_refused", "job_locked", "too_large")] == [
        "terminal_state", "settlement_conflict", None, None]


def test_it_is_stored_only_where_the_attempt_was_the_last(api):
    """A39: what is retried keeps its error and runs again; the last one's word is in the receipt and the result."""
    job_id = api.enqueue(retry={"max_attempts": 2, "base_delay_s": 1})["id"]
    api.assignment(api.claim_one(), "fail", {"reason_code": "attempt_timeout"})
    assert api.get(f"/jobs/{job_id}").json()["result_envelope"] is None
    assert told(job_id) == [None, None, None]
    db.pass_time(2)
    assignments._upkeep.now()
    api.assignment(api.claim_one(), "fail", {"reason_code": "attempt_timeout"})
    envelope = api.get(f"/jobs/{job_id}").json()["result_envelope"]
    assert (envelope["outcome"], envelope["result_status"]) == ("failed", "execution_timeout")
    assert told(job_id)[-1] == "execution_timeout"
    attempts = api.get(f"/jobs/{job_id}/attempts").json()["attempts"]
    assert [a["result_status"] for a in attempts] == ["execution_timeout", "execution_timeout"]
    check(job_id)


@pytest.mark.parametrize(("body", "word"), [
    ({"reason_code": "no_luck"}, "failed"), ({"reason_code": "no_luck", "retryable": False}, "failed"),
    ({"reason_code": "attempt_timeout", "retryable": False}, "execution_timeout"),
])
def test_a_failure_that_ends_the_job_says_how(api, body, word):
    """A39, E5."""
    one = held(api, **ONCE)
    api.assignment(one, "fail", body)
    job_id = one["job"]["id"]
    assert api.get(f"/jobs/{job_id}").json()["result_envelope"]["result_status"] == word
    assert told(job_id) == [None, None, word]


def test_what_completed_says_nothing_and_what_was_stopped_is_canceled(api):
    """A39: with one l, since these are A's words; the outcome is spelled as everywhere (E1)."""
    one = held(api)
    api.assignment(one, "complete", {"artifact": {}})
    assert api.get(f"/jobs/{one['job']['id']}").json()["result_envelope"].keys() == {
        "outcome", "ended_at", "artifact", "unread_commands"}
    one = held(api)
    api.post(f"/jobs/{one['job']['id']}/controls", {"action": "cancel"})
    envelope = api.get(f"/jobs/{one['job']['id']}").json()["result_envelope"]
    assert (envelope["outcome"], envelope["result_status"]) == ("cancelled", "canceled")
    [attempt] = api.get(f"/jobs/{one['job']['id']}/attempts").json()["attempts"]
    assert attempt["result_status"] == "canceled"
    # Nobody held this one: there was no attempt whose end could be told.
    waiting = api.enqueue()["id"]
    api.post(f"/jobs/{waiting}/controls", {"action": "cancel"})
    assert told(waiting) == [None, None]


def test_a_lapse_that_ends_the_job_says_so(api):
    """A34, A39: without a holder's word it is a failure like another."""
    job_id = held(api, **ONCE)["job"]["id"]
    db.pass_time(60)
    quiet_recovery().run()
    assert told(job_id)[-1] == "failed"
    check(job_id)


def test_holders_who_come_too_late_are_told_which_kind_of_late(api, monkeypatch):
    """A39, E5: stale_attempt, terminal_state and settlement_conflict; nothing changes."""
    lost = held(api)
    db.pass_time(60)
    quiet_recovery().run()
    for verb, body in (("extend", None), ("complete", {"artifact": {}}), ("fail", {"reason_code": "no_luck"})):
        assert problem(api.assignment(lost, verb, body), 409, "stale_claim")["result_status"] == "stale_attempt"
    api.post(f"/jobs/{lost['job']['id']}/controls", {"action": "cancel"})
    said = problem(api.assignment(lost, "complete", {"artifact": {}}), 409, "stale_claim")
    assert (said["result_status"], said["job_status"]) == ("terminal_state", "cancelled")
    # The same attempt was settled already, with another word.
    one = held(api)
    api.assignment(one, "complete", {"artifact": {"x": 1}})
    said = problem(api.assignment(one, "complete", {"artifact": {"x": 2}}), 409, "stale_claim")
    assert said["result_status"] == "terminal_state"
    one = held(api)
    api.assignment(one, "fail", {"reason_code": "no_luck", "message": "a"})
    said = problem(api.assignment(one, "fail", {"reason_code": "no_luck", "message": "b"}), 409, "stale_claim")
    assert said["result_status"] == "settlement_conflict"


def test_a_settlement_that_loses_a_race_is_a_conflict(api, monkeypatch):
    """A39: live when it was looked at, gone when it was settled."""
    one = held(api)
    settle = settlement.settle

    def late(reports, by):
        monkeypatch.setattr(settlement, "settle", settle)
        api.post(f"/jobs/{one['job']['id']}/controls", {"action": "pause"})
        return settle(reports, by)

    monkeypatch.setattr(settlement, "settle", late)
    said = problem(api.assignment(one, "complete", {"artifact": {}}), 409, "stale_claim")
    assert (said["result_status"], said["job_state"]) == ("settlement_conflict", "paused")


def test_a_refused_first_heartbeat_is_a_lost_lease(api, monkeypatch):
    """A35, A39: the lease was renewed, and the job gone when it should have become running."""
    one = held(api)
    extend = assignments.extend

    def late(fences):
        found = extend(fences)
        api.post(f"/jobs/{one['job']['id']}/controls", {"action": "pause"})
        return found

    monkeypatch.setattr(assignments, "extend", late)
    assert problem(api.assignment(one, "extend"), 409, "stale_claim")["result_status"] == "lease_lost"


class Slots:
    """Of a worker that runs nothing."""

    def collect(self):
        return []


@pytest.mark.parametrize(("verb", "word"), [("pause", "stale_attempt"), ("cancel", "terminal_state")])
def test_a_worker_logs_the_word_where_its_settlement_came_too_late(driver, capsys, verb, word):
    """A39: an event, not a row; the job is somebody else's."""
    driver.enqueue()
    job = driver.claim_one()
    getattr(driver, verb)(job.id)
    reports = Reports(Slots(), "worker:test", Output(as_json=True), Tally())
    reports.add(job, done({}))
    kept = reports.next()
    answers = settlement.settle([r for _, r in kept], "worker:test")
    assert isinstance(answers[0], StaleFence)
    reports.settled(kept, answers)
    [line] = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
    assert (line["event"], line["code"], line["result_status"], line["job"]) == (
        "worker.late", "stale_claim", word, job.id)


@pytest.mark.parametrize(("paused", "word"), [(True, "lease_lost"), (False, "stale_attempt")])
def test_a_worker_says_of_a_lost_claim_whether_it_could_begin(driver, paused, word):
    """A35, A39: a refused first heartbeat is a lost lease; a job that was running is a stale attempt."""
    driver.enqueue()
    job = driver.claim_one()
    if paused:
        driver.pause(job.id)
    live, said = SimpleNamespace(job=job, first_at=0.0, refused=False), []
    beats = Heartbeats(SimpleNamespace(live={}, size=1), uuid.uuid4(), "worker:test", lambda live: None, None)
    beats._first([live], 0.0)
    Worker._void(SimpleNamespace(output=lambda event, **told: said.append((event, told["result_status"]))), live)
    assert said == [("worker.claim_lost", word)]
    assert driver.state(job.id) == ("paused" if paused else "running")
