"""Jobs of lanes: attached and enqueued by conductors, told as they are read, and unaware of it all (D6, D15)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from jobs.errors import Invalid, JobsError
from jobs.models import Job
from jobs.services import erasure, tenancy
from jobs.services.draft import Door, Options, Request
from lanes.axes import Standing
from lanes.models import Lane, LaneJob, LaneReceipt
from lanes.services import lane_jobs, lanes
from lanes.services.lane_jobs import Work
from lanes.store import looking
from tests import database as db
from tests.driver import Driver
from tests.lanes import making
from tests.lanes.making import conductor, snapshot, user
from tests.making import default_workspace, statements

pytestmark = pytest.mark.usefixtures("database")


def code(verb: Any) -> str:
    """The code of a refusal."""
    with pytest.raises(JobsError) as refusal:
        verb()
    return refusal.value.reason_code


def work(lane: Lane) -> Work:
    """What its jobs are doing."""
    return lane_jobs.standing([lane.pk])[lane.pk]


def test_a_job_is_attached_by_a_conductor_and_the_lane_keeps_its_version(driver: Driver) -> None:
    """D2, D7, E2: written down with its job; a second time is none, another lane's is refused."""
    lane, other = making.lane(), making.lane("other")
    job = driver.enqueue()
    before = db.row_hash(job)
    assert lane_jobs.attach(lane.pk, job, by=conductor()) is True
    assert lane_jobs.attach(lane.pk, job, by=conductor()) is False
    assert code(lambda: lane_jobs.attach(other.pk, job, by=conductor())) == "job_in_other_lane"
    told = LaneReceipt.objects.filter(lane=lane).order_by("-number")[0]
    assert (told.number, told.kind, told.after, told.by, told.version) == (2, "job", job, conductor().name, 1)
    assert Lane.objects.get(pk=lane.pk).version == 1
    assert db.row_hash(job) == before
    assert lane_jobs.lane_of(job, by=conductor()) == lane
    assert lane_jobs.lane_of(job, by=user("stranger")) is lane_jobs.lane_of(uuid.uuid4(), by=conductor()) is None


def test_neither_the_assignee_nor_a_member_gives_a_lane_jobs(driver: Driver) -> None:
    """D2: creating work takes the conductor's role and its own grant, whatever else somebody may."""
    lane, job = making.lane(), driver.enqueue()
    for who, said in ((user("assignee-default"), "role_required"), (user("member", "member"), "role_required"),
                      (user("boss", is_superuser=True), "lane_not_found"), (making.key(), "lane_not_found")):
        assert code(lambda who=who: lane_jobs.attach(lane.pk, job, by=who)) == said  # type: ignore[misc]
        assert code(lambda who=who: lane_jobs.enqueue(lane.pk, Request("echo"), by=who)) == said  # type: ignore[misc]
    assert not LaneJob.objects.exists()


def test_a_job_and_its_lane_are_one_transaction() -> None:
    """D7, DESIGN 4: enqueued and attached, or neither; a repeat brings the job that there is."""
    lane = making.lane()
    request = Request("echo", {}, Options(idempotency_key="k"))
    made = lane_jobs.enqueue(lane.pk, request, by=conductor())
    again = lane_jobs.enqueue(lane.pk, request, by=conductor())
    assert (again.id, again.repeated, made.repeated) == (made.id, True, False)
    assert LaneJob.objects.get().lane_id == lane.pk
    job = Job.objects.get(pk=made.id)
    assert (job.origin, job.workspace_id) == ("user", lane.workspace_id)
    before = Job.objects.count(), LaneReceipt.objects.count()
    for bad in (Request("there-is-none"), Request("echo", {}, Options(queue="nowhere")),
                Request("echo", {}, Options(workspace="far"))):
        with pytest.raises(JobsError):
            lane_jobs.enqueue(lane.pk, bad, by=conductor())
    assert (Job.objects.count(), LaneReceipt.objects.count()) == before


