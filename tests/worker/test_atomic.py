"""Atomic settle: what a handler writes commits with its completion, or neither does (DESIGN 6, case-D02)."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from jobs.models import Artifact, Job
from jobs.services import cancellation
from tests.database import own_connection, rows
from tests.worker.processes import DEFINITIONS, until
from tests.worker.test_crashes import locked, waiting_for_lock
from tests.worker.test_parts import new, running, said

HOOKED = {"JOBS_DEFINITIONS": f"{DEFINITIONS},tests.worker.hooked"}
LEDGER = ("CREATE TABLE ledger_parent (id int PRIMARY KEY); CREATE TABLE ledger (job_id text,"
          " parent int REFERENCES ledger_parent DEFERRABLE INITIALLY DEFERRED)")


@pytest.fixture(autouse=True)
def ledger(database, settings):
    """Somebody's own tables, and definitions that write to them."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": HOOKED["JOBS_DEFINITIONS"].split(",")}
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS ledger, ledger_parent; {LEDGER}")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE ledger, ledger_parent")


def written(job_id):
    return rows("SELECT count(*) FROM ledger WHERE job_id = %s", job_id)[0][0]


def codes(jobs, job_id):
    return [(a.outcome, a.reason_code) for a in jobs.attempts(job_id)]


def test_a_handlers_writes_and_its_completion_commit_together(workers, jobs):
    """Completed and written, once; by the hook's commit as well, which may throw after it (B33)."""
    worker = workers(slots=2, env=HOOKED, verbosity=2)
    made = [jobs.add("books", mode="x")] + [jobs.add("published-books", mode=mode) for mode in ("once", "throws")]
    for job_id in made:
        jobs.wait(job_id, "completed")
        assert (written(job_id), codes(jobs, job_id)) == (1, [("completed", None)])
        worker.wait_for("completed", job=job_id)
    assert Artifact.objects.count() == 3
    assert not worker.events("late")
    assert worker.stop() == 0


BROKEN = {
    "raises": "out_of_stock", "exits": "attempt_error", "artifact": "invalid_artifact", "parentless": "attempt_error",
    "leaves_open": "transaction_broken", "closes": "transaction_broken", "aborts": "transaction_broken",
    "breaks": "transaction_broken", "commits": "transaction_broken", "autocommit": "attempt_error",
}


def test_whatever_fails_takes_the_writes_back_and_says_why(workers, jobs):
    """An exception, no artifact, a deferred constraint at the COMMIT, a transaction that was misused (case-D02)."""
    worker = workers(slots=2, env=HOOKED)
    made = {mode: jobs.add("books", mode=mode) for mode in BROKEN}
    hooked = {mode: jobs.add("published-books", mode=mode) for mode in ("never", "breaks")}
    for mode, job_id in made.items():
        jobs.wait(job_id, "failed")
        assert (written(job_id), codes(jobs, job_id)) == (0, [("failed", BROKEN[mode])]), mode
    assert "ledger_parent" in (jobs.attempts(made["parentless"])[0].message or "")
    for mode, code in (("never", "not_published"), ("breaks", "transaction_broken")):
        jobs.wait(hooked[mode], "failed")
        assert (written(hooked[mode]), codes(jobs, hooked[mode])) == (0, [("failed", code)])
    # The connections that they left behind harm nobody.
    after = jobs.add("books")
    jobs.wait(after, "completed")
    assert written(after) == 1
    assert worker.stop() == 0


def test_hooks_of_the_commit_that_raise_undo_nothing_and_hide_each_other_nothing(workers, jobs, tmp_path):
    """`on_commit(lambda: 1/0)`, and even SystemExit: completed, the next one is called, the worker lives (case-D02)."""
    worker = workers(slots=1, env=HOOKED)
    path = tmp_path / "trace"
    for mode in ("on_commit", "exits_on_commit"):
        job_id = jobs.add("books", mode=mode, path=str(path))
        jobs.wait(job_id, "completed")
        assert written(job_id) == 1
    jobs.wait(jobs.add("echo"), "completed")
    assert "committed True" in path.read_text()
    assert worker.stop() == 0


def test_killed_between_the_write_and_the_commit_neither_is_there_and_later_both_are_once(workers, jobs, tmp_path):
    """SIGKILL while the settlement waits inside the transaction (RELIABILITY 5.5)."""
    with locked("jobs_artifact"):
        first = workers(env=HOOKED)
        job_id = jobs.add("books", path=str(tmp_path / "trace"))
        until(waiting_for_lock)
        first.kill()
    until(lambda: not waiting_for_lock())
    assert (written(job_id), jobs.state(job_id), Artifact.objects.count()) == (0, "leased", 0)
    rows("UPDATE jobs_job SET max_attempts = 3 WHERE id = %s RETURNING 1", job_id)
    workers(env=HOOKED)
    jobs.wait(job_id, "completed", seconds=40)
    assert (written(job_id), jobs.outcomes(job_id)) == (1, ["lapsed", "completed"])


