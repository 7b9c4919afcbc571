"""The jobs of a lane over HTTP: made for it, given to it, and told as far as the caller may see them."""

from __future__ import annotations

import uuid

from jobs.models import Job
from jobs.services import tenancy
from lanes.models import LaneJob
from tests.edges.caller import Caller, everything, problem
from tests.edges.test_api_isolation import told
from tests.lanes.calling import MOVES, World


def test_a_job_is_made_for_a_lane_or_given_to_it_and_what_they_do_is_told(world: World) -> None:
    """D6, D7: both or neither; counts are read, and no end of a job moves the lane."""
    made = world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"})
    assert (made.status_code, made["Location"]) == (202, f"/api/v1/jobs/{made.json()['id']}")
    again = world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"})
    assert (again.status_code, again.json()["repeated"], again.json()["id"]) == (200, True, made.json()["id"])
    other = world.conductor.enqueue(retry={"max_attempts": 1}, priority=100)["id"]
    given = world.say("jobs/attach", {"job_id": other}).json()
    assert given == {"lane": world.lane, "job_id": other, "repeated": False}
    assert world.say("jobs/attach", {"job_id": other}).json()["repeated"] is True
    held = world.conductor.claim_one()
    world.conductor.assignment(held, "fail", {"reason_code": "x"})
    lane = world.member.get(f"/lanes/{world.lane}").json()
    assert lane["jobs"] | {"last_activity_at": None} == {
        "counts": {"failed": 1, "queued": 1}, "active": 1, "gone": 0, "capped": False, "dead_letters": 1,
        "last_activity_at": None}
    assert lane["jobs"]["last_activity_at"] is not None
    assert (lane["execution"], lane["review"], lane["version"]) == ("open", "none", 1)
    listed = world.member.get(f"/lanes/{world.lane}/jobs").json()
    assert [(one["id"], one["state"], one["gone"]) for one in listed["jobs"]] == [
        (other, "failed", False), (made.json()["id"], "queued", False)]
    first = world.member.get(f"/lanes/{world.lane}/jobs?limit=1").json()
    rest = world.member.get(f"/lanes/{world.lane}/jobs?before={first['next_before']}").json()
    assert [*first["jobs"], *rest["jobs"]] == listed["jobs"]
    assert rest["next_before"] is None
    receipts = world.member.get(f"/lanes/{world.lane}/receipts").json()["receipts"]
    assert [(one["kind"], one["after"]) for one in receipts[1:]] == [("job", made.json()["id"]), ("job", other)]


def test_a_job_is_one_lanes_and_of_the_same_workspace(world: World) -> None:
    """D7, E14.20: foreign and unknown read alike; a key of a lane is not another lane's."""
    other = world.made("other")["id"]
    job = world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"}).json()["id"]
    foreign = Caller(workspace="elsewhere").enqueue()["id"]
    rows = everything()
    problem(world.say("jobs/attach", {"job_id": job}, lane=other), 409, "job_in_other_lane", "job_id")
    problem(world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"}, lane=other), 409,
            "job_in_other_lane")
    answers = [world.say("jobs/attach", {"job_id": name}) for name in (foreign, str(uuid.uuid4()), "x", "")]
    problem(answers[0], 404, "job_not_found", "job_id")
    assert len({told(answer) for answer in answers}) == 1
    refused = world.say("jobs", {"type": "no-such-type", "input": {}})
    problem(refused, 422, "unknown_job_type", "type")
    problem(world.say("jobs", {"type": "outside", "input": []}), 400, "invalid_input")
    assert everything() == rows
    assert (Job.objects.count(), LaneJob.objects.count()) == (2, 1)


def test_a_tenants_key_is_shown_its_own_jobs_alone(world: World) -> None:
    """C25: and so is whoever names a tenant; a lane is no tenant's."""
    for tenant in ("mine", "theirs", "theirs"):
        assert world.say("jobs", {"type": "outside", "input": {}, "tenant_subject": tenant}).status_code == 202
    mine = world.key("conductor", tenant="mine")
    seen = {name: who.get(f"/lanes/{world.lane}", **headers).json()["jobs"]["counts"] for name, who, headers in (
        ("all", world.conductor, {}), ("mine", mine, {}), ("named", world.conductor, {"X_Tenant_Subject": "theirs"}))}
    assert seen == {"all": {"queued": 3}, "mine": {"queued": 1}, "named": {"queued": 2}}
    assert len(mine.get(f"/lanes/{world.lane}/jobs").json()["jobs"]) == 1
    theirs = next(job.pk for job in Job.objects.select_related("tenant") if job.tenant.subject == "theirs")
    problem(mine.post(f"/lanes/{world.lane}/jobs/attach", {"job_id": str(theirs)}), 404, "job_not_found")
    problem(mine.get(f"/lanes/{world.lane}", X_Tenant_Subject="theirs"), 404, "tenant_not_found")


def test_only_conductors_make_jobs_for_a_lane_and_none_where_enqueues_need_a_grant(world: World) -> None:
    """D2: the lane's jobs are enqueued by a conductor of its workspace, whatever else somebody may."""
    tenancy.demand_grant(tenancy.workspace(), True, by="test")
    fresh = world.key("assignee")
    problem(fresh.post(f"/lanes/{world.lane}/jobs", MOVES["jobs"]), 403, "grant_required")
    assert world.key("conductor").post(f"/lanes/{world.lane}/jobs", MOVES["jobs"]).status_code == 202
    assert Job.objects.count() == 1

