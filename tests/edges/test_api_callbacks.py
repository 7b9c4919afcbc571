"""Callbacks over the API and by `manage.py callbacks`: asking, the log, sending again, secrets (A37, C2, E11)."""

from __future__ import annotations

import io
import uuid

import pytest
from django.core.management import CommandError, call_command
from standardwebhooks import Webhook

from jobs.models import CallbackSecret, Delivery, Job
from jobs.services import cancellation
from tests.edges.caller import Caller, problem
from tests.services.calling import allowing, send, url
from tests.sinks import Sink, status


@pytest.fixture
def sink(settings, api):
    with Sink() as sink:
        allowing(settings, sink)
        yield sink


def told(driver, api, sink, **fields):
    """A job that was cancelled, and of which somebody was told."""
    job_id = api.enqueue(callback_url=url(sink), **fields)["id"]
    cancellation.cancel(job_id, by="test")
    send(driver)
    return job_id


def test_the_log_of_a_job_and_of_a_tenant_and_sending_it_again(driver, api, sink) -> None:
    """E11: every try with its status and time; what the receiver said is told to no caller (case-I04)."""
    sink.answer = status(410, body=b"INSIDE-WORDS")
    job_id = told(driver, api, sink)
    answer = api.get(f"/jobs/{job_id}/deliveries")
    [row] = answer.json()["deliveries"]
    assert (row["event"], row["status"], row["tries"], row["http_status"], row["code"], row["host"]) == (
        "cancelled", "failed", 1, 410, "gone", "127.0.0.1")
    assert [(one["number"], one["http_status"]) for one in row["log"]] == [(1, 410)]
    assert b"INSIDE-WORDS" not in answer.content
    listed = api.get("/deliveries?status=failed").json()
    assert [one["id"] for one in listed["deliveries"]] == [row["id"]]
    assert api.get("/deliveries?status=pending").json() == {"deliveries": [], "next_cursor": None}
    sink.answer = status(200)
    again = api.post(f"/deliveries/{row['id']}/replay")
    assert (again.status_code, again.json()["status"], again.json()["replays"]) == (202, "pending", 1)
    problem(api.post(f"/deliveries/{row['id']}/replay"), 409, "delivery_pending")
    send(driver)
    assert api.get(f"/jobs/{job_id}/deliveries").json()["deliveries"][0]["status"] == "delivered"
    # Its sender is nobody's job.
    sender = Delivery.objects.get().sender_id
    problem(api.get(f"/jobs/{sender}"), 404, "job_not_found")


def test_pages_of_deliveries_are_walked_by_a_cursor(driver, api, sink) -> None:
    """E11: newest first; a cursor belongs to its list."""
    for _ in range(3):
        told(driver, api, sink)
    first = api.get("/deliveries?limit=2").json()
    rest = api.get(f"/deliveries?limit=2&cursor={first['next_cursor']}").json()
    found = [one["id"] for one in first["deliveries"] + rest["deliveries"]]
    assert (len(found), found, rest["next_cursor"]) == (3, sorted(found, reverse=True), None)
    problem(api.get(f"/deliveries?status=failed&cursor={first['next_cursor']}"), 400, "invalid_cursor", "cursor")
    problem(api.get("/deliveries?status=sent"), 400, "invalid_status", "status")


def test_what_is_another_tenant_s_is_not_there(driver, api, sink) -> None:
    """RELIABILITY 6.5.1: foreign and unknown answer alike."""
    told(driver, api, sink, tenant_subject="acme")
    row = Delivery.objects.get()
    other = Caller("other", tenant="other")
    foreign, unknown = (other.post(f"/deliveries/{pk}/replay") for pk in (row.pk, uuid.uuid4()))
    problem(foreign, 404, "delivery_not_found")
    assert foreign.content == unknown.content
    problem(other.post("/deliveries/nonsense/replay"), 404, "delivery_not_found")
    problem(other.get(f"/jobs/{row.job_id}/deliveries"), 404, "job_not_found")
    assert other.get("/deliveries").json()["deliveries"] == []
    assert len(api.get("/deliveries", X_Tenant_Subject="acme").json()["deliveries"]) == 1
    weak = Caller("weak", permissions=["read"])
    problem(weak.get("/deliveries"), 403, "permission_denied")
    problem(weak.get("/callback-secrets"), 403, "permission_denied")


