"""A worker that has worked enough ends in order, and its supervisor starts a fresh one; restarts for developers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jobs.models import Attempt, Job
from jobs.worker import recycling
from jobs.worker.plan import Plan
from tests.worker.cluster import cpu_s
from tests.worker.processes import REPOSITORY, Process, environment, until


def test_after_so_many_jobs_it_ends_and_the_rest_waits(workers, jobs):
    """Exactly so many, in slots of more; exit 0, with the reason."""
    jobs.add_many("echo", 30)
    worker = workers("--max-jobs", "11", slots=4, ready=False)
    assert worker.wait() == 0
    assert worker.events("recycled", reason="max_jobs", claimed=11)
    assert worker.events("stopped", claimed=11, completed=11, left=0)
    assert Job.objects.filter(state="queued").count() == 19


def test_what_runs_may_end_by_itself_however_long(workers, jobs, tmp_path):
    """Between jobs: nothing is interrupted and no handler asked to stop; SIGTERM would still drain."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    held = jobs.add("gated-thread", path=str(path), gate=str(gate))
    worker = workers("--max-age", "0.5", slots=2, env={"JOBS_DRAIN_GRACE_S": "0"})
    worker.wait_for("recycling", reason="max_age", running=1)
    waiting = jobs.add("echo")
    gate.touch()
    assert worker.wait() == 0
    assert worker.events("recycled", reason="max_age")
    assert (jobs.outcomes(held), jobs.state(waiting)) == (["completed"], "queued")


def test_a_signal_ends_one_that_waits_for_its_last_job(workers, jobs, tmp_path):
    """The drain is the same as ever."""
    path = tmp_path / "trace"
    job_id = jobs.add("gated", path=str(path), gate=str(tmp_path / "never"))
    worker = workers("--max-jobs", "1", env={"JOBS_DRAIN_GRACE_S": "0"})
    worker.wait_for("recycling")
    assert worker.stop() == 0
    assert jobs.outcomes(job_id) == ["interrupted"]


def test_one_that_holds_too_much_memory_ends(workers, jobs):
    """Any worker holds more than a megabyte."""
    worker = workers("--max-memory", "1", ready=False)
    assert worker.wait() == 0
    assert worker.events("recycled", reason="max_memory")


def test_without_limits_nothing_is_looked_at():
    """No cost where it is not used."""
    assert recycling.Recycling.by(Plan("x", 1, [], [])) is None
    assert recycling.resident() > 1024 * 1024


# --- --autoreload --------------------------------------------------------------------------------------------------

SOURCE = '''
from jobs import job
@job("says", isolated=False)
async def says(run) -> str:
    return "{}"
@job("waits-long", isolated=False)
def waits_long(run) -> bool:
    return run.wait(60)
'''


@pytest.fixture
def developed(tmp_path, settings, monkeypatch):
    """A module of definitions that a developer changes."""
    module = tmp_path / "developed.py"

    def write(word: str | None) -> None:
        module.write_text(SOURCE.format(word) if word else "this is no Python")
        # Another second for those who compare whole seconds.
        os.utime(module, (time.time() + write.count, time.time() + write.count))
        write.count += 2

    write.count = 0
    write("one")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["jobsite.definitions", "developed"]}
    yield write
    sys.modules.pop("developed", None)


@pytest.fixture
def reloading(database, developed, tmp_path):
    process = Process(["--skip-checks", "--autoreload", "--slots", "2"], environment(
        JOBS_DEFINITIONS="jobsite.definitions,developed", PYTHONPATH=str(tmp_path), JOBS_DRAIN_GRACE_S="8"))
    yield process
    if process._process.poll() is None:
        process.signal(signal.SIGTERM)
    process.wait(30)


def answer(jobs):
    from jobs.models import Artifact

    job_id = jobs.add("says")
    jobs.wait(job_id, "completed", seconds=30)
    return Artifact.objects.get(job_id=job_id).value


def test_a_change_of_source_hands_back_and_starts_again(reloading, developed, jobs):
    """Soon, whatever the grace; a change that breaks it is waited out; and a signal ends it, with exit code 0."""
    reloading.wait_ready()
    assert answer(jobs) == '"one"'
    held = jobs.add("waits-long")
    jobs.wait(held, "leased", "running")
    developed("two")
    until(lambda: len(reloading.events("ready")) == 2, 40)
    assert reloading.events("source_changed")
    assert jobs.outcomes(held)[0] in ("completed", "interrupted")
    assert answer(jobs) == '"two"'
    developed(None)
    reloading.wait_for("waiting_for_change", 40)
    developed("three")
    until(lambda: len(reloading.events("ready")) == 3, 40)
    assert answer(jobs) == '"three"'
    reloading.signal(signal.SIGTERM)
    assert reloading.wait(30) == 0
    assert not Attempt.objects.filter(ended_at=None).exists()


def test_ctrl_c_once_ends_it(database, developed, tmp_path):
    """As a terminal sends it: to the whole group."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "runworker", "--skip-checks", "--autoreload"], cwd=REPOSITORY,
        env=environment(PYTHONPATH=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        assert process.stdout is not None
        until(lambda: "worker.ready" in process.stdout.readline(), 40)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_a_worker_that_claims_no_more_waits_without_burning_a_processor(workers, jobs, tmp_path):
    """Its last job may take hours."""
    worker = workers("--max-jobs", "1", slots=4)
    gate, path = tmp_path / "gate", tmp_path / "trace"
    job_id = jobs.add("gated", path=str(path), gate=str(gate))
    worker.wait_for("recycling")
    spent, end = cpu_s(worker.pid), time.monotonic() + 2
    until(lambda: time.monotonic() > end)
    assert cpu_s(worker.pid) - spent < 1
    gate.touch()
    jobs.wait(job_id, "completed")
    assert worker.wait(30) == 0
