"""Trouble with the database is waited out: nothing lost or run by two, few words about it (E8, RELIABILITY 3.8)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from jobs.models import Attempt, Job
from jobsite import postgres
from tests.database import rows
from tests.worker.processes import REPOSITORY, Process, environment, until

NAMED = {"PGAPPNAME": "worker under test"}
END_WORKERS = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name IN ('worker under test', 'jobs listener')"""


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_worker_whose_connections_are_ended_again_and_again_loses_nothing(workers, jobs, tmp_path):
    """Mid-drain: each job completed once, no attempt held by two, unknown commits resolved, exit 0 (E8, I1, I2)."""
    path = tmp_path / "trace"
    made = jobs.add_many("echo", 1_500, path=str(path))
    worker = workers(slots=20, env=NAMED)
    for _ in range(5):
        before = Job.objects.filter(state="completed").count()
        rows(END_WORKERS)
        until(lambda before=before: Job.objects.filter(state="completed").count() > before)
    jobs.wait_all("completed", 1_500)
    assert worker.stop() == 0
    assert worker.events("database_trouble")
    assert worker.events("stopped", left=0)
    assert set(path.read_text().split()[0::3]) == set(made)
    # What it did not know any more was given back, uncounted, and nothing had to wait for its lease.
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"completed", "interrupted"}
    assert not Job.objects.exclude(failures=0, lapses=0).exists()


def test_a_claim_whose_commit_is_not_known_is_given_back(workers, jobs):
    """After a reconnect live attempts in its name that a worker does not know are given back, uncounted (E8)."""
    worker = workers(slots=2, env=NAMED)
    job_id = jobs.add("outside")
    # However long the worker takes to look, its lease does not run out first.
    rows("UPDATE jobs_job SET lease_ms = 60000 WHERE id = %s RETURNING 1", job_id)
    # As a commit leaves it whose answer was lost: leased in the worker's name.
    from jobs.store.claim import Claimer, claim
    from jobs.store.sql import durable

    claimer = Claimer([("runners", "collect")], by=f"worker:{worker.worker_id}", worker_id=worker.worker_id)
    assert len(durable(lambda: claim(claimer, 1)).jobs) == 1
    rows(END_WORKERS)
    job = jobs.wait(job_id, "queued")
    assert (job.failures, job.interruptions) == (0, 1)
    [attempt] = jobs.attempts(job_id)
    assert (attempt.outcome, attempt.reason_code) == ("interrupted", "attempt_unknown")
    worker.wait_for("handed_back_unknown", attempts=1)
    jobs.wait(jobs.add("echo"), "completed")


def test_handlers_on_the_loop_find_the_database_again(workers, jobs):
    """The one thread in which async code reaches the database gets another connection after its own was ended."""
    worker = workers(slots=2, env=NAMED)
    jobs.wait(jobs.add("asks-async"), "completed")
    rows(END_WORKERS)
    jobs.wait(jobs.add("asks-async"), "completed")
    assert worker.stop() == 0


@pytest.fixture
def server():
    """An embedded server of its own, migrated."""
    with tempfile.TemporaryDirectory(prefix="jobs-", dir="/var/tmp") as root:
        # The server runs as another user when we are root.
        os.chmod(root, 0o711)
        project = Path(root, "project")
        project.mkdir()
        here = postgres.start(project, root=Path(root, "files"))
        try:
            manage(here, "migrate", "--verbosity", "0")
            yield here
        finally:
            here.close()


def on(server, **more):
    return environment(**more) | {"DATABASE_URL": server.dsn}


def manage(server, *words):
    done = subprocess.run([sys.executable, "manage.py", *words], cwd=REPOSITORY, env=on(server), capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def enqueue(server, type_, **input_):
    import json

    return manage(server, "enqueue", type_, json.dumps(input_))


def one(server, sql):
    try:
        with psycopg.connect(server.dsn) as connection:
            return connection.execute(sql).fetchone()[0]
    except psycopg.OperationalError:
        return None


def test_a_worker_outlives_a_crash_of_the_server(database, server, tmp_path):
    """kill -9 of the postmaster, seven seconds without: few words, little work, on with it within five (E8, E14.21)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    worker = Process(["--skip-checks", "--slots", "4"], on(server, JOBS_LEASE_S="30"))
    try:
        worker.wait_ready()
        enqueue(server, "gated", path=str(path), gate=str(gate))
        until(path.exists)
        os.kill(server.pid, signal.SIGKILL)
        down, spent = time.monotonic(), cpu_s(worker.pid)
        until(lambda: one(server, "SELECT 1") is None)
        # Its end is kept until somebody can hear of it.
        gate.touch()
        until(lambda: time.monotonic() - down > 7, 12)
        said = len(worker.lines) + len(worker.errors)
        assert said <= 2 * 7, worker.lines + worker.errors
        assert cpu_s(worker.pid) - spent < 2
        postgres.start(server._place.project, root=server._place.state.parent)
        until(lambda: one(server, "SELECT 1"))
        up = time.monotonic()
        until(lambda: one(server, "SELECT count(*) FROM jobs_job WHERE state = 'completed'") == 1)
        assert time.monotonic() - up < 5 + 3  # room for a machine with other things to do
        enqueue(server, "echo-thread", path=str(tmp_path / "after"))
        until(lambda: one(server, "SELECT count(*) FROM jobs_job WHERE state = 'completed'") == 2)
        assert one(server, "SELECT sum(failures + lapses + claims) FROM jobs_job") == 2
        worker.wait_for("database_back")
        assert worker.stop() == 0
    finally:
        worker.kill()


def test_a_drain_without_a_database_ends_all_the_same(database, server, tmp_path):
    """What cannot be settled is left to its lease; few words; exit 0 (RELIABILITY 3.8)."""
    path = tmp_path / "trace"
    worker = Process(["--skip-checks", "--slots", "4"], on(server, JOBS_DRAIN_GRACE_S="3"))
    try:
        worker.wait_ready()
        enqueue(server, "attentive-thread", path=str(path))
        until(path.exists)
        os.kill(server.pid, signal.SIGKILL)
        # Its backends follow it soon; before, one of them may still take the settlement.
        until(lambda: one(server, "SELECT 1") is None)
        begun = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - begun < 12
        assert worker.events("stopped", left=1)
        assert len(worker.lines) + len(worker.errors) <= 12
    finally:
        worker.kill()
