"""SIGTERM and SIGINT drain: what can end ends, the rest is handed back and is nobody's failure (B26, E1)."""

from __future__ import annotations

import signal
import time

import pytest

from tests.worker.processes import until


def started(jobs, tmp_path, *types):
    path, gate = tmp_path / "trace", tmp_path / "gate"
    made = [jobs.add(type_, path=str(path), gate=str(gate)) for type_ in types]
    return made, path, gate


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_lets_running_jobs_end_and_claims_nothing_new(workers, jobs, tmp_path, number):
    """Within the grace they complete; what waits stays queued; exit code 0 (B26)."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "20"})
    made, path, gate = started(jobs, tmp_path, "gated", "gated-thread")
    until(lambda: path.exists() and path.read_text().count("start") == 2)
    worker.signal(number)
    worker.wait_for("draining", running=2)
    waiting = jobs.add("echo")
    gate.touch()
    assert worker.wait() == 0
    assert [jobs.outcomes(job_id) for job_id in made] == [["completed"], ["completed"]]
    assert (jobs.state(waiting), jobs.get(waiting).claims) == ("queued", 0)
    assert worker.log == ""


def test_what_does_not_end_within_the_grace_is_handed_back_and_claimable_at_once(workers, jobs, tmp_path):
    """Interrupted, failures unchanged, exit 0 although a thread still runs; another worker ends the work (E1)."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "0.5"})
    made, path, gate = started(jobs, tmp_path, "gated", "gated-thread")
    until(lambda: path.exists() and path.read_text().count("start") == 2)
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 4
    for job_id in made:
        job = jobs.get(job_id)
        assert (job.state, job.failures, job.interruptions) == ("queued", 0, 1)
        [attempt] = jobs.attempts(job_id)
        assert (attempt.outcome, attempt.reason_code) == ("interrupted", "runner_shutdown")
    gate.touch()
    workers()
    for job_id in made:
        job = jobs.wait(job_id, "completed")
        assert (job.claims, job.failures, job.lapses) == (2, 0, 0)


def test_a_job_that_was_handed_back_starts_elsewhere_within_a_poll(workers, jobs, tmp_path):
    """No lease has to run out first."""
    first = workers(slots=1, env={"JOBS_DRAIN_GRACE_S": "0"})
    [job_id], path, gate = started(jobs, tmp_path, "gated")
    until(path.exists)
    second = workers("--no-listen", slots=1)
    first.signal(signal.SIGTERM)
    until(lambda: jobs.outcomes(job_id)[:1] == ["interrupted"])
    gate.touch()
    jobs.wait(job_id, "completed", seconds=5)
    back, again = jobs.attempts(job_id)
    # The poll is 0.2 s here; the rest is room for a machine with other things to do.
    assert (again.leased_at - back.ended_at).total_seconds() < 1.2
    assert str(again.worker_id) == second.worker_id


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_hands_back_at_once(workers, jobs, tmp_path, numbers):
    """However long the grace (DESIGN 6)."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "60"})
    made, path, _ = started(jobs, tmp_path, "gated", "gated-thread")
    until(lambda: path.exists() and path.read_text().count("start") == 2)
    worker.signal(numbers[0])
    worker.wait_for("draining")
    begun = time.monotonic()
    worker.signal(numbers[1])
    assert worker.wait() == 0
    assert time.monotonic() - begun < 3
    assert [jobs.outcomes(job_id) for job_id in made] == [["interrupted"], ["interrupted"]]


def test_an_idle_worker_ends_soon(workers):
    """Nothing to wait for; the quickest of three, since the machine may have other things to do."""
    took = []
    while not took or (min(took) >= 2 and len(took) < 3):
        worker = workers()
        begun = time.monotonic()
        assert worker.stop() == 0
        took.append(time.monotonic() - begun)
        assert worker.events("stopped", claimed=0, left=0)
    assert min(took) < 2


def test_handlers_hear_of_the_drain_and_may_stop_early(workers, jobs, tmp_path):
    """`run.wait` answers and `run.check` raises: handed back before the grace is over, not failed (B26)."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "30"})
    path = tmp_path / "trace"
    job_id = jobs.add("attentive-thread", path=str(path))
    until(path.exists)
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 5
    [attempt] = jobs.attempts(job_id)
    assert (attempt.outcome, attempt.reason_code) == ("interrupted", "runner_shutdown")
    assert jobs.get(job_id).failures == 0


def test_a_handler_on_the_loop_gets_its_last_words(workers, jobs, tmp_path):
    """At the end of the grace it is cancelled, and its `finally` runs before the process ends."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "0"})
    path = tmp_path / "trace"
    job_id = jobs.add("attentive", path=str(path))
    until(path.exists)
    assert worker.stop() == 0
    assert "stopped runner_shutdown" in path.read_text()
    assert jobs.outcomes(job_id) == ["interrupted"]
    assert worker.log == ""


def test_a_hook_may_commit_during_a_drain(workers, jobs, tmp_path):
    """Work that was done is kept: a shutdown does not make a commit late (B33, E1)."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "20"})
    path = tmp_path / "trace"
    job_id = jobs.add("published", mode="waits", path=str(path))
    until(path.exists)
    worker.signal(signal.SIGTERM)
    worker.wait_for("draining")
    (tmp_path / "trace.go").touch()
    assert worker.wait() == 0
    assert jobs.outcomes(job_id) == ["completed"]


def test_a_thread_that_a_handler_made_does_not_keep_the_process(workers, jobs):
    """The interpreter joins such threads; the worker does not wait for them (exit code 0)."""
    worker = workers(env={"JOBS_DRAIN_GRACE_S": "0"})
    job_id = jobs.add("hands-on")
    jobs.wait(job_id, "leased", "running")
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 5
    assert jobs.outcomes(job_id) == ["interrupted"]
