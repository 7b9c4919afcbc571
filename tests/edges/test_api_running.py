"""What a runner's attempt may do and report while it runs: its time, its stages, its diagnostics, its input."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from jobs import clock
from jobs.models import Attempt, DeadLetter, Job, Receipt
from jobs.services import assignments, dead_letters, noted, progress
from jobs.services.stages import KEPT
from tests import database as db
from tests.driver import check, quiet_recovery
from tests.edges.caller import ATTESTED, everything, held, problem, state

ENDS = {"extend": {}, "complete": {"artifact": {}}, "fail": {"reason_code": "mine"}, "release": {}}


@pytest.fixture(autouse=True)
def _definitions(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.outside"]}


def beat_until(api, mine, seconds, step=20):
    """Heartbeats that keep the lease alive, whatever else is said of the attempt."""
    for _ in range(0, seconds, step):
        db.pass_time(step)
        assert api.assignment(mine, "extend").status_code == 200


# --- timeout and duration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ENDS)
def test_beyond_its_duration_every_call_is_409_and_the_job_has_ended_with_its_checkpoint(api, verb):
    """C34, C17, E8: heartbeats renew liveness only; the end is terminal, and told alike whoever found it."""
    mine = held(api, type_="outside-lasting")
    assert api.assignment(mine, "extend", {"checkpoint": {"seq": 4, "page": 7}}).status_code == 200
    beat_until(api, mine, 80)
    db.pass_time(21)
    for _ in range(2):
        told = problem(api.assignment(mine, verb, ENDS[verb]), 409, "duration_exceeded")
        assert told["job_state"] == "failed"
    for other, body in ENDS.items():
        problem(api.assignment(mine, other, body), 409, "duration_exceeded")
    job = Job.objects.get(pk=mine["job"]["id"])
    assert (job.state, job.checkpoint_number, job.checkpoint) == ("failed", 4, '{"page":7,"seq":4}')
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.reason_code) == ("terminal_error", "duration_exceeded")
    assert api.get(f"/jobs/{job.pk}").json()["result_envelope"]["error"]["reason_code"] == "duration_exceeded"
    dead_letters.requeue(letter, by="test")
    assert api.claim_one()["checkpoint"] == {"seq": 4, "page": 7}
    check(job.pk)


@pytest.mark.parametrize("verb", ENDS)
def test_beyond_its_timeout_every_call_is_stale_and_the_attempt_is_a_counted_failure(api, verb):
    """B26, E8: what comes after the timeout is nothing; the job runs again."""
    mine = held(api, type_="outside-timed")
    beat_until(api, mine, 40)
    db.pass_time(21)
    told = problem(api.assignment(mine, verb, ENDS[verb]), 409, "stale_claim")
    assert told["job_state"] == "queued"
    job = Job.objects.get(pk=mine["job"]["id"])
    assert (job.state, job.failures, job.attempt_count) == ("queued", 1, 1)
    assert (Attempt.objects.get().outcome, Attempt.objects.get().reason_code) == ("failed", "attempt_timeout")
    problem(api.assignment(mine, verb, ENDS[verb]), 409, "stale_claim")
    check(job.pk)


@pytest.mark.parametrize(("type_", "seconds", "state_", "code"), [
    ("outside-timed", 60, "queued", "attempt_timeout"), ("outside-lasting", 100, "failed", "duration_exceeded")])
def test_a_loop_ends_what_its_runner_says_nothing_of(api, type_, seconds, state_, code):
    """C34, E8: also while the lease is believed; not a moment before, and a worker's own attempts are the worker's."""
    mine = held(api, type_=type_)
    Attempt.objects.update(lease_until=clock.now() + timedelta(days=1))
    db.pass_time(seconds - 2)
    assert quiet_recovery().run() == 0
    assert state(mine["job"]["id"]) == "leased"
    db.pass_time(3)
    assert quiet_recovery().run() == 1
    assert quiet_recovery().run() == 0
    job = Job.objects.get(pk=mine["job"]["id"])
    assert (job.state, job.failures, Attempt.objects.get().reason_code) == (state_, 1, code)
    check(job.pk)


def test_the_loop_leaves_attempts_of_workers_to_them(driver, settings):
    """E8: a worker looks at its own clock, which begins when the handler does."""
    job_id = driver.enqueue("slow")
    driver.claim_one()
    Attempt.objects.update(lease_until=clock.now() + timedelta(days=1))
    driver.pass_time(7_000)
    assert driver.recover() == 0
    assert driver.state(job_id) == "leased"


def test_of_a_chains_duration_a_claim_gets_what_is_left_and_nothing_begins_after_it(api):
    """E8: the span runs from the chain's first claim on; a requeue begins another."""
    mine = held(api, type_="outside-chained")
    job_id = mine["job"]["id"]
    assert api.assignment(mine, "fail", {"reason_code": "no_luck"}).json()["state"] == "queued"
    db.pass_time(60)
    assignments._upkeep.now()
    again = api.claim_one()
    left = datetime.fromisoformat(again["deadline"]) - clock.now()
    assert timedelta(seconds=30) < left <= timedelta(seconds=40)
    assert api.assignment(again, "fail", {"reason_code": "no_luck"}).json()["state"] == "queued"
    db.pass_time(41)
    assignments._upkeep.now()
    assert api.claim() == []
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.claims, DeadLetter.objects.get().reason_code) == ("failed", 3, "duration_exceeded")
    dead_letters.requeue(DeadLetter.objects.get(), by="test")
    assert datetime.fromisoformat(api.claim_one()["deadline"]) - clock.now() > timedelta(seconds=90)
    check(job_id)


