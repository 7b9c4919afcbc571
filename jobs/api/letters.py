"""Dead letters: listed, and answered one by one (C22 to C29)."""

from __future__ import annotations

import re
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.attesting import SAID, Answerer, answerer, seen_letters
from jobs.api.describing import moment, or_null, ref, text, told, whole
from jobs.api.views import View, answer
from jobs.errors import Invalid, JobNotFound
from jobs.models import Job
from jobs.services import dead_letters, letters
from jobs.services.dead_letters import Signature
from jobs.services.keys import Permission
from jobs.services.operations import Match

MOST = 200
_CLUSTER = re.compile(r"[0-9a-f]{16}")
_LIST = {"reason": text(most=64), "type": text(most=64), "cluster": text(pattern=r"^[0-9a-f]{16}$"),
         "since": moment("Opened then or later"), "limit": whole(1, MOST, default=50),
         "cursor": text("As `next_cursor` said")}
_ANSWER = {"reason": or_null(text("Why, for the job's history", most=512)),
           "idempotency_key": or_null(text(most=200)), **SAID}
_REFUSED = {400: "tenant_subject_required invalid_actor_kind invalid_actor_ref",
            403: "actor_attestation_required", 404: "job_not_found", 422: "idempotency_key_reused", 503: "job_locked"}


class Letters(View):
    """`/jobs/dead-letters`."""

    permissions = {"GET": Permission.READ}
    waits = ("GET", "HEAD")

    @told({200: ref("DeadLetters")}, query=_LIST, refuses={400: "tenant_subject_required", 503: "too_slow"})
    def get(self, request: Request) -> Response:
        """The open letters of a tenant, newest first, by a signed cursor that is good for this list alone (C23, C25).

        Narrowed by `reason`, `type`, `cluster` and `since`; a key that names no tenant is shown those of none.
        """
        said = parsing.query(request, *_LIST)
        limit, match = fields.whole(said, "limit", 50, 1, MOST), _match(said)
        found = letters.page(seen_letters(request), match, limit=limit, cursor=said.get("cursor"))
        return answer(shapes.page("dead_letters", found, [shapes.letter(row) for row in found.items]))


def _match(said: dict[str, str]) -> Match:
    for name in ("reason", "type"):
        if not (0 < len(said.get(name, "x")) <= 64 and said.get(name, "x").isprintable()):
            raise Invalid("must be 1 to 64 printable characters", field=name, code=f"invalid_{name}")
    if "cluster" in said and not _CLUSTER.fullmatch(said["cluster"]):
        raise Invalid("must be 16 hexadecimal digits, as a letter of it says", field="cluster", code="invalid_cluster")
    return Match(type=said.get("type"), reason=said.get("reason"), cluster=said.get("cluster"),
                 since=fields.moment(dict(said), "since", "invalid_since"))


class Requeue(View):
    """`/jobs/{id}/requeue`."""

    permissions = {"POST": Permission.DEAD_LETTERS}

    @told({200: ref("JobInFull")}, body=_ANSWER, bodiless=True, headers=("Idempotency-Key",), refuses={
        **_REFUSED, 403: "actor_attestation_required tenant_archived",
        409: "target_superseded input_redacted tenant_deleting illegal_move",
        422: "idempotency_key_reused unregistered_version"})
    def post(self, request: Request, name: str) -> Response:
        """Start a new chain of a job with an open dead letter, its last checkpoint kept (C27, C28).

        A workspace's key says for whom it speaks. The same again, with its Idempotency-Key, is answered alike.
        """
        said = parsing.body(request, _ANSWER, optional=True)
        return _answered(request, name, said, dead_letters.requeue, "requeued")


class DeadLetter(View):
    """`/jobs/{id}/dead-letter`."""

    permissions = {"DELETE": Permission.DEAD_LETTERS}

    @told({200: ref("JobInFull")}, body=_ANSWER, bodiless=True, query=_ANSWER, headers=("Idempotency-Key",),
          refuses=_REFUSED)
    def delete(self, request: Request, name: str) -> Response:
        """Discard the open dead letter; the job stays failed (C29). The same rules as for a requeue.

        What the body says may stand in the query too: some who pass requests on drop the body of a DELETE.
        """
        asked: dict[str, Any] = dict(parsing.query(request, *_ANSWER))
        said = {**asked, **parsing.body(request, _ANSWER, optional=True)}
        return _answered(request, name, said, dead_letters.discard, "discarded")


def _answered(request: Request, name: str, said: dict[str, Any], verb: Any, reason: str) -> Response:
    who = answerer(request, said)
    reason = fields.text(said, "reason", default=reason)
    job = selectors.job(who.scope, name)
    signature = Signature(fields.idempotency_key(request, said), who.kind, who.ref)
    more = {"limited": who.limited} if verb is dead_letters.requeue else {}
    try:
        done = dead_letters.signed(selectors.latest_letter(job), signature, verb, reason=reason, by=who.by, **more)
    except dead_letters.NotDeadLettered:
        # Whether it never was one or is none any more, it is answered like a job that is not there (C28).
        raise JobNotFound() from None
    return _read_again(who, job, repeated=done is None, warnings=[] if done is None else shapes.warnings(done))


def _read_again(who: Answerer, of: Job, **more: Any) -> Response:
    job = selectors.job(who.scope, str(of.pk))
    return answer({**shapes.job(job), **more}, ETag=shapes.etag(job))
