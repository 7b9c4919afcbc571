"""Who may do what over HTTP, what is foreign, and what happens when something is broken."""

from __future__ import annotations

import uuid

import pytest
from django.db import OperationalError

from jobs.models import Key
from jobs.services import keys
from tests import database as db
from tests.driver import check
from tests.edges.caller import ATTESTED, Caller, everything, problem, state

EMPTY = {"type": "outside", "input": {}}


def test_no_key_and_every_dead_key_are_401_alike(api):
    """E2: missing, malformed, unknown, revoked and expired keys read the same."""
    revoked, expired = Caller(), Caller()
    keys.revoke(revoked.key.prefix)
    Key.objects.filter(pk=expired.key.pk).update(expires_at="2020-01-01T00:00:00Z")
    said = ["", "Bearer", "Bearer ", f"Basic {api.secret}", api.secret, f"Bearer {api.key.prefix}",
            f"Bearer {api.secret}x",
            f"Bearer {api.key.prefix}.", "Bearer a.b", "Bearer \x00.\x00", "Bearer é.é",
            f"Bearer {'a' * 5000}.{'b' * 5000}",
            f"Bearer {revoked.secret}", f"Bearer {expired.secret}"]
    answers = [api.get("/jobs", Authorization=text) for text in said]
    for answer in answers:
        problem(answer, 401, "unauthenticated")
        assert answer["WWW-Authenticate"].startswith("Bearer")
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize(("method", "path", "needs"), [
    ("POST", "/jobs", "enqueue"), ("GET", "/jobs", "read"), ("HEAD", "/jobs", "read"), ("GET", "/jobs/x", "read"),
    ("GET", "/jobs/x/receipts", "read"), ("GET", "/jobs/x/attempts", "read"), ("GET", "/jobs/x/artifact", "read"),
    ("GET", "/definitions", "read"),
    ("POST", "/jobs/x/controls", "control"), ("POST", "/jobs/x/requeue", "dead_letters"),
    ("DELETE", "/jobs/x/dead-letter", "dead_letters"), ("POST", "/runtime/claim", "claim"),
    ("POST", "/assignments/x/extend", "claim"), ("POST", "/assignments/x/complete", "claim"),
    ("POST", "/jobs/x/steer", "control"), ("POST", "/jobs/x/follow_up", "control"),
    ("POST", "/jobs/x/abort", "control"), ("POST", "/assignments/x/cancelled", "claim"),
    ("POST", "/jobs/x/follow-up", "control"), ("POST", "/jobs/x/redact", "erase"), ("GET", "/jobs/x/wait", "read"),
    ("POST", "/agents/x/jobs", "enqueue"), ("GET", "/owner", "owners"), ("PUT", "/owner", "owners"),
    ("DELETE", "/owner", "owners"), ("GET", "/throttles", "throttle"), ("GET", "/throttles/queue/chat", "throttle"),
    ("PUT", "/throttles/queue/chat", "throttle"), ("DELETE", "/throttles/queue/chat", "throttle"),
    ("POST", "/assignments/x/fail", "claim"), ("POST", "/assignments/x/release", "claim"),
])
def test_each_method_needs_its_own_permission(api, method, path, needs):
    """Denied by default: a key with every other permission may not."""
    others = Caller(permissions=[p for p in keys.Permission if p != needs])
    body = ATTESTED if needs == "dead_letters" else {} if method == "POST" else None
    answer = others.send(method, path, body)
    assert answer.status_code == 403
    if method != "HEAD":
        problem(answer, 403, "permission_denied")
    assert Caller(permissions=[needs]).send(method, path, body).status_code != 403


def test_a_repeat_shows_no_result_to_who_may_only_enqueue(api):
    """C3, E2: a job_id that is guessed brings no artifact."""
    api.enqueue(job_id="guess", input={"secret": 1})
    api.assignment(api.claim_one(), "complete", {"artifact": {"secret": 2}})
    again = Caller(permissions=["enqueue"]).post("/jobs", {**EMPTY, "job_id": "guess"})
    assert (again.status_code, again.json()["status"]) == (200, "completed")
    assert b"secret" not in again.content


def test_unknown_routes_and_methods_are_problems(api):
    """Never HTML under /api/, with or without a key, with or without a slash."""
    for path in ("/nothing", "/jobs/", "/jobs/x/y/z", "/assignments/x/explode", "/jobs/x%2Fy/z", "/%00"):
        for method in ("GET", "POST", "OPTIONS", "TRACE"):
            problem(api.send(method, path), 404, "not_found")
    problem(api.get("/nothing", Authorization=""), 404, "not_found")
    for method, path in (("PUT", "/jobs"), ("PATCH", "/jobs/x"), ("GET", "/runtime/claim"), ("OPTIONS", "/jobs"),
                         ("TRACE", "/jobs"), ("PROPFIND", "/jobs")):
        answer = api.send(method, path)
        problem(answer, 405, "method_not_allowed")
        assert answer["Allow"]


