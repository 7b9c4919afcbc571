"""The owner of a tenant over the API, and what runners learn of it (B35, E8, E10)."""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType

import pytest
from django.core.management import CommandError, call_command
from django.views.debug import ExceptionReporter

from jobs.models import Attempt, Job, Owner
from jobs.services import erasure, tenancy
from tests import database as db
from tests.edges.caller import Caller, everything, problem
from tests.making import tenant_id
from tests.owned import SECRET, put

pytestmark = pytest.mark.usefixtures("owned_site")


def test_an_owner_is_put_read_and_revoked(api) -> None:
    """E10: a hint of the reference and nothing else of it; revisions are ETags."""
    made = api.send("PUT", "/owner", {"reference": "vault/jobs/7", "label": "the vault", "concurrency": 2})
    assert (made.status_code, made["ETag"], made["Cache-Control"]) == (201, '"r1"', "no-store")
    told = made.json()
    assert (told["state"], told["generation"], told["concurrency"], told["running"]) == ("live", 1, 2, 0)
    assert (told["reference_hint"], told["label"], told["tenant_subject"]) == ("vaul\u2026", "the vault", None)
    assert b"vault/jobs/7" not in made.content
    assert api.get("/owner").json() == told
    assert api.send("PUT", "/owner", {"reference": "b"}, If_Match='"r1"').json()["generation"] == 2
    gone = api.send("DELETE", "/owner", If_Match='"r2"')
    assert (gone.status_code, gone.json()["state"], gone["ETag"]) == (200, "revoked", '"r3"')
    assert api.send("DELETE", "/owner").json() == gone.json()
    assert api.send("PUT", "/owner", {"reference": "b", "rotate": True}).json()["generation"] == 3


def test_a_stale_revision_changes_nothing(api) -> None:
    """E12: 412 with the revision that there is."""
    put()
    before = db.rows("SELECT o::text FROM jobs_owner o")
    assert problem(api.send("PUT", "/owner", {"reference": "x"}, If_Match='"r7"'), 412, "revision_mismatch")[
        "revision"] == 1
    problem(api.send("DELETE", "/owner", If_Match='"r7"'), 412, "revision_mismatch")
    problem(api.send("DELETE", "/owner", If_Match="7"), 400, "invalid_if_match", "If-Match")
    assert db.rows("SELECT o::text FROM jobs_owner o") == before


@pytest.mark.parametrize(("body", "headers", "code"), [
    ({"reference": "x", "concurrency": 0}, {}, "invalid_concurrency"),
    ({"reference": "x", "expires_at": "2001-01-01T00:00:00Z"}, {}, "invalid_expires_at"),
    ({"reference": "x"}, {"If_Match": '"r7"'}, "revision_mismatch")])
def test_a_refusal_leaves_no_new_tenant_behind(api, body, headers, code) -> None:
    """E3, E12: what is judged after the tenant was made takes it back."""
    before = everything()
    answer = api.send("PUT", "/owner", body, X_Tenant_Subject="nobody-yet", **headers)
    assert answer.json()["code"] == code
    assert everything() == before


def test_a_tenant_that_goes_gets_no_owner_any_more(api) -> None:
    """B38: what is put while it is being deleted would stay behind, or keep it from going."""
    put(tenant="acme")
    going = tenancy.tenant(tenancy.workspace(), "acme")
    erasure.delete(going, by="test", reason="test")
    before = everything()
    problem(api.send("PUT", "/owner", {"reference": "b"}, X_Tenant_Subject="acme"), 409, "tenant_deleting",
            "tenant_subject")
    with pytest.raises(CommandError):
        call_command("owners", "put", "b", "--tenant", "acme")
    assert everything() == before


@pytest.mark.parametrize("found", [{"pin": b"s3cr3t-9f8e7d"}, {"until": datetime(2030, 1, 1, tzinfo=UTC)},
                                   {"bad": "s3cr3t\x00"}, {1: "s3cr3t"}])
def test_a_secret_that_is_no_json_is_shared_with_nobody(api, monkeypatch, caplog, found) -> None:
    """B24, E10: it was a 500 after the claim, and the job was lost until its lease ended."""
    monkeypatch.setattr("tests.owned.resolve", lambda *a, **k: found)
    put()
    job_id = api.enqueue("owned-shared")["id"]
    assert api.claim(1) == []
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.reason, job.failures) == ("queued", "owner_unavailable", 0)
    assert "s3cr3t" not in caplog.text


def test_no_report_of_an_error_shows_the_secret_in_a_frame(api, monkeypatch, caplog, settings) -> None:
    """E10: what breaks behind the resolver is mailed to the site's admins with what each frame held."""
    settings.DEBUG = False
    put(concurrency=5)
    for place in ("jobs.selectors.whose", "jobs.services.owners.credential_resolver"):
        api.enqueue("owned-shared")
        with monkeypatch.context() as broken:
            if "resolver" in place:
                # In the resolver's own caller.
                broken.setattr("jobs.services.owners.Mapping", SECRET)
                broken.setattr("tests.owned.resolve", lambda *a, **k: {"password": SECRET})
            else:
                broken.setattr(place, lambda ids: 1 / 0)
            assert api.post("/runtime/claim", {"slots": 1}).status_code == 500
    reported = [r.exc_info for r in caplog.records if r.exc_info]
    assert {info[0] for info in reported} == {ZeroDivisionError, TypeError}
    for info in reported:
        report = ExceptionReporter(None, *info)
        for text in (report.get_traceback_text(), report.get_traceback_html()):
            assert "s3cr3t" not in text


