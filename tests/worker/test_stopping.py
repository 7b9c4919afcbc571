"""Timeouts, cancels and aborts reach a running handler, and its late output commits nothing (E5, E8, B26)."""

from __future__ import annotations

import time

import pytest

from jobs.models import Artifact, DeadLetter
from jobs.services import cancellation, commands
from tests.database import row_hash
from tests.worker.processes import until


@pytest.mark.parametrize("type_", ["slow", "slow-thread"])
def test_an_attempt_that_runs_too_long_is_ended(workers, jobs, type_):
    """`attempt_timeout`, counted, with a letter where its definition asks for one (E8)."""
    workers(slots=1)
    job_id = jobs.add(type_)
    job = jobs.wait(job_id, "failed")
    [attempt] = jobs.attempts(job_id)
    assert (attempt.outcome, attempt.reason_code, job.failures) == ("failed", "attempt_timeout", 1)
    assert 0.3 <= (attempt.ended_at - attempt.leased_at).total_seconds() < 3
    assert DeadLetter.objects.get(job_id=job_id).reason == "retry_not_allowed"
    # The handler has stopped, and its slot is free.
    jobs.wait(jobs.add("echo"), "completed")


def test_a_thread_that_ignores_its_timeout_keeps_its_slot_but_not_its_attempt(workers, jobs, tmp_path):
    """Settled at once, reported, the slot busy until it ends; what it brings then changes nothing (E8, E15)."""
    worker = workers(slots=1)
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("deaf-thread", path=str(path), gate=str(gate))
    jobs.wait(job_id, "failed", seconds=5)
    assert jobs.attempts(job_id)[0].reason_code == "attempt_timeout"
    before, waiting = row_hash(job_id), jobs.add("echo")
    worker.wait_for("ignores_stop", job=job_id, reason="attempt_timeout")
    assert jobs.state(waiting) == "queued"
    gate.touch()
    jobs.wait(waiting, "completed")
    assert path.read_text().split() == ["start", "end"]
    assert row_hash(job_id) == before
    assert Artifact.objects.count() == 1
    assert worker.stop() == 0


def test_a_coroutine_that_swallows_its_cancellation_is_settled_without_it(workers, jobs, tmp_path):
    """After five seconds of grace; its slot stays busy, its late return commits nothing (E8, E15)."""
    worker = workers(slots=1)
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("deaf", path=str(path), gate=str(gate))
    worker.wait_for("ignores_stop", job=job_id)
    jobs.wait(job_id, "failed")
    assert jobs.attempts(job_id)[0].reason_code == "attempt_timeout"
    before, waiting = row_hash(job_id), jobs.add("echo")
    assert path.read_text().split() == ["start", "cancelled"]
    gate.touch()
    jobs.wait(waiting, "completed")
    assert row_hash(job_id) == before


def test_output_after_a_timeout_is_a_timeout_however_the_handler_ends(workers, jobs, tmp_path):
    """One that swallows its cancellation and returns, one that stops by asking: both timed out (E15)."""
    workers(slots=2)
    gate = tmp_path / "gate"
    returns = jobs.add("deaf", path=str(tmp_path / "trace"), gate=str(gate))
    asks = jobs.add("checks-late")
    until(lambda: "cancelled" in (tmp_path / "trace").read_text() if (tmp_path / "trace").exists() else False)
    gate.touch()
    for job_id in (returns, asks):
        jobs.wait(job_id, "failed", seconds=4)
        assert jobs.attempts(job_id)[0].reason_code == "attempt_timeout"
    assert not Artifact.objects.exists()


def stopped_at(path):
    until(lambda: path.exists() and "stopped" in path.read_text())
    _, reason, at = path.read_text().splitlines()[1].split()
    return reason, float(at)


@pytest.mark.parametrize("type_", ["attentive", "attentive-thread"])
@pytest.mark.parametrize("verb", [cancellation.cancel, cancellation.pause])
def test_a_void_claim_reaches_the_handler_by_notification(workers, jobs, tmp_path, type_, verb):
    """Within 250 ms of the commit, and long before its next heartbeat (E5, DESIGN 6)."""
    worker = workers(slots=1, env={"JOBS_POLL_S": "5"})
    took = []
    for n in range(3):
        path = tmp_path / str(n)
        job_id = jobs.add(type_, path=str(path))
        until(path.exists)
        # Past the first 50 ms, in which nobody looks, and at no special moment of the heartbeat.
        until(lambda path=path: time.time() - path.stat().st_mtime > 0.1)
        verb(job_id, by="user:test")
        at = time.time()
        reason, stopped = stopped_at(path)
        took.append(stopped - at)
        assert reason == "claim_lost"
        assert len(worker.events("claim_lost", job=job_id)) <= 1
    assert sorted(took)[0] < 0.25, took
    assert sorted(took)[1] < 0.5, took
    jobs.wait(jobs.add("echo"), "completed")


@pytest.mark.parametrize("flags", [(), ("--no-listen",)])
def test_an_abort_is_honoured_as_cancelled_by_the_next_heartbeat_at_the_latest(workers, jobs, tmp_path, flags):
    """Asked, not forced: the handler stops and its worker settles as cancelled (E5, B26)."""
    workers(*flags, slots=2)
    made = {type_: tmp_path / type_ for type_ in ("attentive", "attentive-thread")}
    for type_, path in made.items():
        job_id = jobs.add(type_, path=str(path))
        until(path.exists)
        commands.abort(job_id, by="user:test")
        reason, _ = stopped_at(path)
        assert reason == "abort_requested"
        job = jobs.wait(job_id, "cancelled")
        assert (job.failures, jobs.outcomes(job_id)) == (0, ["cancelled"])


def test_without_listening_a_cancel_arrives_with_the_next_heartbeat(workers, jobs, tmp_path):
    """A lease of 3 s beats each second (E5)."""
    workers("--no-listen", slots=1)
    path = tmp_path / "trace"
    job_id = jobs.add("attentive", path=str(path))
    until(path.exists)
    cancellation.cancel(job_id, by="user:test")
    at, (reason, stopped) = time.time(), stopped_at(path)
    assert reason == "claim_lost"
    assert stopped - at < 2.5
    assert jobs.outcomes(job_id) == ["cancelled"]
