"""Isolated handlers that do not end: killed with all that they started, in time, whoever dies or freezes meanwhile."""

from __future__ import annotations

import os
import signal
import time

import pytest

from jobs.models import Artifact
from jobs.services import cancellation, commands
from tests.database import row_hash, rows
from tests.worker.living import children, guard, in_group, is_alive
from tests.worker.processes import until

WAYS = ("gil", "thread", "socket", "process", "bare", "str")


def told(path, word):
    """The lines of a trace that begin with this word, each as words."""
    return [line.split() for line in path.read_text().splitlines() if line.startswith(word)] if path.exists() else []


def begun(path, count=1):
    until(lambda: len(told(path, "start")) >= count, 30)
    return [int(line[2]) for line in told(path, "start")]


def grandchildren(path):
    return [int(line[1]) for line in told(path, "grandchild")]


def test_a_handler_that_never_ends_is_killed_at_its_timeout_with_all_that_it_started(isolating, jobs, tmp_path):
    """Native code with the GIL, a thread, a socket, a deaf program, a bare except, an endless __str__ (case-B09, B10).

    The first executor is dead before the second writes its first line (case-A05).
    """
    worker = isolating(slots=3)
    made = {kind: jobs.add("hangs", kind=kind, path=str(tmp_path / kind)) for kind in WAYS}
    for kind, job_id in made.items():
        path = tmp_path / kind
        job = jobs.wait(job_id, "failed", seconds=60)
        assert [(a.outcome, a.reason_code) for a in jobs.attempts(job_id)] == [("failed", "attempt_timeout")] * 2, kind
        assert job.failures == 2
        for line, attempt in zip(told(path, "start"), jobs.attempts(job_id), strict=True):
            assert 1.9 < attempt.ended_at.timestamp() - float(line[3]) < 7, kind
            until(lambda line=line: not in_group(int(line[2])), 5)
        assert not [pid for pid in grandchildren(path) if is_alive(pid)]
        second = float(told(path, "start")[1][3])
        assert [line for line in told(path, "line 1") if float(line[2]) >= second] == []
    assert len(told(tmp_path / "thread", "line 1")) > 5
    jobs.wait(jobs.add("apart"), "completed")
    assert worker.stop() == 0


def test_a_lease_is_renewed_while_a_child_holds_the_gil(isolating, jobs):
    """Three leases of 3 s: one attempt, no heartbeat late by more than half a lease (case-A08)."""
    isolating(slots=1)
    job_id = jobs.add("holds-gil", seconds=9)
    least = []
    look = ("SELECT extract(epoch FROM lease_until - jobs_now()) FROM jobs_attempt"
            " WHERE job_id = %s AND ended_at IS NULL")

    def done():
        least.extend(float(left) for left, in rows(look, job_id))
        return jobs.state(job_id) == "completed"

    until(done, 30)
    job = jobs.get(job_id)
    assert (job.claims, job.lapses, jobs.outcomes(job_id)) == (1, 0, ["completed"])
    # A beat a second leaves two thirds; a lapse would leave nothing.
    assert min(least) > 0.5, min(least)


@pytest.mark.parametrize("type_", ["attentive-apart", "attentive-apart-async"])
def test_a_cancel_and_an_abort_reach_a_child(isolating, jobs, tmp_path, type_):
    """`run.wait` answers, a coroutine is cancelled; void claims and honoured aborts as in a worker (E5, B26)."""
    worker = isolating(slots=1)
    cancelled, aborted = tmp_path / "cancelled", tmp_path / "aborted"
    job_id = jobs.add(type_, path=str(cancelled))
    until(lambda: told(cancelled, "start"))
    cancellation.cancel(job_id, by="user:test")
    until(lambda: told(cancelled, "stopped claim_lost"))
    job_id = jobs.add(type_, path=str(aborted))
    until(lambda: told(aborted, "start"))
    commands.abort(job_id, by="user:test")
    until(lambda: told(aborted, "stopped abort_requested"))
    job = jobs.wait(job_id, "cancelled")
    assert (job.failures, jobs.outcomes(job_id)) == (0, ["cancelled"])
    # Both stopped in time, so that one child served both.
    assert not worker.events("child_died")


