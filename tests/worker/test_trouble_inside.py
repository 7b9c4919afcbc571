"""Trouble in one part of a worker's round costs the other parts nothing: settling, claiming, duties, locked rows."""

from __future__ import annotations

import io
import logging
import threading

import pytest
from django.db import OperationalError

from jobs import conf
from jobs.models import Job
from jobs.services import assignments, duties, intake, settlement
from jobs.store.claim import Claimer, claim
from jobs.store.sql import durable
from jobs.worker.output import Output
from jobs.worker.plan import Plan
from jobs.worker.runner import WIDE, Worker
from tests.database import rows
from tests.races.threads import elsewhere
from tests.worker.processes import until
from tests.worker.test_parts import running, said


def new(slots=32, **more):
    return Worker(Plan("here", slots, ["default", "unrouted"], ["collect"], **more), Output(io.StringIO()))


@pytest.fixture
def wide(monkeypatch):
    """Every round of these workers has either nothing to settle or many ends at once."""
    gathered = Worker._gather

    def all_of_them(self):
        until(lambda: len(self.slots.ended) == len(self.slots.live))
        gathered(self)

    monkeypatch.setattr(Worker, "_gather", all_of_them)


def once(monkeypatch, module, name, when=lambda *args: True, after=False):
    """The function raises OperationalError one time; `after`: once it has done its work."""
    real, failed = getattr(module, name), []

    def failing(*args, **more):
        first = not failed and when(*args)
        if first:
            failed.append(threading.current_thread().name)
        if not first or after:
            answer = real(*args, **more)
        if first:
            raise OperationalError("gone")
        return answer

    monkeypatch.setattr(module, name, failing)
    return failed


def ends(job_ids, jobs):
    return [jobs.outcomes(job_id) for job_id in job_ids]


@pytest.mark.parametrize("after", [False, True], ids=["undone", "answer lost"])
def test_a_claim_that_fails_beside_a_settlement_loses_nothing(jobs, monkeypatch, wide, after):
    """E8, I1: the ends are settled, what it claimed unknowingly is handed back, and all is run once."""
    ids = jobs.add_many("stamps", 4 * WIDE)
    failed = once(monkeypatch, assignments, "claim_now", after=after)
    tally = new(until_empty=True).run()
    assert len(failed) == 1
    assert (tally.completed, Job.objects.filter(state="completed").count()) == (4 * WIDE, 4 * WIDE)
    handed_back = [x for x in ends(ids, jobs) if x != ["completed"]]
    assert handed_back == ([["interrupted", "completed"]] * 2 * WIDE if after else [])
    assert not Job.objects.exclude(failures=0, lapses=0).exists()


@pytest.mark.parametrize("after", [False, True], ids=["undone", "answer lost"])
def test_a_settlement_that_fails_beside_a_claim_keeps_the_ends_and_begins_the_jobs(jobs, monkeypatch, wide, after):
    """E8, I1: what was claimed runs, no attempt is interrupted, and the ends are said again, once each."""
    ids = jobs.add_many("stamps", 4 * WIDE)
    failed = once(monkeypatch, settlement, "settle", after=after)
    tally = new(until_empty=True).run()
    assert failed == ["jobs-settle"]
    assert ends(ids, jobs) == [["completed"]] * 4 * WIDE
    assert (tally.claimed, tally.completed) == (4 * WIDE, 4 * WIDE)


def test_both_may_fail_at_once(jobs, monkeypatch, wide):
    """E8."""
    ids = jobs.add_many("stamps", 4 * WIDE)
    once(monkeypatch, assignments, "claim_now")
    once(monkeypatch, settlement, "settle")
    assert new(until_empty=True).run().completed == 4 * WIDE
    assert ends(ids, jobs) == [["completed"]] * 4 * WIDE


def test_a_caller_that_holds_a_jobs_row_stalls_no_other(jobs):
    """E8: that end waits aside and is settled once the row is free; the worker goes on meanwhile."""
    stuck = jobs.add("stamps")
    worker = new(slots=4)
    gate = threading.Event()
    begin = worker.slots.begin

    def when_told(batch):
        gate.wait(20)
        begin(batch)

    worker.slots.begin = when_told
    with running(worker):
        until(lambda: jobs.state(stuck) == "leased")
        with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", stuck):
            gate.set()
            for job_id in jobs.add_many("stamps", 200):
                jobs.wait(job_id, "completed", seconds=10)
            assert jobs.state(stuck) == "leased"
            assert len(worker.reports) == 1
        jobs.wait(stuck, "completed", seconds=5)
    assert jobs.outcomes(stuck) == ["completed"]
    assert worker.tally.completed == 201
    assert "worker.late" not in said(worker)


def test_an_undecodable_job_that_is_locked_waits_aside_too(jobs):
    """B21, E8."""
    bad = jobs.add("typed", count=1)
    rows("UPDATE jobs_job SET input = '{}' WHERE id = %s RETURNING 1", bad)
    worker = new(slots=1)
    take = worker._take

    held, go = threading.Event(), threading.Event()

    def slowly(batch, slots):
        if batch.jobs and not held.is_set():
            held.set()
            go.wait(20)
        take(batch, slots)

    worker._take = slowly
    with running(worker):
        assert held.wait(20)
        with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", bad):
            go.set()
            jobs.wait(jobs.add("echo"), "completed")
            assert jobs.state(bad) == "leased"
        jobs.wait(bad, "failed", seconds=5)
    assert jobs.get(bad).reason == "invalid_persisted_input"


