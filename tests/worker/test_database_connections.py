"""Who waits for whom: the control path never shares the work's limits, wakes and readers hold up nobody.

DESIGN 5, 6; cases A12, C09, C12, E07, E08, F09, J02.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest
from django.db import transaction

from jobs.models import Attempt, Job
from jobs.services import cancellation, intake
from tests.database import rows
from tests.races.threads import together
from tests.worker.processes import REPOSITORY, environment, until
from tests.worker.test_stopping import stopped_at
from tests.worker.test_wakes import HEARING, LISTENERS

NAMED = {"PGAPPNAME": "worker under test"}
OURS = "application_name = 'worker under test' AND datname = current_database()"


def lease(job_id):
    return Attempt.objects.get(job_id=job_id).lease_until


@pytest.mark.parametrize("type_", ["attentive", "attentive-thread"])
def test_with_every_slot_busy_leases_are_renewed_and_a_cancel_and_a_signal_are_heard(workers, jobs, tmp_path, type_):
    """case-F09: jobs of a minute in all slots; a lease of 3 s outlives three of them."""
    worker = workers(slots=3)
    paths = [tmp_path / str(n) for n in range(3)]
    made = [jobs.add(type_, path=str(path)) for path in paths]
    until(lambda: all(path.exists() for path in paths))
    first, gaps, seen = lease(made[1]), [], time.monotonic()
    for _ in range(5):
        before = lease(made[1])
        until(lambda before=before: lease(made[1]) > before)
        gaps.append(time.monotonic() - seen)
        seen = time.monotonic()
    assert max(gaps) < 2.9, gaps
    assert (lease(made[1]) - first).total_seconds() > 3
    cancellation.cancel(made[0], by="user:test")
    at = time.time()
    reason, stopped = stopped_at(paths[0])
    assert (reason, stopped - at < 4) == ("claim_lost", True)
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 8
    assert jobs.outcomes(made[1]) == jobs.outcomes(made[2]) == ["interrupted"]


def test_sixteen_threads_share_twenty_connections_whatever_their_handlers_leave(workers, jobs):
    """case-J02: hundreds of cursors, a third raising inside atomic; bounded, none left open, nobody times out."""
    for n in range(600):
        intake.enqueue("queries", {"breaks": n % 3 == 0})
    worker = workers(slots=16, env={**NAMED, "DATABASE_POOL_MAX": "20"})
    most = 0
    while Job.objects.filter(state__in=("queued", "leased", "running")).exists():
        most = max(most, rows(f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}")[0][0])
    assert most <= 16 + 4, most
    idle = f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND state LIKE 'idle in transaction%%'"
    until(lambda: rows(idle) == [(0,)])
    assert set(Attempt.objects.values_list("outcome", "reason_code")) == {("completed", None), ("failed", "as_told")}
    assert Job.objects.filter(state="failed").count() == 200
    assert worker.stop() == 0


def test_cancels_are_seen_within_a_quarter_of_a_second(workers, jobs, tmp_path):
    """DESIGN 6: by notification, though heartbeats come each second and polls each five."""
    workers(slots=1, env={"JOBS_POLL_S": "5"})
    took = []
    for n in range(20):
        path = tmp_path / str(n)
        job_id = jobs.add("attentive", path=str(path))
        until(path.exists)
        # Past the first 50 ms, in which nobody looks.
        until(lambda path=path: time.time() - path.stat().st_mtime > 0.1)
        cancellation.cancel(job_id, by="user:test")
        at = time.time()
        _, stopped = stopped_at(path)
        took.append(stopped - at)
    took.sort()
    print(f"cancel seen: median {1000 * took[9]:.0f} ms, p95 {1000 * took[18]:.0f} ms, most {1000 * took[19]:.0f} ms")
    assert took[9] < 0.25, took
    assert took[18] < 0.9, took


def test_a_cancel_that_falls_into_a_lost_listener_is_seen_all_the_same(workers, jobs, tmp_path):
    """case-A12: within the longer of poll and heartbeat, here a second."""
    workers(slots=1, env={"JOBS_POLL_S": "1"})
    took = []
    for n in range(3):
        path = tmp_path / str(n)
        job_id = jobs.add("attentive", path=str(path))
        until(path.exists)
        until(lambda: rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {HEARING}"))
        cancellation.cancel(job_id, by="user:test")
        at = time.time()
        _, stopped = stopped_at(path)
        took.append(stopped - at)
    print(f"cancel seen without a listener: {', '.join(f'{1000 * t:.0f} ms' for t in took)}")
    assert sorted(took)[1] < 2.5, took


def test_a_listener_that_does_not_read_keeps_nothing_from_being_vacuumed(workers, jobs):
    """case-C09: its process stands still, thousands of notifications wait for it, and it holds no snapshot."""
    worker = workers(slots=1)
    until(lambda: rows(f"SELECT 1 FROM pg_stat_activity WHERE {HEARING}"))
    worker.signal(signal.SIGSTOP)
    try:
        for _ in range(3_000):
            rows("SELECT pg_notify('jobs_wake', '')")
        made = jobs.add_many("echo", 200)
        rows("UPDATE jobs_job SET reason = 'x' WHERE id = ANY(%s) RETURNING 1", made)
        assert rows(f"SELECT backend_xmin::text FROM pg_stat_activity WHERE {LISTENERS}") == [(None,)]
        rows("UPDATE jobs_job SET reason = NULL WHERE id = ANY(%s) RETURNING 1", made)
    finally:
        worker.signal(signal.SIGCONT)
    jobs.wait_all("completed", 200)
    assert worker.stop() == 0


def test_an_open_transaction_that_enqueues_delays_no_other_commit(workers, jobs):
    """case-C12: news goes out after the commit and outside it, so that no server-wide lock is held meanwhile."""
    workers(slots=8)
    done = threading.Event()
    took: list[float] = []

    def holder() -> None:
        with transaction.atomic():
            intake.enqueue("echo", {})
            assert done.wait(60)

    def client() -> None:
        for _ in range(25):
            begun = time.monotonic()
            intake.enqueue("echo", {})
            took.append(time.monotonic() - begun)
        if len(took) == 200:
            done.set()

    together([holder, *[client] * 8])
    took.sort()
    print(f"enqueue beside an open transaction: p99 {1000 * took[197]:.0f} ms")
    assert took[197] < 3, took[-5:]
    jobs.wait_all("completed", 201)


# --- whoever reads us ------------------------------------------------------------------------------------------------


def test_a_reader_that_stands_still_stops_neither_work_nor_leases(database, jobs, tmp_path):
    """Its pipe is full, for stdout and stderr alike: jobs are run, leases renewed, and SIGTERM is honoured."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "runworker", "--skip-checks", "--verbosity", "2", "--slots", "8"], cwd=REPOSITORY,
        env=environment(JOBS_POLL_S="0.2"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        path, gate = tmp_path / "trace", tmp_path / "gate"
        held = jobs.add("gated", path=str(path), gate=str(gate))
        until(path.exists, 30)
        jobs.add_many("echo", 2_000)
        jobs.wait_all("completed", 2_000, 60)
        before = lease(held)
        until(lambda: lease(held) > before)
        cancellation.cancel(jobs.add("attentive", path=str(tmp_path / "other")), by="user:test")
        gate.touch()
        jobs.wait(held, "completed")
        begun = time.monotonic()
        process.terminate()
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 10
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_worker_needs_no_standard_streams(database, jobs, closed):
    """A daemon's: all of them closed."""
    job_id, bad = jobs.add("echo"), jobs.add("misbehaves", kind="code")
    command = f"exec {sys.executable} manage.py runworker --skip-checks --until-empty {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=REPOSITORY, env=environment(), timeout=60, check=False)
    assert done.returncode == 0
    assert (jobs.state(job_id), jobs.state(bad)) == ("completed", "failed")


# --- clocks ----------------------------------------------------------------------------------------------------------

JUMPS = """
import time
_real, _ns, _born = time.time, time.time_ns, time.monotonic()
def _off():
    return (3600, -3600, -600, 7200)[int(time.monotonic() - _born) % 4]
time.time = lambda: _real() + _off()
time.time_ns = lambda: _ns() + _off() * 10**9
"""


def test_a_wall_clock_that_jumps_by_hours_each_second_changes_nothing(workers, jobs, tmp_path):
    """cases E07, E08: polls, heartbeats, retries and leases go by the steady clock and by the database's."""
    (tmp_path / "sitecustomize.py").write_text(JUMPS)
    path, gate = tmp_path / "trace", tmp_path / "gate"
    worker = workers("--no-listen", env={"PYTHONPATH": str(tmp_path)})
    held = jobs.add("gated", path=str(path), gate=str(gate))
    until(path.exists)
    begun, took = time.monotonic(), []
    while time.monotonic() - begun < 5:
        at = time.monotonic()
        jobs.wait(jobs.add("echo-thread"), "completed")
        took.append(time.monotonic() - at)
        [(left,)] = rows("SELECT extract(epoch FROM lease_until - jobs_now()) FROM jobs_attempt WHERE job_id = %s",
                         held)
        assert 0 < left <= 3.1
    assert max(took) < 3, took
    gate.touch()
    jobs.wait(held, "completed")
    assert jobs.outcomes(held) == ["completed"]
    retried = jobs.add("breaks")
    jobs.wait(retried, "failed")
    first, second = jobs.attempts(retried)
    assert 0 <= (second.leased_at - first.ended_at).total_seconds() < 5
    assert not Job.objects.exclude(lapses=0).exists()
    assert worker.stop() == 0
