"""Runners over HTTP: what they claim, how they wait, and how they keep what they hold."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta

import pytest
from django.db import connection

from jobs import clock
from jobs.models import Attempt, Job, Limits
from jobs.services import workers
from tests import database as db
from tests.driver import check
from tests.edges.caller import Caller, everything, held, problem, state

# --- claim ---------------------------------------------------------------------------------------------------------


def test_a_claim_answers_what_a_runner_needs(api):
    """C31, E8: input, fencing number, lease, when to beat, deadline, checkpoint."""
    made = api.enqueue(input={"n": [1, 2.5, None]}, job_id="mine", deadline_s=60)
    told = api.claim_one()
    job = told["job"]
    assert (job["id"], job["job_id"], job["type"], job["version"]) == (made["id"], "mine", "outside", 1)
    assert (job["input"], job["attempt"], job["tenant_subject"]) == ({"n": [1, 2.5, None]}, 1, None)
    assert (told["heartbeat_after_s"], told["checkpoint"], told["checkpoint_number"]) == (10.0, None, 0)
    lease = datetime.fromisoformat(told["lease_expires_at"])
    assert timedelta(seconds=25) < lease - clock.now() <= timedelta(seconds=30)
    assert datetime.fromisoformat(told["deadline"]) - lease == timedelta(seconds=3570)
    assert told["job_deadline_at"] is not None
    assert state(made["id"]) == "leased"
    assert str(Attempt.objects.get().pk) == told["assignment_id"]
    assert Attempt.objects.get().key_id == api.key.pk
    check(made["id"])


def test_nothing_to_do_is_an_empty_list(api):
    """D3: nothing available and nothing that one may have read alike."""
    nothing = api.post("/runtime/claim")
    assert (nothing.status_code, nothing.json()) == (200, {"assignments": [], "again": False})
    Caller(workspace="other").enqueue()
    Caller(tenant="theirs").enqueue()
    assert Caller(tenant="mine").post("/runtime/claim", {}).content == nothing.content
    assert Caller(worker_groups=["vault"]).post("/runtime/claim", {}).content == nothing.content
    assert Caller(worker_groups=[]).post("/runtime/claim", {}).content == nothing.content


def test_a_batch_takes_up_to_its_slots_and_each_job_once(api):
    """E14.1: two claims share nothing."""
    made = {api.enqueue()["id"] for _ in range(5)}
    first, second = api.claim(3), api.claim(3)
    assert (len(first), len(second)) == (3, 2)
    assert {a["job"]["id"] for a in first + second} == made


def test_turns_go_on_from_claim_to_claim(api):
    """C4: one tenant's backlog does not hold another one's job, though each claim takes one."""
    for _ in range(4):
        api.enqueue(tenant_subject="big")
    api.enqueue(tenant_subject="small")
    first, second = api.claim_one(), api.claim_one()
    assert {first["job"]["tenant_subject"], second["job"]["tenant_subject"]} == {"big", "small"}


def test_a_group_is_claimed_within_what_key_and_site_allow(api):
    """E7: a group served in process, an unknown one, one that the key does not have, and the reserved one."""
    api.enqueue("echo")
    api.enqueue("secretive")
    problem(api.post("/runtime/claim", {"worker_groups": ["default"]}), 403, "group_served_in_process", "worker_groups")
    problem(api.post("/runtime/claim", {"worker_groups": ["unrouted"]}), 403, "group_served_in_process")
    told = problem(api.post("/runtime/claim", {"worker_groups": ["runers"]}), 400, "unknown_worker_group")
    assert "runners" in told["detail"]
    narrow = Caller(worker_groups=["runners"])
    problem(narrow.post("/runtime/claim", {"worker_groups": ["vault"]}), 403, "group_forbidden")
    assert narrow.claim(10) == []
    assert [a["job"]["type"] for a in api.claim(10, worker_groups=["vault"])] == ["secretive"]
    assert api.claim(10) == []


def test_a_claim_may_name_its_queues(api):
    """A4: queues that the site knows."""
    api.enqueue(queue="chat")
    assert api.claim(1, queues=["collect", "steer"]) == []
    problem(api.post("/runtime/claim", {"queues": ["chatt"]}), 400, "unknown_queue")
    assert len(api.claim(1, queues=["chat"])) == 1


@pytest.mark.parametrize("wait", [-1, True, 1.5, "5", None, [], {}, 1e9])
def test_a_wait_that_is_no_whole_number_is_400(api, wait):
    """C31, E15: true, 1.5, "5" and negative."""
    problem(api.post("/runtime/claim", {"wait_seconds": wait}), 400, "invalid_wait_seconds", "wait_seconds")


@pytest.mark.parametrize(("body", "code"), [
    ({"slots": 0}, "invalid_slots"), ({"slots": 101}, "invalid_slots"), ({"slots": "1"}, "invalid_slots"),
    ({"slots": True}, "invalid_slots"), ({"worker_groups": "runners"}, "invalid_worker_groups"),
    ({"worker_groups": [1]}, "invalid_worker_groups"), ({"queues": {}}, "invalid_queues"),
    ({"queues": ["x"] * 101}, "invalid_queues"), ({"wait": 1}, "unknown_field"),
])
def test_each_wrong_claim_is_400_and_takes_nothing(api, body, code):
    """Nothing is claimed by a request that is refused."""
    api.enqueue()
    rows = everything()
    problem(api.post("/runtime/claim", body), 400, code)
    assert everything() == rows


def test_a_wait_is_cut_at_the_limit_and_holds_no_connection(api, settings, monkeypatch):
    """C31, E15, DESIGN 4: capped and not refused; nothing is held while waiting."""
    settings.JOBS = {**settings.JOBS, "POLL_S": 0.05}
    Limits.objects.create(workspace=api.key.workspace, claim_max_wait_s=1)
    waits = []

    def sleep(seconds):
        waits.append((seconds, connection.connection))
        time.sleep(seconds)

    monkeypatch.setattr(clock, "sleep", sleep)
    start = time.monotonic()
    assert api.claim(1, wait_seconds=9_007_199_254_740_991) == []
    assert 0.9 < time.monotonic() - start < 5
    assert waits
    assert all(seconds <= 0.05 and held is None for seconds, held in waits)
    Limits.objects.update(claim_max_wait_s=0)
    assert api.claim(1, wait_seconds=20) == []


def test_a_waiting_claim_gets_the_first_job_that_comes(api, settings):
    """C31: held, and answered by the first claimable one."""
    settings.JOBS = {**settings.JOBS, "POLL_S": 0.05}
    found = []

    def wait():
        with db.own_connection():
            found.extend(api.claim(1, wait_seconds=15))

    waiting = threading.Thread(target=wait)
    start = time.monotonic()
    waiting.start()
    time.sleep(0.3)
    made = api.enqueue()
    waiting.join()
    assert [a["job"]["id"] for a in found] == [made["id"]]
    assert time.monotonic() - start < 10


def test_a_version_that_only_a_live_worker_knows_is_handed_back(api):
    """E7: uncounted, for fifteen seconds; one that nobody knows is paused (`test_api_controls`)."""
    made = api.enqueue()
    workers.register("elsewhere", 1, ["runners"], ["collect"], ["outside@9"])
    Job.objects.filter(pk=made["id"]).update(version=9)
    assert api.claim() == []
    job = Job.objects.get(pk=made["id"])
    assert (job.state, job.interruptions, job.failures, job.attempt_count) == ("queued", 1, 0, 0)
    assert job.available_at > clock.now() + timedelta(seconds=10)


# --- extend --------------------------------------------------------------------------------------------------------


def test_the_first_heartbeat_starts_the_job_and_later_ones_renew(api):
    """A9, C33: one receipt for the first only."""
    mine = held(api)
    first = api.assignment(mine, "extend")
    assert first.status_code == 200
    assert state(mine["job"]["id"]) == "running"
    db.pass_time(20)
    second = api.assignment(mine, "extend", {})
    moments = [datetime.fromisoformat(t["lease_expires_at"]) for t in (mine, first.json(), second.json())]
    assert moments[0] <= moments[1] < moments[2]
    assert moments[2] - moments[1] > timedelta(seconds=15)
    assert (second.json()["abort"], second.json()["heartbeat_after_s"]) == (None, 10.0)
    view = check(mine["job"]["id"])
    assert view.number == 3


def test_a_checkpoint_is_kept_and_handed_to_the_next_holder(api):
    """C27, C32, C33: it survives a release; the same one again is a quiet yes, an older or other one is not."""
    mine = held(api)
    point = {"seq": 3, "step_id": "s3", "completed_step_ids": ["s1", "s2"]}
    for _ in range(2):
        told = api.assignment(mine, "extend", {"checkpoint": point})
        assert (told.status_code, told.json()["checkpoint_number"]) == (200, 3)
    for other in ({"seq": 3, "step_id": "other"}, {"seq": 2}):
        told = problem(api.assignment(mine, "extend", {"checkpoint": other}), 409, "stale_checkpoint")
        assert told["last"] == 3
    check(mine["job"]["id"])
    assert api.assignment(mine, "release").status_code == 200
    again = api.claim_one()
    assert (again["checkpoint"], again["checkpoint_number"], again["job"]["attempt"]) == (point, 3, 2)


@pytest.mark.parametrize(("point", "status", "code"), [
    ({}, 400, "invalid_checkpoint"), ({"seq": 0}, 400, "invalid_checkpoint"),
    ({"seq": True}, 400, "invalid_checkpoint"),
    ({"seq": 1.5}, 400, "invalid_checkpoint"), ({"seq": "1"}, 400, "invalid_checkpoint"),
    ({"seq": 2**31}, 400, "invalid_checkpoint"), ([1], 400, "invalid_checkpoint"), ("x", 400, "invalid_checkpoint"),
    ({"seq": 1, "x": "y" * 70_000}, 413, "too_large"),
])
def test_a_checkpoint_that_cannot_be_kept_changes_nothing(api, point, status, code):
    """C33: not even the lease."""
    mine = held(api)
    rows = everything()
    problem(api.assignment(mine, "extend", {"checkpoint": point}), status, code)
    assert everything() == rows


@pytest.mark.parametrize(("end", "body"), [("complete", {"artifact": {}}), ("fail", {"reason_code": "x"}),
                                           ("release", {})])
def test_atomic_requests_of_a_project_do_not_hold_the_verbs(api, monkeypatch, end, body):
    """DESIGN 4: verbs of holders commit by themselves, so that no view of ours runs in a transaction of the request."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    job_id = api.enqueue()["id"]
    mine = api.claim_one()
    assert api.assignment(mine, "extend").status_code == 200
    assert api.assignment(mine, end, body).status_code == 200
    assert api.post(f"/jobs/{job_id}/controls", {"action": "pawse"}).status_code == 400
    problem(api.get("/nothing"), 404, "not_found")
    check(job_id)
