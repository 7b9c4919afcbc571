"""The liveness file of a worker: fresh as long as its claim loop goes round (issue 4, health)."""

from __future__ import annotations

import os
import signal
import time

from tests.worker.processes import until


def age_s(path) -> float:
    return time.time() - os.stat(path).st_mtime


def test_the_file_stays_fresh_under_a_long_job_and_goes_stale_when_the_worker_is_frozen(workers, jobs, tmp_path):
    """All slots are busy, nothing is to be claimed: it is touched all the same, and gone after a drain."""
    live, gate = tmp_path / "alive", tmp_path / "gate"
    worker = workers("--liveness-file", str(live), slots=1)
    job_id = jobs.add("gated", path=str(tmp_path / "trace"), gate=str(gate))
    jobs.wait(job_id, "running")
    began = live.stat().st_mtime
    # Longer than the longest wait of the loop.
    until(lambda: live.stat().st_mtime > began + 6, 30)
    worker.signal(signal.SIGSTOP)
    until(lambda: age_s(live) > 7, 30)
    worker.signal(signal.SIGCONT)
    until(lambda: age_s(live) < 6, 30)
    gate.touch()
    jobs.wait(job_id, "completed", seconds=30)
    assert worker.stop() == 0
    assert not live.exists()


def test_a_file_that_cannot_be_made_is_said_at_once(workers, tmp_path):
    """No traceback for a typing mistake."""
    worker = workers("--liveness-file", str(tmp_path / "no" / "such" / "folder"), ready=False)
    assert worker.wait() == 1
    assert "It cannot start" in worker.log
    assert "Traceback" not in worker.log