def test_a_job_that_another_lane_has_is_not_taken_by_repeating_its_request() -> None:
    """D7: what the key names is told as another lane's, and nothing is left behind."""
    one, other = making.lane("one"), making.lane("two")
    request = Request("echo", {}, Options(idempotency_key="k"))
    lane_jobs.enqueue(one.pk, request, by=conductor())
    before = snapshot(other)
    assert code(lambda: lane_jobs.enqueue(other.pk, request, by=conductor())) == "job_in_other_lane"
    assert snapshot(other) == before
    assert Job.objects.count() == 1


def test_the_door_of_the_edge_stamps_what_is_enqueued() -> None:
    """B13, D14: who asked is in the job's receipts."""
    lane = making.lane()
    made = lane_jobs.enqueue(lane.pk, Request("echo"), by=conductor(), door=Door("http", "planner", "key:x"))
    assert Job.objects.get(pk=made.id).origin == "planner"
    with pytest.raises(Invalid) as refusal:
        lane_jobs.enqueue(lane.pk, replace(Request("echo"), options=Options(workspace="elsewhere")), by=conductor())
    assert refusal.value.reason_code == "invalid_workspace"


def test_what_the_jobs_of_a_lane_are_doing_is_read_and_never_stored(driver: Driver) -> None:
    """D6: counts by state, the latest sign of life, open dead letters; the lane's row does not change."""
    lane, empty = making.lane(), making.lane("empty")
    jobs = [driver.enqueue() for _ in range(4)]
    for job in jobs:
        lane_jobs.attach(lane.pk, job, by=conductor())
    before = snapshot(lane)
    first = work(lane)
    assert (first.counts, first.active, first.dead_letters) == ({"queued": 4}, 4, 0)
    assert first.last_activity == max(Job.objects.values_list("created_at", flat=True))
    driver.complete(driver.claim_one())
    driver.fail(driver.claim_one(), retryable=False)
    held = driver.claim_one()
    db.pass_time(60)
    driver.extend(held)
    told = work(lane)
    assert (told.counts, told.active, told.dead_letters) == (
        {"completed": 1, "failed": 1, "leased": 1, "queued": 1}, 2, 1)
    # The heartbeat a minute later wrote no receipt.
    assert told.last_activity is not None
    assert (told.last_activity - first.last_activity).total_seconds() > 50
    assert work(empty) == Work()
    assert snapshot(lane) == before


def test_jobs_that_are_gone_are_counted_as_gone(driver: Driver) -> None:
    """E13: retention asks no lane; the lane's list tells where one was, and its receipts name it."""
    lane = making.lane()
    kept, gone = driver.enqueue(), driver.enqueue(tenant="acme")
    for job in (kept, gone):
        lane_jobs.attach(lane.pk, job, by=conductor())
    tenant = tenancy.tenant(default_workspace(), "acme")
    driver.cancel(gone)
    erasure.delete(tenant, by="user:test", reason="x")
    for _ in range(20):
        erasure.Erasures().tick(100)
        db.pass_time(60)
    assert not Job.objects.filter(pk=gone).exists()
    told = work(lane)
    assert (told.counts, told.gone) == ({"queued": 1}, 1)
    assert [(str(one.job_id), job and str(job.pk)) for one, job in lane_jobs.jobs(lane.pk, by=conductor())] == [
        (gone, None), (kept, kept)]
    assert [one.after for one in lanes.receipts(lane.pk, by=conductor()).items[1:]] == [kept, gone]


def test_a_key_of_one_tenant_sees_that_tenants_jobs_alone(driver: Driver) -> None:
    """C25: its grant is for lanes, and says nothing of other tenants' jobs; those of others are not there to attach."""
    lane, key = making.lane(), making.key("conductor", tenant="acme")
    mine, theirs = driver.enqueue(tenant="acme"), driver.enqueue(tenant="other")
    assert code(lambda: lane_jobs.attach(lane.pk, theirs, by=key)) == "job_not_found"
    lane_jobs.attach(lane.pk, theirs, by=conductor())
    assert lane_jobs.attach(lane.pk, mine, by=key) is True
    assert lane_jobs.standing([lane.pk], by=key)[lane.pk].counts == {"queued": 1}
    assert [str(one.job_id) for one, _ in lane_jobs.jobs(lane.pk, by=key)] == [mine]
    assert work(lane).counts == {"queued": 2}
    told = [one.after for one in lanes.receipts(lane.pk, by=key).items if one.kind == "job"]
    assert told == [None, mine]
    with pytest.raises(JobsError):
        lane_jobs.enqueue(lane.pk, Request("echo", {}, Options(tenant="other")), by=key)
    assert lane_jobs.enqueue(lane.pk, Request("echo", {}, Options(tenant="acme")), by=key).id
    assert Job.objects.count() == 3


