"""Bulk operations: one verb for all jobs, or all dead letters, of a tenant that match a filter."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors, states
from jobs.api import fields, parsing, shapes
from jobs.api.attesting import SAID, answerer, seen_letters
from jobs.api.describing import boolean, mapping, or_null, ref, text, told, whole
from jobs.api.security import caller, named_tenant, tenant_scope
from jobs.api.views import View, answer
from jobs.errors import Conflict, Invalid, KeyReused
from jobs.models import BulkOperation
from jobs.registry import nearest
from jobs.selectors import Scope
from jobs.services import operations, words
from jobs.services.keys import Permission
from jobs.services.operations import JOB_VERBS, VERBS, JobMatch, Match, Pace

SAMPLE = 20
MOST = 500
# What a filter of each kind may say as it is; every word is one that a row holds.
_LETTERS = ("type", "reason", "cluster")
_JOBS = ("type", "queue", "worker_group", "reason", "agent", "exclusive_group", "session_key")
_ASKED = {"verb": text(among=(*VERBS, *JOB_VERBS)),
          "filter": or_null(mapping(f"Of letters {', '.join(_LETTERS)}; of jobs {', '.join(_JOBS)}, status or"
                                    " state; since and until of both")),
          "tenant_subject": SAID["tenant_subject"]}
_BEGUN = {**_ASKED, "reason": text("Why, for the history of each", most=512),
          "rate": or_null(whole(1, operations.MOST_RATE, "So many a second at most")),
          "canary": boolean("One first; the rest when it has completed", default=False),
          "most_failed": or_null(whole(1, 100, "Percent of failures again at which it stops itself")),
          "idempotency_key": or_null(text(most=200)), **SAID}
_ITEMS = {"outcome": text("Those of one outcome", most=64), "after": whole(0, 999_999_999, default=0),
          "limit": whole(1, MOST, default=100)}
_ACTIONS = ("stop", "let_go")
_ACTION = {"action": text(among=_ACTIONS)}
_NONE = {404: "bulk_not_found"}
_WORDS = "unknown_verb invalid_state invalid_since invalid_until tenant_subject_required " + " ".join(
    f"invalid_{name}" for name in (*_JOBS, *_LETTERS, "status"))


class BulkEnded(Conflict):
    """This bulk operation has ended."""

    code = "bulk_ended"


class NothingWaits(Conflict):
    """Nothing waits for a canary here."""

    code = "nothing_waits"


class Preview(View):
    """`/bulk/preview`."""

    # It shows what it would meet; the permission of its verb is asked beside this one.
    permissions = {"POST": Permission.READ}
    waits = ("POST",)

    @told({200: ref("BulkPreview")}, body=_ASKED, needed=("verb",), refuses={400: _WORDS, 503: "too_slow"},
          example={"verb": "cancel", "filter": {"type": "document-summary", "state": "queued"}})
    def post(self, request: Request) -> Response:
        """How many match now (null: it would take too long), and the newest twenty of them; nothing is done."""
        body = parsing.body(request, _ASKED)
        verb = _verb(request, body)
        seen = seen_letters(request, body) if verb in VERBS else _scope(request, body)
        match = _match(verb, body, selectors.known(seen))
        found = operations.preview(verb, match, SAMPLE)
        return answer({"verb": verb, **shapes.expected(found.expected), "sample": _sample(seen, match, found.sample)})


class Bulks(View):
    """`/bulk`."""

    permissions = {"POST": Permission.READ}
    waits = ("POST",)

    @told({202: ref("Bulk"), 200: ref("Bulk")}, body=_BEGUN, needed=("verb", "reason"), headers=("Idempotency-Key",),
          example={"verb": "cancel", "filter": {"type": "document-summary"}, "reason": "sent by mistake"}, refuses={
              400: f"{_WORDS} invalid_pace", 403: "actor_attestation_required", 404: "nothing_matches",
              422: "idempotency_key_reused", 503: "too_slow"})
    def post(self, request: Request) -> Response:
        """Begin: 202 for a new operation, 200 for the one that this Idempotency-Key has begun.

        For answers to dead letters a workspace's key says for whom it speaks (C28). What is made later is not meant.
        """
        body = parsing.body(request, _BEGUN)
        verb = _verb(request, body)
        if verb in VERBS:
            who = answerer(request, body)
            seen, by, limited = who.scope, who.by, who.limited
        else:
            seen, by, limited = _scope(request, body), caller(request).by, False
        match = _match(verb, body, selectors.known(seen))
        key = words.key(fields.idempotency_key(request, body), "idempotency_key")
        token = uuid.uuid4() if key is None else uuid.uuid5(uuid.NAMESPACE_URL, f"{tuple(seen)}:{key}")
        known = key is not None and operations.by_token(seen, token) is not None
        try:
            begun = operations.begin(verb, match, by=by, reason=fields.text(body, "reason"), token=token,
                                     pace=_pace(body), limited=limited)
        except operations.TokenUsed:
            raise KeyReused() from None
        return answer({**shapes.bulk(begun), "repeated": known}, 200 if known else 202,
                      Location=f"{request.path}/{begun.token}")


class Bulk(View):
    """`/bulk/{id}`."""

    permissions = {"GET": Permission.READ}

    @told({200: ref("Bulk")}, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """How far it has come."""
        parsing.query(request)
        return answer(shapes.bulk(_found(request, name)))


class Items(View):
    """`/bulk/{id}/items`."""

    permissions = {"GET": Permission.READ}
    waits = ("GET", "HEAD")

    @told({200: ref("BulkItems")}, query=_ITEMS, refuses={**_NONE, 503: "too_slow"})
    def get(self, request: Request, name: str) -> Response:
        """What became of each job, in order; `outcome` is done, waiting, or the code of a refusal. A week long."""
        said = parsing.query(request, *_ITEMS)
        if not said.get("outcome", "x").isprintable() or not 0 < len(said.get("outcome", "x")) <= 64:
            raise Invalid("must be done, waiting, or the code of a refusal", field="outcome", code="invalid_outcome")
        found = operations.items(_found(request, name).pk, after=fields.whole(said, "after", 0, 0, 999_999_999),
                                 limit=fields.whole(said, "limit", 100, 1, MOST), outcome=said.get("outcome"))
        told = [{"number": item.number, "id": str(item.job_id), "outcome": item.outcome or operations.WAITING}
                for item in found.items]
        return answer({"items": told, "next_after": found.next})


class Controls(View):
    """`/bulk/{id}/controls`."""

    permissions = {"POST": Permission.READ}

    @told({200: ref("Bulk")}, body=_ACTION, needed=("action",), example={"action": "stop"},
          refuses={**_NONE, 400: "unknown_action", 409: "bulk_ended nothing_waits"})
    def post(self, request: Request, name: str) -> Response:
        """Stop it, a batch that is on is finished; or `let_go`: the rest follows without waiting for the canary."""
        body = parsing.body(request, _ACTION)
        action = fields.text(body, "action")
        found = _found(request, name)
        _may(request, found.verb)
        if action == "stop":
            if not operations.stop(found.pk, by=caller(request).by) and _again(found).end != "stopped":
                raise BulkEnded()
        elif action == "let_go":
            if not operations.let_go(found.pk) and _again(found).going_at is None:
                raise BulkEnded() if found.ended else NothingWaits()
        else:
            raise Invalid(f"is not an action{nearest(action, _ACTIONS)} Known are stop, let_go.",
                          field="action", code="unknown_action")
        return answer(shapes.bulk(_again(found)))


def _verb(request: Request, body: dict[str, Any]) -> str:
    verb = fields.text(body, "verb")
    known = (*VERBS, *JOB_VERBS)
    if verb not in known:
        raise Invalid(f"is not a verb{nearest(verb, known)} Known are {', '.join(known)}.", field="verb",
                      code="unknown_verb")
    _may(request, verb)
    return verb


def _may(request: Request, verb: str) -> None:
    needed = Permission.DEAD_LETTERS if verb in VERBS else Permission.CONTROL
    who = caller(request)
    if not who.may(needed):
        raise PermissionDenied(f"This {'role' if who.member else 'key'} lacks the permission {str(needed)!r}.")


def _scope(request: Request, body: dict[str, Any]) -> Scope:
    return caller(request).scope(named_tenant(request, body.get("tenant_subject")))


def _match(verb: str, body: dict[str, Any], seen: Scope) -> Match | JobMatch:
    said = fields.entry(body, "filter") or {}
    names = _LETTERS if verb in VERBS else (*_JOBS, "status", "state")
    parsing.refuse_unknown(said, (*names, "since", "until"), beneath="filter.")
    with parsing.renamed({name: f"filter.{name}" for name in (*names, "since", "until")}):
        given: dict[str, Any] = {name: _word(said, name) for name in (_LETTERS if verb in VERBS else _JOBS)}
        given |= {name: fields.moment(said, name, f"invalid_{name}") for name in ("since", "until")}
        given |= {"workspace_id": seen.workspace_id, "tenant_id": seen.tenant_id}
        return Match(**given) if verb in VERBS else JobMatch(**given, states=_states(said))


def _word(said: dict[str, Any], name: str) -> str | None:
    value = said.get(name)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= 512 and value.isprintable()):
        raise Invalid("must be a printable text", field=name, code=f"invalid_{name}")
    return value


def _states(said: dict[str, Any]) -> tuple[str, ...]:
    names = [name for name in ("status", "state") if said.get(name) is not None]
    if len(names) > 1:
        raise Invalid("Say status or state, not both.", field="state", code="invalid_state")
    if not names:
        return ()
    value = said[names[0]]
    asked = [value] if isinstance(value, str) else fields.texts(said, names[0]) or []
    meant = {state for word in asked for state in states.states_of(word)}
    if not asked or not all(states.states_of(word) for word in asked):
        raise Invalid(f"There is no such {names[0]}.", field=names[0], code=f"invalid_{names[0]}")
    return tuple(sorted(meant))


def _pace(body: dict[str, Any]) -> Pace:
    rate, most = body.get("rate"), body.get("most_failed")
    return Pace(fields.boolean(body, "canary", False), rate, most)


def _sample(seen: Scope, match: Match | JobMatch, ids: Sequence[Any]) -> list[dict[str, Any]]:
    if isinstance(match, Match):
        return [shapes.letter(row) for row in selectors.letters(seen, ids)]
    return [shapes.summary(job) for job in selectors.some(seen, ids)]


def _found(request: Request, name: str) -> BulkOperation:
    try:
        token = uuid.UUID(name)
    except ValueError:
        raise operations.BulkNotFound() from None
    found = operations.by_token(tenant_scope(request), token)
    if found is None:
        raise operations.BulkNotFound()
    return found


def _again(found: BulkOperation) -> BulkOperation:
    found.refresh_from_db()
    return found
