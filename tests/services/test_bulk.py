"""Bulk operations over jobs: what matches is frozen, and each of it is done or told why not, once (E14)."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from jobs import clock
from jobs.errors import JobsError
from jobs.models import BulkItem, BulkOperation, Receipt
from jobs.services import cancellation, operations
from jobs.services.operations import JobMatch, Pace
from jobs.services.retention import ITEMS_MS, Retention
from jobs.services.triage import Triage
from jobs.store import meant
from tests import database as db
from tests.driver import Driver, check
from tests.making import archive, default_workspace, statements, tenant_id
from tests.races.threads import together
from tests.store import noise

BY = "user:alice"


def begin(verb: str, match: JobMatch = JobMatch(), **more: Any) -> BulkOperation:  # noqa: B008
    return operations.begin(verb, match, by=BY, reason="a clean-up", **more)


def run(asked: BulkOperation, limit: int = 500) -> BulkOperation:
    duty = Triage()
    while duty.carry_on(asked.pk, limit):
        pass
    asked.refresh_from_db()
    return asked


def outcomes(asked: BulkOperation) -> dict[str, str | None]:
    return {str(i.job_id): i.outcome for i in operations.items(asked.pk, after=0, limit=500).items}


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("resume", "queued")])
def test_a_verb_for_all_jobs_that_match_is_done_to_each_once(driver: Driver, verb: str, state: str) -> None:
    """Counts shown are counts done; each has one receipt with who, why and the operation's number (E12)."""
    jobs = [driver.enqueue() for _ in range(7)]
    if verb == "resume":
        cancellation.pause_many(jobs, by="test")
    asked = begin(verb)
    later = driver.enqueue()
    run(asked, 3)
    assert (asked.expected, asked.total, asked.done, asked.skipped, asked.end) == (7, 7, 7, {}, "finished")
    assert outcomes(asked) == dict.fromkeys(jobs, "done")
    assert {driver.state(job) for job in jobs} == {state}
    for job in jobs:
        check(job)
        told = json.loads(Receipt.objects.filter(job_id=job).latest("number").body)
        assert (told["by"], told["reason"], told["bulk"]) == (BY, "a clean-up", asked.pk)
    assert driver.state(later) == "queued"
    assert later not in outcomes(asked)


def test_what_has_changed_since_it_was_gathered_is_told_and_not_passed_over(driver: Driver) -> None:
    """The set is frozen: a job that ended meanwhile is an outcome of its own, an erased one is counted as gone."""
    jobs = [driver.enqueue() for _ in range(5)]
    asked = begin("cancel")
    duty = Triage()
    assert duty.carry_on(asked.pk, 1)
    cancellation.cancel(jobs[1], by="user:bob")
    driver.complete(driver.claim_one())
    db.rows("DELETE FROM jobs_bulk_item WHERE job_id = %s RETURNING 1", jobs[4])
    run(asked)
    assert outcomes(asked) == {jobs[0]: "done", jobs[1]: "already_cancelled", jobs[2]: "job_ended", jobs[3]: "done"}
    assert (asked.done, asked.skipped) == (2, {"already_cancelled": 1, "job_ended": 1})
    assert operations.told(asked).gone == 1
    assert driver.state(jobs[2]) == "completed"


def test_each_filter_narrows_alike_when_it_counts_samples_and_gathers(driver: Driver) -> None:
    """Workspace, tenant, type, queue, worker group, states, reason, agent, group, session, made since and until."""
    a = driver.enqueue("echo", tenant="a", queue="chat", exclusive_group="g", session_key="s")
    b = driver.enqueue("echo-thread", tenant="b")
    cancellation.pause(b, by="test", reason="by hand")
    place, both = default_workspace().pk, [a, b]
    hour = timedelta(hours=1)
    cases = {
        JobMatch(): both, JobMatch(workspace_id=place): both, JobMatch(workspace_id=place + 1): [],
        JobMatch(tenant_id=tenant_id("a")): [a], JobMatch(type="echo-thread"): [b], JobMatch(queue="chat"): [a],
        JobMatch(worker_group="nobody"): [], JobMatch(states=("paused",)): [b], JobMatch(reason="by hand"): [b],
        JobMatch(agent="x"): [], JobMatch(exclusive_group="g"): [a], JobMatch(session_key="s"): [a],
        JobMatch(since=clock.now() - hour): both, JobMatch(until=clock.now() - hour): [],
        JobMatch(upto=a): [a], JobMatch(jobs=(b,)): [b], JobMatch(house=True): [],
    }
    for number, (match, wanted) in enumerate(cases.items(), 1):
        assert meant.read(json.loads(json.dumps(match.told()))) == match
        assert meant.count(match) == len(wanted), match
        assert meant.sample(match, 10) == wanted[::-1], match
        assert meant.gather(match, number, None, 0, 100) == (len(wanted), None), match
        assert [str(i.job_id) for i in BulkItem.objects.filter(bulk_id=number)] == wanted, match


