"""What holds on every route alike: methods, slashes, strange values, limits told; members where keys may (B8, E2)."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

import pytest
from django.http import HttpResponse
from django.urls import resolve

from jobs.api import straight
from jobs.api.describing import Told
from jobs.models import CallbackSecret, Limits, Throttle
from jobs.services import grants, limits, tenancy
from tests.driver import Driver
from tests.edges.caller import Caller, everything, problem
from tests.edges.documented import document
from tests.edges.routes import ROUTES, path_of
from tests.edges.test_api_bulk import carried_on
from tests.edges.test_api_isolation import _session
from tests.edges.test_api_letters import dead

# In the place of any field; each of them is one that some parser could stumble over.
STRANGE = (None, True, -1, 0, 1.5, 2**53 - 1, "", "x" * 600, "😀", "a\nb", "\ufffe", [], [None], {}, {"a": {"b": []}},
           "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
# Their fields stand in the corpus of test_api_hostile.
NEW = ("POST v1/bulk", "POST v1/bulk/preview", "POST v1/jobs/batch", "POST v1/callback-secrets",
       "PUT v1/workspaces/<str:name>/job-limits", "POST v1/assignments/extend", "POST v1/assignments/settle")


def _told(route: str) -> Told:
    method, _, pattern = route.partition(" ")
    view: Any = resolve("/api" + path_of(f"GET {pattern}", "x").replace("/", "/v1/", 1)).func
    return getattr(view.cls, method.lower()).told  # type: ignore[no-any-return]


def _plain(answer: HttpResponse) -> None:
    assert answer.status_code < 500 or answer.json()["code"] == "needs_asgi", answer.content[:500]
    assert "json" in answer["Content-Type"], answer["Content-Type"]


def test_other_methods_and_a_slash_too_many_are_refused_in_words(api: Caller) -> None:
    """API4: 405 with what is allowed, 404 and no redirect; HEAD is a GET without its body, and nothing is written."""
    patterns: dict[str, list[str]] = {}
    for route in ROUTES:
        method, _, pattern = route.partition(" ")
        patterns.setdefault(pattern, []).append(method)
    rows = everything()
    for pattern, methods in patterns.items():
        path = path_of(f"GET {pattern}", str(uuid.uuid4()))
        for method in ("OPTIONS", "PATCH", "TRACE"):
            refused = api.send(method, path)
            problem(refused, 405, "method_not_allowed")
            assert refused["Allow"] == ", ".join(sorted(methods)), (method, path)
        if "<text:" not in pattern:
            problem(api.send("GET", f"{path}/"), 404, "not_found")
        if "GET" in methods and not pattern.endswith("/events"):
            head, get = api.send("HEAD", path), api.get(path)
            assert (head.status_code, head.content) == (get.status_code, b""), path
    assert everything() == rows


@pytest.mark.parametrize("route", NEW)
def test_no_value_in_any_field_is_a_server_error(api: Caller, driver: Driver, route: str) -> None:
    """B8: each answer is one that the document names; a body that is none, and a field nobody knows, are refused."""
    driver.enqueue(tenant="acme")
    entry, method = ROUTES[route], route.partition(" ")[0]
    path = path_of(route, "default")
    told = _told(route)
    for raw in (b"[]", b"null", b'"x"', b"{", b"", json.dumps({**entry.body, "unheard_of": 1}).encode()):
        answer = api.send(method, path, raw=raw, If_Match="*")
        assert answer.status_code == 400 or (raw == b"" and told.bodiless), (raw, answer.content)
    fields = [(name,) for name in told.body or ()]
    if "filter" in (told.body or ()):
        fields += [("filter", name) for name in ("type", "queue", "state", "status", "since", "until", "reason")]
    if "limits" in (told.body or ()):
        fields += [("limits", name) for name in limits.NAMES]
    for field in fields:
        for value in STRANGE:
            said = value if len(field) == 1 else {field[1]: value}
            _plain(api.send(method, path, {"tenant_subject": "acme", **entry.body, field[0]: said}
                            if "tenant_subject" in (told.body or ()) else {**entry.body, field[0]: said}, If_Match="*"))
    CallbackSecret.objects.all().delete()


@pytest.mark.parametrize("value", [value for value in STRANGE if isinstance(value, str)])
def test_letters_are_narrowed_by_no_word_that_breaks_the_list(api: Caller, driver: Driver, value: str) -> None:
    """C23, B8: in the query, and in the filter of a bulk operation, which is told back."""
    dead(driver)
    for name in ("type", "reason", "cluster", "since", "limit", "cursor"):
        _plain(api.get(f"/jobs/dead-letters?tenant_subject=acme&{name}={quote(value)}"))
    said = {"verb": "discard", "reason": "r", "tenant_subject": "acme", "actor_kind": "user", "actor_ref": "x"}
    for name in ("type", "reason", "cluster", "since", "until"):
        answer = api.post("/bulk", {**said, "filter": {name: value}})
        _plain(answer)
        if answer.status_code == 202:
            _plain(api.get(f"/bulk/{answer.json()['id']}", X_Tenant_Subject="acme"))


def test_a_limit_and_its_headers_are_named_on_every_route() -> None:
    """RELIABILITY 6.2, API9: 429 with `rate_limited`, and the headers in each answer that a key may get."""
    for path, item in document()["paths"].items():
        for method, said in item.items():
            if not said["security"]:
                continue
            where = (method, path)
            codes = said["responses"]["429"]["content"]["application/problem+json"]["schema"]["allOf"][1]
            assert "rate_limited" in codes["properties"]["code"]["enum"], where
            assert all({"RateLimit", "RateLimit-Policy"} <= set(answer["headers"])
                       for answer in said["responses"].values()), where


def test_what_may_take_seconds_has_a_thread_of_its_own(settings: Any) -> None:
    """API9: by method, so that an enqueue never waits behind somebody's long list."""
    def straightly(method: str, path: str) -> bool:
        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        return straight._asked(scope) is not None

    name = uuid.uuid4()
    slow = [("GET", "jobs/dead-letters"), ("GET", f"jobs/{name}/explain"),
            ("POST", "bulk"), ("POST", "bulk/preview"), ("GET", f"bulk/{name}/items"), ("POST", "assignments/settle"),
            ("PUT", "workspaces/x/job-limits"), ("PUT", "throttles/queue/chat"), ("DELETE", "throttles/queue/chat")]
    assert [one for one in slow if straightly(one[0], f"/api/v1/{one[1]}")] == []
    quick = [("POST", "jobs"), ("GET", f"jobs/{name}"), ("POST", "jobs/batch"), ("POST", "assignments/extend"),
             ("GET", "throttles/queue/chat"), ("GET", f"bulk/{name}")]
    assert [one for one in quick if not straightly(one[0], f"/api/v1/{one[1]}")] == []


