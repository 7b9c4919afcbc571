"""Erasure by people: `manage.py erase`, the admin's confirmations, and a caller's own request (B37, B38, B40, E13)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command

from jobs.models import Erasure, Job, Receipt, Tenant
from jobs.services import erasure, tenancy
from jobs.services.erasure import Erasures
from tests import database as db
from tests.driver import Driver, check
from tests.edges.admin_people import act, confirm, quick, somebody, told, url  # noqa: F401
from tests.edges.caller import ATTESTED, Caller, everything, problem
from tests.edges.test_commands import refused, say
from tests.making import default_workspace

REASON = ("--reason", "request 17", "--yes")


def tenant(subject: str = "acme") -> Tenant:
    return tenancy.tenant(default_workspace(), subject)


def finish() -> None:
    """Carry what was begun on to its end."""
    duty = Erasures()
    for _ in range(100):
        if not duty.tick():
            if not Erasure.objects.filter(ended_at=None).exists():
                return
            db.pass_time(30)
    raise AssertionError("it does not end")


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_what_would_go(driver: Driver) -> None:
    """E13: for people and for scripts; nothing is changed."""
    ids = [driver.enqueue(tenant="acme", target="thing"), driver.enqueue(tenant="acme")]
    said = say("erase", "tenant", "acme", "--dry-run")
    for part in ("2  jobs_job", "2  jobs_receipt", "1  jobs_target", "2  jobs are active", ids[1], "Nothing was done."):
        assert part in said
    shown = json.loads(say("erase", "tenant", "acme", "--dry-run", "--json"))
    assert (shown["counts"]["jobs_job"], shown["active"], shown["blocked"]) == (2, 2, [])
    assert shown["sample"] == ids[::-1]
    assert "is queued: cancel it first" in say("erase", "job", ids[0], "--dry-run")
    assert not Erasure.objects.exists()


def test_a_tenant_is_deleted_from_the_shell(driver: Driver) -> None:
    """B38: with --wait the command does it itself, where nobody runs the loops."""
    driver.enqueue(tenant="acme")
    assert "Nobody runs the loops" in say("erase", "tenant", "acme", *REASON)
    said = json.loads(say("erase", "tenant", "acme", "--wait", "--json", *REASON))
    assert (said["word"], said["counts"]["jobs_job"]) == ("finished", 1)
    assert not Tenant.objects.filter(subject="acme").exists()
    begun = Erasure.objects.get()
    assert (begun.reason, begun.by.partition(":")[0]) == ("request 17", "shell")
    assert "There is no such tenant" in refused("erase", "tenant", "acme", *REASON)


def test_a_tenant_is_redacted_from_the_shell(driver: Driver) -> None:
    """E13: --redact-only leaves jobs, receipts and the tenant."""
    job_id = driver.enqueue(tenant="acme", input_={"value": "mine"})
    driver.complete(driver.claim_one(), "mine")
    assert "finished, 1 jobs_job" in say("erase", "tenant", "acme", "--redact-only", "--wait", *REASON)
    assert driver.job(job_id).input == ""
    check(job_id)


def test_a_job_is_redacted_from_the_shell_by_either_id(driver: Driver) -> None:
    """E13."""
    job_id = driver.enqueue(job_id="order-7")
    assert "cancel it first" in refused("erase", "job", "order-7", *REASON)
    driver.cancel(job_id)
    assert "is redacted." in say("erase", "job", "order-7", *REASON)
    assert "was redacted already" in say("erase", "job", job_id, *REASON)
    assert "There is no such job" in refused("erase", "job", "order-7", *REASON)


def test_nothing_is_done_without_a_reason_and_a_yes(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.2: what cannot be taken back is asked for twice."""
    driver.enqueue(tenant="acme")
    assert "--reason" in refused("erase", "tenant", "acme", "--yes")
    for answer in ("", "no", "y"):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert "Nothing was done" in refused("erase", "tenant", "acme", "--reason", "r")
    assert not Erasure.objects.exists()
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    call_command("erase", "tenant", "acme", "--reason", "r")
    assert Erasure.objects.get().verb == "delete"


