"""Assignments belong to the key that claimed them, and a late word changes nothing."""

from __future__ import annotations

import threading
import uuid

import pytest

from jobs.models import Job
from tests import database as db
from tests.driver import check, quiet_recovery
from tests.edges.caller import Caller, everything, held, problem
from tests.races.threads import elsewhere

VERBS = [("extend", {}), ("extend", {"checkpoint": {"seq": 1}}), ("complete", {"artifact": {}}),
         ("complete", {"artifact": []}), ("fail", {"reason_code": "x"}), ("release", {}), ("release", {"delay_s": 5})]


@pytest.mark.parametrize(("verb", "body"), VERBS)
def test_a_stolen_assignment_is_not_there_for_another_key(api, verb, body):
    """E14.2: foreign, unknown and malformed ids read alike, byte for byte, and nothing changes."""
    mine = held(api)
    job_id = mine["job"]["id"]
    thieves = [Caller(), Caller(tenant="theirs"), Caller(workspace="other")]
    rows, row = everything(), db.row_hash(job_id)
    answers = [thief.assignment(mine, verb, body) for thief in thieves]
    names = [uuid.uuid4(), "x", "%00", mine["assignment_id"] + "0", job_id, "a" * 5_000]
    answers += [api.post(f"/assignments/{name}/{verb}", body) for name in names]
    problem(answers[0], 404, "assignment_not_found")
    assert len({(a.status_code, a.content) for a in answers}) == 1
    assert (everything(), db.row_hash(job_id)) == (rows, row)


def test_an_assignments_id_is_told_to_readers_and_opens_nothing(api):
    """C35, E12: it stands in the receipts, but belongs to the key that claimed."""
    mine = held(api)
    reader = Caller()
    told = reader.get(f"/jobs/{mine['job']['id']}/receipts").json()["receipts"]
    assert f'"attempt":"{mine["assignment_id"]}"' in told[-1]["body"]
    for verb, body in VERBS:
        problem(reader.assignment(mine, verb, body), 404, "assignment_not_found")
    assert api.assignment(mine, "complete", {"artifact": {}}).status_code == 200


@pytest.mark.parametrize(("verb", "body"), [v for v in VERBS if v[1] != {"artifact": []}])
@pytest.mark.parametrize("end", ["cancelled", "lapsed", "paused", "requeued"])
def test_a_late_word_is_409_and_changes_nothing(api, driver, verb, body, end):
    """C35, E14.2, E14.21: after cancel, lapse, pause and a claim by somebody else."""
    mine = held(api)
    job_id = mine["job"]["id"]
    if end == "cancelled":
        driver.cancel(job_id)
    elif end == "paused":
        driver.pause(job_id)
    else:
        db.pass_time(36)
        quiet_recovery().run()
    if end == "requeued":
        assert Caller().claim_one()["job"]["id"] == job_id
    rows, row = everything(), db.row_hash(job_id)
    for _ in range(2):
        told = problem(api.assignment(mine, verb, body), 409, "stale_claim")
        assert told["job_status"] == {"cancelled": "cancelled", "requeued": "leased"}.get(end, "queued")
    assert (everything(), db.row_hash(job_id)) == (rows, row)
    check(job_id)


def test_a_job_that_somebody_holds_locked_is_503_and_may_be_said_again(api):
    """E8: a request does not wait for a caller's open transaction; its lease is renewed all the same."""
    mine = held(api)
    job_id = mine["job"]["id"]
    with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", job_id):
        assert api.assignment(mine, "extend").status_code == 200
        answer = api.assignment(mine, "complete", {"artifact": {}})
        problem(answer, 503, "job_locked")
        assert answer["Retry-After"] == "1"
        assert Job.objects.get(pk=job_id).state == "leased"
    assert api.assignment(mine, "extend").status_code == 200
    assert Job.objects.get(pk=job_id).state == "running"
    assert api.assignment(mine, "complete", {"artifact": {}}).status_code == 200
    check(job_id)


def test_a_word_after_the_lease_but_before_recovery_is_heard(api):
    """E8: an attempt lives until a move ends it."""
    mine = held(api)
    db.pass_time(31)
    assert api.assignment(mine, "extend").status_code == 200
    assert api.assignment(mine, "complete", {"artifact": {}}).status_code == 200


def test_a_pending_abort_is_told_with_the_heartbeat(api):
    """E5, E8: extend carries abort; a failure then ends the job as cancelled."""
    mine = held(api)
    api.assignment(mine, "extend")
    Job.objects.update(abort_reason="abort_requested")
    assert api.assignment(mine, "extend").json()["abort"] == "abort_requested"
    assert api.assignment(mine, "release", {"delay_s": 5}).json()["state"] == "cancelled"
    assert api.assignment(mine, "release", {"delay_s": 5}).json()["repeated"] is True


def test_two_ends_at_once_make_one(api):
    """E14.1: whatever the race, one end, and the other side hears of it."""
    for _ in range(5):
        mine = held(api)
        told = []

        def end(verb, body, mine=mine, told=told):
            with db.own_connection():
                told.append(api.assignment(mine, verb, body).status_code)

        threads = [threading.Thread(target=end, args=args) for args in
                   (("complete", {"artifact": {}}), ("fail", {"reason_code": "x", "retryable": False}))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(told) == [200, 409]
        check(mine["job"]["id"])
