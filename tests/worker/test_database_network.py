"""Faults of the network between a worker and its database, by a proxy: silence, resets, latency, lost answers.

REQUIREMENTS A36, E8; RELIABILITY 5.6; case-A17.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest

from jobs.models import Attempt, Job
from tests.driver import check
from tests.worker import cluster
from tests.worker.cluster import LONG, Cluster
from tests.worker.processes import until
from tests.worker.test_database_outage import Watched, nobody_suffered, passes, started

CLAIMS = re.compile(rb"INSERT INTO jobs_attempt\b")
SETTLES = re.compile(rb"UPDATE jobs_attempt\b")


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


def test_a_half_open_connection_is_noticed_within_fifteen_seconds(jobs, tmp_path):
    """RELIABILITY 5.6: the peer acknowledges and never answers; ends are kept, and all goes on once it does."""
    proxy = jobs.proxy()
    worker = jobs.worker(proxy=proxy)
    made, path, gate = started(jobs, tmp_path)
    begun = time.monotonic()
    with Watched(worker):
        proxy.stall()
        gate.touch()
        noticed = until(lambda: worker.events("database_trouble"), 25)[0]
        took = time.monotonic() - begun
        passes(60 if LONG else 6)
    print(f"half-open noticed after {took:.1f} s: {noticed['error']}")
    assert took < 15 + 3  # room for a machine with other things to do
    assert "has not answered" in noticed["error"]
    proxy.resume()
    up = time.monotonic()
    for job_id in [*made, jobs.add("echo-thread")]:
        jobs.wait(job_id, "completed")
    print(f"everything settled {time.monotonic() - up:.1f} s after it flowed again")
    assert path.read_text().count("start") == 2
    nobody_suffered()
    assert worker.stop() == 0


def test_heartbeats_and_the_listener_notice_it_too(jobs, tmp_path):
    """An idle worker that is silent about it: leases are renewed again, and wakes heard, once it flows."""
    proxy = jobs.proxy()
    worker = jobs.worker(proxy=proxy, JOBS_LEASE_S="20", JOBS_POLL_S="60")
    [job_id], _, gate = started(jobs, tmp_path, 1)
    proxy.stall()
    until(lambda: worker.events("heartbeat_trouble") and worker.events("listener_trouble"), 60)
    proxy.resume()
    until(lambda: jobs.admin("SELECT 1 FROM pg_stat_activity WHERE application_name = 'jobs listener'"
                             " AND state = 'idle' AND query LIKE 'LISTEN%'"))
    renewed = Attempt.objects.get(job_id=job_id).lease_until
    until(lambda: Attempt.objects.get(job_id=job_id).lease_until > renewed)
    gate.touch()
    jobs.wait(job_id, "completed")
    assert jobs.outcomes(job_id) == ["completed"]


@pytest.mark.parametrize("signals", [1, 2])
def test_a_drain_over_a_half_open_connection_ends(jobs, tmp_path, signals):
    """Exit 0 within the grace and what a silent statement may take; a second signal waits three seconds for it."""
    proxy = jobs.proxy()
    worker = jobs.worker(proxy=proxy, JOBS_DRAIN_GRACE_S="2")
    [job_id], _, gate = started(jobs, tmp_path, 1)
    proxy.stall()
    begun = time.monotonic()
    for _ in range(signals):
        worker.signal(signal.SIGTERM)
        passes(0.3)
    assert worker.wait(60) == 0
    took = time.monotonic() - begun
    print(f"{signals} signals over a half-open connection: ended after {took:.1f} s")
    assert took < (45 if signals == 1 else 30)
    gate.touch()
    proxy.resume()
    assert jobs.state(job_id) in ("leased", "running", "queued")


def test_resets_and_latency_lose_nothing(jobs, tmp_path):
    """RELIABILITY 5.6: 100 ms each way, and every connection broken again and again."""
    proxy = jobs.proxy()
    path = tmp_path / "trace"
    made = jobs.add_many("echo", 300, path=str(path))
    worker = jobs.worker(slots=8, proxy=proxy)
    proxy.latency_s = 0.1
    for _ in range(20 if LONG else 5):
        assert proxy.reset()
        passes(1.5)
    proxy.latency_s = 0
    jobs.wait_all("completed", 300, 60)
    assert {line.split()[0] for line in path.read_text().splitlines()} == set(made)
    nobody_suffered()
    assert worker.stop() == 0


@pytest.mark.parametrize("what", [CLAIMS, SETTLES], ids=["claim", "settlement"])
def test_a_commit_whose_answer_is_lost_is_found_out(jobs, tmp_path, what):
    """E8, A36: what was claimed unknowingly is given back at once; what was settled stays settled, and ran once."""
    proxy = jobs.proxy()
    path = tmp_path / "trace"
    # Nothing is prepared, so that every transaction shows its SQL; work comes in small pieces.
    worker = jobs.worker("--no-listen", slots=4, proxy=proxy, DATABASE_POOLER="on")
    cut = []

    def cuts(said: bytes) -> bool:
        if not what.search(said) or len(cut) >= 8:
            return False
        cut.append(said)
        return True

    proxy.cuts = cuts
    made: list[str] = []
    while len(cut) < 8:
        made += jobs.add_many("echo", 4, path=str(path))
        until(lambda: not Job.objects.exclude(state="completed").exists())
    lines = path.read_text().splitlines()
    assert sorted({line.split()[0] for line in lines}) == sorted(made)
    if what is SETTLES:
        # Claims and settlements share transactions: only what was claimed in a cut one is handed back.
        assert len(lines) == len(made)
    assert Attempt.objects.filter(outcome="interrupted").exclude(reason_code="attempt_unknown").count() == 0
    nobody_suffered()
    assert worker.stop() == 0


def test_a_signal_in_the_middle_of_a_commit_leaves_nothing_stuck(jobs, tmp_path):
    """case-A17: the answer to COMMIT is 300 ms late and SIGTERM comes meanwhile: exit 0, no attempt is left live."""
    for n in range(50 if LONG else 4):
        proxy = jobs.proxy()
        worker = jobs.worker(proxy=proxy, DATABASE_POOLER="on", JOBS_DRAIN_GRACE_S="0.5")
        proxy.commit_delay_s = 0.3
        proxy.committing.clear()
        jobs.add_many("echo", 3)
        slow = jobs.add("gated", path=str(tmp_path / f"trace{n}"), gate=str(tmp_path / "never"))
        assert proxy.committing.wait(10)
        begun = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        print(f"SIGTERM within a COMMIT: ended after {time.monotonic() - begun:.1f} s")
        assert not Attempt.objects.filter(ended_at=None).exists()
        assert jobs.state(slow) == "queued"
        nobody_suffered()
        rest = jobs.worker("--until-empty")
        (tmp_path / "never").touch()
        assert rest.wait() == 0
        (tmp_path / "never").unlink()
        assert not Job.objects.exclude(state="completed").exists()
