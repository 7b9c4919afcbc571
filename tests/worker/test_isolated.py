"""Isolated handlers: whatever they raise, return or do to their process has the right outcome; the worker lives on."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time

import pytest

from jobs.models import Artifact, DeadLetter
from jobs.services import cancellation
from tests.worker.living import children, is_alive
from tests.worker.processes import until
from tests.worker.test_outcomes import KINDS as RAISED

RAISES = {
    **RAISED, "group-large": "many", "recursion-sorted": "RecursionError", "recursion-repr": "RecursionError",
    "wordy": "Wordy", "local": "of this call", "open-file": "/dev/null", "memory": "MemoryError",
    "on-commit": "ZeroDivisionError",
}
DEATHS = {
    "exit": "exit status 3", "abort": "SIGABRT", "segfault": "string_at", "killed": "SIGKILL", "wire": "exit status 1",
}


def value(job_id):
    return json.loads(Artifact.objects.get(job_id=job_id).value)


def ended(jobs, job_id, number=1, seconds=20):
    """The attempt of this number, once it has ended."""
    return until(lambda: next((a for a in jobs.attempts(job_id) if a.number == number and a.ended_at), None), seconds)


def test_a_job_runs_in_a_child_that_serves_the_next_one_too(isolating, jobs):
    """A process and session of its own, kept from job to job (DESIGN 6)."""
    worker = isolating(slots=1)
    ran = []
    for _ in range(3):
        job_id = jobs.add("apart")
        jobs.wait(job_id, "completed")
        ran.append(json.loads(value(job_id)))
    assert {r["parent"] for r in ran} == {worker.pid}
    [pid] = {r["pid"] for r in ran}
    assert pid != worker.pid
    assert {r["session"] for r in ran} == {pid}
    assert worker.stop() == 0
    assert not is_alive(pid)
    assert worker.log == ""


@pytest.mark.parametrize("type_", ["fails", "fails-async"])
def test_whatever_an_isolated_handler_raises_is_recorded_and_the_next_job_runs(isolating, jobs, type_):
    """20 MB, NUL, unshowable, exits, recursion, out of memory, nothing that pickles.

    (case-D14, case-D09, case-D15, case-D16, case-D02)
    """
    worker = isolating(slots=2)
    # A transaction in a coroutine is refused before it has any hook.
    kinds = set(RAISES) - ({"on-commit"} if type_ == "fails-async" else set())
    made = {kind: jobs.add(type_, kind=kind) for kind in kinds}
    for kind, job_id in made.items():
        job = jobs.wait(job_id, "failed", seconds=40)
        [attempt] = jobs.attempts(job_id)
        code = {"code": "source_changed", "forged": "None"}.get(kind, "attempt_error")
        assert (attempt.outcome, attempt.reason_code, job.failures) == ("failed", code, 1), kind
        assert RAISES[kind] in (attempt.message or ""), (kind, attempt.message)
        assert len((attempt.message or "").encode()) <= 8 * 1024
    jobs.wait(jobs.add("apart"), "completed")
    assert not worker.events("child_died")
    assert worker.stop() == 0


def test_what_is_no_artifact_of_an_isolated_handler_fails_for_good(isolating, jobs):
    """Too large, not JSON, a lambda, a generator, a circle: `invalid_artifact`, not retried (B9, case-D16)."""
    isolating(slots=2)
    made = {kind: jobs.add("answers", kind=kind) for kind in
            ("object", "large", "surrogate", "number", "nested", "nan", "lambda", "generator", "circular")}
    for kind, job_id in made.items():
        jobs.wait(job_id, "failed")
        [attempt] = jobs.attempts(job_id)
        assert (attempt.outcome, attempt.reason_code) == ("failed", "invalid_artifact"), kind


def test_a_child_that_dies_fails_its_attempt_at_once_and_the_next_job_starts(isolating, jobs, tmp_path):
    """`process_died` with how it died and its last words: counted, retryable, soon recorded (DESIGN 6)."""
    worker = isolating(slots=1)
    for kind, how in DEATHS.items():
        path, after = tmp_path / kind, tmp_path / f"{kind}-after"
        job_id = jobs.add("dies", kind=kind, path=str(path))
        attempt = ended(jobs, job_id)
        # One that is retried in a second must not come first.
        next_ = jobs.add("apart", path=str(after))
        cancellation.cancel(job_id, by="user:test")
        assert (attempt.outcome, attempt.reason_code) == ("failed", "process_died")
        assert how in attempt.message, attempt.message
        if kind not in ("killed", "wire"):
            assert "last words" in attempt.message
        begun = float(path.read_text().splitlines()[0].split()[2])
        # Truly a few milliseconds; a loaded machine has other things to do.
        assert attempt.ended_at.timestamp() - begun < 5
        assert jobs.get(job_id).failures == 1
        jobs.wait(next_, "completed")
        assert float(after.read_text().split()[1]) - attempt.ended_at.timestamp() < 10
        assert worker.events("child_died", job=job_id)


def test_a_job_that_kills_its_process_is_started_three_times_and_then_a_letter(isolating, jobs, tmp_path):
    """Beside 100 others, which all complete; with backoff between the starts (case-B02)."""
    worker = isolating(slots=2)
    path = tmp_path / "trace"
    poison = jobs.add("dies", kind="killed", path=str(path))
    jobs.add_many("apart", 100)
    jobs.wait_all("completed", 100, seconds=60)
    job = jobs.wait(poison, "failed", seconds=60)
    starts = [float(line.split()[2]) for line in path.read_text().splitlines()]
    assert len(starts) == 3
    # A delay of a second is jittered to between half and whole.
    assert all(later - earlier > 0.45 for earlier, later in itertools.pairwise(starts))
    assert (job.claims, job.failures, job.lapses) == (3, 3, 0)
    assert DeadLetter.objects.get(job_id=poison).reason == "attempts_exhausted"
    assert worker.stop() == 0


def test_a_child_killed_from_outside_fails_its_attempt_and_the_worker_goes_on(isolating, jobs, tmp_path):
    """kill -9 of the child: counted, its grandchild gone too, another child serves (DESIGN 6)."""
    worker = isolating(slots=1)
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("gated-apart", path=str(path), gate=str(gate))
    until(lambda: path.exists() and "start" in path.read_text())
    grandchild, child = (int(line.split()[-1]) for line in path.read_text().splitlines())
    assert child in children(worker.pid)
    os.kill(child, signal.SIGKILL)
    attempt = ended(jobs, job_id)
    assert (attempt.reason_code, attempt.outcome) == ("process_died", "failed")
    until(lambda: not is_alive(grandchild))
    gate.touch()
    jobs.wait(jobs.add("apart"), "completed")


def test_a_service_managers_signals_to_every_process_end_no_job(isolating, jobs, tmp_path):
    """SIGTERM and SIGINT for a child are the worker's to answer; programs that it starts hear them (B26)."""
    worker = isolating(slots=1)
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("gated-apart", path=str(path), gate=str(gate))
    until(lambda: path.exists() and "start" in path.read_text())
    child = int(path.read_text().splitlines()[1].split()[2])
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(child, number)
    time.sleep(0.2)
    gate.touch()
    assert jobs.wait(job_id, "completed").claims == 1
    assert worker.stop() == 0


