"""Caps and pauses over the API, at the console and in the admin, and what they say of a job that waits (C9)."""

from __future__ import annotations

import logging
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command

from jobs import clock
from jobs.models import Job, Throttle
from jobs.services import explain, tenancy, throttles
from tests import database as db
from tests.driver import claimer
from tests.edges.admin_people import quick, somebody, url  # noqa: F401
from tests.edges.caller import Caller, everything, problem
from tests.making import default_workspace, tenant_id


def put(api: Caller, at: str, **body: Any) -> Any:
    return api.send("PUT", f"/throttles/{at}", body)


# --- the API -------------------------------------------------------------------------------------------------------


def test_a_throttle_is_put_read_and_deleted(api) -> None:
    """C9: of the key's workspace; it says who paused it, why and until when, and what runs under its cap."""
    api.enqueue()
    api.claim_one()
    made = put(api, "worker_group/runners", most=2, paused=True, reason="they are down", for_s=60)
    told = made.json()
    assert (made.status_code, told["kind"], told["name"], told["most"], told["used"]) == (
        200, "worker_group", "runners", 2, 1)
    assert (told["paused"], told["paused_by"], told["reason"]) == (True, f"key:{api.key.prefix}", "they are down")
    assert api.get("/throttles/worker_group/runners").json() == told
    assert api.get("/throttles").json() == {"throttles": [told]}
    row = Throttle.objects.get()
    assert row.workspace == default_workspace()
    assert abs((row.paused_until - clock.now()).total_seconds() - 60) < 20
    api.enqueue()
    assert api.claim() == []
    again = put(api, "worker_group/runners", most=5).json()
    assert (again["most"], again["paused"], again["until"], again["reason"]) == (5, False, None, None)
    assert len(api.claim(5)) == 1
    gone = api.send("DELETE", "/throttles/worker_group/runners")
    assert (gone.status_code, gone.content) == (204, b"")
    problem(api.send("DELETE", "/throttles/worker_group/runners"), 404, "throttle_not_found", "name")
    problem(api.get("/throttles/worker_group/runners"), 404, "throttle_not_found", "name")


def test_a_tenant_is_paused_by_its_subject_and_a_pause_that_is_over_says_nothing(api) -> None:
    """C9: subjects hold slashes too; a runner gets its jobs again when the moment has come."""
    api.enqueue(tenant_subject="a/b")
    until = (clock.now() + timedelta(seconds=60)).isoformat()
    assert put(api, "tenant/a/b", paused=True, reason="unpaid", until=until).json()["name"] == "a/b"
    assert api.claim() == []
    db.pass_time(61)
    told = api.get("/throttles/tenant/a/b")
    assert told.status_code == 404 or told.json()["paused"] is False
    throttles.Ends().tick()
    assert len(api.claim()) == 1


@pytest.mark.parametrize(("at", "body", "status", "code", "field"), [
    ("moon/x", {"most": 1}, 400, "unknown_throttle_kind", "kind"),
    ("queue/chatt", {"most": 1}, 400, "unknown_queue", "name"),
    ("worker_group/runnersx", {"most": 1}, 400, "unknown_worker_group", "name"),
    ("worker_group/system", {"most": 1}, 400, "unknown_worker_group", "name"),
    ("type/outsidee", {"most": 1}, 400, "unknown_type", "name"),
    ("tenant/nobody", {"paused": True, "reason": "x"}, 404, "not_found", "tenant_subject"),
    ("tenant/acme", {"most": 1}, 400, "invalid_most", "most"),
    ("queue/chat", {"most": 0}, 400, "invalid_most", "most"),
    ("queue/chat", {"most": 1.0}, 400, "invalid_most", "most"),
    ("queue/chat", {"most": True}, 400, "invalid_most", "most"),
    ("queue/chat", {}, 400, "throttle_says_nothing", "most"),
    ("queue/chat", {"most": 1, "for_s": 5}, 400, "throttle_not_paused", "paused"),
    ("queue/chat", {"paused": True}, 400, "invalid_reason", "reason"),
    ("queue/chat", {"paused": True, "reason": "x", "for_s": 0}, 400, "invalid_for_s", "for_s"),
    ("queue/chat", {"paused": True, "reason": "x", "until": "2001-01-01T00:00:00Z"}, 400, "invalid_until", "until"),
    ("queue/chat", {"paused": True, "reason": "x", "for_s": 5, "until": "2100-01-01T00:00:00Z"}, 400, "invalid_until",
     "until"),
    ("queue/chat", {"paused": 1, "reason": "x"}, 400, "invalid_paused", "paused"),
    ("queue/chat", {"most": 1, "moost": 1}, 400, "unknown_field", "moost"),
])
def test_what_cannot_be_is_refused_by_its_field_and_nothing_is_written(api, at, body, status, code, field) -> None:
    """C9, DESIGN 2: each refusal has a code of its own and names what would be right."""
    tenant_id("acme")
    before = everything()
    said = problem(put(api, at, **body), status, code, field)
    if code.startswith("unknown_") and not at.endswith("system") and field == "name":
        assert "did you mean" in said["detail"].lower()
    assert (everything(), Throttle.objects.count()) == (before, 0)


