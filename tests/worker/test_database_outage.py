"""A database that goes away, says no, or ends connections: nothing lost or run twice, few words, back soon.

REQUIREMENTS A36, E8; RELIABILITY 3.8, 5.6; case-C02.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from jobs.models import Artifact, Attempt, Job
from jobs.publish import CHANNEL
from tests.driver import check
from tests.worker import cluster
from tests.worker.cluster import LONG, NAME, Cluster, cpu_s
from tests.worker.processes import Process, until


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with cluster.new() as made:
        yield made


@pytest.fixture
def jobs(own: Cluster, django_db_setup, django_db_blocker) -> Iterator[Cluster]:
    with django_db_blocker.unblock(), own.here():
        yield own
        for job_id, in Job.objects.values_list("id")[:50]:
            check(job_id)


class Watched:
    """What a worker says and spends within the block, per second of it."""

    def __init__(self, worker: Process) -> None:
        self.worker = worker

    def said(self) -> int:
        return len(self.worker.lines) + len(self.worker.plain) + len(self.worker.errors)

    def __enter__(self) -> Watched:
        self.begun, self.before, self.spent = time.monotonic(), self.said(), cpu_s(self.worker.pid)
        return self

    def __exit__(self, *error: object) -> None:
        passed = time.monotonic() - self.begun
        # A rate needs a while: over a second and a bit, the beginning and the end of it would be too many.
        self.lines_s = (self.said() - self.before) / max(passed, 2.0)
        self.cpu = (cpu_s(self.worker.pid) - self.spent) / passed
        if error[0] is None:
            assert self.lines_s <= 2, (self.worker.lines[-20:], self.worker.log)
            assert self.cpu < 0.2
            print(f"{passed:.1f} s of trouble: {self.lines_s:.2f} lines/s, {100 * self.cpu:.1f} % of a processor")


class Said(Watched):
    """As Watched, of a worker that has work to do."""

    def __exit__(self, *error: object) -> None:
        passed = time.monotonic() - self.begun
        if error[0] is None:
            assert (self.said() - self.before) / passed <= 2, (self.worker.lines[-40:], self.worker.log[-2000:])


def passes(seconds: float) -> None:
    """So much of an outage."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, seconds + 5)


def nobody_suffered() -> None:
    """Each attempt completed or was handed back uncounted, and no job has a failure or a lapse."""
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"completed", "interrupted"}
    assert not Job.objects.exclude(failures=0, lapses=0).exists()


def started(jobs, tmp_path, count=2):
    path, gate = tmp_path / "trace", tmp_path / "gate"
    made = [jobs.add(("gated", "gated-thread")[n % 2], path=str(path), gate=str(gate)) for n in range(count)]
    # The wake of this process goes to the server of the other tests.
    with connection.cursor() as cursor:
        cursor.execute(f"NOTIFY {CHANNEL}")
    until(lambda: path.exists() and path.read_text().count("start") == count)
    return made, path, gate


@pytest.mark.parametrize(("how", "seconds"), [
    (signal.SIGINT, 0), (signal.SIGQUIT, 0), (signal.SIGINT, 30 if LONG else 6), (signal.SIGKILL, 3)],
    ids=["fast restart", "immediate restart", "outage", "crash"])
def test_a_server_that_comes_back_finds_every_end_kept(jobs, tmp_path, how, seconds):
    """A36, E8: handlers end while it is away; they ran once, their artifacts are there, and it is quiet meanwhile."""
    worker = jobs.worker()
    made, path, gate = started(jobs, tmp_path)
    waiting = jobs.add_many("echo", 50)
    with Watched(worker):
        jobs.stop(how)
        gate.touch()
        until(lambda: path.read_text().count("end") == 2)
        passes(seconds + 0.5)
        jobs.start()
        up = time.monotonic()
        connection.close()
    until(lambda: Job.objects.filter(state="completed").count() == 52)
    back = time.monotonic() - up
    print(f"everything settled {back:.1f} s after the server's return")
    assert back < 15
    assert [jobs.outcomes(job_id) for job_id in made] == [["completed"]] * 2
    assert Artifact.objects.filter(job_id__in=[*made, *waiting]).count() == 52
    assert path.read_text().count("start") == 2
    nobody_suffered()
    assert worker.stop() == 0
    assert worker.events("stopped", left=0)