def test_whatever_is_accepted_the_answer_is_json(api):
    """Browsers, ?format and odd Accept headers get the same JSON."""
    for accept in ("text/html", "application/xml;q=1", "*/*;q=0", "nonsense"):
        assert api.get("/jobs", Accept=accept)["Content-Type"] == "application/json"
    problem(api.get("/jobs?format=html"), 400, "unknown_parameter")


# --- isolation -----------------------------------------------------------------------------------------------------


def _alike(*answers):
    assert len({(a.status_code, a.content,
                 tuple(sorted(a.items()))) for a in answers}) == 1, [a.content for a in answers]


@pytest.mark.parametrize(("method", "tail"), [
    ("GET", ""), ("GET", "/receipts"), ("GET", "/attempts"), ("GET", "/artifact"), ("POST", "/controls"),
    ("POST", "/requeue"),
    ("DELETE", "/dead-letter"), ("GET", "/wait"), ("POST", "/steer"), ("POST", "/follow_up"), ("POST", "/abort"),
    ("POST", "/redact"),
])
def test_a_foreign_job_reads_like_an_unknown_one(api, driver, method, tail):
    """E2, I16: two workspaces and two tenants; status, body and headers byte for byte, and no row changes."""
    mine = Caller(tenant="mine")
    foreign = [Caller(tenant="theirs").enqueue(job_id="shared", retry={"max_attempts": 1})["id"],
               Caller(workspace="other").enqueue(job_id="shared")["id"],
               api.enqueue(job_id="shared")["id"]]
    rows = everything()
    body = {"action": "cancel"} if tail == "/controls" else {} if method == "POST" else None
    names = [*foreign, str(uuid.uuid4()), "shared", "unknown", "%00", "a%00b", "x" * 300, "{" + foreign[0] + "}"]
    # A tenant's key names its tenant where it answers dead letters (C25).
    answers = [mine.send(method, f"/jobs/{name}{tail}", body, X_Tenant_Subject="mine") for name in names]
    problem(answers[0], 404, "job_not_found")
    _alike(*answers)
    named = [mine.send(method, f"/jobs/{foreign[0]}{tail}", body, X_Tenant_Subject=who) for who in ("theirs", "nobody")]
    _alike(answers[0], *named)
    assert everything() == rows


def test_a_workspace_key_sees_the_tenant_that_it_names(api):
    """C25: by header, query or field; naming none it sees the untenanted jobs."""
    theirs = api.post("/jobs", {**EMPTY, "tenant_subject": "acme"}).json()["id"]
    assert api.post("/jobs", EMPTY, X_Tenant_Subject="acme").json()["tenant_subject"] == "acme"
    own = api.enqueue()
    assert own["tenant_subject"] is None
    assert [j["id"] for j in api.get("/jobs").json()["jobs"]] == [own["id"]]
    assert len(api.get("/jobs?tenant_subject=acme").json()["jobs"]) == 2
    assert api.get(f"/jobs/{theirs}", X_Tenant_Subject="acme").status_code == 200
    problem(api.get(f"/jobs/{theirs}"), 404, "job_not_found")
    problem(api.get("/jobs?tenant_subject=acme", X_Tenant_Subject="other"), 400, "invalid_tenant_subject")
    problem(api.get("/jobs?tenant_subject=nobody"), 404, "tenant_not_found")


def test_a_tenant_key_sees_and_makes_its_own_only(api):
    """C25: naming another tenant is answered like naming one that is not there, and makes none."""
    mine = Caller(tenant="mine")
    Caller(tenant="theirs").enqueue()
    assert mine.enqueue()["tenant_subject"] == "mine"
    assert mine.enqueue(tenant_subject="mine")["tenant_subject"] == "mine"
    rows = everything()
    _alike(*(mine.get(f"/jobs?tenant_subject={who}") for who in ("theirs", "nobody")))
    _alike(*(mine.post("/jobs", {**EMPTY, "tenant_subject": who}) for who in ("theirs", "nobody")))
    for method, path, body in (("POST", "/agents/codex/jobs", {"kind": "outside"}), ("GET", "/owner", None),
                               ("PUT", "/owner", {"reference": "x"}), ("DELETE", "/owner", None)):
        _alike(*(mine.send(method, path, body, X_Tenant_Subject=who) for who in ("theirs", "nobody")))
    problem(mine.post("/jobs", {**EMPTY, "tenant_subject": "theirs"}), 404, "tenant_not_found")
    assert everything() == rows
    assert len(mine.get("/jobs").json()["jobs"]) == 2


