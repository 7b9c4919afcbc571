"""`on_ended`: each end of a job whose type asks for it becomes one job that tells, in the same transaction (B34)."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import transaction

from jobs import clock
from jobs.conf import registry
from jobs.errors import Invalid, Refused
from jobs.models import DeadLetter, Job, Limits, Tenant, Workspace
from jobs.outcomes import Failed
from jobs.registry import Ended, Registry, external
from jobs.schemas import Opaque
from jobs.services import cancellation, dead_letters, draft, intake, reconciling, recovery, tenancy
from jobs.services.explain import blocker
from jobs.services.retention import Retention, keeps
from jobs.states import State
from jobs.store import erase
from jobs.store.claim import Claimer
from jobs.store.erase import TELLING
from jobs.store.sql import durable
from tests import database as db
from tests.driver import check, claimer, done
from tests.edges.caller import Caller
from tests.making import statements
from tests.races.threads import together


@pytest.fixture(autouse=True)
def _watched(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["tests.definitions", "tests.worker.hooked"]}


def telling(job_id=None):
    found = Job.objects.filter(type="job-ended").order_by("pk")
    return [j for j in found if job_id is None or j.idempotency_key.split(":")[1] == str(job_id)]


def told(job_id):
    return [(j.input, j.state) for j in telling(job_id)]


def words(job_id, state, reason=None, chain=1):
    said = "null" if reason is None else f'"{reason}"'
    return f'{{"chain":{chain},"job_id":"{job_id}","reason":{said},"state":"{state}"}}'


def end_by(driver, how):
    """The id of a job that ended so."""
    if how == "deadline":
        id_ = driver.enqueue("watched", deadline_at=clock.now() + timedelta(seconds=5))
        driver.pass_time(10)
        recovery.deadlines()
        return id_
    if how == "superseded":
        id_ = driver.enqueue("watched", target="t")
        driver.enqueue("watched", target="t")
        return id_
    id_ = driver.enqueue("watched")
    if how == "cancelled":
        cancellation.cancel(id_, by="test")
        return id_
    [job] = driver.claim()
    driver.settle(job, done("x") if how == "completed" else Failed("as_told", retryable=False))
    return id_


@pytest.mark.parametrize(("how", "state", "reason"), [
    ("completed", "completed", None), ("failed", "failed", "terminal_error"), ("cancelled", "cancelled", "cancelled"),
    ("deadline", "failed", "deadline_exceeded"), ("superseded", "superseded", "superseded"),
])
def test_every_way_to_end_makes_one_job_that_tells(driver, how, state, reason):
    """Completed, failed, cancelled, past its deadline, superseded; in the untenanted tenant, under its own group."""
    id_ = end_by(driver, how)
    assert told(id_) == [(words(id_, state, reason), "queued")]
    [job] = telling()
    assert (job.worker_group, job.queue, job.tenant.subject, job.origin) == ("system", "collect", None, "scheduler")
    check(job.pk)


def test_a_cancel_that_is_rolled_back_tells_nobody(driver):
    """The job that tells exists if and only if the end does (DESIGN 4)."""
    id_ = driver.enqueue("watched")
    with transaction.atomic():
        cancellation.cancel(id_, by="test")
        assert len(telling(id_)) == 1
        transaction.set_rollback(True)
    assert telling() == []
    assert Job.objects.get(pk=id_).state == "queued"


def test_each_chain_is_told_of_once(driver):
    """A requeue begins a new chain with an end of its own; a discard of its letter is no end (B45)."""
    id_ = end_by(driver, "failed")
    dead_letters.requeue(DeadLetter.objects.get(job_id=id_, resolved_at=None), by="test")
    [job] = driver.claim()
    driver.settle(job, Failed("as_told", retryable=False))
    dead_letters.discard(DeadLetter.objects.get(job_id=id_, resolved_at=None), by="test")
    assert told(id_) == [(words(id_, "failed", "terminal_error"), "queued"),
                         (words(id_, "failed", "terminal_error", 2), "queued")]


def test_an_end_within_a_chain_is_none(driver):
    """A retry, a release, a pause tell nobody."""
    id_ = driver.enqueue("watched-async", {"path": ""})
    [job] = driver.claim()
    driver.settle(job, Failed("as_told"))
    cancellation.pause(id_, by="test")
    cancellation.resume(id_, by="test")
    assert telling() == []


def test_ends_that_race_make_one_job_that_tells(database):
    """Eight cancels at once, twelve rounds: one each (I4)."""
    for _ in range(12):
        id_ = intake.enqueue("watched", {}).id

        def cancel(id_=id_):
            return cancellation.cancel(id_, by="test")

        together([cancel] * 8)
        assert told(id_) == [(words(id_, "cancelled", "cancelled"), "queued")]


def test_a_batch_of_ends_costs_two_statements_and_other_types_none(driver):
    """One look and one insert for all; where no type asks, the hook asks nothing (DESIGN 5)."""
    ids = [driver.enqueue("watched") for _ in range(3)] + [driver.enqueue("echo") for _ in range(3)]
    with statements() as found:
        cancellation.cancel_many(ids[:3], by="test")
    assert sum("jobs_tenant t ON t.workspace_id" in sql for sql, _ in found) == 1
    assert sum("INSERT INTO jobs_job (" in sql for sql, _ in found) == 1
    assert len(telling()) == 3
    with statements() as found:
        cancellation.cancel_many([driver.enqueue("echo")], by="test")
    assert not [sql for sql, _ in found if "jobs_tenant t" in sql and "ended_at IS NOT NULL" in sql]
    registry().told = frozenset()
    with statements() as found:
        cancellation.cancel_many(ids[3:], by="test")
    assert not [sql for sql, _ in found if "jobs_tenant t ON t.workspace_id" in sql]


def test_an_archived_or_missing_system_tenant_does_not_keep_a_job_from_ending(driver):
    """The settlement comes first: nothing about the job that tells can be refused."""
    Tenant.objects.filter(subject=None).update(archived_at=db.rows("SELECT jobs_now()")[0][0])
    id_ = intake.enqueue("watched", {}, tenant="acme").id
    cancellation.cancel(id_, by="test")
    assert len(telling(id_)) == 1
    bare = Workspace.objects.create(slug="bare")
    Tenant.objects.create(workspace=bare, subject="only")
    id_ = intake.enqueue("watched", {}, workspace="bare", tenant="only").id
    cancellation.cancel(id_, by="test")
    assert [j.tenant.subject for j in telling(id_)] == ["only"]


def test_a_job_that_tells_takes_no_room_under_a_cap(driver):
    """The workspace lets one job run a tenant; the telling runs beside it and is counted nowhere (C9)."""
    Limits.objects.create(workspace=tenancy.workspace(), tenant=None, tenant_concurrency=1)
    end_by(driver, "cancelled")
    end_by(driver, "cancelled")
    intake.enqueue("echo", {})
    claimer = Claimer([("default", "collect"), ("system", "collect")], by="worker:x")
    assert sorted(job.type for job in driver.claim(4, claimer)) == ["echo", "job-ended", "job-ended"]
    recovery.Repair().tick()
    assert db.rows("SELECT count(*) FROM jobs_attempt_cap")[0][0] == 1
    assert (blocker(telling()[0], db.rows("SELECT jobs_now()")[0][0])) is None


def test_routing_rules_leave_the_houses_own_jobs_alone(driver, settings):
    """A rule for every type that begins with `job` sends none of ours to somebody else's workers (E7)."""
    settings.JOBS = {**settings.JOBS, "ROUTING": [{"worker_group": "codex", "type_prefix": "job"}]}
    end_by(driver, "cancelled")
    assert telling()[0].worker_group == "system"