def test_a_duty_that_the_database_refuses_comes_after_the_settlement_and_is_put_off(jobs, monkeypatch, caplog):
    """CLAIM, E8: any error of a duty while the next statement works is its own; it starves nobody."""
    tried = []

    def refused():
        tried.append(Job.objects.filter(state="completed").count())
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr(duties.recovery, "promote", refused)
    with running(new()) as worker, caplog.at_level(logging.CRITICAL):
        for _ in range(3):
            jobs.wait(jobs.add("echo"), "completed")
    assert len(tried) == 1
    assert "worker.database_trouble" not in said(worker)


def test_no_duty_comes_before_a_settlement(jobs, monkeypatch):
    """DESIGN 5: with something to settle the duties wait for the end of the round."""
    order = []
    settle, tick = settlement.settle_and_claim, duties.Duties.tick
    monkeypatch.setattr(settlement, "settle_and_claim",
                        lambda reports, *more: (reports and order.append("settle"), settle(reports, *more))[1])
    monkeypatch.setattr(duties.Duties, "tick", lambda self: (order.append("duty"), tick(self))[1])
    jobs.add("echo")
    worker = new(slots=1)
    gather = worker.reports.gather
    worker.reports.gather = lambda: gather() and not order.append("ended")
    with running(worker):
        until(lambda: "settle" in order)
    at = order.index("ended")
    assert order[at : at + 3] == ["ended", "settle", "duty"]


# --- what a worker does not run --------------------------------------------------------------------------------------


@pytest.fixture
def stopped(monkeypatch):
    """`runs=False` for one type."""
    definition = conf.registry().current("echo-thread")
    object.__setattr__(definition, "runs", False)
    yield
    object.__setattr__(definition, "runs", True)


def test_a_definition_that_is_switched_off_stops_claims_and_leaves_rows_queued(jobs, stopped):
    """B43, E7: however often somebody looks; other types and jobs of unknown agents of any type are served."""
    off = jobs.add("echo-thread")
    lost = intake.enqueue("echo-thread", {}, agent="stranger").id
    on = jobs.add("echo")
    before = Job.objects.get(pk=off)
    for _ in range(3):
        new(until_empty=True).run()
    assert (jobs.state(on), jobs.state(lost)) == ("completed", "failed")
    after = Job.objects.get(pk=off)
    assert (after.state, after.claims, after.number) == ("queued", 0, before.number)
    assert jobs.attempts(lost)[0].reason_code == "no_handler"


def test_where_every_definition_runs_the_claim_pays_for_no_filter(jobs):
    """E7: a filter by type costs."""
    worker = new()
    assert worker.claimer.types is None
    worker._close()


def test_a_job_of_an_unknown_agent_is_not_run_wherever_it_was_routed(jobs, settings):
    """A26, E7: UNKNOWN_AGENT_GROUP may name a real group; it fails there, not retryable, until the agent is known."""
    settings.JOBS = {**settings.JOBS, "UNKNOWN_AGENT_GROUP": "default", "AGENTS": ("codex",)}
    strange = intake.enqueue("echo", {}, agent="stranger").id
    known = intake.enqueue("echo", {}, agent="codex").id
    new(until_empty=True).run()
    assert (jobs.state(strange), jobs.state(known)) == ("failed", "completed")
    [attempt] = jobs.attempts(strange)
    assert (attempt.reason_code, attempt.message) == ("no_handler", "No handler for agent 'stranger'")


def test_an_agent_that_became_known_is_served_from_the_unrouted_group(jobs, settings):
    """E7: it fails only while nobody knows it."""
    job_id = intake.enqueue("echo", {}, agent="newcomer").id
    assert jobs.get(job_id).worker_group == "unrouted"
    settings.JOBS = {**settings.JOBS, "AGENTS": ("newcomer",)}
    new(until_empty=True).run()
    assert jobs.state(job_id) == "completed"


def test_a_filter_of_types_spares_the_unrouted_group(jobs):
    """A26: claimed in one transaction, within the slots."""
    lost = [intake.enqueue("echo-thread", {}, agent="stranger").id for _ in range(2)]
    on, off = jobs.add("echo"), jobs.add("echo-thread")
    claimer = Claimer([("default", "collect"), ("unrouted", "collect")], by="worker:x", types=[("echo", 1)])
    assert [j.id for j in assignments.claim_now(claimer, 2).jobs] == [on, lost[0]]
    assert [j.id for j in assignments.claim_now(claimer, 2).jobs] == lost[1:]
    claimer.types = None
    assert [j.id for j in durable(lambda: claim(claimer, 2)).jobs] == [off]


def test_a_look_that_failed_is_looked_again_without_another_wake(jobs, monkeypatch, settings):
    """E8: the wake was used up by the claim that failed; the next poll is a minute away."""
    settings.JOBS = {**settings.JOBS, "POLL_S": 60.0}
    with running(new(slots=2)) as worker:
        jobs.wait(jobs.add("echo"), "completed")
        until(lambda: not worker._more and worker._poll.wait_s() > 10)
        once(monkeypatch, settlement, "settle_and_claim", when=lambda reports, *more: not reports)
        jobs.wait(jobs.add("echo"), "completed", seconds=10)
