"""Rows of C that callers of the API live by, each told over HTTP from end to end."""

from __future__ import annotations

import pytest

from jobs.models import DeadLetter, Job
from jobs.services import limits, tenancy
from jobs.states import STATUS, State
from tests.edges.caller import Caller, everything, problem

ONCE = {"retry": {"max_attempts": 1}}
# A tenant's key names its tenant where it answers a dead letter (C25).
ACME = {"tenant_subject": "acme"}


def read(api: Caller, job_id: str) -> dict:
    """The job as it reads."""
    return api.get(f"/jobs/{job_id}").json()


def test_callers_read_six_statuses_and_every_state_is_one_of_them(api):
    """C1, E1: each state is reached by what callers and runners do, and reads as the table says."""
    seen = {}

    def note(job_id: str) -> None:
        told = read(api, job_id)
        assert told["status"] == STATUS[State(told["state"])]
        seen[told["state"]] = told["status"]

    one = api.enqueue(session_key="s")["id"]
    note(one)
    api.post(f"/jobs/{one}/controls", {"action": "pause"})
    note(one)
    api.post(f"/jobs/{one}/controls", {"action": "resume"})
    held = api.claim_one()
    note(one)
    api.assignment(held, "extend")
    note(one)
    api.assignment(held, "complete", {"artifact": {}})
    note(one)
    two = api.enqueue(**ONCE)["id"]
    api.assignment(api.claim_one(), "fail", {"reason_code": "x"})
    note(two)
    three = api.enqueue()["id"]
    api.post(f"/jobs/{three}/controls", {"action": "cancel"})
    note(three)
    four = api.enqueue(target="t")["id"]
    api.enqueue(target="t")
    note(four)
    assert seen.keys() == set(State)
    assert set(seen.values()) == {"queued", "leased", "running", "completed", "failed", "cancelled"}
    assert (seen["paused"], seen["superseded"]) == ("queued", "cancelled")


@pytest.mark.parametrize(("end", "body", "outcome"), [
    ("complete", {"artifact": {"n": 1}}, "completed"), ("fail", {"reason_code": "x", "message": "m"}, "failed"),
    ("cancel", None, "cancelled")])
def test_the_envelope_is_null_until_the_end_and_then_one_result(api, end, body, outcome):
    """C2: queued, paused, leased, running and waiting for a retry there is none; ended there is one, and it stays."""
    job_id = api.enqueue(retry={"max_attempts": 2, "base_delay_s": 1, "max_delay_s": 1})["id"]
    for action in ("pause", "resume"):
        assert read(api, job_id)["result_envelope"] is None
        assert api.post(f"/jobs/{job_id}/controls", {"action": action}).status_code == 200
    held = api.claim_one()
    assert read(api, job_id)["result_envelope"] is None
    api.assignment(held, "extend")
    assert read(api, job_id)["result_envelope"] is None
    api.assignment(held, "fail", {"reason_code": "again"})
    assert (read(api, job_id)["status"], read(api, job_id)["result_envelope"]) == ("queued", None)
    Job.objects.filter(pk=job_id).update(available_at="2020-01-01T00:00:00Z", gate=None)
    if end == "cancel":
        assert api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}).status_code == 200
    else:
        assert api.assignment(api.claim_one(), end, body).status_code == 200
    told = read(api, job_id)
    assert told["result_envelope"]["outcome"] == outcome
    assert told["result_envelope"]["ended_at"]
    assert read(api, job_id)["result_envelope"] == told["result_envelope"]


def test_the_same_key_and_body_are_one_job_and_another_body_is_refused(api):
    """C3: 202 and queued, then 200 with the original id; another body is refused and makes nothing."""
    body = {"type": "outside", "input": {"n": 1}}
    first = api.post("/jobs", body, Idempotency_Key="k")
    assert (first.status_code, first.json()["status"]) == (202, "queued")
    again = api.post("/jobs", body, Idempotency_Key="k")
    assert (again.status_code, again.json()["id"], again.json()["repeated"]) == (200, first.json()["id"], True)
    rows = everything()
    problem(api.post("/jobs", {**body, "input": {"n": 2}}, Idempotency_Key="k"), 422, "idempotency_key_reused")
    problem(api.post("/jobs", {**body, "priority": 1}, Idempotency_Key="k"), 422, "idempotency_key_reused")
    assert (everything(), Job.objects.count()) == (rows, 1)


