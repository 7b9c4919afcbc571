"""The publication hook around what a runner hands in: exactly as around a handler of ours (B33)."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from jobs.models import Artifact, Attempt, Job
from jobs.worker import handed_in
from tests import outside
from tests.driver import check
from tests.edges.caller import everything, held, problem


@pytest.fixture(autouse=True)
def _definitions(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.outside"], "PUBLISH_S": 0.5}
    outside.seen.clear()


def handed(api, how):
    """An assignment whose hook does this, and the answer to its completion."""
    mine = held(api, type_="outside-published", input={"how": how})
    return mine, api.assignment(mine, "complete", {"artifact": {"made": 1}})


def test_a_completion_is_committed_by_the_hook_once_and_repeats_without_it(api):
    """B33, E5: the hook sees input and artifact as they are stored; the same again asks nobody."""
    mine, told = handed(api, "commits")
    assert (told.status_code, told.json()["state"], told.json()["repeated"]) == (200, "completed", False)
    assert outside.seen == [(mine["job"]["id"], {"how": "commits"}, '{"made":1}')]
    rows = everything()
    again = api.assignment(mine, "complete", {"artifact": {"made": 1}})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    problem(api.assignment(mine, "complete", {"artifact": {"made": 2}}), 409, "stale_claim")
    assert (len(outside.seen), everything()) == (1, rows)
    check(mine["job"]["id"])


@pytest.mark.parametrize("how", ["twice", "throws_after", "hangs_after"])
def test_what_a_hook_does_after_its_commit_undoes_nothing(api, how):
    """B33: a second commit is refused, an exception is logged, and nobody waits for a hook that hangs."""
    begun = time.monotonic()
    mine, told = handed(api, how)
    assert (told.status_code, told.json()["state"]) == (200, "completed")
    assert time.monotonic() - begun < 10
    assert Artifact.objects.get().value == '{"made":1}'
    check(mine["job"]["id"])


@pytest.mark.parametrize(("how", "code", "reason"), [
    ("never", "not_published", "not_published"), ("throws", "publication_failed", "not_fresh"),
    ("hangs", "publish_timeout", "publish_timeout")])
def test_without_a_commit_the_attempt_has_failed(api, how, code, reason):
    """B33, C38: never, an exception, and late: as for a handler of ours, and the job runs again."""
    mine, told = handed(api, how)
    assert problem(told, 409, code)["job_state"] == "queued"
    job, end = Job.objects.get(), Attempt.objects.get()
    assert (job.state, job.failures, end.outcome, end.reason_code) == ("queued", 1, "failed", reason)
    assert not Artifact.objects.exists()
    problem(api.assignment(mine, "complete", {"artifact": {"made": 1}}), 409, "stale_claim")
    check(mine["job"]["id"])
    if how == "hangs":
        # Its commit comes too late, and is refused.
        until = time.monotonic() + 10
        while "too_late" not in outside.seen and time.monotonic() < until:
            time.sleep(0.02)
        assert outside.seen[-1] == "too_late"


def test_a_hook_is_not_asked_about_what_its_codec_refuses_or_a_claim_that_is_gone(api):
    """B8, B33, E14.2."""
    mine = held(api, type_="outside-published", input={"how": "commits"})
    problem(api.assignment(mine, "complete", {"artifact": [1]}), 422, "invalid_artifact", "/artifact")
    assert api.assignment(mine, "release").status_code == 200
    problem(api.assignment(mine, "complete", {"artifact": {}}), 409, "stale_claim")
    assert outside.seen == []


def test_a_claim_that_is_lost_while_the_hook_runs_is_not_published(api):
    """B33, E14.6: the commit is fenced; its refusal is the runner's answer."""
    mine = held(api, type_="outside-published", input={"how": "commits"})

    def lose(run, artifact, commit):
        api.post(f"/jobs/{mine['job']['id']}/controls", {"action": "cancel"})
        commit()

    object.__setattr__(outside.published, "publish", lose)
    try:
        told = problem(api.assignment(mine, "complete", {"artifact": {}}), 409, "stale_claim")
    finally:
        object.__setattr__(outside.published, "publish", outside.publish)
    assert told["job_state"] == "cancelled"
    assert not Artifact.objects.exists()


def test_the_same_attempt_is_published_by_one_request_at_a_time(api):
    """B33: a hook runs once at a time, whoever hands the same in again meanwhile is told to come back."""
    mine = held(api, type_="outside-published", input={"how": "hangs"})
    with handed_in._guard:
        handed_in._publishing.add(mine["assignment_id"])
    try:
        told = api.assignment(mine, "complete", {"artifact": {}})
        assert (problem(told, 503, "not_stored")["code"], told["Retry-After"]) == ("not_stored", "1")
    finally:
        handed_in._leave(SimpleNamespace(id=mine["assignment_id"]))
    assert (outside.seen, Attempt.objects.get().ended_at) == ([], None)
    problem(api.assignment(mine, "complete", {"artifact": {}}), 409, "publish_timeout")


def test_hooks_that_hang_take_no_more_threads_than_there_are_places(api, monkeypatch, caplog):
    """B33, case-C07: the next one is put off, its attempt stays live, and the log says why."""
    monkeypatch.setattr(handed_in, "MOST", 1)
    handed_in._publishing.add("another")
    try:
        mine, told = handed(api, "commits")
        problem(told, 503, "not_stored")
        assert "publication hooks run in this process" in caplog.text
    finally:
        handed_in._publishing.discard("another")
    assert api.assignment(mine, "complete", {"artifact": {"made": 1}}).status_code == 200
    assert not handed_in._publishing
