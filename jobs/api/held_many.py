"""Many heartbeats, and many ends, in one request: each is answered as if it had come alone (C33, C38, E5).

`results` stand in the order of `items`, each with the `status` and the body that the single call would have had. A bad
item is refused in its place and harms no other; one assignment stands in a request once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints, selectors
from jobs.api import assignments, fields, parsing, shapes
from jobs.api.describing import Fields, listed, mapping, ref, told
from jobs.api.errors import refusal_of_one
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.errors import Invalid, JobsError
from jobs.models import Key
from jobs.outcomes import Outcome
from jobs.selectors import Assignment
from jobs.services import beats, runners
from jobs.services.keys import Permission
from jobs.services.runners import Settled
from jobs.worker import handed_in

MOST = 100
Item = dict[str, Any]
Told = dict[str, Any]
OUTCOMES = ("complete", "fail", "release", "cancelled")


def _many(means: str) -> dict[str, Any]:
    return {"items": {**listed(mapping(means), most=MOST), "minItems": 1}}


_EXTEND = _many("An `assignment_id`, with the body of its heartbeat")
_SETTLE = _many(f"An `assignment_id` and an `outcome` ({', '.join(OUTCOMES)}), with the body of its single call")


class ExtendMany(View):
    """`/assignments/extend`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("ExtendedMany")}, body=_EXTEND, needed=("items",), tenant=False)
    def post(self, request: Request) -> Response:
        """Heartbeats, each with what it has to report; those that report nothing share their statements (C33, E8)."""
        items, key = _items(request, _EXTEND), caller(request).key
        results: dict[int, Told] = {}
        bare: list[tuple[int, str]] = []
        for n, name, item in _named(items, results):
            if item:
                results[n] = _told(lambda item=item, name=name: shapes.extended(  # type: ignore[misc]
                    assignments.beat(key, name, item, assignments.REPORTS)))
            else:
                bare.append((n, name))
        for (n, _), beat in zip(bare, beats.extend_all(key, [name for _, name in bare]), strict=True):
            results[n] = refusal_of_one(beat) if isinstance(beat, JobsError) else {
                "status": 200, **shapes.extended(beat)}
        return _answered(items, results)


class SettleMany(View):
    """`/assignments/settle`."""

    permissions = {"POST": Permission.CLAIM}
    waits = ("POST",)

    @told({200: ref("SettledMany")}, body=_SETTLE, needed=("items",), tenant=False)
    def post(self, request: Request) -> Response:
        """Ends, each `complete`, `fail`, `release` or `cancelled` with its fields; in one transaction (C38, E5)."""
        items, key = _items(request, _SETTLE), caller(request).key
        results: dict[int, Told] = {}
        named = list(_named(items, results))
        found = selectors.assignments(key.pk, [name for _, name, _ in named])
        words: list[tuple[int, Assignment, Outcome]] = []
        for n, name, item in named:
            try:
                held = found.get(name) or selectors.assignment(key.pk, name)
                outcome = _outcome(key, held, item)
            except JobsError as error:
                results[n] = refusal_of_one(error)
                continue
            if isinstance(outcome, Settled):
                results[n] = _settled(outcome)
            else:
                words.append((n, held, outcome))
        ends = runners.settle_all(key, [(held, outcome) for _, held, outcome in words])
        failpoints.at("api.settled")
        for (n, _, _), end in zip(words, ends, strict=True):
            results[n] = refusal_of_one(end) if isinstance(end, JobsError) else _settled(end)
        return _answered(items, results)


def _outcome(key: Key, held: Assignment, item: Item) -> Outcome | Settled:
    """What an item says of its assignment; an end already, where a completion had to go alone."""
    verb = item.pop("outcome", None)
    if verb not in OUTCOMES:
        raise Invalid(f"must be one of {', '.join(OUTCOMES)}", field="outcome", code="invalid_outcome")
    if verb == "complete":
        parsing.refuse_unknown(item, ("artifact", "cost_usd"))
        done = assignments.finished(key, held, item)
        with parsing.beneath("artifact"):
            return handed_in.hand_in(key, held, item.get("artifact")) if handed_in.publishes(held) else done
    if verb == "fail":
        return runners.failing(held, *assignments.failure(key, held.id, item))
    if verb == "release":
        return runners.releasing(held, *assignments.until(item))
    parsing.refuse_unknown(item, ())
    return runners.stopping(held)


def _items(request: Request, known: Fields) -> list[Any]:
    items = parsing.body(request, known).get("items")
    if not isinstance(items, list) or not 0 < len(items) <= MOST:
        raise Invalid(f"must be a list of 1 to {MOST} objects", field="items", code="invalid_items")
    return items


def _named(items: list[Any], results: dict[int, Told]) -> list[tuple[int, str, Item]]:
    """Each item that names an assignment, with what it says besides; the others are refused in their places."""
    named: list[tuple[int, str, Item]] = []
    seen: set[str] = set()
    for n, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise Invalid("must be an object", field="", code="not_an_object")
            name = fields.text(item, "assignment_id")
            if name.lower() in seen:
                raise Invalid("stands in this request already", field="assignment_id", code="repeated_assignment")
        except JobsError as error:
            results[n] = refusal_of_one(error)
            continue
        seen.add(name.lower())
        named.append((n, name, {field: value for field, value in item.items() if field != "assignment_id"}))
    return named


def _told(verb: Callable[[], Told]) -> Told:
    try:
        return {"status": 200, **verb()}
    except JobsError as error:
        return refusal_of_one(error)


def _settled(end: Settled) -> Told:
    told = shapes.settled(end)
    return {"job_status": told.pop("status"), "status": 200, **told}


def _answered(items: list[Any], results: dict[int, Told]) -> Response:
    names = [item.get("assignment_id") if isinstance(item, dict) else None for item in items]
    return answer({"results": [{"assignment_id": name if isinstance(name, str) else None, **results[n]}
                               for n, name in enumerate(names)]})

