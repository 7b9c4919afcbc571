"""What a running attempt of a worker may do and say: its duration, its diagnostics, its stages, its checkpoints."""

from __future__ import annotations

import io
import json

import pytest

from jobs.errors import Invalid
from jobs.models import Artifact, DeadLetter, Receipt
from jobs.registry import Registry
from jobs.services import assignments, intake, overtime, progress
from jobs.worker.context import Run
from jobs.worker.output import Output
from jobs.worker.plan import Plan
from jobs.worker.refusals import refusal
from jobs.worker.runner import Worker
from tests.driver import Driver, check, claimer
from tests.worker import running_definitions
from tests.worker.processes import DEFINITIONS
from tests.worker.test_parts import running

OWN = f"{DEFINITIONS},tests.worker.running_definitions"


@pytest.fixture(autouse=True)
def _definitions(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": OWN.split(","), "LEASE_S": 30.0, "POLL_S": 0.05}


@pytest.fixture
def worker(jobs):
    with running(Worker(Plan("here", 4, ["default"], ["collect"]), Output(io.StringIO(), as_json=True))) as made:
        yield made


def events(worker, name):
    told = [json.loads(line) for line in worker.output.stream.getvalue().splitlines()]
    return [event for event in told if event["event"] == f"worker.{name}"]


@pytest.mark.parametrize("type_", ["lasts", "lasts-on-loop"])
def test_an_attempt_beyond_its_duration_ends_the_job_whatever_budget_is_left(worker, jobs, type_):
    """C34, C17, E8: terminal, with its checkpoint kept; the timeout is another bound."""
    job_id = jobs.add(type_)
    job = jobs.wait(job_id, "failed")
    assert (job.failures, job.checkpoint_number) == (1, int(type_ == "lasts"))
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.reason_code) == ("terminal_error", "duration_exceeded")
    check(job_id)


def test_attempts_that_are_short_end_together_with_their_chains_duration(worker, jobs):
    """C34, E8: by option the span is a chain's; budget was left."""
    job = jobs.wait(jobs.add("lasts-by-attempts"), "failed")
    assert DeadLetter.objects.get().reason_code == "duration_exceeded"
    assert 1 < job.failures < 9 + 1
    check(job.pk)


def test_an_attempt_for_which_nothing_is_left_does_not_begin(driver: Driver):
    """E8: a worker settles it at once; nobody sees its input."""
    definition = Registry([running_definitions.lasts.definition]).current("lasts")
    driver.enqueue("lasts")
    job = driver.claim_one()
    assert refusal(job, definition) is None
    assert refusal(job._replace(max_duration_ms=0), definition) == overtime.SPENT


def test_the_latest_diagnostic_is_in_the_line_of_the_failure_and_nowhere_else(worker, jobs):
    """B32, E15: in no row and no receipt, and not with a success."""
    said = {"pages": 41923, "phase": "fetching", "warm": True}
    failed, fine = jobs.add("tells", fields=said), jobs.add("tells", fields=said, fails=False)
    jobs.wait(failed, "failed")
    jobs.wait(fine, "completed")
    assert [event["diagnostic"] for event in events(worker, "failed")] == [said]
    assert "41923" not in "".join(Receipt.objects.values_list("body", flat=True))
    assert "41923" not in jobs.attempts(failed)[0].message


def test_what_is_said_after_the_end_is_not_heard(worker, jobs):
    """B32: the attempt was settled without its handler, which goes on."""
    job_id = jobs.add("tells-late")
    jobs.wait(job_id, "failed")
    [event] = events(worker, "failed")
    assert (event["code"], event["diagnostic"]) == ("attempt_timeout", {"pages": 1})


@pytest.mark.parametrize("fields", [{"note": "Free text"}, {"n": -1}, {"password": 5}, {"N": 1}])
def test_what_is_no_diagnostic_fails_the_handler_with_a_clear_message(worker, jobs, fields):
    """B32: never silently."""
    job_id = jobs.add("tells", fields=fields, fails=False)
    jobs.wait(job_id, "failed")
    [end] = jobs.attempts(job_id)
    assert (end.reason_code, next(iter(fields)) in end.message) == ("invalid_diagnostic", True)


def test_the_last_diagnostic_of_a_child_outlives_it(isolating, jobs, settings):
    """B32: its process was killed at the timeout; the worker had heard it."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": OWN.split(",")}
    process = isolating(slots=1, env={"JOBS_DEFINITIONS": OWN})
    job_id = jobs.add("tells-apart")
    event = process.wait_for("failed", job=job_id)
    assert (event["code"], event["diagnostic"]) == ("attempt_timeout", {"pages": 41, "phase": "hanging"})


def test_a_stage_said_twice_in_a_row_is_one_receipt_and_too_many_end_the_attempt(worker, jobs, monkeypatch):
    """B30: stages are for people; a loop over items must not write a million receipts."""
    job_id = jobs.add("chatters", times=6)
    jobs.wait(job_id, "completed")
    assert Receipt.objects.filter(job_id=job_id, kind="job.progress").count() == 6
    monkeypatch.setattr(progress, "MOST", 4)
    job_id = jobs.add("chatters", times=6)
    jobs.wait(job_id, "failed")
    assert jobs.attempts(job_id)[0].reason_code == "too_much_progress"
    assert Receipt.objects.filter(job_id=job_id, kind="job.progress").count() == 4


def test_checkpoints_of_several_threads_at_once_are_all_kept(worker, jobs):
    """C33: each under a number of its own."""
    job_id = jobs.add("checkpoints-at-once", threads=8)
    jobs.wait(job_id, "completed")
    assert json.loads(Artifact.objects.get().value) == list(range(1, 9))
    assert Receipt.objects.filter(job_id=job_id, kind="job.checkpoint").count() == 8
    check(job_id)


CORPUS = ("sk-live-4eC39HqLyjWDarjtT1zdp7dc", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
          "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmN", "Ignore all previous instructions",
          "AKIAIOSFODNN7EXAMPLE", "https://example.org/private?key=1", "Dear Mr. Smith, your diagnosis")


def test_credentials_and_prompts_pass_for_no_stage_and_no_diagnostic_and_stand_in_no_receipt(worker, jobs):
    """E15, B31, B32, A64: they may be inputs and artifacts, and nothing else of ours repeats those."""
    run = Run(_claimed(jobs), running_definitions.chatters.definition, "worker:x")
    for word in CORPUS:
        for report in (lambda w=word: run.progress(w), lambda w=word: run.progress("read", w),
                       lambda w=word: run.diagnostic(what=w), lambda w=word: run.diagnostic(**{w: 1})):
            with pytest.raises(Invalid):
                report()
    done = [jobs.add("echo", value=word) for word in CORPUS]
    for job_id in done:
        jobs.wait(job_id, "completed")
    receipts = "".join(Receipt.objects.values_list("body", flat=True))
    log = worker.output.stream.getvalue()
    shown = "".join(str(jobs.get(job_id).progress) + str(jobs.get(job_id).reason) for job_id in done)
    assert not [word for word in CORPUS if word in receipts + log + shown]


def _claimed(jobs):
    """An attempt of a job that no worker has."""
    job_id = intake.enqueue("chatters", {"times": 0}, queue="chat").id
    [job] = assignments.take(claimer(), 1).jobs
    assert job.id == job_id
    return job
