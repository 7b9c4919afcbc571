"""Every route of the API in one line each: what it needs, what its name is of, what is sent. Add yours here.

`"METHOD pattern": Entry(permission, kind, body)`. The kind says whose things are tried as the name in the path: `job`
(a waiting one), `letter` (failed, with an open dead letter), `done` (completed), `assignment` (a held one), `workspace`
(its slug), `delivery`, `secret`, `bulk` (an operation that was begun), `subject` (a tenant, whose throttle it is),
`quorum`, `lane`, `any` (any word does, the thing is made by naming it); none for a route without a name. A body must be
one that the route would follow; `"<job>"` in it is the caller's own thing of that kind. `also`: a permission that what
is sent asks for beside. `role`: what a grant must say beside. `whole`: a tenant's key is refused, whatever it may.
`makes`: a tenant that is named for the first time is made. Routes that ask nobody who they are stand in `PUBLIC`, with
the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.urls import URLPattern

from jobs.api.urls import urlpatterns
from lanes.api.urls import urlpatterns as lanes

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Entry(NamedTuple):
    """What a route needs, what its name is of, what is sent."""

    permission: str
    kind: str = ""
    body: Any = None
    also: str = ""
    role: str = ""
    whole: bool = False
    makes: bool = False


ANSWER = {"tenant_subject": "mine", "actor_kind": "user", "actor_ref": "ann"}
ITEMS = {"items": [{"assignment_id": "0197c000-0000-7000-8000-000000000000"}]}
ROUTES: dict[str, Entry] = {
    "POST v1/jobs": Entry("enqueue", body={"type": "outside", "input": {}}),
    "GET v1/jobs": Entry("read"),
    "POST v1/jobs/batch": Entry("enqueue", body={"jobs": [{"type": "outside", "input": {}}]}),
    "GET v1/jobs/dead-letters": Entry("read"),
    "GET v1/jobs/<str:name>": Entry("read", "job"),
    "GET v1/jobs/<str:name>/events": Entry("read", "job"),
    "GET v1/jobs/<str:name>/wait": Entry("read", "done"),
    "GET v1/jobs/<str:name>/explain": Entry("read", "job"),
    "GET v1/jobs/<str:name>/deliveries": Entry("callbacks", "job"),
    "GET v1/jobs/<str:name>/receipts": Entry("read", "job"),
    "GET v1/jobs/<str:name>/attempts": Entry("read", "job"),
    "GET v1/jobs/<str:name>/artifact": Entry("read", "done"),
    "POST v1/jobs/<str:name>/controls": Entry("control", "job", {"action": "pause"}),
    "POST v1/jobs/<str:name>/steer": Entry("control", "job", {"payload": {}}),
    "POST v1/jobs/<str:name>/follow_up": Entry("control", "job", {"payload": {}}),
    "POST v1/jobs/<str:name>/follow-up": Entry("control", "job", {"payload": {}}),
    "POST v1/jobs/<str:name>/abort": Entry("control", "job", {}),
    "POST v1/jobs/<str:name>/requeue": Entry("dead_letters", "letter", ANSWER),
    "DELETE v1/jobs/<str:name>/dead-letter": Entry("dead_letters", "letter", ANSWER),
    "POST v1/jobs/<str:name>/redact": Entry("erase", "done", {}),
    "POST v1/agents/<str:agent>/jobs": Entry("enqueue", "any", {"payload": {"kind": "outside"}}),
    "GET v1/definitions": Entry("read"),
    "GET v1/owner": Entry("owners"),
    "PUT v1/owner": Entry("owners", body={"reference": "x"}, makes=True),
    "DELETE v1/owner": Entry("owners"),
    "GET v1/deliveries": Entry("callbacks"),
    "POST v1/deliveries/<str:name>/replay": Entry("callbacks", "delivery", {}),
    "GET v1/callback-secrets": Entry("callbacks"),
    "POST v1/callback-secrets": Entry("callbacks", body={}, makes=True),
    "DELETE v1/callback-secrets/<str:name>": Entry("callbacks", "secret"),
    "POST v1/bulk/preview": Entry("read", body={"verb": "cancel"}, also="control"),
    "POST v1/bulk": Entry("read", body={"verb": "cancel", "reason": "x"}, also="control"),
    "GET v1/bulk/<str:name>": Entry("read", "bulk"),
    "GET v1/bulk/<str:name>/items": Entry("read", "bulk"),
    "POST v1/bulk/<str:name>/controls": Entry("read", "bulk", {"action": "stop"}, also="control"),
    "GET v1/workspaces/<str:name>/job-limits": Entry("limits", "workspace", whole=True),
    "PUT v1/workspaces/<str:name>/job-limits": Entry("limits", "workspace", {"limits": {}}, whole=True, makes=True),
    "GET v1/throttles": Entry("throttle", whole=True),
    "PUT v1/throttles/<str:kind>/<text:name>": Entry("throttle", "subject", {"paused": True, "reason": "x"}, whole=True,
                                                     makes=True),
    "GET v1/throttles/<str:kind>/<text:name>": Entry("throttle", "subject", whole=True),
    "DELETE v1/throttles/<str:kind>/<text:name>": Entry("throttle", "subject", whole=True),
    "GET v1/events": Entry("read"),
    "POST v1/runtime/claim": Entry("claim", body={}),
    "POST v1/assignments/extend": Entry("claim", body=ITEMS),
    "POST v1/assignments/settle": Entry("claim", body=ITEMS),
    "POST v1/assignments/<str:name>/extend": Entry("claim", "assignment", {}),
    "POST v1/assignments/<str:name>/complete": Entry("claim", "assignment", {}),
    "POST v1/assignments/<str:name>/fail": Entry("claim", "assignment", {"reason_code": "x"}),
    "POST v1/assignments/<str:name>/cancelled": Entry("claim", "assignment", {}),
    "POST v1/assignments/<str:name>/release": Entry("claim", "assignment", {}),
    "POST v1/quorums": Entry("lanes", body={"name": "another"}, role="conductor"),
    "GET v1/quorums": Entry("lanes"),
    "GET v1/quorums/<str:name>": Entry("lanes", "quorum"),
    "POST v1/quorums/<str:name>/close": Entry("lanes", "quorum", {}, role="conductor"),
    "POST v1/lanes": Entry("lanes", body={"quorum": "<quorum>", "name": "another", "branch": "another", "task": "7",
                                          "assignee": "<assignee>"}, role="conductor"),
    "GET v1/lanes": Entry("lanes"),
    "GET v1/lanes/<str:name>": Entry("lanes", "lane"),
    "POST v1/lanes/<str:name>/assignee": Entry("lanes", "lane", {"assignee": "<assignee>"}, role="conductor"),
    "POST v1/lanes/<str:name>/dependencies": Entry("lanes", "lane", {"depends_on": []}, role="conductor"),
    "GET v1/lanes/<str:name>/jobs": Entry("lanes", "lane", also="read"),
    "POST v1/lanes/<str:name>/jobs": Entry("lanes", "lane", {"type": "outside", "input": {}}, also="enqueue",
                                           role="conductor", makes=True),
    "POST v1/lanes/<str:name>/jobs/attach": Entry("lanes", "lane", {"job_id": "<job>"}, also="read", role="conductor"),
    "GET v1/lanes/<str:name>/receipts": Entry("lanes", "lane"),
    "POST v1/lanes/<str:name>/review": Entry("lanes", "lane", {"review": "submit"}, role="conductor"),
    "POST v1/lanes/<str:name>/merge": Entry("lanes", "lane", {"outcome": "conflicted"}, role="conductor"),
    "POST v1/lanes/<str:name>/state": Entry("lanes", "lane", {"state": "cancelled"}, role="conductor"),
}
# Patterns that answer whoever asks, each with its reason.
PUBLIC: dict[str, str] = {
    "": "what is no resource is told to everybody alike",
    "v1/openapi.json": "it is the same for everybody, and of nobody",
    "docs": "the same as a page",
}


def served() -> dict[str, str | None]:
    """Every method of every route as the URLconf has it, and the permission that its view names."""
    found: dict[str, str | None] = {}
    for pattern in [*lanes, *urlpatterns]:
        assert isinstance(pattern, URLPattern), f"{pattern}: name the routes themselves, not an include of them"
        route = str(pattern.pattern)
        if route in PUBLIC:
            continue
        view: Any = getattr(pattern.callback, "cls", None) or getattr(pattern.callback, "view_class", None)
        named = getattr(view, "permissions", {})
        methods = [m for m in METHODS if m in named or (not named and hasattr(view, m.lower()))]
        found |= {f"{method} {route}": named.get(method) for method in methods or ["GET"]}
    return found


def body_of(entry: Entry, own: Mapping[str, str]) -> Any:
    """What is sent, with the caller's own things."""
    if not isinstance(entry.body, dict):
        return entry.body
    return {field: own.get(value[1:-1], value) if isinstance(value, str) else value
            for field, value in entry.body.items()}


def path_of(route: str, name: str = "") -> str:
    """The path below `/api/v1` of a route with this name."""
    pattern = route.partition(" ")[2].removeprefix("v1")
    return re.sub(r"<[^>]+>", lambda _: name, pattern.replace("<str:kind>", "tenant"))
