"""How a runner over HTTP ends an assignment: complete, fail, release, and the same said twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs import clock
from jobs.models import Job, Limits
from jobs.services import assignments
from tests import database as db
from tests.driver import check
from tests.edges.caller import everything, held, problem, state


def test_complete_keeps_the_validated_artifact_and_repeats_quietly(api):
    """B29, C38, D4, E5: the same again is 200 and repeated; another artifact is 409 with the job's status."""
    mine = held(api)
    first = api.assignment(mine, "complete", {"artifact": {"b": 1, "a": [1.0, "é"]}})
    assert first.json() == {"id": mine["job"]["id"], "status": "completed", "state": "completed", "repeated": False}
    rows = everything()
    again = api.assignment(mine, "complete", {"artifact": {"a": [1, "é"], "b": 1}})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    for verb, body in (("complete", {"artifact": {"b": 2}}), ("fail", {"reason_code": "x"}), ("release", {}),
                       ("extend", {})):
        told = problem(api.assignment(mine, verb, body), 409, "stale_claim")
        assert (told["job_status"], told["job_state"]) == ("completed", "completed")
    assert everything() == rows
    check(mine["job"]["id"])


def test_an_invalid_artifact_is_422_and_leaves_the_attempt_live(api):
    """B8: the definition's codec decides; the runner may try again."""
    mine = held(api)
    rows = everything()
    for body in ({"artifact": [1]}, {"artifact": "text"}, {"artifact": None}, {}):
        problem(api.assignment(mine, "complete", body), 422, "invalid_artifact", "/artifact")
    problem(api.assignment(mine, "complete", {"artifact": {"x": "y" * 300_000}}), 413, "too_large")
    assert everything() == rows
    assert api.assignment(mine, "complete", {"artifact": {}}).status_code == 200


def test_fail_uses_the_retry_policy(api):
    """C13 to C17: again after a backoff, for good when not retryable or terminal by its code."""
    mine = held(api)
    told = api.assignment(mine, "fail", {"reason_code": "no_luck", "message": "first"})
    assert (told.json()["status"], told.json()["repeated"]) == ("queued", False)
    assert api.get(f"/jobs/{mine['job']['id']}").json()["next_attempt_at"] is not None
    assert api.assignment(held(api), "fail", {"reason_code": "x", "retryable": False}).json()["state"] == "failed"
    assert api.assignment(held(api), "fail", {"reason_code": "policy_refused"}).json()["state"] == "failed"
    for (job_id,) in db.rows("SELECT id FROM jobs_job"):
        check(job_id)


def test_fail_again_with_the_same_words_is_quiet_and_with_others_409(api):
    """E5: code, message and retryable are the words."""
    mine = held(api)
    words = {"reason_code": "no_luck", "message": "m" * 20_000, "retryable": True}
    assert api.assignment(mine, "fail", words).json()["repeated"] is False
    rows = everything()
    again = api.assignment(mine, "fail", words)
    assert (again.status_code, again.json()["repeated"], again.json()["status"]) == (200, True, "queued")
    for other in ({"reason_code": "other"}, {"message": "n"}, {"retryable": False}):
        assert problem(api.assignment(mine, "fail", {**words, **other}), 409, "stale_claim")["job_status"] == "queued"
    assert everything() == rows


@pytest.mark.parametrize(("body", "code"), [
    ({}, "missing_field"), ({"reason_code": ""}, "invalid_reason_code"), ({"reason_code": "No"}, "invalid_reason_code"),
    ({"reason_code": "a" * 65}, "invalid_reason_code"), ({"reason_code": "a\n"}, "invalid_reason_code"),
    ({"reason_code": None}, "invalid_reason_code"), ({"reason_code": "a", "message": 5}, "invalid_message"),
    ({"reason_code": "a", "retryable": "no"}, "invalid_retryable"),
    ({"reason_code": "a", "retryable": 0}, "invalid_retryable"),
    ({"reason_code": "a", "more": 0}, "unknown_field"),
])
def test_each_wrong_failure_is_400_and_changes_nothing(api, body, code):
    """C14: a stable code in snake_case."""
    mine = held(api)
    rows = everything()
    problem(api.assignment(mine, "fail", body), 400, code)
    assert everything() == rows


def test_release_gives_back_uncounted(api):
    """C32: claimable at once, after a delay, or from a moment on; no attempt is counted."""
    mine = held(api)
    assert api.assignment(mine, "release").json()["status"] == "queued"
    mine = api.claim_one()
    assert api.assignment(mine, "release", {"delay_s": 30}).status_code == 200
    assert api.claim() == []
    job = Job.objects.get(pk=mine["job"]["id"])
    assert (job.attempt_count, job.releases, job.failures) == (0, 2, 0)
    db.pass_time(31)
    assignments._upkeep.now()
    mine = api.claim_one()
    later = (clock.now() + timedelta(hours=1)).astimezone(UTC).isoformat()
    assert api.assignment(mine, "release", {"not_before": later}).status_code == 200
    told = api.get(f"/jobs/{mine['job']['id']}").json()
    assert datetime.fromisoformat(told["next_attempt_at"]) == datetime.fromisoformat(later)
    check(mine["job"]["id"])


def test_release_again_with_the_same_words_is_quiet_and_with_others_409(api):
    """E5: also when the moment has passed meanwhile."""
    mine = held(api)
    later = (clock.now() + timedelta(seconds=60)).isoformat()
    assert api.assignment(mine, "release", {"not_before": later}).status_code == 200
    rows = everything()
    db.pass_time(120)
    assert api.assignment(mine, "release", {"not_before": later}).json()["repeated"] is True
    for other in ({}, {"delay_s": 60}, {"not_before": (clock.now() + timedelta(seconds=61)).isoformat()}):
        problem(api.assignment(mine, "release", other), 409, "stale_claim")
    assert everything() == rows


@pytest.mark.parametrize("body", [
    {"delay_s": 1, "not_before": "2199-01-01T00:00:00Z"}, {"not_before": "2020-01-01T00:00:00Z"},
    {"not_before": "2199-01-01T00:00:00Z"}, {"not_before": "2199-01-01T00:00:00"}, {"not_before": 5},
    {"not_before": "9999-12-31T23:59:59Z"}, {"delay_s": -1}, {"delay_s": -0.5}, {"delay_s": 86_401}, {"delay_s": 1e308},
    {"delay_s": True}, {"delay_s": "5"}, {"delay_s": []},
])
def test_each_wrong_release_is_invalid_release_and_changes_nothing(api, body):
    """C32: both, past, too far, no moment, no number."""
    mine = held(api)
    rows = everything()
    problem(api.assignment(mine, "release", body), 400, "invalid_release")
    assert everything() == rows


def test_a_release_past_the_deadline_or_the_workspace_limit_is_refused(api):
    """C32, C37, E8."""
    mine = held(api, deadline_s=60)
    rows = everything()
    problem(api.assignment(mine, "release", {"delay_s": 61}), 400, "invalid_release")
    assert everything() == rows
    Limits.objects.create(workspace=api.key.workspace, release_max_delay_s=10)
    rows = everything()
    problem(api.assignment(mine, "release", {"delay_s": 11}), 400, "invalid_release")
    assert everything() == rows


def test_too_many_releases_are_429_with_a_time(api):
    """C32, E4: at most a hundred a chain; the attempt stays live."""
    mine = held(api)
    Job.objects.update(releases=100, chain_claims=101, claims=101)
    answer = api.assignment(mine, "release")
    problem(answer, 429, "too_many_releases")
    assert answer["Retry-After"] == "60"
    assert state(mine["job"]["id"]) == "leased"