def test_a_read_only_spell_is_trouble_of_the_server_and_no_jobs_failure(jobs, tmp_path):
    """case-C02: ends are kept, hooks that could not commit run again, and no connection stays read-only after it."""
    worker = jobs.worker(slots=6)
    made, _, gate = started(jobs, tmp_path, 4)
    hooked = tmp_path / "hooked"
    published = jobs.add("published", mode="waits", path=str(hooked))
    until(hooked.exists)
    try:
        jobs.admin(f"ALTER DATABASE {NAME} SET default_transaction_read_only = on")
        jobs.end_backends()
        with Watched(worker):
            gate.touch()
            (tmp_path / "hooked.go").touch()
            worker.wait_for("database_trouble")
            passes(20 if LONG else 6)
    finally:
        jobs.admin(f"ALTER DATABASE {NAME} RESET default_transaction_read_only")
    up = time.monotonic()
    until(lambda: Job.objects.filter(state="completed").count() == 5)
    print(f"everything settled {time.monotonic() - up:.1f} s after the end of the spell")
    assert [jobs.outcomes(job_id) for job_id in made] == [["completed"]] * 4
    assert jobs.outcomes(published)[-1] == "completed"
    # Handlers that write by the pool's connections.
    for job_id in [jobs.add("staged") for _ in range(8)]:
        jobs.wait(job_id, "completed")
    nobody_suffered()
    assert worker.stop() == 0


def test_any_connection_may_be_ended_at_any_moment(jobs, tmp_path):
    """E8, I1, I2: each job completed, no failure counted, no more than two lines a second."""
    path = tmp_path / "trace"
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    made = jobs.add_many("echo", 1_000, path=str(path))
    worker = jobs.worker(slots=8)
    with Said(worker):
        end = time.monotonic() + (30 if LONG else 8)
        while time.monotonic() < end:
            jobs.add("echo-thread", path=str(path))
            jobs.end_backends(f"pid % 3 = {chance.randrange(3)}")
            passes(chance.uniform(0.02, 0.5))
    until(lambda: not Job.objects.exclude(state="completed").exists(), 60)
    assert set(made) <= {line.split()[0] for line in path.read_text().splitlines()}, seed
    nobody_suffered()
    assert worker.stop() == 0


def test_a_server_without_a_connection_to_spare_is_waited_for(jobs, tmp_path):
    """Too many connections: as an outage."""
    worker = jobs.worker()
    made, _, gate = started(jobs, tmp_path)
    try:
        jobs.admin("ALTER ROLE jobs CONNECTION LIMIT 0")
        with Watched(worker):
            jobs.end_backends()
            gate.touch()
            passes(6)
    finally:
        jobs.admin("ALTER ROLE jobs CONNECTION LIMIT -1")
    for job_id in made:
        jobs.wait(job_id, "completed")
    nobody_suffered()
    assert worker.stop() == 0


@pytest.mark.parametrize("flag", ["--once", "--until-empty"])
def test_a_worker_whose_end_is_waited_for_gives_up_on_a_lost_database(jobs, tmp_path, flag):
    """Exit code 1 within a minute, in a sentence; the job is left to its lease."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("gated", path=str(path), gate=str(gate))
    worker = jobs.worker(flag)
    until(path.exists)
    jobs.stop()
    try:
        begun = time.monotonic()
        gate.touch()
        assert worker.wait(90) == 1
        took = time.monotonic() - begun
    finally:
        jobs.start()
        connection.close()
    assert 15 < took < 60
    assert "The database was lost: " in worker.log
    assert "Traceback" not in worker.log
    assert jobs.state(job_id) in ("leased", "running")