def test_a_runners_jobs_are_told_of_as_well(driver, monkeypatch):
    """External definitions have ends too; the queue is one that the site has."""
    heard = []
    far = external("far", worker_group="runners", input=Opaque(), artifact=Opaque(), on_ended=heard.append)
    known = Registry([far, reconciling.definition(["chat", "steer"], [far])])
    for module in (reconciling, intake, draft):
        monkeypatch.setattr(module, "registry", lambda: known)
    id_ = intake.enqueue("far", {"a": 1}, tenant="acme").id
    cancellation.cancel(id_, by="test", reason="not needed")
    [job] = telling(id_)
    assert job.queue == "chat"
    reconciling.job_ended(None, job_id=Job.objects.get(pk=id_).pk, chain=1, state=State.CANCELLED, reason="not needed")
    assert heard == [Ended(id_, "far", 1, State.CANCELLED, "not needed", 1, {"a": 1}, None, "acme")]
    db.rows("UPDATE jobs_job SET input = '' WHERE id = %s RETURNING 1", id_)
    reconciling.job_ended(None, job_id=Job.objects.get(pk=id_).pk, chain=1, state=State.CANCELLED)
    assert heard[1].input is None


def test_the_end_of_an_erased_job_is_told_to_nobody(driver, caplog):
    """It may have been erased by hand: that is said, and is no failure."""
    gone = uuid.uuid4()
    with caplog.at_level("INFO"):
        reconciling.job_ended(None, job_id=gone, chain=1, state=State.FAILED)
    assert f"job {gone} is erased" in caplog.text


