"""The isolation matrix, made from the URLconf (RELIABILITY 6.5.1): every route, everybody, own, foreign, unknown.

Two tenants in each of two workspaces have one thing of each kind. What is foreign is answered byte for byte as what is
unknown, and changes no row. `routes.ROUTES` has a line for each route; a route without one fails here.
"""

from __future__ import annotations

import json
import re
import statistics
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, get_resolver

from jobs import selectors
from jobs.models import Job, Key
from jobs.services import commands, grants, keys, tenancy
from jobs.services.keys import Kind
from tests.edges.caller import ALL, Caller, everything, problem
from tests.edges.routes import PUBLIC, ROUTES, Entry, body_of, path_of, served
from tests.pages.people import person
from tests.races.threads import LONG

ONCE = {"retry": {"max_attempts": 1}}
# What one may well not have.
ABSENT = ("owner_not_found", "throttle_not_found")
# What is no tenant's.
OF_WORKSPACE = ("quorum", "lane")
MALFORMED = ("%00", "x" * 300, "a%0Ab", "%F0%9F%98%80")
Sender = Callable[..., HttpResponse]


@dataclass
class Actor:
    """Somebody who calls, and what a table of the product lets it do."""

    send: Sender
    may: frozenset[str]
    headers: Mapping[str, str]
    # Of one tenant alone.
    narrow: bool = False
    # What a grant says.
    role: str = ""

    def passes(self, entry: Entry) -> bool:
        """Whether it may do this to what it sees."""
        return ({entry.permission, entry.also} - {""} <= self.may and not (entry.whole and self.narrow)
                and entry.role in ("", self.role))


def _things(caller: Caller, slug: str) -> dict[str, str]:
    """One thing of each kind, of this caller's tenant."""
    made: dict[str, str] = {"workspace": slug, "any": "codex", "subject": "mine"}
    made["done"] = caller.enqueue()["id"]
    caller.assignment(caller.claim_one(), "complete", {"artifact": {}})
    made["letter"] = _letter(caller)
    caller.enqueue()
    made["assignment"] = caller.claim_one()["assignment_id"]
    made["job"] = caller.enqueue()["id"]
    told = caller.enqueue(callback_url="https://example.com/hook")["id"]
    assert caller.post(f"/jobs/{told}/controls", {"action": "cancel"}).status_code == 200
    [delivery] = caller.get(f"/jobs/{told}/deliveries").json()["deliveries"]
    begun = caller.post("/bulk", {"verb": "cancel", "reason": "x"})
    made |= _lanes(caller)
    return {**made, "delivery": delivery["id"], "secret": str(caller.post("/callback-secrets").json()["id"]),
            "bulk": begun.json()["id"]}


def _lanes(caller: Caller) -> dict[str, str]:
    """A quorum and a lane, by a key that is a conductor of its workspace."""
    name, assignee = caller.key.tenant.subject, f"key:{caller.key.prefix}"
    grants.give(caller.key.workspace, "conductor", by="test", key=caller.key)
    quorum = caller.post("/quorums", {"name": name}).json()["id"]
    lane = caller.post("/lanes", {"quorum": quorum, "name": name, "branch": name, "task": "7", "assignee": assignee})
    return {"quorum": quorum, "lane": lane.json()["id"], "assignee": assignee}


def _letter(caller: Caller) -> str:
    made = caller.enqueue(**ONCE, priority=100)["id"]
    held = next(found for found in iter(caller.claim_one, None) if found["job"]["id"] == made)
    caller.assignment(held, "fail", {"reason_code": "x"})
    return made


@pytest.fixture
def world(api):
    """Things of `mine` and `theirs` in two workspaces: (workspace, tenant) to kind to name."""
    places = [(slug, tenant) for slug in ("default", "elsewhere") for tenant in ("mine", "theirs")]
    return {place: _things(Caller(workspace=place[0], tenant=place[1]), place[0]) for place in places}


