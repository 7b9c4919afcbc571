"""Singletons through the agents' door (A14 to A16): both forms, and what becomes of the active job."""

from __future__ import annotations

import pytest

from jobs.models import Command, Job

FORMS = [
    lambda mode: {"sessionKey": "s", "singletonMode": mode}, lambda mode: {"singleton": {"key": "s", "mode": mode}},
    lambda mode: {"sessionKey": "s", "singleton": mode}, lambda mode: {"sessionKey": "s", "singleton": {"mode": mode}},
]


@pytest.fixture(autouse=True)
def _agents(settings):
    settings.JOBS = {**settings.JOBS, "AGENTS": ("codex",)}


def post(api, **body):
    return api.post("/agents/codex/jobs", {"payload": {"kind": "outside", "x": 1}, **body})


@pytest.mark.parametrize("form", FORMS)
def test_cancel_stops_the_active_jobs_of_the_session_first(api, form):
    """A15: what waits ends at once, with its reason; what runs is asked to stop."""
    waiting = post(api, sessionKey="s").json()["job"]["id"]
    told = post(api, **form("cancel"))
    assert told.status_code == 202
    assert Job.objects.get(pk=told.json()["job"]["id"]).state == "queued"
    assert Job.objects.get(pk=waiting).state == "cancelled"
    held = api.claim_one()
    post(api, **form("cancel"))
    assert Command.objects.filter(job_id=held["job"]["id"], kind="abort").count() == 1


@pytest.mark.parametrize("form", FORMS)
def test_steer_tells_the_newest_active_job_and_makes_none(api, form):
    """A16, E3: 202 with `steered`; the job that was told is the answer."""
    first = post(api, sessionKey="s").json()["job"]["id"]
    told = post(api, **form("steer"))
    assert (told.status_code, told.json()["steered"], told.json()["job"]["id"]) == (202, True, first)
    assert Job.objects.count() == 1
    assert Command.objects.filter(job_id=first, kind="steer").count() == 1