def test_the_same_keys_of_two_tenants_are_two_jobs(api):
    """E2: job_id, idempotency key and target are scoped to the tenant."""
    fields = {"job_id": "a", "idempotency_key": "b", "target": "c"}
    one, two = Caller(tenant="one").enqueue(**fields), Caller(tenant="two").enqueue(**fields)
    three = Caller(workspace="w2", tenant="one").enqueue(**fields)
    assert len({one["id"], two["id"], three["id"]}) == 3
    assert {state(j["id"]) for j in (one, two, three)} == {"queued"}
    assert {j["target"]["generation"] for j in (one, two, three)} == {1}


def test_a_subject_in_the_header_is_utf8(api):
    """Servers hand headers over as latin-1."""
    sent = "Zoë".encode().decode("latin-1")
    assert api.post("/jobs", EMPTY, X_Tenant_Subject=sent).json()["tenant_subject"] == "Zoë"
    problem(api.get("/jobs", X_Tenant_Subject="\xff"), 400, "invalid_tenant_subject")


# --- trouble -------------------------------------------------------------------------------------------------------


def test_an_unreachable_database_is_503_with_a_time_to_come_back(api, monkeypatch):
    """A56, DESIGN 5: temporarily unavailable; a pool timeout is no 500."""
    def timeout(text):
        raise OperationalError("couldn't get a connection after 10.00 sec")

    monkeypatch.setattr(keys, "find", timeout)
    answer = api.get("/jobs")
    problem(answer, 503, "storage_unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert b"10.00" not in answer.content


def test_what_nobody_expected_is_a_500_without_its_insides(api, monkeypatch, caplog):
    """A62: JSON, no traceback, logged."""
    def broken(*args, **kwargs):
        raise RuntimeError("the secret insides")

    monkeypatch.setattr("jobs.selectors.jobs", broken)
    answer = api.get("/jobs")
    problem(answer, 500, "internal_error")
    assert b"insides" not in answer.content
    assert "the secret insides" in caplog.text


def test_a_wrong_host_is_a_problem_too(api, settings):
    """Outside of the views the API's paths answer JSON as well."""
    settings.DEBUG = False
    answer = api.client.get("/api/v1/jobs", headers={"Host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")


def test_the_fold_is_the_row_after_all_of_it(api):
    """E14.19: at every commit."""
    for _ in range(3):
        api.enqueue(priority=3)
    api.assignment(api.claim_one(), "fail", {"reason_code": "x"})
    api.assignment(api.claim_one(), "release", {"delay_s": 5})
    for (job_id,) in db.rows("SELECT id FROM jobs_job"):
        check(job_id)


def test_what_one_tenant_says_means_nothing_to_another(api):
    """E2, I16: keys, session keys and singletons of two tenants, of a workspace's own and of two workspaces never meet.
    """
    callers = [Caller(tenant="mine"), Caller(tenant="theirs"), Caller(workspace="other"), api]
    said = {"session_key": "s", "job_id": "j", "idempotency_key": "k"}
    made = [caller.enqueue(**said)["id"] for caller in callers]
    assert len(set(made)) == 4
    told = []
    for caller, own in zip(callers, made, strict=True):
        # A key of a command to one job is no key of a command to another's, nor of another's enqueue.
        sent = caller.post(f"/jobs/{own}/steer", {"payload": {"n": 1}, "idempotency_key": "c"})
        assert (sent.status_code, sent.json()["job"]["id"]) == (202, own)
        told.append(sent.json()["command"]["id"])
        problem(caller.post(f"/jobs/{own}/steer", {"payload": {"n": 1}, "idempotency_key": "k"}), 422,
                "idempotency_key_reused")
        problem(caller.post("/jobs", {**EMPTY, "idempotency_key": "c"}), 422, "idempotency_key_reused")
        steered = caller.post("/jobs", {**EMPTY, "session_key": "s", "singleton": "steer"}).json()
        assert (steered["id"], steered["steered"]) == (own, True)
    mine = callers[0]
    ended = mine.post("/jobs", {**EMPTY, "session_key": "s", "singleton": "cancel"}).json()["id"]
    assert [state(id_) for id_ in (*made, ended)] == ["cancelled", "queued", "queued", "queued", "queued"]
    # Ids of commands to others' jobs read like those of none.
    held = api.claim(4)
    own = next(h for h in held if h["job"]["id"] == made[3])
    answers = [api.assignment(own, "extend", {"consumed": [id_]}) for id_ in (*told[:3], str(uuid.uuid4()))]
    shown = {answer.content.replace(id_.encode(), b"") for answer, id_ in zip(
        answers[:3], told[:3], strict=True)}
    assert (len(shown), {a.status_code for a in answers}) == (1, {400})
    assert api.assignment(own, "extend", {"consumed": [told[3]]}).status_code == 200