def test_a_key_sees_and_sets_what_is_its_workspaces_alone(api) -> None:
    """C9: not the whole site's, not another's, and a tenant's key nothing."""
    other = Caller(workspace="other")
    throttles.pause("queue", "chat", by="ann", reason="private", workspace=None)
    put(other, "queue/collect", most=3)
    assert api.get("/throttles").json() == {"throttles": []}
    for name in ("chat", "collect"):
        problem(api.get(f"/throttles/queue/{name}"), 404, "throttle_not_found", "name")
        problem(api.send("DELETE", f"/throttles/queue/{name}"), 404, "throttle_not_found", "name")
    assert Throttle.objects.count() == 2
    mine = Caller(tenant="acme")
    for method, path in (("GET", "/throttles"), ("DELETE", "/throttles/queue/chat"), ("GET", "/throttles/tenant/acme")):
        problem(mine.send(method, path), 403, "permission_denied")
    problem(put(mine, "tenant/acme", paused=True, reason="x"), 403, "permission_denied")
    problem(other.get("/throttles/tenant/acme"), 404, "not_found")


# --- what it says of a job -------------------------------------------------------------------------------------------


def test_every_throttle_that_holds_a_job_is_named(driver) -> None:
    """C9, DESIGN 7.1: paused by whom, why and until when; full by how many, and whose they are."""
    running = driver.enqueue()
    driver.claim_one()
    throttles.cap("queue", "collect", 1, by="ann")
    throttles.cap("type", "echo", 2, by="ann")
    waiting = Job.objects.get(pk=driver.enqueue(tenant="t"))
    found = throttles.blockers_of(waiting)
    assert [(b.kind, b.name, b.scope, b.most, b.used, b.holders, b.code) for b in found] == [
        ("queue", "collect", "site", 1, 1, (running,), "queue_at_cap")]
    throttles.pause("type", "echo", by="bob", reason="a bug", workspace=default_workspace(), for_s=60)
    throttles.pause("tenant", "t", by="eve", reason="unpaid", workspace=default_workspace())
    found = throttles.blockers_of(waiting)
    assert [(b.code, b.name, b.paused_by, b.reason, b.until is None) for b in found] == [
        ("type_paused", "echo", "bob", "a bug", False), ("tenant_paused", "t", "eve", "unpaid", True),
        ("queue_at_cap", "collect", None, None, True)]
    assert driver.claim(5, claimer()) == []
    waiting.refresh_from_db()
    reason = explain.blocker(waiting, clock.now())
    assert reason is not None
    assert (reason.code, "a bug" in reason.said, "bob" in reason.said) == ("type_paused", True, True)


# --- the console -----------------------------------------------------------------------------------------------------


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("throttles", *arguments, stdout=out)
    return out.getvalue()


