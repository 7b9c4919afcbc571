"""Members: people with a session over the API, by a grant that somebody gave them (E2 Grants, C25)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.errors import Invalid
from jobs.models import Grant, Job
from jobs.services import grants, keys, tenancy
from jobs.services.grants import MAY, Role
from tests import database as db
from tests.edges.caller import Caller, everything, problem
from tests.pages.people import person

PLAIN = {"type": "outside", "input": {}}


class Somebody:
    """A person with a session, who calls the API as a browser would."""

    def __init__(self, name: str, role: str | None = None, workspace: str | None = None, **more: Any) -> None:
        self.user = person(name, **more)
        self.client = Client(enforce_csrf_checks=True)
        self.client.force_login(self.user)
        if role is not None:
            self.grant(role, workspace)

    def grant(self, role: str, workspace: str | None = None) -> None:
        place = tenancy.make_workspace(workspace) if workspace else tenancy.workspace()
        grants.give(place, role, by="test", user=self.user)

    def send(self, method: str, path: str, body: Any = None, *, csrf: bool = True, **headers: str) -> Any:
        told = {k.replace("_", "-"): v for k, v in headers.items()} | {"X-Request-ID": "test"}
        if csrf:
            self.client.cookies["csrftoken"] = "a" * 32
            told["X-CSRFToken"] = "a" * 32
        data = b"" if body is None else json.dumps(body).encode()
        return self.client.generic(method, f"/api/v1{path}", data, content_type="application/json", headers=told)


def test_a_session_alone_is_no_member(api):
    """E2: staff, superusers and people with every permission are nothing in a workspace until somebody says so."""
    for who in (Somebody("nobody"), Somebody("staff", staff=True), Somebody("root", superuser=True)):
        problem(who.send("GET", "/jobs"), 403, "permission_denied")
        problem(who.send("GET", "/jobs", X_Workspace="default"), 404, "workspace_not_found")
    stranger = Client()
    problem(stranger.get("/api/v1/jobs"), 401, "unauthenticated")
    stranger.cookies["sessionid"] = "made-up"
    problem(stranger.get("/api/v1/jobs"), 401, "unauthenticated")


@pytest.mark.parametrize("role", Role)
def test_what_a_member_may_do_is_its_roles_line_in_the_table(api, role):
    """E2, RELIABILITY 6.1: nobody claims; what the table does not name is refused."""
    who, job = Somebody("ann", role), api.enqueue()["id"]
    doors = {
        "read": ("GET", f"/jobs/{job}", None), "enqueue": ("POST", "/jobs", PLAIN),
        "control": ("POST", f"/jobs/{job}/controls", {"action": "pause"}),
        "dead_letters": ("POST", f"/jobs/{job}/requeue", {}), "owners": ("GET", "/owner", None),
        "claim": ("POST", "/runtime/claim", {}), "erase": ("POST", f"/jobs/{job}/redact", {})}
    for permission, (method, path, body) in doors.items():
        answer = who.send(method, path, body)
        assert (answer.status_code != 403) == (permission in MAY[role]), (permission, answer.content)
        assert answer.status_code < 500
    assert "claim" not in MAY[role]
    assert "erase" not in MAY[role]


def test_roles_only_rise():
    """E2: an assignee may what a member may, a conductor what an assignee may."""
    assert MAY[Role.MEMBER] < MAY[Role.ASSIGNEE] < MAY[Role.CONDUCTOR]
    assert MAY.keys() == set(Role)


def test_a_member_acts_in_the_workspace_that_it_names(api):
    """E2, C25: by X-Workspace or `workspace`; with one grant it is implied; foreign and unknown read alike."""
    who = Somebody("ann", "member")
    elsewhere = Caller(workspace="elsewhere").enqueue()["id"]
    own = who.send("POST", "/jobs", PLAIN).json()
    assert Job.objects.get(pk=own["id"]).origin == "user"
    assert [j["id"] for j in who.send("GET", "/jobs").json()["jobs"]] == [own["id"]]
    assert who.send("GET", f"/jobs/{elsewhere}").status_code == 404
    answers = [who.send("GET", "/jobs", X_Workspace=name) for name in ("elsewhere", "nowhere")]
    problem(answers[0], 404, "workspace_not_found")
    assert answers[0].content == answers[1].content
    who.grant("member", "elsewhere")
    problem(who.send("GET", "/jobs"), 400, "workspace_required")
    for asked in (("GET", "/jobs?workspace=elsewhere"), ("GET", f"/jobs/{elsewhere}?workspace=elsewhere")):
        assert who.send(*asked).status_code == 200
    assert who.send("GET", f"/jobs/{elsewhere}", X_Workspace="elsewhere").status_code == 200
    problem(who.send("GET", "/jobs?workspace=default", X_Workspace="elsewhere"), 400, "invalid_workspace")
    named = who.send("POST", "/jobs", PLAIN, X_Workspace="elsewhere", X_Tenant_Subject="acme").json()
    assert (named["tenant_subject"], who.send("GET", f"/jobs/{named['id']}", X_Workspace="elsewhere").status_code) == (
        "acme", 404)


def test_a_key_has_its_workspace_and_names_no_other(api):
    """E2: X-Workspace of a key is the key's own, or it is not there, whether there is such a workspace or not."""
    tenancy.make_workspace("elsewhere")
    assert api.get("/jobs", X_Workspace="default").status_code == 200
    answers = [api.get("/jobs", X_Workspace=name) for name in ("elsewhere", "nowhere")]
    problem(answers[0], 404, "workspace_not_found")
    assert answers[0].content == answers[1].content
    problem(api.get("/jobs?workspace=default"), 400, "unknown_parameter")