# --- one's own alone -------------------------------------------------------------------------------------------------


def test_a_bulk_operation_of_one_tenant_never_touches_another(api: Caller, driver: Driver) -> None:
    """E2, RELIABILITY 6.5.1: whatever its filter says; without a tenant it is the workspace's own alone."""
    mine, theirs = driver.enqueue(tenant="acme"), [driver.enqueue(tenant="other") for _ in range(3)]
    nobodys = driver.enqueue()
    elsewhere = Caller(workspace="elsewhere", tenant="acme").enqueue()["id"]
    own = Caller(tenant="acme")
    rows = everything()
    for said in ({"tenant_subject": "other"}, {"filter": {"tenant_subject": "other"}}, {"filter": {"tenant_id": 1}},
                 {"filter": {"workspace_id": 1}}, {"filter": {"jobs": theirs}}, {"jobs": theirs}):
        for path in ("/bulk", "/bulk/preview"):
            answer = own.post(path, {"verb": "cancel", "reason": "r", **said})
            assert answer.status_code in (400, 404), (said, answer.content)
    assert everything() == rows
    seen = own.post("/bulk/preview", {"verb": "cancel", "filter": {"queue": "collect"}}).json()
    assert [job["id"] for job in seen["sample"]] == [mine]
    made = own.post("/bulk", {"verb": "cancel", "reason": "r"}).json()
    carried_on()
    assert [item["id"] for item in own.get(f"/bulk/{made['id']}/items").json()["items"]] == [mine]
    assert {driver.state(job) for job in (*theirs, nobodys, elsewhere)} == {"queued"}
    assert api.post("/bulk", {"verb": "cancel", "reason": "r"}).status_code == 202
    carried_on()
    assert driver.state(nobodys) == "cancelled"
    assert {driver.state(job) for job in (*theirs, elsewhere)} == {"queued"}


def test_a_cursor_of_one_tenant_opens_no_list_of_another(api: Caller, driver: Driver) -> None:
    """C23, C25, E11: signed for its list; nor does it open one that is narrowed otherwise."""
    for tenant in ("acme", "other"):
        for _ in range(2):
            dead(driver, tenant=tenant)
            made = api.enqueue(tenant_subject=tenant, callback_url="https://example.com/hook")["id"]
            api.post(f"/jobs/{made}/controls", {"action": "cancel", "tenant_subject": tenant})
    for path in ("/jobs/dead-letters", "/deliveries", "/jobs"):
        cursor = api.get(f"{path}?limit=1", X_Tenant_Subject="acme").json()["next_cursor"]
        at = f"{path}?limit=1&cursor={quote(cursor)}"
        assert api.get(at, X_Tenant_Subject="acme").status_code == 200
        other = api.get(at, X_Tenant_Subject="other")
        if path == "/jobs":
            assert {job["tenant_subject"] for job in other.json().get("jobs", ())} <= {"other"}
            continue
        problem(other, 400, "invalid_cursor", "cursor")
        problem(Caller(tenant="other").get(at, X_Tenant_Subject="other"), 400, "invalid_cursor", "cursor")