def test_a_deaf_child_whose_claim_is_lost_is_killed_within_seconds(isolating, jobs, tmp_path):
    """Its job belongs to others; the slot is free again (E5)."""
    isolating(slots=1)
    path = tmp_path / "trace"
    job_id = jobs.add("deaf-apart", path=str(path))
    [pid] = begun(path)
    cancellation.cancel(job_id, by="user:test")
    until(lambda: told(path, "cancelled"))
    until(lambda: not is_alive(pid), 10)
    assert jobs.outcomes(job_id) == ["cancelled"]
    jobs.wait(jobs.add("apart"), "completed")


def test_at_a_shutdown_an_attentive_child_stops_within_the_grace(isolating, jobs, tmp_path):
    """Handed back as interrupted, which is no failure (E1, B26)."""
    worker = isolating(slots=1, env={"JOBS_DRAIN_GRACE_S": "30"})
    path = tmp_path / "trace"
    job_id = jobs.add("attentive-apart", path=str(path))
    until(lambda: told(path, "start"))
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 10
    assert told(path, "stopped runner_shutdown")
    [attempt] = jobs.attempts(job_id)
    assert (attempt.outcome, attempt.reason_code, jobs.get(job_id).failures) == ("interrupted", "runner_shutdown", 0)


def test_at_a_shutdown_deaf_children_are_killed_and_their_jobs_handed_back(isolating, jobs, tmp_path):
    """SIGKILL at the end of the grace, claimable at once, no failure; no process survives the worker (E1)."""
    worker = isolating(slots=3, env={"JOBS_DRAIN_GRACE_S": "0.5"})
    paths = {type_: tmp_path / type_ for type_ in ("gated-apart", "holds-gil", "deaf-apart")}
    made = [jobs.add("gated-apart", path=str(paths["gated-apart"]), gate=str(tmp_path / "gate")),
            jobs.add("holds-gil", path=str(paths["holds-gil"]), seconds=120),
            jobs.add("deaf-apart", path=str(paths["deaf-apart"]))]
    pids = [begun(path)[0] for path in paths.values()]
    mine = [*children(worker.pid), guard(worker.pid)]
    assert set(pids) <= set(mine)
    assert worker.stop() == 0
    assert not [pid for pid in mine if is_alive(pid)]
    assert not [pid for path in paths.values() for pid in grandchildren(path) if is_alive(pid)]
    for job_id in made:
        [attempt] = jobs.attempts(job_id)
        assert (attempt.outcome, attempt.reason_code) == ("interrupted", "runner_shutdown")
        assert (jobs.state(job_id), jobs.get(job_id).failures) == ("queued", 0)


def test_children_and_grandchildren_of_a_killed_worker_die_at_once(isolating, jobs, tmp_path):
    """kill -9, while handlers hold the GIL and have started programs that hear of nothing (E14.21)."""
    worker = isolating(slots=2)
    paths = [tmp_path / "gil", tmp_path / "gated"]
    jobs.add("holds-gil", path=str(paths[0]), seconds=120)
    jobs.add("gated-apart", path=str(paths[1]), gate=str(tmp_path / "gate"))
    pids = [begun(path)[0] for path in paths] + [pid for path in paths for pid in grandchildren(path)]
    watching = guard(worker.pid)
    assert len(pids) == 4
    worker.kill()
    until(lambda: not [pid for pid in [*pids, watching] if is_alive(pid)], 10)