def test_an_attempt_that_ended_in_time_is_not_ended_again(api):
    """E5, E8: the same end once more stays a quiet yes, however late."""
    mine = held(api, type_="outside-timed")
    assert api.assignment(mine, "complete", {"artifact": {"x": 1}}).status_code == 200
    db.pass_time(500)
    rows = everything()
    assert api.assignment(mine, "complete", {"artifact": {"x": 1}}).json()["repeated"] is True
    assert quiet_recovery().run() == 0
    assert everything() == rows


# --- the input -------------------------------------------------------------------------------------------------------


def test_an_input_that_no_longer_decodes_is_handed_to_nobody(api):
    """B21: failed for good, and the rest of the batch is not held up."""
    bad = api.enqueue("outside-exact", input={"n": 1})["id"]
    good = api.enqueue("outside-exact", input={"n": 2})["id"]
    Job.objects.filter(pk=bad).update(input='{"n":"two"}')
    assert [a["job"]["id"] for a in api.claim(5)] == [good]
    job = Job.objects.get(pk=bad)
    assert (job.state, job.reason) == ("failed", "invalid_persisted_input")
    assert (Attempt.objects.get(job_id=bad).reason_code, DeadLetter.objects.get().reason) == (
        "invalid_persisted_input", "terminal_error")
    check(bad)


def test_what_may_not_run_is_not_handed_out_and_stays_queued(api):
    """B43, E7: `runs=False` accepts work and leaves its rows waiting; `enabled=False` accepts none."""
    waits = api.enqueue("outside-stopped")["id"]
    runs = api.enqueue("outside-timed")["id"]
    assert [a["job"]["id"] for a in api.claim(5)] == [runs]
    assert state(waits) == "queued"
    problem(api.post("/jobs", {"type": "disabled"}), 403, "definition_disabled", "type")


# --- stages ----------------------------------------------------------------------------------------------------------


def test_a_runner_reports_declared_stages_once_each(api):
    """B30, C33, E8: with a heartbeat; said again with the next one it is no news."""
    mine = held(api, type_="outside-timed")
    for stage in ("read", "read", "write"):
        assert api.assignment(mine, "extend", {"progress": {"stage": stage}}).status_code == 200
    assert api.assignment(mine, "extend", {"progress": {"stage": "write", "event": "completed"}}).status_code == 200
    told = api.get(f"/jobs/{mine['job']['id']}").json()
    assert [(s["stage"], s["label"], s["event"], s["attempt"]) for s in told["stages"]] == [
        ("read", "Reading", "started", 1), ("write", "Writing", "started", 1), ("write", "Writing", "completed", 1)]
    assert told["progress"] == {"stage": "write", "event": "completed", "attempt": 1}
    assert Receipt.objects.filter(kind="job.progress").count() == 3
    check(mine["job"]["id"])