def test_only_sites_that_ask_have_the_job_that_tells(settings):
    """Where no type asks, there is no such type, and no hook that looks; and no group, but that callbacks are sent."""
    assert "job-ended@1" in registry().names()
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["tests.definitions"]}
    assert "system" in registry().groups()
    settings.JOBS = {**settings.JOBS, "CALLBACKS": False}
    assert "system" not in registry().groups()
    assert "job-ended@1" not in registry().names()


def test_nobody_but_the_house_can_ask_to_be_told(driver):
    """A caller who could would have somebody's `on_ended` called for a job that has not ended (B34)."""
    id_ = driver.enqueue("watched")
    with pytest.raises(Refused, match="may not be enqueued by"):
        intake.enqueue("job-ended", {"job_id": id_, "chain": 1, "state": "completed"})
    # And if somebody could: it does not say what did not happen.
    known = registry().current("watched")
    before, heard = known.on_ended, []
    object.__setattr__(known, "on_ended", heard.append)
    try:
        reconciling.job_ended(None, job_id=uuid.UUID(id_), chain=1, state=State.COMPLETED)
    finally:
        object.__setattr__(known, "on_ended", before)
    assert heard == []
    for name, group in (("job-ended", "default"), ("mine", "system")):
        with pytest.raises(Invalid, match="is reserved"):
            external(name, worker_group=group, input=Opaque(), artifact=Opaque())


def test_no_key_of_a_caller_silences_the_end_of_another(driver):
    """The house's keys are none that anybody else can spell."""
    id_ = driver.enqueue("watched")
    intake.enqueue("echo", {}, idempotency_key=f"ended:{id_}:1")
    with pytest.raises(Invalid, match="printable ASCII"):
        intake.enqueue("echo", {}, idempotency_key=TELLING.format(job=id_, chain=1))
    cancellation.cancel(id_, by="test")
    assert len(telling(id_)) == 1


def test_the_houses_own_jobs_are_in_nobodys_list_and_nobody_cancels_them(driver, settings):
    """E11: a key of the workspace, which sees every untenanted job, sees none of these."""
    settings.ROOT_URLCONF = "tests.edges.urls"
    cancellation.cancel(driver.enqueue("watched"), by="test")
    [job] = telling()
    api = Caller()
    assert {j["type"] for j in api.get("/jobs").json()["jobs"]} == {"watched"}
    assert api.post(f"/jobs/{job.pk}/controls", {"action": "cancel"}).status_code == 404
    assert api.get(f"/jobs/{job.pk}").status_code == 404


def test_a_discard_tells_nobody_again(driver):
    """It moves nothing: the end was told when it was (B34)."""
    id_ = driver.enqueue("watched")
    driver.fail(driver.claim_one(), retryable=False)
    [job] = telling(id_)
    driver.claimer = claimer("system")
    driver.complete(driver.claim_one())
    Job.objects.filter(pk=job.pk).update(idempotency_key=None)
    dead_letters.discard(DeadLetter.objects.get(job_id=id_), by="test")
    assert telling_count() == 1


def telling_count():
    return Job.objects.filter(type="job-ended").count()


def test_a_job_stays_until_its_end_was_told(driver, settings):
    """B34, E13: however short its retention, however long nobody is there to tell."""
    settings.JOBS = {**settings.JOBS, "RETENTION_S": 60}
    id_ = driver.enqueue("watched")
    cancellation.cancel(id_, by="test")
    db.pass_time(3_600)
    here = Retention()
    while here.tick():
        pass
    assert Job.objects.filter(pk=id_).exists()
    driver.claimer = claimer("system")
    driver.complete(driver.claim_one())
    known = keeps()
    assert durable(lambda: erase.jobs([id_], known)) == 1
