"""`on_ended` in real workers: at least once, never before the commit, whoever dies in between (B34, B45, E15)."""

from __future__ import annotations

import pytest

from jobs.models import DeadLetter, Job
from jobs.services import cancellation
from jobs.store.erase import TELLING
from tests.worker.processes import until
from tests.worker.test_atomic import HOOKED


@pytest.fixture(autouse=True)
def _hooked(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": HOOKED["JOBS_DEFINITIONS"].split(",")}


def telling(job_id):
    return Job.objects.filter(type="job-ended", idempotency_key=TELLING.format(job=job_id, chain=1)).first()


def told(path):
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def all_told(count):
    return lambda: Job.objects.filter(type="job-ended", state="completed").count() == count


def test_each_end_is_told_with_what_it_was_about(workers, jobs, tmp_path):
    """Completed with its artifact, failed with its reason; also to a coroutine function, and under `--groups`."""
    worker = workers("--groups", "default", env=HOOKED)
    fine = jobs.add("watched", path=str(tmp_path / "f"))
    broken = jobs.add("watched", path=str(tmp_path / "b"), fails=True)
    calm = jobs.add("watched-async", path=str(tmp_path / "c"))
    until(all_told(3), 30)
    assert told(tmp_path / "f") == [["told", fine, "completed", "None", "1", "evidence", "None"]]
    assert told(tmp_path / "b") == [["told", broken, "failed", "terminal_error", "1", "None", "None"]]
    assert told(tmp_path / "c") == [["told", calm, "completed"]]
    assert worker.wait_for("ready")["groups"] == ["default", "unrouted", "system"]
    assert worker.stop() == 0


def test_an_end_by_hand_with_no_worker_alive_is_told_once_one_is(workers, jobs, tmp_path):
    """A web process cancels a queued job; a worker of another queue only takes the telling too (E15)."""
    path = tmp_path / "trace"
    job_id = jobs.add("watched", path=str(path))
    cancellation.cancel(job_id, by="user:1", reason="changed my mind")
    assert told(path) == []
    workers("--queues", "chat", env=HOOKED)
    until(lambda: told(path))
    assert told(path)[0][1:3] == [job_id, "cancelled"]


def test_killed_before_its_on_ended_it_is_told_by_the_next(workers, jobs, tmp_path):
    """SIGKILL of the only worker in the middle of the telling: told again, which must be harmless (E15)."""
    path = tmp_path / "trace"
    first = workers(env=HOOKED)
    job_id = jobs.add("watched", path=str(path), how="hangs")
    until(lambda: told(path))
    assert jobs.state(job_id) == "completed"
    first.kill()
    (tmp_path / "trace.go").touch()
    workers(env=HOOKED)
    until(all_told(1), 40)
    assert [line[1] for line in told(path)] == [job_id, job_id]
    assert jobs.outcomes(job_id) == ["completed"]


def test_a_telling_that_fails_is_retried_like_any_job(workers, jobs, tmp_path):
    """The default policy, and a letter at its end; the job itself stays as it ended."""
    path = tmp_path / "trace"
    job_id = jobs.add("watched", path=str(path), how="fails_first")
    workers(env=HOOKED)
    until(lambda: told(path), 30)
    teller = until(lambda: telling(job_id))
    again = jobs.wait(teller.pk, "queued", "completed", seconds=30)
    assert (again.max_attempts, again.dead_letter) == (5, True)
    jobs.wait(teller.pk, "completed", seconds=30)
    assert len(told(path)) == 2
    assert jobs.outcomes(str(teller.pk)) == ["failed", "completed"]
    assert jobs.outcomes(job_id) == ["completed"]
    assert not DeadLetter.objects.exists()


def test_a_completion_may_enqueue_what_follows_and_only_once(workers, jobs, tmp_path):
    """Evidence, then an idempotent enqueue of the answer; told twice it makes one (B45)."""
    workers(env=HOOKED)
    path = tmp_path / "trace"
    job_id = jobs.add("watched", path=str(path), how="follows")
    until(all_told(1), 30)
    [answer] = Job.objects.filter(type="echo")
    assert answer.idempotency_key == f"answer:{job_id}:1"
    jobs.wait(str(answer.pk), "completed")
    from jobs.services import reconciling
    from jobs.states import State

    reconciling.job_ended(None, job_id=jobs.get(job_id).pk, chain=1, state=State.COMPLETED)
    assert Job.objects.filter(type="echo").count() == 1
    # Nothing is told of telling.
    assert Job.objects.filter(type="job-ended").count() == 1


def test_a_worker_that_ends_when_there_is_nothing_left_tells_all_ends_first(workers, jobs, tmp_path):
    """A wide round settles and claims at once; what the settlement has made is not overlooked (B34)."""
    jobs.add_many("watched", 40, path=str(tmp_path / "t"))
    worker = workers("--until-empty", "--no-listen", "--no-loops", slots=36, env=HOOKED, ready=False)
    assert worker.wait(60) == 0
    assert set(Job.objects.values_list("state", flat=True)) == {"completed"}
    assert Job.objects.filter(type="job-ended").count() == 40
