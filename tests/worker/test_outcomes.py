"""What handlers return, raise and leave behind becomes an outcome, and the worker lives on (DESIGN 6, B8, B25, B33)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.models import Artifact, DeadLetter
from tests.database import rows
from tests.worker.processes import until

KINDS = {
    "exit": "SystemExit", "interrupt": "KeyboardInterrupt", "recursion": "RecursionError",
    "unshowable": "Unshowable", "large": "ValueError", "group": "KeyError: 'two'",
    "text": "nul  and surrogate ? end", "generator": "GeneratorExit", "stop_iteration": "StopIteration",
    "forged": "", "code": "as told",
}


def codes(jobs, job_id):
    return [(a.outcome, a.reason_code) for a in jobs.attempts(job_id)]


def test_a_job_runs_and_completes_in_a_thread_and_on_the_loop(workers, jobs):
    """Enqueue, claim, run, artifact, completed: one attempt each (A3, B8)."""
    workers(slots=2)
    ids = {jobs.add("echo", value="æ"): "æ", jobs.add("echo-thread", value="x"): "x"}
    for job_id, said in ids.items():
        job = jobs.wait(job_id, "completed")
        assert json.loads(Artifact.objects.get(job_id=job_id).value) == said
        assert (job.claims, job.failures, jobs.outcomes(job_id)) == (1, 0, ["completed"])


def test_whatever_a_handler_raises_is_a_recorded_failure_and_the_worker_lives(workers, jobs):
    """SystemExit, KeyboardInterrupt, RecursionError, unshowable, 20 MB, groups, NUL and surrogates (DESIGN 6, E4)."""
    worker = workers(slots=4)
    made = {(type_, kind): jobs.add(type_, kind=kind)
            for kind in KINDS for type_ in ("misbehaves", "misbehaves-async")}
    for (_, kind), job_id in made.items():
        job = jobs.wait(job_id, "failed", seconds=40)
        [attempt] = jobs.attempts(job_id)
        code = {"code": "source_changed", "forged": "None"}.get(kind, "attempt_error")
        assert (attempt.outcome, attempt.reason_code, job.failures) == ("failed", code, 1), kind
        assert KINDS[kind] in (attempt.message or ""), (kind, attempt.message)
        assert len((attempt.message or "").encode()) <= 8 * 1024
    # A policy of none leaves no letter.
    assert not DeadLetter.objects.exists()
    jobs.wait(jobs.add("echo"), "completed")
    assert worker.stop() == 0


def test_an_exit_in_a_task_of_a_handler_does_not_end_the_loop_for_the_others(workers, jobs):
    """asyncio lets SystemExit and KeyboardInterrupt out of run_forever; the loop goes on."""
    worker = workers(slots=4)
    for kind in ("exit", "interrupt"):
        job_id = jobs.add("exits-beside", kind=kind)
        jobs.wait(job_id, "failed")
        assert codes(jobs, job_id) == [("failed", "attempt_error")]
    jobs.wait(jobs.add("echo"), "completed")
    assert worker.stop() == 0


def test_what_is_no_artifact_fails_for_good(workers, jobs):
    """Not of the type, not JSON, too large, too deep: `invalid_artifact`, not retried (B9)."""
    workers(slots=4)
    made = {(type_, kind): jobs.add(type_, kind=kind) for type_ in ("returns", "returns-async")
            for kind in ("object", "large", "surrogate", "number", "nested", "nan")}
    for case, job_id in made.items():
        jobs.wait(job_id, "failed")
        assert codes(jobs, job_id) == [("failed", "invalid_artifact")], case


def test_an_input_that_no_longer_decodes_fails_for_good_even_when_its_turn_comes_late(workers, jobs):
    """`invalid_persisted_input` from leased; from running, by a first heartbeat that was faster, too (B21, E1)."""
    late = jobs.add("typed", count=1)
    rows("UPDATE jobs_job SET input = '{\"count\":\"x\"}' WHERE id = %s RETURNING id", late)
    blocker = jobs.add("blocks", seconds=2.5)
    rows("UPDATE jobs_job SET priority = 9 WHERE id = %s RETURNING id", blocker)
    workers(slots=2)
    job = jobs.wait(late, "failed")
    assert codes(jobs, late) == [("failed", "invalid_persisted_input")]
    assert job.failures == 1
    assert DeadLetter.objects.get(job_id=late).reason == "terminal_error"
    jobs.wait(blocker, "completed")


@pytest.mark.parametrize("type_", ["published", "published-thread"])
def test_a_publication_hook_commits_once(workers, jobs, tmp_path, type_):
    """Once is completed, twice is refused, never is a failure, a throw after the commit undoes nothing (B33, E15)."""
    worker = workers(slots=4, verbosity=2)
    traced = {mode: tmp_path / mode for mode in ("once", "twice", "throws")}
    done = {mode: jobs.add(type_, mode=mode, path=str(path)) for mode, path in traced.items()}
    never = jobs.add(type_, mode="never")
    for mode, job_id in done.items():
        jobs.wait(job_id, "completed")
        assert jobs.outcomes(job_id) == ["completed"], mode
    jobs.wait(never, "failed")
    assert codes(jobs, never) == [("failed", "not_published")]
    assert traced["once"].read_text().split() == ["committed"]
    until(lambda: "already_committed" in traced["twice"].read_text())
    for job_id in done.values():
        worker.wait_for("completed", job=job_id)


def test_a_commit_that_comes_late_commits_nothing(workers, jobs):
    """After the attempt's timeout the hook's commit is refused; a commit kept for later as well (B33, E15)."""
    worker = workers(slots=4)
    late = jobs.add("published-thread", mode="late")
    after = jobs.add("published-thread", mode="after")
    jobs.wait(late, "failed")
    jobs.wait(after, "failed")
    assert codes(jobs, late) == [("failed", "attempt_timeout")]
    assert codes(jobs, after) == [("failed", "not_published")]
    assert not Artifact.objects.exists()
    jobs.wait(jobs.add("echo-thread"), "completed")
    assert worker.stop() == 0


def test_a_hook_may_take_its_time_after_its_commit(workers, jobs, tmp_path):
    """Its attempt has ended, which is no lost claim: nobody stops the hook, nothing is reported as late."""
    worker = workers(slots=2, verbosity=2)
    path = tmp_path / "trace"
    job_id = jobs.add("published", mode="hangs", path=str(path))
    jobs.wait(job_id, "completed")
    worker.wait_for("completed", job=job_id)
    assert path.read_text().split("\n")[:2] == ["committed", "stopping False"]
    assert not worker.events("claim_lost")
    assert not worker.events("late")


def test_a_connection_that_a_handler_leaves_behind_does_not_harm_the_next_job(workers, jobs):
    """Open, aborted, manual, closed and broken: the next handler finds a new one, and nothing of it was kept."""
    worker = workers(slots=1)
    for what in ("open", "manual", "closed", "broken"):
        left, next_ = jobs.add("leaves", what=what), jobs.add("looks")
        jobs.wait(left, "completed")
        jobs.wait(next_, "completed")
        assert json.loads(Artifact.objects.get(job_id=next_).value) is True, what
    aborted, next_ = jobs.add("leaves", what="aborted"), jobs.add("looks")
    jobs.wait(aborted, "failed")
    jobs.wait(next_, "completed")
    assert worker.stop() == 0


def test_a_job_that_was_worked_on_leaves_no_trace_in_the_output_but_its_facts(workers, jobs, tmp_path):
    """Log lines name the job, never its input (B31)."""
    worker = workers(slots=1, verbosity=2)
    jobs.wait(jobs.add("echo", value="canary-7f3a"), "completed")
    assert worker.stop() == 0
    assert "canary-7f3a" not in json.dumps(worker.lines) + worker.log
    assert not list(Path(tmp_path).iterdir())
