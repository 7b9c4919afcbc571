"""Rows that a hand has spoilt are no 500: lists show them, a claim hands out what runs, heartbeats beat (issue 5)."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.services import claiming
from tests import database as db
from tests.driver import check
from tests.edges.caller import state
from tests.owned import SECRET, put


@pytest.fixture(autouse=True)
def _definitions(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.outside"]}


@pytest.mark.parametrize("text", ["{", "[]", "[" * 50_000])
def test_a_spoilt_job_is_shown_claimed_beaten_and_completed(api, text):
    """Its stage, its checkpoint and its commands cannot be read; the others of the batch are not held up."""
    bad, good = (api.enqueue("outside-timed")["id"] for _ in range(2))
    sent = [api.post(f"/jobs/{bad}/steer", {"payload": {"n": n}}).json() for n in range(2)]
    db.rows("UPDATE jobs_job SET progress = %s, checkpoint = %s, checkpoint_number = 3 WHERE id = %s RETURNING 1",
            text, text, bad)
    db.rows("UPDATE jobs_command SET payload = %s WHERE job_id = %s RETURNING 1", text, bad)
    assert {job["id"] for job in api.get("/jobs").json()["jobs"]} == {bad, good}
    assert api.get(f"/jobs/{bad}?include=input").status_code == 200
    held = {a["job"]["id"]: a for a in api.claim(5)}
    assert held.keys() == {bad, good}
    assert len(held[bad]["commands"]) == len(sent)
    beaten = api.assignment(held[bad], "extend", {"progress": {"stage": "read"}, "checkpoint": {"seq": 4}})
    assert (beaten.status_code, len(beaten.json()["commands"])) == (200, 2)
    assert api.get(f"/jobs/{bad}").json()["progress"]["stage"] == "read"
    assert api.assignment(held[bad], "complete", {"artifact": {}}).status_code == 200
    assert state(bad) == "completed"


@pytest.mark.usefixtures("owned_site")
def test_a_spoilt_binding_hands_its_job_back_and_not_the_batch(api):
    """E8, B24: between the claim and its answer; where the secret is shared it cannot be had, and nobody failed."""
    put(concurrency=2)
    bad, good = (api.enqueue("owned-shared")["id"] for _ in range(2))
    batch = claiming.claim(api.key, slots=5)
    db.rows("UPDATE jobs_attempt SET owner_binding = '{' WHERE job_id = %s RETURNING 1", bad)
    jobs, told = claiming.credentials(api.key, batch.jobs)
    assert [job.id for job in jobs] == [good]
    assert [one["credential"] for one in told.values() if "credential" in one] == [SECRET]
    row = Job.objects.get(pk=bad)
    assert (row.state, row.reason, row.failures, row.interruptions) == ("queued", "owner_unavailable", 0, 1)
    check(bad)
