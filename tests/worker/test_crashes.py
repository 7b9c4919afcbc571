"""Workers killed and frozen at every step: nothing is lost or done by two, late words change nothing (E14.21)."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import psycopg

from jobs.models import Artifact, Attempt
from tests.database import row_hash, rows
from tests.worker.processes import database_url, until


@contextmanager
def locked(table):
    """Nobody writes this table meanwhile: whoever tries stands still inside its transaction."""
    with psycopg.connect(database_url()) as holder:
        holder.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        yield


def waiting_for_lock():
    return rows("SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database"
                " WHERE datname = current_database())")[0][0]


def test_killed_inside_its_claim_a_worker_leaves_the_job_as_it_was(workers, jobs):
    """SIGKILL between the claim's lock and its commit: queued, uncounted, and the next worker runs it (E14.21)."""
    job_id = jobs.add("echo")
    before = row_hash(job_id)
    with locked("jobs_attempt"):
        first = workers()
        until(waiting_for_lock)
        first.kill()
        assert row_hash(job_id) == before
    workers()
    job = jobs.wait(job_id, "completed")
    assert (job.claims, job.lapses) == (1, 0)


def test_killed_with_a_job_in_hand_it_is_recovered_and_counted(workers, jobs, tmp_path):
    """SIGKILL mid-job, in a thread and on the loop: recovered after lease and grace, by another worker (C35, E4)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    made = [jobs.add(type_, path=str(path), gate=str(gate)) for type_ in ("gated", "gated-thread")]
    first = workers()
    until(lambda: path.exists() and path.read_text().count("start") == 2)
    first.kill()
    gate.touch()
    second = workers()
    for job_id in made:
        job = jobs.wait(job_id, "completed", seconds=20)
        assert (job.claims, job.lapses, job.failures) == (2, 1, 1)
        lapsed, done = jobs.attempts(job_id)
        assert (lapsed.outcome, lapsed.reason_code, done.outcome) == ("lapsed", "lease_expired", "completed")
        assert str(lapsed.worker_id) == first.worker_id
        assert str(done.worker_id) == second.worker_id
        assert (lapsed.ended_at - lapsed.lease_until).total_seconds() >= 1
    # The numbers for the world outside rise, and the second start came from the second process.
    assert {line.split()[1] for line in path.read_text().splitlines() if line.startswith("end")} == {"2"}


def test_killed_inside_its_settlement_nothing_of_it_is_kept(workers, jobs):
    """SIGKILL before settle's commit: the artifact is not there, the job is run again (E14.21)."""
    with locked("jobs_artifact"):
        first = workers()
        job_id = jobs.add("echo", value="x")
        until(waiting_for_lock)
        first.kill()
        assert jobs.state(job_id) == "leased"
    # The claim was renewed to the end; echo's lease is the site's 3 s.
    workers()
    job = jobs.wait(job_id, "completed", seconds=20)
    assert (job.claims, job.lapses, jobs.outcomes(job_id)) == (2, 1, ["lapsed", "completed"])


def test_killed_right_after_its_settlement_the_job_stays_done(workers, jobs, tmp_path):
    """SIGKILL after settle: completed once, never run again (E14.3)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    first = workers()
    job_id = jobs.add("gated", path=str(path), gate=str(gate))
    until(path.exists)
    gate.touch()
    until(lambda: jobs.state(job_id) == "completed")
    first.kill()
    before = row_hash(job_id)
    workers("--until-empty").wait()
    assert row_hash(job_id) == before
    assert path.read_text().count("start") == 1


def test_a_frozen_worker_that_wakes_after_its_lease_is_fenced_and_works_on(workers, jobs, tmp_path):
    """SIGSTOP beyond the lease: another ends the job; the sleeper's settle and heartbeats change nothing (E14.21)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    made = [jobs.add(type_, path=str(path), gate=str(gate)) for type_ in ("gated", "gated-thread")]
    first = workers()
    until(lambda: path.exists() and path.read_text().count("start") == 2)
    first.signal(signal.SIGSTOP)
    second = workers()
    until(lambda: path.read_text().count("start") == 4, 20)
    gate.touch()
    for job_id in made:
        jobs.wait(job_id, "completed")
    assert second.stop() == 0
    before = [row_hash(job_id) for job_id in made]
    first.signal(signal.SIGCONT)
    for job_id in made:
        until(lambda job_id=job_id: first.events("claim_lost", job=job_id) or first.events("late", job=job_id))
    jobs.wait(jobs.add("echo"), "completed")
    assert [row_hash(job_id) for job_id in made] == before
    assert Artifact.objects.count() == 3
    assert first.stop() == 0


def test_a_worker_killed_with_full_hands_loses_none_of_many(workers, jobs, tmp_path):
    """SIGKILL while it drains hundreds: each is completed once, started at most twice, none by two at once (I1, I2)."""
    path = tmp_path / "trace"
    made = jobs.add_many("echo", 400, path=str(path))
    first = workers(slots=20)
    until(lambda: path.exists() and path.read_text().count("\n") > 50)
    first.kill()
    workers(slots=30)
    jobs.wait_all("completed", 400)
    starts = path.read_text().split()[0::3]
    assert set(starts) == set(made)
    twice = {job_id for job_id in starts if starts.count(job_id) > 1}
    lapsed = {str(id_) for id_ in Attempt.objects.filter(outcome="lapsed").values_list("job_id", flat=True)}
    assert twice <= lapsed
    assert len(lapsed) <= 20


def test_a_restarted_worker_of_the_same_name_owns_nothing_of_its_former_life(workers, jobs, tmp_path):
    """The job of the dead one lapses, though a worker of that name is alive (case-A15)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("gated", path=str(path), gate=str(gate))
    first = workers(name="same")
    until(path.exists)
    first.kill()
    gate.touch()
    second = workers(name="same")
    assert first.worker_id != second.worker_id
    assert jobs.wait(job_id, "completed", seconds=20).lapses == 1