def test_what_handlers_print_goes_to_stderr_and_into_their_lines_not_among_the_events(isolating, jobs):
    """Raw bytes, long lines and other programs' words corrupt nothing."""
    worker = isolating(slots=1)
    jobs.wait(jobs.add("prints"), "completed")
    jobs.wait(jobs.add("apart"), "completed")
    assert worker.stop() == 0
    assert not worker.events("forged")
    assert worker.plain == []
    for said in ('{"event": "worker.forged"}', "to stderr", "raw \\xff", "by another program"):
        assert said in worker.log
    assert max(map(len, worker.errors)) < 3_000


def test_an_isolated_coroutine_uses_the_database_and_the_loops_threads(isolating, jobs):
    """By the same child, again and again: nothing of it is left to be recycled for."""
    worker = isolating(slots=1, verbosity=2)
    pids = set()
    for _ in range(3):
        job_id = jobs.add("apart-async", threads=3)
        jobs.wait(job_id, "completed")
        pids.add(value(job_id))
    assert len(pids) == 1
    assert not worker.events("child_recycled")


def test_progress_and_checkpoints_of_a_child_survive_its_death(isolating, jobs):
    """The next attempt finds what the last one kept (B30, C33)."""
    isolating(slots=1)
    job_id = jobs.add("staged-apart")
    jobs.wait(job_id, "completed", seconds=30)
    assert value(job_id) == 1
    assert [a.reason_code for a in jobs.attempts(job_id)] == ["process_died", None]


def test_a_publication_hook_in_a_child_settles_once(isolating, jobs, tmp_path):
    """Whatever becomes of its process afterwards: the completion stands, and nobody takes the claim for lost (B33)."""
    worker = isolating(slots=2, verbosity=2)
    paths = {mode: tmp_path / mode for mode in ("once", "twice", "waits", "dies", "hangs")}
    made = {mode: jobs.add("published-apart", mode=mode, path=str(path)) for mode, path in paths.items()}
    for mode, job_id in made.items():
        jobs.wait(job_id, "completed")
        worker.wait_for("completed", job=job_id)
        assert jobs.outcomes(job_id) == ["completed"]
        said = paths[mode].read_text().split("\n")[:-1]
        assert said == ["committed", *{"waits": ["stopping False"], "twice": ["already_committed"]}.get(mode, [])]
    assert not worker.events("claim_lost")
    assert not worker.events("late")
    jobs.wait(jobs.add("apart"), "completed")