def test_each_job_of_a_batch_names_its_own_tenant_and_key(api: Caller) -> None:
    """E6, C25: a key of the whole batch would be heard by nobody, so it is refused."""
    said = {"jobs": [{"type": "outside", "tenant_subject": name} for name in ("a", "b", "a")]}
    problem(api.post("/jobs/batch", said, Idempotency_Key="k"), 400, "invalid_idempotency_key", "Idempotency-Key")
    ids = [one["id"] for one in api.post("/jobs/batch", said).json()["results"]]
    assert [api.get(f"/jobs/{id_}", X_Tenant_Subject=name).status_code for id_, name in zip(ids, "aba", strict=True)] \
        == [200, 200, 200]
    own = Caller(tenant="a")
    told = own.post("/jobs/batch", said).json()
    assert [one["status"] for one in told["results"]] == [202, 404, 202]
    assert told["results"][1]["problem"]["code"] == "tenant_not_found"
    assert told == {**told, "enqueued": 2, "refused": 1}
    with_header = api.post("/jobs/batch", said, X_Tenant_Subject="a").json()["results"]
    assert [one["status"] for one in with_header] == [202, 400, 202]


# --- members and names -----------------------------------------------------------------------------------------------


def test_a_conductor_sets_limits_and_throttles_and_lesser_roles_do_not(api: Caller) -> None:
    """E2, C9, C36: what `grants.MAY` says, in the workspace of the grant alone, by the name of the person."""
    tenancy.make_workspace("elsewhere")
    cleo, ann = _session("cleo", "conductor"), _session("ann", "assignee")
    path = "/workspaces/default/job-limits"
    set_ = cleo("PUT", path, {"limits": {"tenant_ceiling": 7}}, If_Match="*")
    assert (set_.status_code, set_.json()["limits"]["tenant_ceiling"]) == (200, 7)
    assert cleo("GET", path).json() == set_.json()
    problem(cleo("GET", "/workspaces/elsewhere/job-limits"), 404, "not_found")
    held = cleo("PUT", "/throttles/queue/chat", {"paused": True, "reason": "late"})
    assert (held.status_code, held.json()["paused_by"]) == (200, "user:cleo")
    assert cleo("GET", "/throttles").json() == {"throttles": [held.json()]}
    for method, at, body in (("GET", path, None), ("PUT", path, {"limits": {}}), ("GET", "/throttles", None),
                             ("DELETE", "/throttles/queue/chat", None), ("GET", "/callback-secrets", None)):
        problem(ann(method, at, body, If_Match="*"), 403, "permission_denied")
    assert (Limits.objects.count(), Throttle.objects.count()) == (1, 1)
    assert cleo("DELETE", "/throttles/queue/chat").status_code == 204
    assert grants.MAY[grants.Role.CONDUCTOR] >= {"limits", "throttle", "callbacks"}


@pytest.mark.parametrize("name", ["a/b", "ä ö", "x?y#z", "100%", "a//b", "a%2Fb", "\N{GRINNING FACE}", "..", "a;b=c,d"])
def test_a_tenant_is_throttled_by_whatever_its_subject_is(api: Caller, name: str) -> None:
    """C9: said in a path with each of its characters encoded."""
    tenancy.tenant(tenancy.workspace(), name, make=True)
    path = f"/throttles/tenant/{quote(name, safe='')}"
    assert api.send("PUT", path, {"paused": True, "reason": "x"}).json()["name"] == name
    assert api.get(path).json()["name"] == name
    assert api.send("DELETE", path).status_code == 204
    problem(api.get(path), 404, "throttle_not_found")


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "x" * 300, "%C3%28"])
def test_what_is_no_subject_reads_like_a_tenant_that_is_not_there(api: Caller, name: str) -> None:
    """E2: with every method, and for no queue there is such a name either."""
    for method, body in (("GET", None), ("PUT", {"paused": True, "reason": "x"}), ("DELETE", None)):
        problem(api.send(method, f"/throttles/tenant/{name}", body), 404, "not_found")
        answer = api.send(method, f"/throttles/queue/{name}", body)
        assert answer.json()["code"] in ("throttle_not_found", "unknown_queue")