@pytest.mark.parametrize(("said", "status", "code", "field"), [
    ({"stage": "reed"}, 422, "undeclared_stage", "progress.stage"), ({}, 422, "undeclared_stage", "progress.stage"),
    ({"stage": ["read"]}, 422, "undeclared_stage", "progress.stage"),
    ({"stage": "read", "event": "interrupted"}, 400, "invalid_progress", "progress.event"),
    ({"stage": "read", "event": None}, 400, "invalid_progress", "progress.event"),
    ({"stage": "read", "text": "a private word"}, 400, "unknown_field", "progress.text"),
    ("read", 400, "invalid_progress", "progress"),
])
def test_a_stage_that_is_not_declared_changes_nothing(api, said, status, code, field):
    """B30, B31, E15: not even the lease."""
    mine = held(api, type_="outside-timed")
    rows = everything()
    told = problem(api.assignment(mine, "extend", {"progress": said}), status, code, field)
    assert said != {"stage": "reed"} or "read" in told["detail"]
    assert everything() == rows


def test_a_stage_that_its_attempt_left_open_was_interrupted(api):
    """B30: derived from what is written, so that a killed runner's is shown as well; and the next attempt's goes on."""
    mine = held(api, type_="outside-timed")
    for said in ({"stage": "read"}, {"stage": "read", "event": "completed"}, {"stage": "write"}):
        api.assignment(mine, "extend", {"progress": said})
    path = f"/jobs/{mine['job']['id']}"
    assert api.get(path).json()["progress"]["event"] == "started"
    api.assignment(mine, "release")
    told = api.get(path).json()
    assert told["progress"] == {"stage": "write", "event": "interrupted", "attempt": 1}
    assert [(s["stage"], s["event"]) for s in told["stages"]][-2:] == [("write", "started"), ("write", "interrupted")]
    again = api.claim_one()
    assert api.get(path).json()["progress"]["event"] == "interrupted"
    api.assignment(again, "extend", {"progress": {"stage": "write"}})
    told = api.get(path).json()
    assert told["progress"] == {"stage": "write", "event": "started", "attempt": 2}
    assert [(s["event"], s["attempt"]) for s in told["stages"]][-3:] == [
        ("started", 1), ("interrupted", 1), ("started", 2)]
    api.assignment(again, "complete", {"artifact": {}})
    assert api.get(path).json()["progress"]["event"] == "started"


def test_stages_are_bounded_in_what_is_written_and_in_what_is_shown(api, monkeypatch):
    """B30: 32 are shown, and an attempt may not write a million of them."""
    monkeypatch.setattr(progress, "MOST", 40)
    mine = held(api, type_="outside-timed")
    for n in range(40):
        said = {"stage": ("read", "write")[n % 2]}
        assert api.assignment(mine, "extend", {"progress": said}).status_code == 200
    assert len(api.get(f"/jobs/{mine['job']['id']}").json()["stages"]) == KEPT
    problem(api.assignment(mine, "extend", {"progress": {"stage": "read"}}), 429, "too_much_progress")
    assert Receipt.objects.filter(kind="job.progress").count() == 40
    # A later attempt begins anew.
    api.assignment(mine, "release")
    assert api.assignment(api.claim_one(), "extend", {"progress": {"stage": "read"}}).status_code == 200


# --- diagnostics -----------------------------------------------------------------------------------------------------


def events(caplog, name):
    return [r for r in caplog.records if getattr(r, "event", "") == name]


