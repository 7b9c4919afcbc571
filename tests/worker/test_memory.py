"""case-J01: a worker does not grow with the jobs that it has run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.models import Job
from tests.worker.processes import until

GOOD, BAD = 20_000, 2_000
SETTLED = 4_000


def _figures(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {"mb": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
            "fds": len(list(Path(f"/proc/{pid}/fd").iterdir()))}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_does_not_grow_over_twenty_thousand_jobs(workers, jobs) -> None:
    """case-J01: under 1 MB per 1,000 jobs after the first ones; threads and file descriptors stay as they are."""
    # The bad ones come all along the way.
    for _ in range(0, GOOD, 2_000):
        jobs.add_many("noop", 2_000)
        jobs.add_many("misbehaves", BAD * 2_000 // GOOD, kind="text")
    worker = workers("--until-empty", slots=20)

    def ended() -> int:
        return Job.objects.exclude(ended_at=None).count()

    until(lambda: ended() >= SETTLED, 120)
    before, at = _figures(worker.pid), ended()
    until(lambda: ended() >= GOOD + BAD - 2_500, 200)
    after, by = _figures(worker.pid), ended()
    assert worker.wait(120) == 0
    assert Job.objects.filter(state="completed").count() == GOOD
    assert Job.objects.filter(state="failed").count() == BAD
    assert (after["mb"] - before["mb"]) / ((by - at) / 1_000) < 1.0, (before, after, by - at)
    assert abs(after["threads"] - before["threads"]) <= 2, (before, after)
    assert abs(after["fds"] - before["fds"]) <= 2, (before, after)
