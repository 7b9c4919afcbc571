"""Many jobs in one request: an outcome each, none harmed by another, none twice."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from jobs.models import Command, Job
from jobs.services import tenancy
from tests.driver import check
from tests.edges.caller import Caller, everything, problem, state

ONE = {"type": "outside"}


def batch(api: Caller, *jobs, status: int = 200, **fields):
    answer = api.post("/jobs/batch", {"jobs": list(jobs), **fields})
    assert answer.status_code == status, answer.content[:500]
    return answer.json()


def outcomes(told) -> list:
    return [one.get("problem", {}).get("code") or one["status"] for one in told["results"]]


def test_each_item_has_the_outcome_that_it_would_have_alone(api):
    """C3, E6: new, known already, and refused in five ways, in one request and in order."""
    api.post("/jobs", {**ONE, "idempotency_key": "before", "priority": 3})
    told = batch(
        api, ONE, {**ONE, "idempotency_key": "before", "priority": 3}, {"type": "no-such"}, {**ONE, "priority": 300},
        {**ONE, "idempotency_key": "before"}, 7, {**ONE, "wat": 1}, {**ONE, "job_id": "mine"},
        {**ONE, "job_id": "mine"}, {**ONE, "idempotency_key": "twice"},
        {**ONE, "idempotency_key": "twice", "priority": 1})
    assert outcomes(told) == [202, 200, "unknown_job_type", "invalid_priority", "idempotency_key_reused",
                              "not_an_object", "unknown_field", 202, 200, 202, "idempotency_key_reused"]
    assert (told["enqueued"], told["repeated"], told["refused"]) == (3, 2, 6)
    assert told["results"][7]["id"] == told["results"][8]["id"]
    assert told["results"][3]["problem"]["field"] == "priority"
    assert Job.objects.count() == 4
    for job in Job.objects.all():
        check(str(job.pk))


def test_a_batch_that_is_sent_again_makes_nothing(api):
    """C3: each of its jobs is known by its key, also one that had been sent alone."""
    jobs = [{**ONE, "idempotency_key": f"k{n}"} for n in range(5)]
    api.post("/jobs", jobs[0])
    first, second = batch(api, *jobs), batch(api, *jobs)
    assert outcomes(first) == [200, 202, 202, 202, 202]
    assert outcomes(second) == [200] * 5
    assert [one["id"] for one in first["results"]] == [one["id"] for one in second["results"]]
    assert api.post("/jobs", jobs[3]).json()["id"] == first["results"][3]["id"]
    assert Job.objects.count() == 5


def test_targets_and_singletons_act_as_if_sent_one_after_the_other(api):
    """B16, A14: the later one supersedes or cancels the earlier one of its own batch."""
    told = batch(api, {**ONE, "target": "t"}, {**ONE, "session_key": "s", "singleton": "cancel"}, ONE,
                 {**ONE, "target": "t"}, {**ONE, "session_key": "s", "singleton": "cancel"},
                 {**ONE, "session_key": "s", "singleton": "steer", "input": {"n": 1}})
    ids = [one["id"] for one in told["results"]]
    assert [state(id_) for id_ in ids] == ["superseded", "cancelled", "queued", "queued", "queued", "queued"]
    assert told["results"][5]["steered"]
    assert ids[4] == ids[5]
    assert str(Command.objects.get().job_id) == ids[4]


def test_atomic_is_all_or_none_and_names_every_fault(api):
    """C3: nothing of it is left, and each bad job is named by its place."""
    before = everything()
    said = [ONE, {**ONE, "priority": 300}, {**ONE, "target": "t"}, {"type": "no-such"}]
    refused = problem(api.post("/jobs/batch", {"jobs": said, "atomic": True}), 422, "batch_refused", "/jobs/1/priority")
    assert [(f["field"], f["code"]) for f in refused["faults"]] == [
        ("/jobs/1/priority", "invalid_priority"), ("/jobs/3/type", "unknown_job_type")]
    refused = problem(api.post("/jobs/batch", {"jobs": [ONE, {"wat": 1}], "atomic": True}), 422, "batch_refused")
    assert refused["faults"][0]["code"] == "unknown_field"
    assert everything() == before
    assert outcomes(batch(api, ONE, ONE, atomic=True)) == [202, 202]


@pytest.mark.parametrize("said", [[], {}, "x", None, [ONE] * 1_001])
def test_a_batch_is_one_to_a_thousand_jobs(api, said):
    """RELIABILITY 5.7: anything else is refused before any of it is looked at."""
    problem(api.post("/jobs/batch", {"jobs": said}), 400, "invalid_jobs", "jobs")
    assert Job.objects.count() == 0


def test_its_body_has_a_bound_of_its_own(api, settings):
    """RELIABILITY 6.2: a batch may be longer than a single job, and has an end too."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 20_000
    settings.JOBS = {**settings.JOBS, "BATCH_MAX_BYTES": 40_000}
    assert outcomes(batch(api, *[{**ONE, "job_id": f"{n}{'x' * 100}"} for n in range(200)])) == [202] * 200
    problem(api.post("/jobs/batch", {"jobs": [ONE] * 900, "x": "y" * 40_000}), 413, "too_large")
    problem(api.post("/jobs", {**ONE, "target": "y" * 20_000}), 413, "too_large")


def test_a_thousand_are_few_statements_and_a_bad_one_costs_little(api, django_assert_max_num_queries):
    """A bad one in a thousand is found by halving: some hundred statements, not one for each job."""
    with django_assert_max_num_queries(40):
        assert outcomes(batch(api, *[ONE] * 1_000)) == [202] * 1_000
    with django_assert_max_num_queries(250):
        told = batch(api, *[ONE] * 617, {**ONE, "priority": 300}, *[ONE] * 382)
    assert told["refused"] == 1
    assert told["results"][617]["problem"]["code"] == "invalid_priority"
    assert Job.objects.count() == 1_999


def test_tenants_are_named_by_the_item_or_by_the_request(api):
    """C25: a workspace's key may name one each; another one than the header's is that item's fault alone."""
    told = batch(api, {**ONE, "tenant_subject": "a"}, {**ONE, "tenant_subject": "b"}, ONE)
    found = Job.objects.in_bulk([one["id"] for one in told["results"]])
    assert sorted(job.tenant.subject or "" for job in found.values()) == ["", "a", "b"]
    one = Caller(tenant="a")
    told = batch(one, ONE, {**ONE, "tenant_subject": "b"}, {**ONE, "tenant_subject": "a"})
    assert outcomes(told) == [202, "tenant_not_found", 202]
    answer = api.post("/jobs/batch", {"jobs": [ONE, {**ONE, "tenant_subject": "b"}]}, X_Tenant_Subject="a")
    assert outcomes(answer.json()) == [202, "invalid_tenant_subject"]
    assert tenancy.tenant(tenancy.workspace(), "b").jobs.count() == 1


def test_two_batches_with_the_same_keys_make_each_job_once(api):
    """E14.5: at the same moment, in opposite orders."""
    jobs = [{**ONE, "idempotency_key": f"k{n}", **({"target": f"t{n % 3}"} if n % 2 else {})} for n in range(30)]
    found: list = []

    def send(said) -> None:
        found.append(batch(api, *said))
        connection.close()

    threads = [threading.Thread(target=send, args=(said,)) for said in (jobs, jobs[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(told["enqueued"] for told in found) == 30
    assert sum(told["repeated"] for told in found) == 30
    assert Job.objects.count() == 30
