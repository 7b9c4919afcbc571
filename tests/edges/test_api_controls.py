"""What a person does to a job over HTTP: cancel, requeue, discard."""

from __future__ import annotations

import pytest

from tests.driver import check
from tests.edges.caller import everything, problem


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
    ({}, "missing_field"), ({"action": "pause"}, "unknown_action"), ({"action": 1}, "invalid_action"),
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


def test_dead_letters_are_requeued_and_discarded(api, driver):
    """C27 to C29: a job without an open letter is answered like one that is not there."""
    job_id = api.enqueue(retry={"max_attempts": 1})["id"]
    problem(api.post(f"/jobs/{job_id}/requeue"), 404, "job_not_found")
    api.assignment(api.claim_one(), "fail", {"reason_code": "no_luck"})
    told = api.post(f"/jobs/{job_id}/requeue", {"reason": "try again"})
    assert (told.status_code, told.json()["state"], told.json()["chain"]) == (200, "queued", 2)
    api.assignment(api.claim_one(), "fail", {"reason_code": "no_luck"})
    assert api.send("DELETE", f"/jobs/{job_id}/dead-letter").json()["state"] == "failed"
    problem(api.send("DELETE", f"/jobs/{job_id}/dead-letter"), 404, "job_not_found")
    check(job_id)
