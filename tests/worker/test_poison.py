"""Jobs and code that take everything down with them: an operator stops them, and nobody is stopped by them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobs.models import Job
from jobs.registry import load
from jobs.services import cancellation, dead_letters
from tests.database import rows
from tests.worker.processes import REPOSITORY, environment, until


def test_a_job_that_kills_its_process_again_and_again_never_starts_after_it_was_cancelled(isolating, jobs, tmp_path):
    """case-B13: between two attempts and during one; at most the present attempt ends."""
    worker = isolating(slots=2)
    path = tmp_path / "trace"
    looping = jobs.add("dies", kind="exit", path=str(path))
    # As if it had many lives.
    rows("UPDATE jobs_job SET max_attempts = 1000 WHERE id = %s RETURNING 1", looping)
    until(lambda: Job.objects.get(pk=looping).failures >= 2, 40)
    cancellation.cancel(looping, by="user:operator", reason="it kills its workers")
    begun = Job.objects.get(pk=looping).claims
    # Others are served meanwhile; and longer than its backoff of a second, so that it would be seen.
    for _ in range(3):
        jobs.wait(jobs.add("looks-around"), "completed", seconds=30)
    until(lambda: rows("SELECT jobs_now() > cancelled_at + interval '3 s' FROM jobs_job WHERE id = %s", looping)[0][0])
    job = Job.objects.get(pk=looping)
    assert (job.state, job.claims) == ("cancelled", begun)
    assert worker.stop() == 0


def test_a_dead_letter_of_such_a_job_is_discarded_for_good(isolating, jobs):
    """case-B13: once it has used its lives, the operator's answer is the last word."""
    worker = isolating(slots=1)
    dead = jobs.add("dies", kind="exit")
    rows("UPDATE jobs_job SET max_attempts = 1 WHERE id = %s RETURNING 1", dead)
    jobs.wait(dead, "failed", seconds=40)
    [letter] = Job.objects.get(pk=dead).dead_letters.all()
    dead_letters.discard(letter, by="user:operator")
    jobs.wait(jobs.add("looks-around"), "completed", seconds=30)
    assert (jobs.get(dead).state, jobs.get(dead).claims) == ("failed", 1)
    assert worker.stop() == 0


def test_definitions_that_exit_when_imported_are_an_error_that_names_them(database):
    """case-D18: never a process that is gone without a word."""
    with pytest.raises(ImportError, match=r"tests\.worker\.exits_at_import asked to exit \(7\)"):
        load(["tests.worker.exits_at_import"])
    done = subprocess.run([sys.executable, "manage.py", "runworker", "--skip-checks"], cwd=REPOSITORY, check=False,
                          env=environment(JOBS_DEFINITIONS="tests.worker.exits_at_import"), text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "asked to exit (7)" in done.stderr
    assert "Traceback" not in done.stderr