def test_a_runners_diagnostic_is_in_the_log_alone_and_once_more_with_its_failure(api, caplog):
    """B32, E15: in no row and no receipt."""
    caplog.set_level(logging.INFO, "jobs.runners")
    mine = held(api, type_="outside-timed")
    said = {"pages": 41923, "warm": True, "phase": "fetching.late"}
    assert api.assignment(mine, "extend", {"diagnostic": {"pages": 1}}).status_code == 200
    assert api.assignment(mine, "extend", {"diagnostic": said}).status_code == 200
    assert [r.diagnostic for r in events(caplog, "attempt.diagnostic")] == [{"pages": 1}, said]
    assert api.assignment(mine, "fail", {"reason_code": "no_luck"}).status_code == 200
    end = events(caplog, "attempt.failed")[-1]
    assert (end.code, end.diagnostic, end.attempt, end.job) == ("no_luck", said, 1, mine["job"]["id"])
    stored = db.rows("SELECT string_agg(j::text, '') || (SELECT string_agg(r::text, '') FROM jobs_receipt r)"
                     " || (SELECT string_agg(a::text, '') FROM jobs_attempt a) FROM jobs_job j")[0][0]
    assert "41923" not in stored
    assert "fetching.late" not in stored
    assert mine["assignment_id"] not in noted._latest


def test_a_diagnostic_is_reported_with_a_timeout_and_heard_no_more_after_the_end(api, caplog):
    """B32: whoever ends it; late ones are ignored."""
    caplog.set_level(logging.INFO, "jobs.runners")
    mine = held(api, type_="outside-timed")
    api.assignment(mine, "extend", {"diagnostic": {"pages": 7}})
    db.pass_time(61)
    problem(api.assignment(mine, "extend", {"diagnostic": {"pages": 8}}), 409, "stale_claim")
    end = events(caplog, "attempt.failed")[-1]
    assert (end.code, end.diagnostic) == ("attempt_timeout", {"pages": 7})
    problem(api.assignment(mine, "fail", {"reason_code": "x", "diagnostic": {"pages": 9}}), 409, "stale_claim")
    assert [r.diagnostic for r in events(caplog, "attempt.diagnostic")] == [{"pages": 7}]


@pytest.mark.parametrize("said", [
    {f"f{n}": n for n in range(17)}, {"n": -1}, {"n": 1.5}, {"n": None}, {"n": "Free text"}, {"n": "x" * 33},
    {"N": 1}, {"n n": 1}, {"n": [1]}, {"api_token": 5}, {"n": "sk-LIVE"},
])
def test_what_is_no_diagnostic_is_refused_and_changes_nothing(api, said):
    """B32, E15: at most 16 truth values, numbers from 0 on and tokens; never silently."""
    mine = held(api, type_="outside-timed")
    rows = everything()
    told = problem(api.assignment(mine, "extend", {"diagnostic": said}), 400, "invalid_diagnostic")
    assert told["field"].startswith("diagnostic")
    problem(api.assignment(mine, "fail", {"reason_code": "x", "diagnostic": said}), 400, "invalid_diagnostic")
    assert everything() == rows


# --- requeue ---------------------------------------------------------------------------------------------------------


def test_a_requeue_says_that_it_drops_a_deadline_that_has_passed(api):
    """E4, C27: an absolute one; the answer and the receipt say so."""
    later = (clock.now() + timedelta(seconds=60)).isoformat()
    mine = held(api, deadline_at=later, retry={"max_attempts": 1}, tenant_subject="acme")
    api.assignment(mine, "fail", {"reason_code": "no_luck"})
    db.pass_time(61)
    told = api.post(f"/jobs/{mine['job']['id']}/requeue", ATTESTED).json()
    assert [w["code"] for w in told["warnings"]] == ["deadline_dropped"]
    assert told["deadline_at"] is None
    assert '"deadline_dropped":true' in Receipt.objects.latest("number").body
    again = held(api, deadline_s=60, retry={"max_attempts": 1}, tenant_subject="acme")
    while again["job"]["id"] == mine["job"]["id"]:
        again = api.claim_one()
    api.assignment(again, "fail", {"reason_code": "no_luck"})
    db.pass_time(61)
    assert api.post(f"/jobs/{again['job']['id']}/requeue", ATTESTED).json()["warnings"] == []
