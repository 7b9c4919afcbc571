"""What a user may hang into a run works in an isolated child as it does in a worker (issue 3)."""

from __future__ import annotations

import pytest

from jobs.models import Artifact, AttemptLog, Traffic
from jobs.services import intake
from tests.worker.processes import until
from tests.worker.test_atomic import HOOKED, codes, ledger, written
from tests.worker.test_logs import logged

__all__ = ["ledger"]
APART = {"JOBS_DEFINITIONS": HOOKED["JOBS_DEFINITIONS"] + ",tests.worker.hooked_apart", "JOBS_PUBLISH_S": "0.5",
         "JOBS_MIDDLEWARE": "tests.worker.hooked.span,tests.worker.hooked.inner"}


@pytest.fixture(autouse=True)
def _apart(ledger, settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": APART["JOBS_DEFINITIONS"].split(",")}


def kept(jobs, job_id):
    [attempt] = jobs.attempts(job_id)
    return until(lambda: AttemptLog.objects.filter(attempt=attempt).first())


def test_what_an_isolated_handler_logs_is_written_by_the_worker_and_kept(workers, jobs):
    """Once each: a JSON line with job, attempt, type and tenant, and a line beside the attempt (A64)."""
    worker = workers(slots=1, env=APART)
    job_id = intake.enqueue("chats-apart", {}, tenant="acme").id
    jobs.wait(job_id, "completed", seconds=30)
    whose = {"job": job_id, "attempt": 1, "type": "chats-apart@1", "tenant": "acme", "logger": "myshop"}
    until(lambda: logged(worker, **whose, level="ERROR"))
    [line] = logged(worker, message="looking at the shelf")
    assert line.items() >= {**whose, "level": "INFO", "shelf": 4, "api_key": "[redacted]"}.items()
    lines = kept(jobs, job_id).lines
    assert lines.count("looking at the shelf") == lines.count("printed, not logged") == 1
    assert "too fine to keep" not in lines
    assert worker.stop() == 0


def test_the_lines_of_a_child_that_dies_are_kept_all_the_same(workers, jobs):
    """The last lines are what one wants to see then (DESIGN 6)."""
    worker = workers(slots=1, env=APART)
    job_id = jobs.add("chats-apart", how="dies")
    jobs.wait(job_id, "failed", seconds=30)
    assert codes(jobs, job_id) == [("failed", "process_died")]
    assert "looking at the shelf" in kept(jobs, job_id).lines
    assert worker.stop() == 0


def test_middleware_and_atomic_settle_work_in_a_child(workers, jobs, tmp_path):
    """In the process where the handler runs; a misused transaction keeps nothing, a hook that raises undoes nothing."""
    worker = workers(slots=2, env=APART)
    spanned = jobs.add("spanned-apart", path=str(tmp_path / "span"), how="fine")
    jobs.wait(spanned, "completed", seconds=30)
    assert (tmp_path / "span").read_text().splitlines() == ["enter span", "run span,inner", "leave span"]
    swallowed = jobs.add("spanned-apart", how="swallowed")
    jobs.wait(swallowed, "failed")
    made = {mode: jobs.add("books-apart", mode=mode, path=str(tmp_path / mode)) for mode in
            ("fine", "on_commit", "raises", "closes", "aborts")}
    for mode, job_id in made.items():
        fine = mode in ("fine", "on_commit")
        jobs.wait(job_id, "completed" if fine else "failed")
        assert written(job_id) == int(fine), mode
    assert "committed True" in (tmp_path / "on_commit").read_text()
    assert Artifact.objects.count() == 3
    # The worker was told of each settlement, and took none for a lost claim.
    assert not worker.events("late")
    assert not worker.events("claim_lost")
    assert worker.stop() == 0


def test_a_child_that_settles_by_itself_counts_it_and_is_kept(workers, jobs):
    """The rollup's thread in it is ours: no leftover of the job that it was first needed for (issue 4)."""
    worker = workers("--verbosity", "3", slots=1, env=APART)
    for _ in range(3):
        jobs.wait(jobs.add("books-apart"), "completed", seconds=30)
    until(lambda: sum(Traffic.objects.values_list("completed", flat=True)) >= 3)
    assert not worker.events("child_recycled")
    assert worker.stop() == 0


@pytest.mark.parametrize(("before", "state", "code"), [
    (False, "failed", "publish_timeout"), (True, "completed", None)])
def test_a_publication_hook_that_hangs_in_a_child_is_killed(workers, jobs, tmp_path, before, state, code):
    """B33: without a commit a failed attempt, after it the completion stands; the slot is free again."""
    worker = workers(slots=1, env=APART)
    job_id = jobs.add("slow-hook-apart", path=str(tmp_path / "trace"), gate=str(tmp_path / "never"), before=before)
    jobs.wait(job_id, state, seconds=30)
    assert codes(jobs, job_id) == [(state, code)]
    jobs.wait(jobs.add("spanned-apart"), "completed", seconds=30)
    assert worker.stop() == 0