def test_killed_after_the_commit_both_are_there_and_nothing_is_run_again(workers, jobs, tmp_path):
    """SIGKILL in a hook of the commit (RELIABILITY 5.5)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    first = workers(env=HOOKED)
    job_id = jobs.add("books", mode="hangs_on_commit", path=str(path), gate=str(gate))
    until(lambda: path.exists() and "committed" in path.read_text())
    first.kill()
    assert (written(job_id), jobs.state(job_id)) == (1, "completed")
    workers("--until-empty", env=HOOKED).wait(40)
    assert (written(job_id), jobs.outcomes(job_id), path.read_text().count("written")) == (1, ["completed"], 1)


def test_a_cancel_that_races_the_end_leaves_a_row_if_and_only_if_the_job_completed(workers, jobs, tmp_path):
    """20 rounds, cancel a little before or after the handler's end; a lost claim counts no failure (E5)."""
    workers(slots=2, env=HOOKED)
    ends = []
    for n in range(20):
        path, gate = tmp_path / f"trace{n}", tmp_path / f"gate{n}"
        job_id = jobs.add("books", path=str(path), gate=str(gate))
        until(path.exists)
        gate.touch()
        time.sleep(0.001 * n)
        try:
            cancellation.cancel(job_id, by="test")
        except Exception:
            assert jobs.state(job_id) == "completed"
        ends.append((job_id, jobs.state(job_id)))
    # A transaction that lost the race may still be rolling back.
    for job_id, state in ends:
        until(lambda job_id=job_id, state=state: written(job_id) == (state == "completed"))
        assert jobs.get(job_id).failures == 0
    jobs.wait(jobs.add("echo"), "completed")
    assert {state for _, state in ends} <= {"completed", "cancelled"}


def test_a_claim_that_was_lost_rolls_back_quietly(jobs, tmp_path):
    """Cancelled while the handler runs: nothing of it is kept, no failure, and the slot is free again."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("books", path=str(path), gate=str(gate))
    worker = new(slots=1)
    with running(worker):
        until(path.exists)
        cancellation.cancel(job_id, by="test")
        gate.touch()
        jobs.wait(jobs.add("echo"), "completed")
    assert (written(job_id), jobs.state(job_id), jobs.get(job_id).failures) == (0, "cancelled", 0)
    assert "worker.failed" not in said(worker)


@pytest.fixture
def commits(monkeypatch):
    """What happens to the COMMITs of threads that run jobs, one after the other: a function of the real one."""
    real, faults = BaseDatabaseWrapper.commit, []

    def commit(self):
        if threading.current_thread().name.startswith("job-") and faults:
            return faults.pop(0)(lambda: real(self))
        return real(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "commit", commit)
    return faults


def lost(real):
    raise OperationalError("server closed the connection unexpectedly")


def unanswered(real):
    real()
    raise OperationalError("server closed the connection unexpectedly")


def test_a_commit_that_fails_is_no_failure_of_the_job(jobs, commits):
    """Interrupted as `not_stored`, uncounted, and run again (RELIABILITY 3.8)."""
    commits.append(lost)
    job_id = jobs.add("books")
    with running(new(slots=1)):
        jobs.wait(job_id, "completed")
    assert codes(jobs, job_id) == [("interrupted", "not_stored"), ("completed", None)]
    assert (written(job_id), jobs.get(job_id).failures) == (1, 0)


def test_a_commit_whose_answer_is_lost_stands(jobs, commits):
    """It had committed: the report that it was not stored comes late and changes nothing (E5, E8)."""
    commits.append(unanswered)
    job_id = jobs.add("books")
    worker = new(slots=1)
    with running(worker):
        jobs.wait(job_id, "completed")
        until(lambda: "worker.late" in said(worker))
        jobs.wait(jobs.add("echo"), "completed")
    assert (written(job_id), codes(jobs, job_id)) == (1, [("completed", None)])


def test_a_connection_that_is_ended_before_the_settlement_is_no_failure_of_the_job(jobs, tmp_path):
    """The handler's backend is terminated while it waits: rolled back, interrupted, run again (RELIABILITY 3.8)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("books", path=str(path), gate=str(gate))
    with running(new(slots=1)):
        until(path.exists)
        with own_connection():
            rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                 " AND query LIKE 'INSERT INTO ledger%%' AND datname = current_database()")
        gate.touch()
        jobs.wait(job_id, "completed")
    assert codes(jobs, job_id) == [("interrupted", "not_stored"), ("completed", None)]
    assert written(job_id) == 1
    assert Job.objects.get(pk=job_id).failures == 0
