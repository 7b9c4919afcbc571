"""`manage.py jobs steer|follow-up|abort`: commands to active jobs from the shell (A54, A55, A63)."""

from __future__ import annotations

import json

import pytest

from jobs.models import Command, Job
from jobs.services import commands
from tests.driver import check
from tests.edges.test_jobs_command import jobs, refused, said


@pytest.mark.parametrize("verb", ["steer", "follow-up"])
def test_a_job_is_told_something(driver, verb):
    """A54: kept with its payload and who said it; the job goes on as it was."""
    job_id = driver.enqueue(job_id="mine")
    assert "queued" in said(verb, "mine", '{"say": "x"}')
    [command] = Command.objects.filter(job_id=job_id)
    assert (command.kind, json.loads(command.payload)) == (verb.replace("-", "_"), {"say": "x"})
    assert json.loads(said(verb, job_id, "--json"))["id"] == job_id
    check(job_id)


def test_an_abort_stops_what_waits_at_once_and_asks_who_runs(driver):
    """A55, E5: with a reason of its own."""
    waiting, running = driver.enqueue(), None
    assert "cancelled" in said("abort", waiting, "--reason", "not needed")
    running = driver.enqueue()
    driver.claim_one()
    assert "leased" in said("abort", running)
    assert Job.objects.get(pk=running).abort_reason == commands.ABORT_REASON
    check(running)


@pytest.mark.parametrize("verb", ["steer", "follow-up"])
def test_a_job_that_has_ended_is_told_nothing(driver, verb):
    """A54: refused in one line that names its status."""
    job_id = driver.enqueue()
    driver.cancel(job_id)
    assert "cancelled" in refused(verb, job_id)


@pytest.mark.parametrize("words", [("steer", "none"), ("abort", "none"), ("steer", "{job}", "{")])
def test_wrong_words_are_one_line(driver, words):
    """A63: never a traceback."""
    job_id = driver.enqueue()
    assert jobs(*(word.replace("{job}", job_id) for word in words))[2] == 1