def test_secrets_are_shown_once_rotated_and_revoked(driver, api, sink) -> None:
    """E11: two live ones; a tenant's own."""
    first = api.post("/callback-secrets")
    assert (first.status_code, first["Cache-Control"]) == (201, "no-store")
    old = first.json()
    new = api.post("/callback-secrets", {"rotate": True}).json()
    problem(api.post("/callback-secrets"), 409, "too_many_secrets")
    told(driver, api, sink)
    for made in (old, new):
        Webhook(made["secret"]).verify(sink.got[0].body, sink.got[0].headers)
    listed = api.get("/callback-secrets")
    assert [(one["id"], one["state"]) for one in listed.json()["secrets"]] == [(new["id"], "live"), (old["id"], "live")]
    assert old["secret"].encode() not in listed.content
    gone = api.send("DELETE", f"/callback-secrets/{old['id']}")
    assert (gone.status_code, gone.json()["state"]) == (200, "revoked")
    assert api.send("DELETE", f"/callback-secrets/{old['id']}").json() == gone.json()
    for name in ("0", "x", "9" * 30, str(10**18)):
        problem(api.send("DELETE", f"/callback-secrets/{name}"), 404, "secret_not_found")
    other = Caller("other", tenant="other")
    problem(other.send("DELETE", f"/callback-secrets/{new['id']}"), 404, "secret_not_found")
    assert other.post("/callback-secrets").status_code == 201
    assert len(other.get("/callback-secrets").json()["secrets"]) == 1
    assert CallbackSecret.objects.get(pk=new["id"]).revoked_at is None


@pytest.mark.parametrize(("body", "field", "code"), [
    ({"callback_url": "https://127.0.0.1/"}, "callback_url", "invalid_callback_url"),
    ({"callback_url": ["x"]}, "callback_url", "invalid_callback_url"),
    ({"callback_url": "https://example.com/", "callback_events": ["x"]}, "callback_events", "invalid_callback_events"),
    ({"callback_events": {"a": 1}}, "callback_events", "invalid_callback_events"),
])
def test_what_cannot_be_called_is_refused_with_its_field(api, settings, body, field, code) -> None:
    """case-I04, E11."""
    problem(api.post("/jobs", {"type": "outside", **body}), 400, code, field)
    spelled = {"callback_url": "callbackUrl", "callback_events": "callbackEvents"}
    agents = {"payload": {"kind": "outside"}, **{spelled[name]: value for name, value in body.items()}}
    problem(api.post("/agents/factory/jobs", agents), 400, code, spelled[field])
    settings.JOBS = {**settings.JOBS, "CALLBACKS": False}
    problem(api.post("/jobs", {"type": "outside", "callback_url": "https://example.com/"}), 403, "callbacks_disabled",
            "callback_url")


def test_agents_clients_ask_in_their_spelling(driver, api, sink) -> None:
    """A37, A53: `callbackUrl` and `callbackEvents`, with one l if they like."""
    answer = api.post("/agents/factory/jobs", {
        "payload": {"kind": "outside"}, "callbackUrl": url(sink), "callbackEvents": ["dispatched", "canceled"]})
    assert answer.status_code == 202, answer.content
    job = Job.objects.get(type="outside")
    assert (job.callback_url, job.callback_events) == (url(sink), 9)
    # A runner over HTTP claims it: somebody is told, before any end.
    [held] = api.claim(1, worker_groups=[job.worker_group])
    send(driver)
    assert [got.told["type"] for got in sink.got] == ["job.dispatched"]
    assert sink.got[0].told["data"]["result_envelope"] is None
    assert held["job"]["id"] == str(job.pk)


# --- by hand ---------------------------------------------------------------------------------------------------------


def say(*words: str) -> str:
    out = io.StringIO()
    call_command("callbacks", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_an_operator_lists_shows_repeats_and_tries(driver, api, sink) -> None:
    """E11: strangers' words are one line without what a terminal obeys."""
    sink.answer = status(410, body=b"\x1b[31mred\nline")
    job_id = told(driver, api, sink, job_id="order-7")
    [row] = Delivery.objects.all()
    listed = say("list", "--status", "failed")
    assert listed.startswith(f"{row.pk}  failed  cancelled  job {job_id}  1 tries  127.0.0.1")
    shown = say("show", "order-7")
    assert "completed failed cancelled" in shown
    assert "[31mred line" in shown
    assert "\x1b" not in shown
    sink.answer = status(200)
    assert "pending" in say("replay", str(row.pk))
    with pytest.raises(CommandError):
        say("replay", str(row.pk))
    with pytest.raises(CommandError):
        say("replay", "x")
    send(driver)
    secret = say("secret-new").strip()
    assert secret.startswith("whsec_")
    sink.got.clear()
    assert say("test", url(sink)).startswith("ok  200")
    Webhook(secret).verify(sink.got[0].body, sink.got[0].headers)
    with pytest.raises(CommandError):
        say("test", "https://127.0.0.1/")
    assert secret not in say("secrets")
    assert say("secret-rotate").startswith("whsec_")
    number = say("secrets").split()[0]
    assert "revoked" in say("secret-revoke", number)
