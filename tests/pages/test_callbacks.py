"""Callbacks on a job's page: what was told, how it went, and sending it again (E11)."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.pages.people import person
from tests.services.calling import allowing, rows_of, send, url
from tests.sinks import Sink, status


def client(*permissions: str) -> Client:
    found = Client()
    found.force_login(person("-".join(permissions), *permissions))
    return found


@pytest.fixture
def told(driver, settings):
    """A job whose callback was refused by its receiver, with words of his."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with Sink(status(410, body=b"<script>INSIDE</script>")) as sink:
        allowing(settings, sink)
        job_id = driver.enqueue(callback_url=url(sink, "/s3cr3t-path"))
        driver.cancel(job_id)
        send(driver)
        sink.answer = status(200)
        yield job_id


def test_the_page_of_a_job_shows_what_was_told_and_hides_what_came_back(told) -> None:
    """E11, case-I04: the receiver's words, as text, for those who may see payloads; the address itself to nobody."""
    plain = client("view_job").get(f"/jobs/{told}/").content.decode()
    assert "Callbacks" in plain
    assert "HTTP 410" in plain
    assert "INSIDE" not in plain
    assert "s3cr3t-path" not in plain
    assert "Send again" not in plain
    seeing = client("view_job", "view_payload").get(f"/jobs/{told}/").content.decode()
    assert "&lt;script&gt;INSIDE&lt;/script&gt;" in seeing


def test_whoever_may_requeue_may_send_again(driver, told) -> None:
    """E11: under its id; a second press is told why not."""
    [row] = rows_of(told)
    path = f"/jobs/{told}/callbacks/{row.pk}/replay/"
    assert client("view_job").post(path).status_code == 403
    person_ = client("view_job", "requeue_job")
    assert "Send again" in person_.get(f"/jobs/{told}/").content.decode()
    assert person_.get(path).status_code == 405
    assert person_.post(path).status_code == 302
    assert rows_of(told)[0].state == "pending"
    assert "there is nothing to repeat yet" in person_.post(path, follow=True).content.decode()
    send(driver)
    assert rows_of(told)[0].state == "delivered"


def test_the_admin_lists_deliveries_and_sends_again(driver, told) -> None:
    """E11: through the service, with a log entry; never a receiver's words without `view_payload`."""
    [row] = rows_of(told)
    someone = client("view_job", "requeue_job")
    listed = someone.get("/admin/jobs/delivery/?state=failed").content.decode()
    assert str(row.pk) in listed
    page = someone.get(f"/admin/jobs/delivery/{row.pk}/change/").content.decode()
    assert "410" in page
    one = row.log.get()
    assert "INSIDE" not in someone.get(f"/admin/jobs/deliverytry/{one.pk}/change/").content.decode()
    assert "&lt;script&gt;INSIDE" in client("view_job", "view_payload").get(
        f"/admin/jobs/deliverytry/{one.pk}/change/").content.decode()
    for model in ("callbackhost", "callbacksecret", "deliverytry"):
        assert someone.get(f"/admin/jobs/{model}/").status_code == 200
    assert someone.get(f"/admin/jobs/delivery/?q={row.pk}").status_code == 200
    assert someone.get(f"/admin/jobs/delivery/?q={told}").status_code == 200