def test_the_shell_says_what_blocks(driver: Driver, settings: Any) -> None:
    """B38."""
    settings.JOBS = {**settings.JOBS, "BLOCKS_DELETION": ["tests.services.kept.published_links"]}
    driver.enqueue(tenant="published")
    assert "blocked: 2 published links" in say("erase", "tenant", "published", "--dry-run")
    assert "2 published links" in refused("erase", "tenant", "published", *REASON)
    assert "There is no workspace" in refused("erase", "tenant", "acme", "--workspace", "nowhere", *REASON)


# --- the admin --------------------------------------------------------------------------------------------------------


def test_a_tenant_is_archived_and_restored_in_the_admin(driver: Driver) -> None:
    """B37: with a reason, a log entry that does not name it, and counts of what was skipped."""
    driver.enqueue(tenant="acme")
    house = Tenant.objects.get(subject=None)
    client = somebody("archivist")
    answer = confirm(client, "tenant", "archive", tenant().pk, house.pk, reason="they pause")
    assert told(answer) == ["1 archived, 1 skipped (1 the house's own)."]
    assert (tenant().archived_by, tenant().archive_reason) == ("user:archivist", "they pause")
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.change_message) == (f"tenant {tenant().pk}", "Archived: they pause")
    assert told(confirm(client, "tenant", "archive", tenant().pk)) == ["0 archived, 1 skipped (1 archived already)."]
    assert told(confirm(client, "tenant", "restore", tenant().pk)) == ["1 restored."]
    assert told(confirm(client, "tenant", "restore", tenant().pk)) == ["0 restored, 1 skipped (1 not archived)."]
    assert tenant().archived_at is None


def test_a_tenant_is_deleted_in_the_admin_after_a_look_at_what_would_go(driver: Driver) -> None:
    """B38, E13: the confirmation is the dry run."""
    driver.enqueue(tenant="acme")
    client, pk = somebody("eraser"), tenant().pk
    shown = text(act(client, "tenant", "delete", pk))
    for part in ("Delete 1 tenant?", "cannot be stopped or undone", "What would go", "1 job,", "1 are active"):
        assert part in shown
    assert Tenant.objects.get(pk=pk).deleting_at is None
    assert told(confirm(client, "tenant", "delete", pk, reason="they left")) == ["1 marked for deletion."]
    page = client.get(url("tenant", pk, "change"))
    assert "being deleted" in text(page)
    assert "1 (1 tenant deleting) of them would be skipped" in text(act(client, "tenant", "delete", pk))
    confirm(client, "tenant", "delete", pk)
    assert Erasure.objects.count() == 1
    finish()
    assert not Tenant.objects.filter(pk=pk).exists()
    begun = Erasure.objects.get()
    page = text(client.get(url("erasure", begun.pk, "change")))
    assert "finished" in page
    assert "1 job," in page
    assert "acme" not in page
    assert not LogEntry.objects.filter(object_repr__contains="acme").exists()


def test_jobs_are_redacted_in_the_admin(driver: Driver) -> None:
    """E13: ended ones; their page says so."""
    ended, active = driver.enqueue(input_={"value": "mine"}), driver.enqueue()
    driver.cancel(ended)
    client = somebody("eraser")
    assert "1 (1 job active) of them would be skipped" in text(act(client, "job", "redact", ended, active))
    assert told(confirm(client, "job", "redact", ended, active)) == ["1 redacted, 1 skipped (1 job active)."]
    assert "1 (1 redacted already) of them would be skipped" in text(act(client, "job", "redact", ended))
    assert told(confirm(client, "job", "redact", ended)) == ["0 redacted, 1 skipped (1 redacted already)."]
    assert "what it said was redacted" in text(somebody("reader").get(url("job", ended, "change")))
    assert "(erased)" in text(somebody("reader").get(url("job", ended, "change")))
    check(ended)


# --- the API ----------------------------------------------------------------------------------------------------------