def test_a_secret_that_is_a_mapping_is_shared_as_an_object(api, monkeypatch) -> None:
    """E10: whatever mapping the resolver answers with."""
    monkeypatch.setattr("tests.owned.resolve", lambda *a, **k: MappingProxyType({"user": "u", "password": "p"}))
    put()
    api.enqueue("owned-shared")
    assert api.claim_one()["credential"] == {"user": "u", "password": "p"}


@pytest.mark.parametrize(("body", "code", "field"), [
    ({}, "missing_field", "reference"), ({"reference": 5}, "invalid_reference", "reference"),
    ({"reference": ""}, "invalid_reference", "reference"), ({"reference": "a\nb"}, "invalid_reference", "reference"),
    ({"reference": "x" * 501}, "invalid_reference", "reference"),
    ({"reference": "x", "label": None, "concurrency": 0}, "invalid_concurrency", "concurrency"),
    ({"reference": "x", "concurrency": "1"}, "invalid_concurrency", "concurrency"),
    ({"reference": "x", "label": "a\tb"}, "invalid_label", "label"), ({"reference": "x", "secret": "y"},
                                                                     "unknown_field", "secret"),
    ({"reference": "x", "expires_at": "soon"}, "invalid_expires_at", "expires_at"),
    ({"reference": "x", "expires_at": "2001-01-01T00:00:00Z"}, "invalid_expires_at", "expires_at"),
    ({"reference": "x", "rotate": 1}, "invalid_rotate", "rotate"),
])
def test_what_is_wrong_is_named(api, body, code, field) -> None:
    """B6: a code and a field each; nothing is written, no tenant made."""
    problem(api.send("PUT", "/owner", body), 400, code, field)
    assert not Owner.objects.exists()


def test_tenants_do_not_see_each_others_owners(api) -> None:
    """C25: foreign and unknown answer alike, byte for byte."""
    put(tenant="one")
    one, two = Caller(tenant="one"), Caller(tenant="two")
    assert one.get("/owner").json()["tenant_subject"] == "one"
    foreign = two.get("/owner")
    problem(foreign, 404, "owner_not_found")
    for answer in (two.send("DELETE", "/owner"), api.get("/owner"), api.get("/owner", X_Tenant_Subject="nobody"),
                   Caller(workspace="else").get("/owner", X_Tenant_Subject="one")):
        assert (answer.status_code, answer.content) == (foreign.status_code, foreign.content)
    problem(two.send("PUT", "/owner", {"reference": "x"}, X_Tenant_Subject="one"), 404, "tenant_not_found")
    assert api.get("/owner", X_Tenant_Subject="one").json()["state"] == "live"
    assert api.send("PUT", "/owner", {"reference": "x"}, X_Tenant_Subject="new").status_code == 201


def test_owners_take_a_permission_of_their_own(api) -> None:
    """RELIABILITY 6: whoever may do everything else may not."""
    put()
    other = Caller(permissions=("enqueue", "read", "control", "claim", "dead_letters", "erase"))
    before = everything()
    for method, body in (("GET", None), ("PUT", {"reference": "x"}), ("DELETE", None)):
        problem(other.send(method, "/owner", body), 403, "permission_denied")
    assert everything() == before
    problem(Caller(permissions=("owners",)).get("/jobs"), 403, "permission_denied")


def test_a_runner_learns_the_binding_and_no_secret(api) -> None:
    """E8: unless the definition shares it."""
    owner = put()
    api.enqueue("owned-outside")
    answer = api.post("/runtime/claim", {"slots": 1})
    held = answer.json()["assignments"][0]
    assert held["owner"] == {"owner": owner.pk, "generation": 1}
    assert "credential" not in held
    assert b"s3cr3t" not in answer.content
    assert answer["Cache-Control"] == "no-store"


def test_a_runner_is_given_the_secret_where_the_definition_shares_it(api) -> None:
    """E8, E10: in the answer of the claim, which nobody stores, and nowhere else."""
    put()
    api.enqueue("owned-shared")
    answer = api.post("/runtime/claim", {"slots": 1})
    held = answer.json()["assignments"][0]
    assert (held["credential"], answer["Cache-Control"]) == (SECRET, "no-store")
    api.assignment(held, "extend")
    put("other")
    problem(api.assignment(held, "extend"), 409, "stale_claim")
    problem(api.assignment(held, "complete", {"artifact": {}}), 409, "stale_claim")
    again = api.claim_one()
    assert again["credential"] == "secret-of-other"
    assert api.assignment(again, "complete", {"artifact": {}}).status_code == 200
    tables = [t for (t,) in db.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    for table in tables:
        assert db.rows(f"SELECT count(*) FROM {table} t WHERE t::text LIKE '%%s3cr3t%%' OR t::text LIKE"
                       " '%%secret-of%%'") == [(0,)], table


def test_a_secret_that_cannot_be_had_gives_the_job_back(api) -> None:
    """B24: nobody's failure; the runner does not hear of the job."""
    put("broken")
    job_id = api.enqueue("owned-shared")["id"]
    assert api.claim(1) == []
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.reason, job.failures, job.interruptions) == ("queued", "owner_unavailable", 0, 1)
    assert not Attempt.objects.filter(ended_at=None).exists()


def test_a_revocation_is_told_at_the_next_call_of_the_runner(api) -> None:
    """B23, B35: heartbeat and settlement are refused alike."""
    put()
    api.enqueue("owned-outside")
    held = api.claim_one()
    assert api.get("/owner").json()["running"] == 1
    assert api.send("DELETE", "/owner").status_code == 200
    for verb, body in (("extend", None), ("complete", {"artifact": {}}), ("fail", {"reason_code": "x"})):
        problem(api.assignment(held, verb, body), 409, "stale_claim")
    told = api.get(f"/jobs/{held['job']['id']}").json()
    assert (told["status"], told["state"], told["reason"]) == ("queued", "paused", "owner_unavailable")
    assert tenant_id()