def test_without_its_guard_a_killed_workers_children_still_die_and_a_dead_guard_is_replaced(isolating, jobs, tmp_path):
    """The system's parent-death signal works as well; the guard's successor knows the groups of before (E14.21)."""
    worker = isolating(slots=1)
    path = tmp_path / "trace"
    jobs.add("holds-gil", path=str(path), seconds=120)
    [pid] = begun(path)
    first = guard(worker.pid)
    os.kill(first, signal.SIGKILL)
    second = until(lambda: (now := guard(worker.pid)) != first and now)
    os.kill(second, signal.SIGSTOP)
    try:
        worker.kill()
        until(lambda: not is_alive(pid), 10)
    finally:
        os.kill(second, signal.SIGCONT)
    until(lambda: not [p for p in [second, *grandchildren(path)] if is_alive(p)], 10)


def test_a_child_that_the_guard_killed_while_its_worker_was_frozen_is_nobodys_failure(isolating, jobs, tmp_path):
    """It wakes before anybody has recovered the job: handed back, uncounted (E1, E14.21)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    worker = isolating("--no-loops", slots=1)
    job_id = jobs.add("gated-apart", path=str(path), gate=str(gate))
    [pid] = begun(path)
    until(lambda: jobs.state(job_id) == "running")
    worker.signal(signal.SIGSTOP)
    until(lambda: not is_alive(pid), 15)
    worker.signal(signal.SIGCONT)
    begun(path, 2)
    gate.touch()
    job = jobs.wait(job_id, "completed", seconds=20)
    assert (job.failures, jobs.outcomes(job_id)) == (0, ["interrupted", "completed"])
    assert jobs.attempts(job_id)[0].reason_code == "worker_frozen"
    assert worker.stop() == 0


def test_a_frozen_workers_children_are_killed_before_others_take_their_jobs(isolating, jobs, tmp_path):
    """SIGSTOP: dead by lease and grace, grandchildren too; what wakes changes nothing of the recovered job (E14.21)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    first = isolating(slots=1)
    job_id = jobs.add("gated-apart", path=str(path), gate=str(gate))
    [pid] = begun(path)
    grandchild = grandchildren(path)[0]
    # Past its start, so that a heartbeat has been there.
    until(lambda: jobs.state(job_id) == "running")
    first.signal(signal.SIGSTOP)
    frozen = time.monotonic()
    second = isolating(slots=1)
    until(lambda: not is_alive(pid) and not is_alive(grandchild), 15)
    took = time.monotonic() - frozen
    begun(path, 2)
    gate.touch()
    jobs.wait(job_id, "completed", seconds=20)
    # A lease of 3 s and a grace of 1; the rest is room for a loaded machine.
    assert took < 8, took
    assert len(told(path, "end")) == 1
    before = row_hash(job_id)
    first.signal(signal.SIGCONT)
    until(lambda: first.events("claim_lost", job=job_id) or first.events("late", job=job_id))
    assert second.stop() == 0
    jobs.wait(jobs.add("apart"), "completed")
    assert row_hash(job_id) == before
    assert Artifact.objects.count() == 2
    assert [a.outcome for a in jobs.attempts(job_id)] == ["lapsed", "completed"]
    assert first.stop() == 0


def test_a_job_that_waits_for_a_child_is_given_back_when_it_is_cancelled_or_the_worker_ends(isolating, jobs, tmp_path):
    """A child that never becomes ready holds up neither (E1, E5)."""
    worker = isolating(slots=1, env={"JOBS_DRAIN_GRACE_S": "30"})
    [child] = until(lambda: children(worker.pid))
    os.kill(child, signal.SIGKILL)
    until(lambda: children(worker.pid) not in ([], [child]))
    [slow] = children(worker.pid)
    os.kill(slow, signal.SIGSTOP)
    job_id = jobs.add("apart")
    jobs.wait(job_id, "leased", "running")
    assert worker.stop() == 0
    assert jobs.outcomes(job_id) in (["interrupted"], ["completed"])
    assert not is_alive(slow)