def test_an_operator_pauses_caps_lists_and_resumes_at_the_console(driver, caplog) -> None:
    """C9, E12: for the whole site, or a workspace; who did it stands in the log."""
    tenant_id("acme")
    with caplog.at_level(logging.INFO, "jobs.throttles"):
        assert said("pause", "queue", "chat", "--reason", "too loud", "--for", "3600").startswith(
            "queue  chat  site  paused by shell:")
    assert "queue chat of the site was paused by shell:" in caplog.text
    assert said("cap", "type", "echo", "3", "--workspace", "default") == "type  echo  default  0 of 3 run\n"
    assert "tenant  acme  default" in said("pause", "tenant", "acme", "--reason", "unpaid")
    assert len(said("list").splitlines()) == 3
    assert len(said("list", "--workspace", "default").splitlines()) == 2
    assert said("resume", "queue", "chat") == "resumed\n"
    assert said("resume", "tenant", "acme") == "resumed\n"
    assert said("cap", "type", "echo", "none", "--workspace", "default") == "no cap any more\n"
    assert not Throttle.objects.exists()
    for words, told in ((("resume", "queue", "chat"), "not paused"), (("cap", "queue", "chatt", "1"), "did you mean"),
                        (("pause", "tenant", "nobody", "--reason", "x"), "no such tenant")):
        with pytest.raises(CommandError, match=told):
            said(*words)


# --- the admin -------------------------------------------------------------------------------------------------------


def form(**said: Any) -> dict[str, Any]:
    return {"kind": "queue", "name": "chat", "workspace": "", "most": "", "reason": "", "until_0": "", "until_1": "",
            **said}


def test_an_operator_makes_changes_pauses_and_resumes_one_in_the_admin(driver) -> None:
    """C9, E12: through the service, with a line in its history for each."""
    client = somebody("limiter")
    assert client.post(url("throttle", "add"), form(most="3", paused="on", reason="too loud")).status_code == 302
    row = Throttle.objects.get()
    assert (row.kind, row.name, row.workspace, row.most, row.paused_by, row.pause_reason) == (
        "queue", "chat", None, 3, "user:limiter", "too loud")
    shown = [client.get(url("throttle")), client.get(url("throttle", row.pk, "change"))]
    assert all("too loud" in page.content.decode() for page in shown)
    assert client.post(url("throttle", row.pk, "change"), {"most": "4"}).status_code == 302
    for action in ("resume", "pause", "resume"):
        client.post(url("throttle", "answer", action), {"ids": str(row.pk), "reason": "as agreed"})
    row.refresh_from_db()
    assert (row.most, row.paused_at) == (4, None)
    assert LogEntry.objects.filter(object_id=str(row.pk)).count() == 5
    refused = client.post(url("throttle", row.pk, "change"), {"most": ""})
    assert "Remove it instead" in refused.content.decode()
    client.post(url("throttle", "answer", "remove"), {"ids": str(row.pk), "reason": "done"})
    assert not Throttle.objects.exists()


@pytest.mark.parametrize(("said", "field"), [
    ({"most": "0"}, "most"), ({"name": "chatt", "most": "1"}, "name"), ({"workspace": "no", "most": "1"}, "workspace"),
    ({"kind": "tenant", "name": "nobody", "workspace": "default", "paused": "on", "reason": "x"}, "name"),
    ({"paused": "on"}, "reason"), ({}, "most"), ({"reason": "x", "most": "1"}, "paused"),
    ({"paused": "on", "reason": "x", "until_0": "2001-01-01", "until_1": "00:00:00"}, "until"),
])
def test_what_cannot_be_is_refused_in_the_admin_at_its_field(driver, said, field) -> None:
    """C9: as the service judges it."""
    answer = somebody("limiter").post(url("throttle", "add"), form(**said))
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors
    assert not Throttle.objects.exists()


def test_the_log_of_a_tenants_pause_does_not_name_its_subject(driver) -> None:
    """E13: the log outlives the tenant, which takes its throttle with it."""
    tenant_id("secret-name")
    client = somebody("limiter")
    body = form(kind="tenant", name="secret-name", workspace="default", paused="on", reason="unpaid")
    assert client.post(url("throttle", "add"), body).status_code == 302
    assert "secret-name" not in " ".join(f"{e.object_repr} {e.change_message}" for e in LogEntry.objects.all())
    tenancy.tenant(default_workspace(), "secret-name").delete()
    assert not Throttle.objects.exists()