@pytest.mark.usefixtures("api")
def test_started_at_is_the_first_start_and_a_requeue_keeps_it():
    """C7: null before; neither a second attempt nor a second chain moves it."""
    api = Caller(tenant="acme")
    job_id = api.enqueue(**ONCE)["id"]
    assert read(api, job_id)["started_at"] is None
    api.assignment(api.claim_one(), "fail", {"reason_code": "x"})
    started = read(api, job_id)["started_at"]
    assert started is not None
    assert api.post(f"/jobs/{job_id}/requeue", ACME).json()["started_at"] == started
    api.assignment(api.claim_one(), "complete", {"artifact": {}})
    assert read(api, job_id)["started_at"] == started


def test_a_full_exclusive_group_is_skipped_and_never_waited_on(api):
    """C11: unlimited until it is set; then what is behind a full group lets others go first."""
    for _ in range(2):
        api.enqueue(exclusive_group="g")
    assert len(api.claim(2)) == 2
    limits.set_limits(tenancy.workspace(), exclusive_group_max=1)
    first, behind, free = (api.enqueue(exclusive_group=group)["id"] for group in ("h", "h", "i"))
    held = api.claim(5)
    assert {h["job"]["id"] for h in held} == {first, free}
    assert api.claim(5) == []
    api.assignment(next(h for h in held if h["job"]["id"] == first), "complete", {"artifact": {}})
    assert [h["job"]["id"] for h in api.claim(5)] == [behind]
    for wrong in ("", "x" * 201, "a\tb", "é", "\x7f", 5):
        problem(api.post("/jobs", {"type": "outside", "exclusive_group": wrong}), 400, "invalid_exclusive_group")
    assert api.enqueue(exclusive_group="x" * 200)["exclusive_group"] == "x" * 200


@pytest.mark.usefixtures("api")
def test_a_job_that_failed_for_good_under_a_policy_waits_for_an_answer():
    """C22: attempts used up, or a terminal failure; its status stays failed until it is requeued."""
    api = Caller(tenant="acme")
    spent = api.enqueue(**ONCE)["id"]
    api.assignment(api.claim_one(), "fail", {"reason_code": "x"})
    terminal = api.enqueue(retry={"max_attempts": 5})["id"]
    api.assignment(api.claim_one(), "fail", {"reason_code": "never_again", "retryable": False})
    reasons = {str(letter.job_id): letter.reason for letter in DeadLetter.objects.filter(resolved_at=None)}
    assert reasons == {spent: "attempts_exhausted", terminal: "terminal_error"}
    assert {read(api, id_)["status"] for id_ in (spent, terminal)} == {"failed"}
    without = api.enqueue(retry=None)["id"]
    api.assignment(api.claim_one(), "fail", {"reason_code": "x"})
    assert read(api, without)["status"] == "failed"
    assert not DeadLetter.objects.filter(job_id=without).exists()
    assert api.send("DELETE", f"/jobs/{spent}/dead-letter", ACME).json()["status"] == "failed"
    assert api.post(f"/jobs/{terminal}/requeue", ACME).json()["status"] == "queued"
    assert not DeadLetter.objects.filter(resolved_at=None).exists()


def test_an_assignment_is_completed_or_failed_by_its_holder_alone(api):
    """C38: the two verbs; said again they are a quiet yes, said otherwise or by another key nothing."""
    for verb, body, other in (("complete", {"artifact": {"n": 1}}, "fail"), ("fail", {"reason_code": "x"}, "complete")):
        job_id = api.enqueue(**ONCE)["id"]
        held = api.claim_one()
        problem(Caller().assignment(held, verb, body), 404, "assignment_not_found")
        assert api.assignment(held, verb, body).json()["repeated"] is False
        assert read(api, job_id)["status"] == f"{verb}{'d' if verb == 'complete' else 'ed'}"
        assert api.assignment(held, verb, body).json()["repeated"] is True
        otherwise = {"reason_code": "y"} if other == "fail" else {"artifact": {}}
        problem(api.assignment(held, other, otherwise), 409, "stale_claim")