def test_a_caller_redacts_its_own_job(api: Caller, driver: Driver) -> None:
    """E13: by a permission of its own; once, and quietly the second time."""
    job_id = api.enqueue("echo", input={"value": "mine"}, job_id="order-7")["id"]
    problem(api.post(f"/jobs/{job_id}/redact"), 409, "job_active")
    driver.complete(driver.claim_one(), "mine")
    answer = api.post("/jobs/order-7/redact", {"reason": "request 17"})
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert (body["redacted"], body["repeated"], body["job_id"], body["status"]) == (True, False, None, "completed")
    assert body["result_envelope"]["artifact"] is None
    rows = everything()
    assert api.post(f"/jobs/{job_id}/redact").json()["repeated"] is True
    assert everything() == rows
    assert api.get(f"/jobs/{job_id}?include=input").json()["input"] is None
    assert api.get(f"/jobs/{job_id}/artifact").json()["redacted"] is True
    assert Receipt.objects.filter(job_id=job_id).latest("number").kind == "job.redacted"
    problem(api.post("/jobs/order-7/redact"), 404, "job_not_found")
    check(job_id)


@pytest.mark.parametrize(("body", "code"), [({"reason": ""}, "invalid_reason"), ({"reason": 3}, "invalid_reason"),
                                            ({"why": "x"}, "unknown_field")])
def test_a_wrong_redaction_is_refused(api: Caller, driver: Driver, body: dict[str, Any], code: str) -> None:
    """B12."""
    job_id = api.enqueue("echo")["id"]
    driver.cancel(job_id)
    problem(api.post(f"/jobs/{job_id}/redact", body), 400, code)
    assert driver.job(job_id).input != ""


def test_a_key_redacts_only_with_the_permission_and_only_what_is_its_own(api: Caller, driver: Driver) -> None:
    """C25, E13."""
    job_id = api.enqueue("echo")["id"]
    driver.cancel(job_id)
    without = Caller(permissions=["enqueue", "read", "control", "dead_letters"])
    assert without.post(f"/jobs/{job_id}/redact").status_code == 403
    problem(Caller(tenant="other").post(f"/jobs/{job_id}/redact"), 404, "job_not_found")
    assert driver.job(job_id).input != ""


def test_a_caller_of_an_archived_tenant_is_told_so(driver: Driver) -> None:
    """B37, B38: enqueue and cancel are refused with codes of their own; reads go on."""
    api = Caller(tenant="acme")
    job_id = api.enqueue("echo")["id"]
    tenancy.archive(tenant(), by="user:x", reason="r")
    problem(api.post("/jobs", {"type": "echo"}), 403, "tenant_archived")
    problem(api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}), 403, "tenant_archived")
    assert api.get(f"/jobs/{job_id}").status_code == 200
    erasure.delete(tenant(), by="user:x", reason="r")
    problem(api.post("/jobs", {"type": "echo"}), 409, "tenant_deleting")
    finish()
    assert api.get(f"/jobs/{job_id}").status_code == 401
    assert not Job.objects.exists()


def test_an_abort_is_no_way_around_the_refusal_of_a_cancel(driver: Driver) -> None:
    """B37: for jobs that wait and such that are held; to steer what was admitted is no new work. People may do both."""
    api = Caller(tenant="acme")
    ids = [api.enqueue("echo")["id"] for _ in range(3)]
    driver.claim_one()
    tenancy.archive(tenant(), by="user:x", reason="r")
    before = everything()
    for job_id in ids:
        problem(api.post(f"/jobs/{job_id}/abort"), 403, "tenant_archived")
    assert everything() == before
    assert api.post(f"/jobs/{ids[0]}/steer").status_code == 202
    call_command("jobs", "abort", *ids[1:2], stdout=io.StringIO())
    call_command("jobs", "cancel", *ids[2:], stdout=io.StringIO())
    call_command("jobs", "abort", ids[0], stdout=io.StringIO())
    assert [Job.objects.get(pk=job_id).state for job_id in ids] == ["leased", "cancelled", "cancelled"]
    assert Job.objects.get(pk=ids[0]).abort_reason == "abort_requested"


def test_a_redacted_letter_asks_for_a_new_input(api: Caller, driver: Driver) -> None:
    """C27, E13."""
    job_id = api.enqueue("echo", tenant_subject="acme")["id"]
    driver.fail(driver.claim_one(), retryable=False)
    assert api.post(f"/jobs/{job_id}/redact?tenant_subject=acme").status_code == 200
    problem(api.post(f"/jobs/{job_id}/requeue", ATTESTED), 409, "input_redacted")
