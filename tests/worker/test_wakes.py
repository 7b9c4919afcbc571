"""Wake is a hint, polling is the truth (DESIGN 4)."""

from __future__ import annotations

import json

from jobs.models import Artifact
from tests.database import rows
from tests.worker.processes import until

LISTENERS = "application_name = 'jobs listener' AND datname = current_database()"
HEARING = f"{LISTENERS} AND state = 'idle' AND query LIKE 'LISTEN%%'"


def latencies(jobs, count):
    """Seconds from the enqueue's commit to the handler's first line, by the clock of one machine."""
    import time

    took = []
    for _ in range(count):
        job_id = jobs.add("stamps")
        at = time.time()
        jobs.wait(job_id, "completed")
        took.append(json.loads(Artifact.objects.get(job_id=job_id).value) - at)
    return sorted(took)


def test_a_listening_worker_picks_up_at_once_though_it_polls_each_five_seconds(workers, jobs):
    """p95 below 250 ms."""
    workers(slots=2, env={"JOBS_POLL_S": "5"})
    took = latencies(jobs, 30)
    assert took[28] < 0.25, took


def test_polling_alone_finds_everything(workers, jobs):
    """No listener: within a poll interval."""
    worker = workers("--no-listen", slots=2, env={"JOBS_POLL_S": "0.5"})
    assert rows(f"SELECT count(*) FROM pg_stat_activity WHERE {LISTENERS}")[0][0] == 0
    took = latencies(jobs, 4)
    assert took[-1] < 2, took
    assert worker.stop() == 0


def test_a_lost_listener_costs_a_poll_at_most_and_comes_back(workers, jobs):
    """Its backend is ended: polling goes on, it listens again, and then hears again."""
    worker = workers(slots=2, env={"JOBS_POLL_S": "1"})
    until(lambda: rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LISTENERS}"))
    jobs.wait(jobs.add("echo"), "completed", seconds=5)
    until(lambda: rows(f"SELECT 1 FROM pg_stat_activity WHERE {HEARING}"))
    assert latencies(jobs, 5)[2] < 0.25
    assert worker.stop() == 0
    assert len(worker.errors) <= 2
