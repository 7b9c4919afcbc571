"""Every route of the API in one line each: what it needs, what its name is of, what is sent. Add yours here.

`"METHOD pattern": Entry(permission, kind, body)`. The kind says whose things are tried as the name in the path: `job`
(a waiting one), `letter` (failed, with an open dead letter), `done` (completed), `assignment` (a held one), `workspace`
(its slug), `any` (any word does, the thing is made by naming it); none for a route without a name. A body must be one
that the route would follow. Routes that ask nobody who they are stand in `PUBLIC`, with the reason.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from django.urls import URLPattern

from jobs.api.urls import urlpatterns

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Entry(NamedTuple):
    """What a route needs, what its name is of, what is sent."""

    permission: str
    kind: str = ""
    body: Any = None


ROUTES: dict[str, Entry] = {
    "POST v1/jobs": Entry("enqueue", body={"type": "outside", "input": {}}),
    "GET v1/jobs": Entry("read"),
    "GET v1/jobs/<str:name>": Entry("read", "job"),
    "GET v1/jobs/<str:name>/events": Entry("read", "job"),
    "GET v1/jobs/<str:name>/wait": Entry("read", "done"),
    "GET v1/jobs/<str:name>/receipts": Entry("read", "job"),
    "GET v1/jobs/<str:name>/attempts": Entry("read", "job"),
    "GET v1/jobs/<str:name>/artifact": Entry("read", "done"),
    "POST v1/jobs/<str:name>/controls": Entry("control", "job", {"action": "pause"}),
    "POST v1/jobs/<str:name>/steer": Entry("control", "job", {"payload": {}}),
    "POST v1/jobs/<str:name>/follow_up": Entry("control", "job", {"payload": {}}),
    "POST v1/jobs/<str:name>/follow-up": Entry("control", "job", {"payload": {}}),
    "POST v1/jobs/<str:name>/abort": Entry("control", "job", {}),
    "POST v1/jobs/<str:name>/requeue": Entry("dead_letters", "letter", {}),
    "DELETE v1/jobs/<str:name>/dead-letter": Entry("dead_letters", "letter"),
    "POST v1/jobs/<str:name>/redact": Entry("erase", "done", {}),
    "POST v1/agents/<str:agent>/jobs": Entry("enqueue", "any", {"payload": {"kind": "outside"}}),
    "GET v1/definitions": Entry("read"),
    "GET v1/owner": Entry("owners"),
    "PUT v1/owner": Entry("owners", body={"reference": "x"}),
    "DELETE v1/owner": Entry("owners"),
    "GET v1/events": Entry("read"),
    "POST v1/runtime/claim": Entry("claim", body={}),
    "POST v1/assignments/<str:name>/extend": Entry("claim", "assignment", {}),
    "POST v1/assignments/<str:name>/complete": Entry("claim", "assignment", {}),
    "POST v1/assignments/<str:name>/fail": Entry("claim", "assignment", {"reason_code": "x"}),
    "POST v1/assignments/<str:name>/cancelled": Entry("claim", "assignment", {}),
    "POST v1/assignments/<str:name>/release": Entry("claim", "assignment", {}),
}
# Patterns that answer whoever asks, each with its reason.
PUBLIC: dict[str, str] = {"": "what is no resource is told to everybody alike"}


def served() -> dict[str, str | None]:
    """Every method of every route as the URLconf has it, and the permission that its view names."""
    found: dict[str, str | None] = {}
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern), f"{pattern}: name the routes themselves, not an include of them"
        route = str(pattern.pattern)
        if route in PUBLIC:
            continue
        view: Any = getattr(pattern.callback, "cls", None) or getattr(pattern.callback, "view_class", None)
        named = getattr(view, "permissions", {})
        methods = [m for m in METHODS if m in named or (not named and hasattr(view, m.lower()))]
        found |= {f"{method} {route}": named.get(method) for method in methods or ["GET"]}
    return found


def path_of(route: str, name: str = "") -> str:
    """The path below `/api/v1` of a route with this name."""
    pattern = route.partition(" ")[2].removeprefix("v1")
    return re.sub(r"<[^>]+>", lambda _: name, pattern)