def test_jobs_of_a_lane_come_newest_first_and_by_key(driver: Driver) -> None:
    """D7: a page at a time."""
    lane = making.lane()
    jobs = [driver.enqueue() for _ in range(5)]
    for job in jobs:
        lane_jobs.attach(lane.pk, job, by=conductor())
    first = lane_jobs.jobs(lane.pk, by=conductor(), limit=2)
    rest = lane_jobs.jobs(lane.pk, by=conductor(), before=first[-1][0].job_id)
    assert [str(one.job_id) for one, _ in (*first, *rest)] == jobs[::-1]
    assert lane_jobs.jobs(lane.pk, by=conductor(), before="x") == []


def test_a_page_of_lanes_is_one_bounded_statement_whatever_their_jobs_are() -> None:
    """D6: of a lane with very many the newest are looked at, and it says so."""
    made = [making.placed(f"n{n}", Standing()) for n in range(3)]
    with connection.cursor() as cursor:
        for lane, jobs in ((made[0], 20_000), (made[1], looking.MOST_JOBS)):
            cursor.execute("""INSERT INTO lanes_job (job_id, lane_id, by, created_at)
                SELECT gen_random_uuid(), %s, 'x', now() FROM generate_series(1, %s)""", [lane.pk, jobs])
        cursor.execute("ANALYZE lanes_job")
    with statements() as found:
        told = lane_jobs.standing([lane.pk for lane in made])
    assert len(found) == 1
    assert (told[made[0].pk].capped, told[made[0].pk].gone) == (True, looking.MOST_JOBS)
    assert (told[made[1].pk].capped, told[made[1].pk].gone) == (False, looking.MOST_JOBS)
    assert told[made[2].pk] == Work()
    plan = "\n".join(line for line, in db.rows(f"EXPLAIN (ANALYZE) {found[0][0]}", *found[0][1]))
    # By the lane's own jobs, and not back through all of them for those of one that has few.
    assert "Seq Scan on lanes_job" not in plan, plan
    assert "lanes_job_pkey" not in plan, plan
    assert lane_jobs.standing([]) == {}


def test_no_end_of_a_job_moves_an_axis(driver: Driver) -> None:
    """D6, D10, E14.14, E14.23: whatever becomes of its jobs a lane stands where it stood, and the other way round."""
    lane = making.lane(at=Standing("in_progress", "submitted"))
    jobs = [driver.enqueue() for _ in range(3)]
    for job in jobs:
        lane_jobs.attach(lane.pk, job, by=conductor())
    before = snapshot(lane)
    with statements() as found:
        held = driver.claim_one()
        driver.complete(held)
        driver.fail(driver.claim_one(), retryable=False)
        driver.cancel(jobs[2])
    assert not [sql for sql, _ in found if "lanes_" in sql]
    assert snapshot(lane) == before
    queued = driver.enqueue()
    lane_jobs.attach(lane.pk, queued, by=conductor())
    rows = [db.row_hash(job) for job in (*jobs, queued)]
    lanes.set_state(lane.pk, "cancelled", by=conductor())
    assert [db.row_hash(job) for job in (*jobs, queued)] == rows
    assert driver.claim_one().id == queued


def test_a_single_job_needs_no_lane(driver: Driver) -> None:
    """D15: no column of a job names one."""
    job = driver.enqueue()
    driver.complete(driver.claim_one())
    assert driver.state(job) == "completed"
    assert not [f.name for f in Job._meta.get_fields() if "lane" in f.name.replace("plane", "")]
