"""Enqueue by a form: who may, what it makes, what it refuses and how it says so (B13, E3, E6)."""

from __future__ import annotations

import json
import re

import pytest

from jobs.models import Job, Receipt
from tests.driver import check
from tests.pages.people import person


@pytest.fixture
def form(client, driver):
    """Somebody who may enqueue and see inputs; sends the form with these fields."""
    client.force_login(person("enqueuer", "view_job", "view_payload", "enqueue_job", staff=False))

    def send(**fields: str):
        key = re.search(r'name="idempotency_key" value="([^"]+)"', client.get("/jobs/new/").content.decode())
        return client.post("/jobs/new/", {"type": "echo", "input": "{}", "idempotency_key": key[1], **fields})
    return send


def test_a_job_is_made_as_it_was_asked_for_and_shown(client, form, driver):
    """B13: the origin is the door's, the receipt names the person."""
    answer = form(input='{"value": "1"}', tenant="acme", queue="chat", priority="7", delay_s="60", job_id="mine",
                  exclusive_group="g", target="t")
    job = Job.objects.get()
    assert answer.url == f"/jobs/{job.pk}/"
    assert (job.tenant.subject, job.queue, job.priority, job.external_id, job.exclusive_group, job.origin) == (
        "acme", "chat", 7, "mine", "g", "user")
    assert job.available_at > job.created_at
    assert '"user:enqueuer"' in Receipt.objects.get().body
    assert "Enqueued." in client.get(answer.url).content.decode()
    check(job.pk)


def test_a_form_that_is_sent_twice_makes_one_job(form):
    """E6: the key is the form's."""
    first, again = form(idempotency_key="console:1"), form(idempotency_key="console:1")
    assert first.url == again.url
    assert Job.objects.count() == 1
    assert form(idempotency_key="console:1", input='{"other": 1}').status_code == 409


@pytest.mark.parametrize(("fields", "said"), [
    ({"type": "ehco"}, "did you mean"), ({"input": "{"}, "JSON"), ({"input": "[]"}, "object"), ({"type": ""}, "type"),
    ({"priority": "many"}, "priority"), ({"priority": "1000"}, "priority"), ({"delay_s": "nan"}, "delay_s"),
    ({"queue": "nowhere"}, "queue"), ({"tenant": "\x1b"}, "tenant"), ({"workspace": "none-such"}, "workspace"),
    ({"job_id": "no spaces"}, "job_id"), ({"input": '"\\ud800"'}, "input")])
def test_what_cannot_be_is_said_and_what_was_typed_is_kept(form, fields, said):
    """Every fault at its field, nothing written."""
    answer = form(**fields)
    page = answer.content.decode()
    assert answer.status_code in (400, 404, 409), page
    assert said in page
    assert Job.objects.count() == 0
    assert 'value="console:' in page


def test_one_like_another_takes_the_right_to_see_inputs(client, driver):
    """view_payload is apart from enqueue."""
    job_id = driver.enqueue("echo", {"value": "as before"})
    client.force_login(person("blind", "view_job", "enqueue_job", staff=False))
    assert "as before" not in client.get(f"/jobs/new/?like={job_id}").content.decode()
    client.force_login(person("seeing", "view_job", "enqueue_job", "view_payload", staff=False))
    page = client.get(f"/jobs/new/?like={job_id}").content.decode()
    assert "as before" in page
    assert re.search(r'<option value="echo" selected', page)
    for nothing in ("x", "00000000-0000-7000-8000-000000000000"):
        assert client.get(f"/jobs/new/?like={nothing}").status_code == 200


def test_a_secret_of_the_other_job_is_not_shown_and_goes_along(client, form, driver):
    """A64: left as it was shown it is the other job's; without another job it stands for nothing."""
    job_id = driver.enqueue("outside", {"db_password": "hunter2", "n": 1})
    page = client.get(f"/jobs/new/?like={job_id}").content.decode()
    assert "hunter2" not in page
    assert "[redacted]" in page
    said = {"type": "outside", "input": '{"db_password": "[redacted]", "n": 2}'}
    assert form(**said).status_code == 400
    made = form(**said, like=job_id)
    assert made.status_code == 302
    assert json.loads(Job.objects.latest("pk").input) == {"db_password": "hunter2", "n": 2}


def test_who_may_not_enqueue_is_refused_and_sees_no_button(client, driver):
    """403 for the form and for what is sent past it."""
    client.force_login(person("viewer", "view_job", staff=False))
    assert client.get("/jobs/new/").status_code == 403
    assert client.post("/jobs/new/", {"type": "echo", "input": "{}"}).status_code == 403
    assert "/jobs/new/" not in client.get("/jobs/").content.decode()
    assert Job.objects.count() == 0