def test_changes_by_session_need_the_csrf_token_and_keys_look_at_no_cookie(api):
    """RELIABILITY 6.2 CSRF: a cookie alone changes nothing; a request with a key is the key's, dead or alive."""
    who = Somebody("ann", "conductor")
    rows = everything()
    problem(who.send("POST", "/jobs", PLAIN, csrf=False), 403, "csrf_failed")
    assert everything() == rows
    assert who.send("GET", "/jobs", csrf=False).status_code == 200
    problem(who.send("GET", "/jobs", Authorization="Bearer a.b"), 401, "unauthenticated")
    problem(who.send("GET", "/jobs", Authorization=""), 401, "unauthenticated")
    reader = Caller(permissions=["read"])
    problem(who.send("POST", "/jobs", PLAIN, Authorization=f"Bearer {reader.secret}"), 403, "permission_denied")
    assert who.send("POST", "/jobs", PLAIN, csrf=False, Authorization=f"Bearer {api.secret}").status_code == 202


def test_a_grant_that_is_taken_a_user_that_goes_and_a_logout_end_at_once(api):
    """RELIABILITY 6.5.6: from the next request on."""
    who, place = Somebody("ann", "member"), tenancy.workspace()
    assert who.send("GET", "/jobs").status_code == 200
    assert grants.take(place, user=who.user)
    assert not grants.take(place, user=who.user)
    problem(who.send("GET", "/jobs"), 403, "permission_denied")
    who.grant("assignee")
    assert who.send("GET", "/jobs").status_code == 200
    who.user.is_active = False
    who.user.save()
    problem(who.send("GET", "/jobs"), 401, "unauthenticated")
    who.user.delete()
    assert not Grant.objects.exists()


def test_a_workspace_may_demand_that_conductors_enqueue(api):
    """E2, D2: for keys and members, at every door; off unless said, and no other right stands in for it."""
    place = tenancy.workspace()
    place.create_requires_grant = True
    place.save()
    who = Somebody("root", "assignee", superuser=True)
    rows = everything()
    for answer in (api.post("/jobs", PLAIN), api.post("/agents/x/jobs", {"kind": "outside"}),
                   who.send("POST", "/jobs", PLAIN)):
        problem(answer, 403, "grant_required")
    assert everything() == rows
    who.grant("conductor")
    grants.give(place, "conductor", by="test", key=api.key)
    assert (who.send("POST", "/jobs", PLAIN).status_code, api.post("/jobs", PLAIN).status_code) == (202, 202)
    grants.give(place, "assignee", by="test", key=api.key)
    problem(api.post("/jobs", PLAIN), 403, "grant_required")
    assert api.get("/jobs").status_code == 200


def test_a_grant_is_of_one_principal_with_a_known_role(api):
    """E2: refused in words, and by the database; a key's goes with its key."""
    place, user = tenancy.workspace(), person("ann")
    with pytest.raises(Invalid, match="must be one of member"):
        grants.give(place, "king", by="x", user=user)
    for whose in ({}, {"user": user, "key": api.key}, {"key": Caller(workspace="elsewhere").key}):
        with pytest.raises(Invalid, match="A grant is"):
            grants.give(place, "member", by="x", **whose)
    grants.give(place, "member", by="x", key=api.key)
    grants.give(place, "conductor", by="x", key=api.key)
    assert [g.role for g in Grant.objects.all()] == ["conductor"]

    db.rows("DELETE FROM jobs_key WHERE id = %s RETURNING 1", api.key.pk)
    assert not Grant.objects.exists()


