"""Acting on all jobs that match the list's filter: a preview, one operation, and what became of each of them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client

from jobs.models import BulkOperation
from jobs.services.triage import Triage
from tests.driver import Driver, check
from tests.pages.people import person
from tests.pages.test_letters import text

ALL = "/jobs/act/all/"


@pytest.fixture
def reader(client: Client, database: None) -> Client:
    """A client of somebody who may do everything."""
    client.force_login(person("alice", superuser=True))
    return client


def form(verb: str = "cancel", **more: Any) -> dict[str, Any]:
    return {"verb": verb, "why": "a clean-up", "token": str(uuid.uuid4()), **more}


def test_all_that_match_are_previewed_cancelled_and_told_of(reader: Client, driver: Driver) -> None:
    """Count and sample first; sent twice it is one operation; each job with its outcome."""
    jobs = [driver.enqueue(tenant="acme") for _ in range(3)]
    other = driver.enqueue("echo-thread", tenant="acme")
    assert f"{ALL}?verb=cancel&amp;type=echo" in reader.get("/jobs/?type=echo&select=1").content.decode()
    page = reader.get(ALL, {"verb": "cancel", "type": "echo", "tenant": "acme"})
    assert "Cancel 3 jobs?" in text(page)
    assert page.content.decode().count("/jobs/01") >= 3
    sent = form(type="echo", tenant="acme", upto=page.context["upto"], rate="100")
    later = driver.enqueue(tenant="acme")
    first, again = reader.post(ALL, sent), reader.post(ALL, sent)
    assert first.status_code == again.status_code == 302
    assert first["Location"] == again["Location"]
    asked = BulkOperation.objects.get()
    assert (asked.expected, asked.rate, asked.by, asked.allow_archived) == (3, 100, "user:alice", True)
    duty = Triage()
    while duty.carry_on(asked.pk):
        pass
    while not BulkOperation.objects.get().ended:
        duty.carry_on(asked.pk)
    page = reader.get(first["Location"])
    assert "Cancel 3 jobs" in text(page)
    for job in jobs:
        assert f"/jobs/{job}/" in page.content.decode()
        assert check(job).state == "cancelled"
    assert [driver.state(job) for job in (other, later)] == ["queued", "queued"]
    assert "None of them" in text(reader.get(first["Location"], {"outcome": "job_ended"}))


@pytest.mark.parametrize(("query", "status", "said"), [
    ({"verb": "requeue"}, 400, ""), ({"verb": "cancel", "q": "abc"}, 400, "A search finds single jobs"),
    ({"verb": "cancel", "workspace": "nowhere"}, 404, "There is no such workspace"),
    ({"verb": "cancel", "tenant": "nobody"}, 400, "is unknown"), ({"verb": "cancel", "since": "x"}, 400, "no date"),
    ({"verb": "resume"}, 200, "nothing to resume"), ({"verb": "cancel", "state": "completed"}, 400, "does nothing"),
])
def test_what_cannot_be_meant_is_said(reader: Client, driver: Driver, query: dict[str, str], status: int,
                                      said: str) -> None:
    """Bad input gets a clear error, never an operation on more than was meant."""
    driver.enqueue()
    answer = reader.get(ALL, query)
    assert answer.status_code == status
    assert said in text(answer)
    assert reader.post(ALL, {**form(), **query}).status_code in (400, 404)
    assert not BulkOperation.objects.exists()


def test_who_may_cancel_and_who_may_steer(client: Client, driver: Driver) -> None:
    """A permission of its own for each verb; looking is for whoever may view jobs."""
    driver.enqueue()
    client.force_login(person("pauser", "view_job", "pause_job"))
    assert client.get(ALL, {"verb": "cancel"}).status_code == 403
    assert client.post(ALL, form()).status_code == 403
    begun = client.post(ALL, form("pause"))["Location"]
    assert b"Stop</button>" in client.get(begun).content
    client.force_login(person("viewer", "view_job"))
    assert b"Stop</button>" not in client.get(begun).content
    assert client.post(f"{begun}stop/").status_code == 403
    assert "cancel all" not in text(client.get("/jobs/?select=1"))
    client.force_login(person("pauser", "view_job", "pause_job"))
    assert client.post(f"{begun}stop/").status_code == 302
    assert BulkOperation.objects.get().ended_by == "user:pauser"