def test_gathering_goes_on_where_it_was_and_ends_with_the_last_job(driver: Driver) -> None:
    """A window at a time, whatever of it matches; the numbers run on without gaps."""
    jobs = [driver.enqueue(queue="chat" if n % 3 == 0 else "collect") for n in range(11)]
    match = JobMatch(queue="chat", upto=jobs[9])
    mark, gathered, windows = None, 0, 0
    while True:
        number, mark = meant.gather(match, 1, mark, gathered, 4)
        gathered, windows = gathered + number, windows + 1
        if mark is None:
            break
    assert windows == 3
    found = BulkItem.objects.filter(bulk_id=1).order_by("number").values_list("number", "job_id")
    assert [(n, str(job)) for n, job in found] == [(1, jobs[0]), (2, jobs[3]), (3, jobs[6]), (4, jobs[9])]


@pytest.mark.parametrize(("verb", "more", "code"), [
    ("requeue", {}, "unknown_verb"), ("delete", {}, "unknown_verb"),
    ("cancel", {"match": JobMatch(states=("completed",))}, "invalid_state"),
    ("resume", {"match": JobMatch(states=("queued",))}, "invalid_state"),
    ("cancel", {"match": JobMatch(type="nothing")}, "nothing_matches"),
    ("cancel", {"match": JobMatch(jobs=())}, "invalid_selection"),
    ("cancel", {"pace": Pace(canary=True)}, "invalid_pace"), ("cancel", {"pace": Pace(rate=0)}, "invalid_rate"),
    ("cancel", {"pace": Pace(most_failed=50)}, "invalid_pace"),
])
def test_an_operation_that_makes_no_sense_is_refused(driver: Driver, verb: str, more: dict[str, Any],
                                                     code: str) -> None:
    driver.enqueue()
    with pytest.raises(JobsError) as refusal:
        begin(verb, **more)
    assert refusal.value.reason_code == code
    assert not BulkOperation.objects.exists()


def test_an_archived_tenants_jobs_are_refused_to_callers_and_not_to_the_site(driver: Driver) -> None:
    """B37: the outcome says so; the site's own people may."""
    job = driver.enqueue(tenant="closed")
    archive("closed")
    assert outcomes(run(begin("cancel"))) == {job: "tenant_archived"}
    assert outcomes(run(begin("cancel", allow_archived=True))) == {job: "done"}


def test_the_verb_skips_what_the_house_does_for_itself(driver: Driver) -> None:
    """E11: whoever cancels everything does not silence the ends of others."""
    job = driver.enqueue()
    db.rows("UPDATE jobs_job SET worker_group = 'system' WHERE id = %s RETURNING 1", job)
    with pytest.raises(JobsError, match="Nothing matches"):
        begin("cancel")


def test_two_processes_do_each_job_once(driver: Driver) -> None:
    """A second process takes over, also in the middle of gathering; nothing is done twice."""
    jobs = [driver.enqueue() for _ in range(30)]
    asked = begin("pause")

    def lead() -> None:
        duty = Triage()
        for _ in range(300):
            duty.carry_on(asked.pk, 2)
            if BulkOperation.objects.get(pk=asked.pk).ended:
                return

    together([lead, lead, lead])
    asked.refresh_from_db()
    assert (asked.done, asked.total, asked.skipped, asked.end) == (30, 30, {}, "finished")
    assert Receipt.objects.filter(kind="job.paused").count() == 30
    for job in jobs:
        check(job)


def test_a_rate_and_a_stop_are_kept(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many a second; what was done before a stop stays done, and the rest waits for nobody."""
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    for _ in range(9):
        driver.enqueue()
    asked, duty = begin("cancel", pace=Pace(rate=3)), Triage()
    while duty.carry_on(asked.pk):
        pass
    now[0] += 1.0
    while duty.carry_on(asked.pk):
        pass
    assert operations.stop(asked.pk, by="user:bob")
    now[0] += 60.0
    run(asked)
    assert (asked.done, asked.end, asked.ended_by) == (4, "stopped", "user:bob")
    assert Counter(outcomes(asked).values()) == {"done": 4, None: 5}
    waiting = operations.items(asked.pk, after=0, limit=3, outcome="waiting")
    assert [i.number for i in waiting.items] == [5, 6, 7]
    assert waiting.next == 7


def test_outcomes_are_kept_for_a_week(driver: Driver) -> None:
    """E13: items go a week after the end, the operation with the jobs' own time; an open one keeps both."""
    driver.enqueue()
    ended = run(begin("pause"))
    open_ = begin("resume")
    Triage().carry_on(open_.pk, 0)
    db.pass_time(ITEMS_MS / 1000 + 1)
    duty = Retention()
    while duty.tick():
        pass
    assert set(BulkItem.objects.values_list("bulk_id", flat=True)) == {open_.pk}
    assert BulkOperation.objects.filter(pk=ended.pk).exists()
    db.reset_clock()


def test_a_preview_of_a_hundred_thousand_jobs_counts_to_its_bound_and_no_further(driver: Driver) -> None:
    """No O(backlog) in a request: one statement that stops at 100,001, and gathering by windows."""
    driver.enqueue()
    noise.jobs(100_050, default_workspace().pk, tenant_id())
    with statements() as said:
        found = operations.preview("cancel", JobMatch(), 20)
    assert (found.expected, len(found.sample)) == (operations.COUNTED + 1, 20)
    assert len(said) < 15
    asked = begin("cancel")
    assert Triage().carry_on(asked.pk, 10)
    asked.refresh_from_db()
    assert (asked.gathered, asked.total, asked.done) == (5_000, None, 0)
    assert operations.told(asked).left is None