def test_grants_are_given_taken_listed_and_demanded_by_a_command(api):
    """E2: `manage.py grants`; what is wrong is one line."""
    person("ann")
    said = [_grants("give", "assignee", "--user", "ann"), _grants("give", "conductor", "--key", api.key.prefix),
            _grants("list"), _grants("demand", "on")]
    assert said[0] == "ann is assignee of default.\n"
    assert "assignee  user ann  by shell:" in said[2]
    assert f"conductor  key {api.key.prefix} (test)  by shell:" in said[2]
    assert tenancy.workspace().create_requires_grant
    assert _grants("demand", "off", "--workspace", "default").startswith("default: whoever")
    assert [_grants("take", "--user", "ann") for _ in range(2)] == [
        "ann is nothing in default any more.\n", "ann was nothing in default.\n"]
    for wrong in (("give", "member", "--user", "no-such-user"), ("give", "member", "--key", "nope"),
                  ("give", "member", "--key", api.key.prefix, "--workspace", "nowhere"), ("list", "--workspace", "x")):
        with pytest.raises(CommandError, match=r"There is no such|no workspace"):
            _grants(*wrong)


def _grants(*words: str) -> str:
    out = io.StringIO()
    call_command("grants", *words, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(("kind", "may"), keys.MAY.items())
def test_a_key_of_a_kind_has_no_more_than_its_line_in_the_table(api, kind, may):
    """RELIABILITY 6.1, B13: a runner only claims, and a planner stamps what it enqueues."""
    place = tenancy.workspace()
    made, secret = keys.make(place, "k", sorted(may), kind=kind)
    if kind in ("runner", "planner"):
        assert keys.kind(made) == kind
        for more in set(keys.Permission) - may:
            with pytest.raises(Invalid, match="permissions are among"):
                keys.make(place, "k", [*may, more], kind=kind)
    if kind == "planner":
        told = api.post("/jobs", PLAIN, Authorization=f"Bearer {secret}").json()
        assert Job.objects.get(pk=told["id"]).origin == "planner"
    if kind == "runner":
        api.enqueue()
        for method, path in (("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/definitions"), ("GET", "/events")):
            problem(api.send(method, path, PLAIN, Authorization=f"Bearer {secret}"), 403, "permission_denied")
        held = api.post("/runtime/claim", {}, Authorization=f"Bearer {secret}").json()["assignments"][0]
        problem(api.assignment(held, "extend"), 404, "assignment_not_found")


def test_a_tenant_is_named_alike_in_header_query_and_body(api):
    """C25: everywhere; two that differ are refused, whichever they are."""
    theirs = api.post("/jobs", {**PLAIN, "tenant_subject": "acme"}).json()["id"]
    for path, body in ((f"/jobs/{theirs}/controls", {"action": "pause"}), (f"/jobs/{theirs}/steer", {"payload": {}}),
                       (f"/jobs/{theirs}/abort", {}), (f"/jobs/{theirs}/redact", {})):
        assert api.post(path, {**body, "tenant_subject": "other"}).status_code == 404, path
        for headers, query in (({"X_Tenant_Subject": "other"}, ""), ({}, "?tenant_subject=other")):
            problem(api.post(path + query, {**body, "tenant_subject": "acme"}, **headers), 400,
                    "invalid_tenant_subject")
        problem(api.post(path, {**body, "tenant_subject": 5}), 400, "invalid_tenant_subject")
        assert api.post(path, {**body, "tenant_subject": "acme"}).status_code in (200, 202), path
    assert api.send("PUT", "/owner", {"reference": "x", "tenant_subject": "acme"}).json()["tenant_subject"] == "acme"


def test_the_console_enqueues_for_conductors_alone_where_that_is_demanded(database):
    """E2: a right over the whole site is no grant."""
    place, root = tenancy.workspace(), person("root", superuser=True)
    tenancy.demand_grant(place, True, by="test")
    client = Client()
    client.force_login(root)
    rows = everything()
    said = {"type": "noop", "input": "{}"}
    refused = client.post("/jobs/new/", said)
    assert (refused.status_code, everything()) == (409, rows)
    grants.give(place, "conductor", by="test", user=root)
    assert client.post("/jobs/new/", said).status_code == 302
