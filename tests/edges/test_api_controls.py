"""What a person does to a job over HTTP: cancel, pause, resume; and versions that are gone (E7)."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.outcomes import Failed
from jobs.services import assignments, cancellation, recovery, settlement
from tests import database as db
from tests.driver import check, done
from tests.edges.caller import everything, problem
from tests.worker.processes import until


def test_cancel_is_at_once_and_quiet_the_second_time(api):
    """C30, E5: cancelled_at is set once."""
    job_id = api.enqueue()["id"]
    first = api.post(f"/jobs/{job_id}/controls", {"action": "cancel", "reason": "not needed"})
    assert first.status_code == 200
    assert (first.json()["status"], first.json()["reason"], first.json()["repeated"]) == ("cancelled", "not needed",
                                                                                          False)
    rows = everything()
    again = api.post(f"/jobs/{job_id}/controls", {"action": "cancel"})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    assert everything() == rows
    check(job_id)


def test_cancel_of_another_end_is_409(api):
    """E5: job_ended, with the status."""
    job_id = api.enqueue()["id"]
    api.assignment(api.claim_one(), "complete", {"artifact": {}})
    told = problem(api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}), 409, "job_ended")
    assert told["job_status"] == "completed"


def test_if_match_holds_a_cancel_to_what_was_read(api, driver):
    """E12: the ETag counts moves; another revision is 412 and changes nothing."""
    job_id = api.enqueue()["id"]
    rows = everything()
    told = problem(api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}, If_Match='"r2"'), 412,
                   "revision_mismatch")
    assert told["revision"] == 1
    for wrong in ("r1", 'W/"r1"', '"r1", "r2"', '"x"', '"r"'):
        problem(api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}, If_Match=wrong), 400, "invalid_if_match")
    assert everything() == rows
    assert api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}, If_Match='"r1"')["ETag"] == '"r2"'


@pytest.mark.parametrize(("body", "code"), [
    ({}, "missing_field"), ({"action": "pawse"}, "unknown_action"), ({"action": 1}, "invalid_action"),
    ({"action": "pause", "reason": ""}, "invalid_reason"), ({"action": "resume", "reason": "a\nb"}, "invalid_reason"),
    ({"action": "pause", "delay_s": 1}, "unknown_field"), ({"action": "cancel", "available_at": None}, "unknown_field"),
    ({"action": "resume", "delay_s": -1}, "invalid_availability"),
    ({"action": "resume", "delay_s": "1"}, "invalid_availability"),
    ({"action": "resume", "delay_s": 1, "available_at": "2030-01-01T00:00:00Z"}, "invalid_availability"),
    ({"action": "resume", "available_at": "tomorrow"}, "invalid_available_at"),
    ({"action": "cancel", "reason": ""}, "invalid_reason"),
    ({"action": "cancel", "reason": "r" * 513}, "invalid_reason"),
    ({"action": "cancel", "reason": "a\nb"}, "invalid_reason"), ({"action": "cancel", "reason": 3}, "invalid_reason"),
    ({"action": "cancel", "why": "x"}, "unknown_field"),
])
def test_wrong_controls_are_refused_and_change_nothing(api, body, code):
    """B12, C30."""
    job_id = api.enqueue()["id"]
    rows = everything()
    problem(api.post(f"/jobs/{job_id}/controls", body), 400, code)
    assert everything() == rows


def control(api, job_id, action, **body):
    etag = body.pop("If_Match", None)
    return api.post(f"/jobs/{job_id}/controls", {"action": action, **body}, **({"If_Match": etag} if etag else {}))


def test_a_job_is_paused_and_resumed_by_its_revision(api):
    """B19, B28: If-Match is the expected revision; whoever read something older is told, and nothing changes."""
    job_id = api.enqueue()["id"]
    told = control(api, job_id, "pause", reason="by hand", If_Match='"r1"')
    assert (told.status_code, told["ETag"]) == (200, '"r2"')
    # Callers read `queued`, with the reason; the state says what it is (E1).
    assert [told.json()[x] for x in ("status", "state", "reason", "repeated")] == ["queued", "paused", "by hand", False]
    assert api.claim() == []
    for action in ("pause", "resume", "cancel"):
        rows = everything()
        assert problem(control(api, job_id, action, If_Match='"r1"'), 412, "revision_mismatch")["revision"] == 2
        assert everything() == rows
    told = control(api, job_id, "resume", reason="mended", If_Match='"r2"').json()
    assert (told["state"], told["reason"], told["revision"]) == ("queued", "mended", 3)
    assert api.claim_one()["job"]["id"] == job_id
    check(job_id)


def test_a_pause_voids_a_live_claim_at_once(api):
    """B19, B23, E1: running to paused; the holder can commit nothing, and hears why in both words (A39)."""
    job_id = api.enqueue()["id"]
    held = api.claim_one()
    api.assignment(held, "extend")
    assert control(api, job_id, "pause").json()["reason"] == "paused"
    told = problem(api.assignment(held, "complete", {"artifact": {}}), 409, "stale_claim")
    assert (told["job_state"], told["job_status"], told["result_status"]) == ("paused", "queued", "stale_attempt")
    job = api.get(f"/jobs/{job_id}").json()
    assert (job["state"], job["failures"], job["attempt_count"]) == ("paused", 0, 0)
    [attempt] = api.get(f"/jobs/{job_id}/attempts").json()["attempts"]
    assert (attempt["outcome"], attempt["reason_code"], attempt["result_status"]) == ("paused", "paused", None)
    check(job_id)


def test_a_resume_may_say_from_when_on_the_job_waits(api, driver):
    """B28: a new availability, as a moment or after a while."""
    job_id = api.enqueue()["id"]
    control(api, job_id, "pause")
    told = control(api, job_id, "resume", available_at="2040-01-01T00:00:00+02:00").json()
    assert (told["available_at"], told["next_attempt_at"]) == ("2039-12-31T22:00:00Z", "2039-12-31T22:00:00Z")
    assert api.claim() == []
    control(api, job_id, "pause")
    control(api, job_id, "resume", delay_s=90)
    driver.pass_time(89)
    assert api.claim() == []
    driver.pass_time(2)
    assert api.claim_one()["job"]["id"] == job_id
    check(job_id)


def test_what_is_not_paused_cannot_be_resumed_nor_paused_twice(api):
    """B19, E1: nothing else moves; each refusal has a code."""
    job_id = api.enqueue()["id"]
    assert problem(control(api, job_id, "resume"), 409, "not_paused")["job_state"] == "queued"
    control(api, job_id, "pause")
    problem(control(api, job_id, "pause"), 409, "already_paused")
    control(api, job_id, "cancel")
    for action in ("pause", "resume"):
        told = problem(control(api, job_id, action), 409, "job_ended")
        assert (told["job_status"], told["result_status"]) == ("cancelled", "terminal_state")


def test_a_resume_refuses_a_version_that_nobody_registers(api, driver):
    """B28, E7: whoever resumes it would only have it paused again; pausing and cancelling need no code."""
    job_id = api.enqueue()["id"]
    db.rows("UPDATE jobs_job SET version = 9 WHERE id = %s RETURNING 1", job_id)
    control(api, job_id, "pause")
    rows = everything()
    problem(control(api, job_id, "resume"), 422, "unregistered_version", "type")
    assert everything() == rows
    assert control(api, job_id, "cancel").status_code == 200


def test_a_past_deadline_fails_a_job_that_is_resumed(api, driver):
    """E1: a paused job past its deadline fails when it is resumed."""
    job_id = api.enqueue(deadline_s=5)["id"]
    api.claim_one()
    control(api, job_id, "pause")
    driver.pass_time(6)
    told = control(api, job_id, "resume").json()
    assert (told["state"], told["reason"]) == ("failed", "deadline_exceeded")
    assert told["result_envelope"]["result_status"] == "failed"


@pytest.mark.parametrize("reason", ["unregistered_type", "owner_unavailable", "by hand"])
def test_automatic_resumes_touch_only_their_own_reason_and_a_person_any(api, driver, reason):
    """B28, E7: the duty resumes what was paused for want of a type; a person may resume whatever is paused."""
    job_id = api.enqueue()["id"]
    cancellation.pause(job_id, by="test", reason=reason)
    duty = recovery.Registered.external()
    while duty.tick():
        pass
    assert driver.state(job_id) == ("queued" if reason == "unregistered_type" else "paused")
    if driver.state(job_id) == "paused":
        assert control(api, job_id, "resume").json()["state"] == "queued"
    check(job_id)


# --- versions that nobody registers (E7) ---------------------------------------------------------------------------


def older(job_id: str) -> None:
    db.rows("UPDATE jobs_job SET version = 9 WHERE id = %s RETURNING 1", job_id)


def test_a_version_that_nobody_registers_is_paused_for_runners_too(api, driver):
    """E7: not handed back for ever; a process that registers it, and claims for runners, resumes it."""
    job_id, other = api.enqueue()["id"], api.enqueue()["id"]
    older(job_id)
    assert [a["job"]["id"] for a in api.claim(2)] == [other]
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.reason, job.failures, job.pauses) == ("paused", "unregistered_type", 0, 1)
    duty = recovery.Registered.external()
    duty.tick()
    assert driver.state(job_id) == "paused"
    # What a deploy does.
    db.rows("UPDATE jobs_job SET version = 1 WHERE id = %s RETURNING 1", job_id)

    def again():
        assignments._upkeep.now()
        return api.claim(2)

    # While another thread of the process is at its duties a claim does without.
    assert [a["job"]["id"] for a in until(again, 15)] == [job_id]
    check(job_id)


def test_a_misrouted_type_that_was_paused_is_not_resumed_only_to_be_paused_again(api, driver):
    """E7: what only runners run, in a group that workers serve, waits for a person."""
    job_id = api.enqueue()["id"]
    db.rows("UPDATE jobs_job SET worker_group = 'default' WHERE id = %s RETURNING 1", job_id)
    cancellation.pause(job_id, by="test", reason="unregistered_type")
    recovery.Registered.external().tick()
    assert driver.state(job_id) == "paused"


def test_ids_in_capitals_are_the_same_ids(api, driver):
    """E2: paths and the services alike; answers spell them as rows do."""
    job_id = api.enqueue()["id"]
    held = api.claim_one()
    shouted = held["assignment_id"].upper()
    assert api.get(f"/jobs/{job_id.upper()}").json()["id"] == job_id
    assert assignments.extend([shouted]).keys() == {shouted}
    assert assignments.peek([shouted]).keys() == {shouted}
    assert api.post(f"/assignments/{shouted}/extend").status_code == 200
    assert assignments.start([(job_id.upper(), shouted)], "test")[0].reason_code == "already_running"
    [answer] = settlement.settle([settlement.Report(job_id.upper(), shouted, done({}))], "test")
    assert (answer.state, answer.job_id, answer.repeated) == ("completed", job_id, False)
    assert settlement.settle([settlement.Report(job_id.upper(), shouted, done({}))], "test")[0].repeated is True
    other = driver.enqueue()
    taken = driver.claim_one()
    assert settlement.settle([settlement.Report(other.upper(), taken.fence.upper(), Failed("no_luck"))], "test")[
        0].state == "queued"