def _session(name: str, role: str | None, **more: Any) -> Sender:
    client = Client()
    user = person(name, **more)
    client.force_login(user)
    if role is not None:
        grants.give(tenancy.workspace(), role, by="test", user=user)

    def send(method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        data = b"" if body is None else json.dumps(body).encode()
        told = {"X-Request-ID": "test", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return client.generic(method, f"/api/v1{path}", data, content_type="application/json", headers=told)

    return send


def _of_kind(kind: Kind, **more: Any) -> Caller:
    made = Caller(**more)
    made.key, made.secret = keys.make(tenancy.workspace(), "k", sorted(keys.MAY[kind]), kind=kind,
                                      tenant=tenancy.tenant(tenancy.workspace(), "mine", make=True))
    return made


@pytest.fixture
def actors(world):
    """Eight, all about the tenant `mine` of the default workspace."""
    naming = {"X_Tenant_Subject": "mine"}
    runner = _of_kind(Kind.RUNNER)
    Caller(tenant="mine").enqueue()
    world["default", "mine"]["held"] = runner.claim_one()["assignment_id"]
    stranger, tenants, whole = Caller(), Caller(tenant="mine"), Caller()
    stranger.secret = ""
    for one in (tenants, whole):
        grants.give(one.key.workspace, "conductor", by="test", key=one.key)
    return {
        "tenant key": Actor(tenants.send, frozenset(ALL), {}, narrow=True, role="conductor"),
        "workspace key": Actor(whole.send, frozenset(ALL), naming, role="conductor"),
        "runner": Actor(runner.send, keys.MAY[Kind.RUNNER], {}),
        "planner": Actor(_of_kind(Kind.PLANNER).send, keys.MAY[Kind.PLANNER], {}),
        "member": Actor(_session("ann", "member"), grants.MAY[grants.Role.MEMBER], naming, role="member"),
        "conductor": Actor(_session("cleo", "conductor"), grants.MAY[grants.Role.CONDUCTOR], naming, role="conductor"),
        "superuser": Actor(_session("root", None, superuser=True), frozenset(), naming),
        "stranger": Actor(lambda method, path, body=None, **more: stranger.send(
            method, path, body, **{**more, "Authorization": ""}), frozenset(), naming),
    }


def told(answer: HttpResponse) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    """All of an answer; the request's id is always the same here."""
    return answer.status_code, getattr(answer, "content", b""), tuple(sorted(answer.items()))


def alike(answers: Mapping[str, HttpResponse], where: str) -> None:
    """They are one and the same."""
    assert len({told(answer) for answer in answers.values()}) == 1, (
        where, {name: told(answer) for name, answer in answers.items()})


def test_every_route_has_its_line_and_needs_what_it_says() -> None:
    """API5, 6.5.1: default deny; a new route without a line in the table fails here."""
    missing = sorted(served().keys() - ROUTES.keys())
    assert not missing, "add a line for each to ROUTES in tests/edges/routes.py, like " + "; ".join(
        f'"{route}": Entry("{served()[route] or "read"}", "job")' for route in missing)
    assert sorted(ROUTES.keys() - served().keys()) == [], "are in tests/edges/routes.py and not in the URLconf"
    assert {route: entry.permission for route, entry in ROUTES.items()} == served()
    assert all(PUBLIC.values()), "say why"


def test_foreign_and_unknown_are_one_answer_to_everybody_on_every_route(world, actors):
    """E2, I16, C25, API1: status, body and headers byte for byte; what is nobody's to see changes no row."""
    tenancy.tenant(tenancy.workspace("elsewhere"), "only-there", make=True)
    rows = everything()
    for route, entry in ROUTES.items():
        if entry.kind in ("", "any"):
            continue
        method = route.partition(" ")[0]
        foreign = [world[place].get(entry.kind) for place in world if place != ("default", "mine")]
        if entry.kind == "workspace":
            foreign = ["elsewhere"]
        if entry.kind == "subject":
            foreign = ["only-there"]
        if entry.kind in OF_WORKSPACE:
            foreign = [world["elsewhere", "mine"][entry.kind]]
        for who, actor in actors.items():
            names = {**{f"foreign {n}": name for n, name in enumerate(foreign) if name},
                     "unknown": str(uuid.uuid4()),
                     **{name: name for name in MALFORMED[:1 if entry.kind in OF_WORKSPACE else None]}}
            answers = {said: actor.send(method, path_of(route, name), entry.body, **actor.headers)
                       for said, name in names.items()}
            alike(answers, f"{route} by {who}")
            number = next(iter(answers.values())).status_code
            expected = 401 if who == "stranger" else 403 if entry.permission not in actor.may or (
                entry.whole and actor.narrow) else 404
            assert number == expected, (route, who, next(iter(answers.values())).content)
    assert everything() == rows


def test_everybody_may_what_the_tables_say_and_nothing_else(world, actors):
    """6.1, API5: its own thing is there for whoever may; to the others it is refused whatever it is."""
    own, mine = world["default", "mine"], Caller(tenant="mine")
    for who, actor in actors.items():
        for route, entry in ROUTES.items():
            if entry.kind == "letter":
                # It has been answered by the one before.
                own["letter"] = _letter(mine)
            name = own.get("held" if (who, entry.kind) == ("runner", "assignment") else entry.kind, "")
            answer = actor.send(route.partition(" ")[0], path_of(route, name), body_of(entry, own), **actor.headers)
            where = (who, route, getattr(answer, "content", b"")[:200])
            if not actor.passes(entry):
                assert answer.status_code == (401 if who == "stranger" else 403), where
            elif entry.kind == "assignment" and who != "runner":
                # Of another key, also of the same tenant.
                assert answer.status_code == 404, where
            else:
                assert answer.status_code not in (401, 403), where
                assert answer.status_code != 404 or answer.json()["code"] in ABSENT, where
                assert answer.status_code < 500 or answer.json()["code"] == "needs_asgi", where


def test_a_tenant_or_workspace_that_is_not_yours_is_named_in_vain(world, actors):
    """E2, C25: on every route, by header and query, whether it is there or not, and nothing is made of it."""
    Caller(workspace="elsewhere", tenant="only-there").enqueue()
    own = world["default", "mine"]
    rows = everything()
    for route, entry in ROUTES.items():
        method, path = route.partition(" ")[0], path_of(route, own.get(entry.kind, ""))
        if entry.permission != "claim":
            alike({name: actors["tenant key"].send(method, path, _about(entry, name), X_Tenant_Subject=name)
                   for name in ("theirs", "only-there", "nobody")}, f"{route} by header")
            alike({name: actors["tenant key"].send(method, f"{path}?tenant_subject={name}", _about(entry, name))
                   for name in ("theirs", "only-there", "nobody")}, f"{route} by query")
        if entry.permission not in ("claim", "enqueue") and not entry.makes:
            alike({name: actors["workspace key"].send(method, path, _about(entry, name), X_Tenant_Subject=name)
                   for name in ("only-there", "nobody")}, f"{route} by a workspace's key")
        for who in ("workspace key", "tenant key", "member", "superuser"):
            alike({name: actors[who].send(method, path, entry.body, X_Workspace=name)
                   for name in ("elsewhere", "nowhere", "a\tb")}, f"{route} by {who}")
    assert everything() == rows


def _about(entry: Entry, name: str) -> Any:
    """What is sent, about a tenant of this name where it says one."""
    said = isinstance(entry.body, dict) and "tenant_subject" in entry.body
    return {**entry.body, "tenant_subject": name} if said else entry.body


def test_foreign_and_unknown_take_the_same_time(world, actors):
    """6.5.1: medians alike, so that nobody learns by a clock what there is."""
    actor, foreign = actors["tenant key"], world["elsewhere", "mine"]["job"]
    took: dict[str, list[float]] = {"foreign": [], "unknown": []}
    for n in range(500 if LONG else 60):
        pair = [("foreign", foreign), ("unknown", str(uuid.uuid4()))]
        for said, name in pair if n % 2 else pair[::-1]:
            began = time.perf_counter()
            actor.send("GET", f"/jobs/{name}")
            took[said].append(time.perf_counter() - began)
    medians = {said: statistics.median(times) for said, times in took.items()}
    assert max(medians.values()) / min(medians.values()) < (1.1 if LONG else 1.5), medians


# --- keys ------------------------------------------------------------------------------------------------------------


def _states(api: Caller) -> dict[str, str | None]:
    """Twelve keys that are none; what is sent as Authorization."""
    revoked, expired, gone = Caller(), Caller(), Caller()
    keys.revoke(revoked.key.prefix)
    Key.objects.filter(pk=expired.key.pk).update(expires_at="2020-01-01T00:00:00Z")
    Key.objects.filter(pk=gone.key.pk).delete()
    prefix, _, secret = api.secret.partition(".")
    return {
        "none": None, "empty": "Bearer ", "garbage": "Bearer \x00\xff.x", "prefix alone": f"Bearer {prefix}.",
        "secret alone": f"Bearer .{secret}",
        "another's secret": f"Bearer {prefix}.{expired.secret.partition('.')[2]}",
        "cut": f"Bearer {api.secret[:-1]}", "longer": f"Bearer {api.secret}A", "revoked": f"Bearer {revoked.secret}",
        "expired": f"Bearer {expired.secret}", "deleted": f"Bearer {gone.secret}",
        "wrong scheme": f"Token {api.secret}",
    }


def test_twelve_keys_that_are_none_are_one_answer_on_every_route(api):
    """6.5.6, API2: 401, alike; nothing is asked of the request before that."""
    states, rows = _states(api), everything()
    for route, entry in ROUTES.items():
        answers = {}
        for name, said in states.items():
            headers = {"X-Request-ID": "test", **({} if said is None else {"Authorization": said})}
            answers[name] = api.client.generic(route.partition(" ")[0], f"/api/v1{path_of(route, str(uuid.uuid4()))}",
                                               json.dumps(entry.body or {}), "application/json", headers=headers)
        alike(answers, route)
        problem(answers["none"], 401, "unauthenticated")
    assert everything() == rows


def test_a_key_that_is_nearly_right_takes_as_long_as_one_that_is_not(api):
    """6.2 "Timing on tokens": a known prefix and an unknown one, medians alike."""
    near, far = f"{api.key.prefix}.{'a' * 43}", f"{'0' * 12}.{'a' * 43}"
    took: dict[str, list[float]] = {near: [], far: []}
    for n in range(2_000 if LONG else 200):
        for text in (near, far) if n % 2 else (far, near):
            began = time.perf_counter()
            assert keys.find(text) is None
            took[text].append(time.perf_counter() - began)
    medians = [statistics.median(times) for times in took.values()]
    assert max(medians) / min(medians) < (1.25 if LONG else 1.5), medians


def test_a_revoked_key_is_refused_by_the_next_request_also_while_it_holds_something(api):
    """6.5.6: at once over HTTP; websockets and streams are looked at again every LIVE_CHECK_S (test_live_access)."""
    api.enqueue()
    held = api.claim_one()
    keys.revoke(api.key.prefix)
    for answer in (api.get("/jobs"), api.assignment(held, "extend"), api.post("/runtime/claim", {})):
        problem(answer, 401, "unauthenticated")


# --- what others do --------------------------------------------------------------------------------------------------


def test_a_place_in_the_queue_tells_nothing_of_others(api):
    """6.5.2: my position stays while another tenant adds jobs, whatever their priority."""
    mine = Caller(tenant="mine")
    ids = [mine.enqueue()["id"] for _ in range(3)]
    before = {one: at.own for one, at in selectors.positions(ids).items()}
    theirs = Caller(tenant="theirs")
    for _ in range(30):
        theirs.enqueue(priority=100)
    assert {one: at.own for one, at in selectors.positions(ids).items()} == before
    assert sorted(before.values()) == [1, 2, 3]


def test_commands_that_pile_up_are_refused_to_that_job_alone(api):
    """6.5.2: a 429 has the scope of what is full; another tenant's job takes commands meanwhile."""
    mine, theirs = Caller(tenant="mine"), Caller(tenant="theirs")
    full, free = mine.enqueue()["id"], theirs.enqueue()["id"]
    for n in range(commands.MOST_UNREAD):
        commands.steer(full, {"n": n}, by="test")
    problem(mine.post(f"/jobs/{full}/steer", {"payload": {}}), 429, "too_many_commands")
    assert theirs.post(f"/jobs/{free}/steer", {"payload": {}}).status_code == 202
    assert Job.objects.get(pk=free).state == "queued"


# --- sessions --------------------------------------------------------------------------------------------------------


def _patterns(patterns: Any, prefix: str = "") -> Any:
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield here, pattern.callback
        else:
            yield from _patterns(pattern.url_patterns, here)


# Views that take requests without the token, each with its reason.
EXEMPT = {
    "api/": "keys carry no cookie; sessions are checked by MemberAuthentication, see test_api_members",
}


def test_no_route_with_a_session_takes_a_change_without_the_token(database):
    """6.5.9: from the URLconf; whoever has every right, sent from another site's page, changes nothing."""
    client, rows, seen = Client(enforce_csrf_checks=True), everything(), 0
    client.force_login(person("root", superuser=True))
    for route, view in _patterns(get_resolver().url_patterns):
        if route.startswith(tuple(EXEMPT)):
            continue
        assert not getattr(view, "csrf_exempt", False), f"{route} takes changes without the token"
        path = "/" + _filled(route)
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = client.generic(method, path, b"x=1", "application/x-www-form-urlencoded")
            assert answer.status_code in (403, 404), (method, route, answer.status_code)
        seen += answer.status_code == 403
    assert seen > 60
    assert everything() == rows


def _filled(route: str) -> str:
    words = {"int": "1", "uuid": str(uuid.UUID(int=1)), "path": "1", "str": "x", "slug": "x"}
    text = re.sub(r"<(?:(\w+):)?\w+>", lambda found: words.get(found[1] or "str", "x"), route)
    text = re.sub(r"\(\?P<\w+>[^)]*\)", "x", text)
    return text.replace("^", "").replace("$", "").replace("\\Z", "").replace("\\.", ".").lstrip("/")

