"""Commands to a job over HTTP: steer it, follow up, ask it to stop (A54, A55)."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.agents import spelled
from jobs.api.describing import Fields, mapping, or_null, ref, text, told
from jobs.api.security import caller, tenant_scope, without_subject
from jobs.api.views import View, answer
from jobs.services import commands
from jobs.services.keys import Permission
from jobs.states import CommandKind

_KEY = or_null(text(most=200))
_WITH_PAYLOAD = {"payload": or_null(mapping("What the handler reads")), "idempotency_key": _KEY}
_WITH_REASON = {"reason": or_null(text(most=512)), "idempotency_key": _KEY}
_SENT = {202: ref("CommandSent"), 200: ref("CommandSent")}
_REFUSED = {403: "tenant_archived", 404: "job_not_found", 409: "job_ended", 422: "idempotency_key_reused",
            429: "too_many_commands", 503: "job_locked"}


class _Command(View):
    """`/jobs/{id}/<kind>`."""

    permissions = {"POST": Permission.CONTROL}
    kind: ClassVar[CommandKind]
    known: ClassVar[Fields] = _WITH_PAYLOAD

    @told(_SENT, body=_WITH_PAYLOAD, bodiless=True, headers=("Idempotency-Key",), refuses=_REFUSED)
    def post(self, request: Request, name: str) -> Response:
        """Send it: 202, or 200 for what had been said before (A54)."""
        body = without_subject(request, parsing.body(request, (*self.known, "tenant_subject"), optional=True))
        job = selectors.job(tenant_scope(request), name)
        with parsing.beneath("payload"):
            sent = commands.send(str(job.pk), self.kind, by=caller(request).by,
                                 idempotency_key=fields.idempotency_key(request, body), **self._said(body))
        return self._answer(request, name, sent)

    def _said(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"payload": fields.entry(body, "payload")}

    def _answer(self, request: Request, name: str, sent: commands.Sent) -> Response:
        job = selectors.job(tenant_scope(request), name)
        told = None if sent.command is None else shapes.sent(selectors.command(job, sent.command))
        said = {"command": told, "job": shapes.summary(job), "repeated": sent.repeated}
        return answer(spelled(said), 200 if sent.repeated else 202)


class Steer(_Command):
    """`/jobs/{id}/steer`."""

    kind = CommandKind.STEER


class FollowUp(_Command):
    """`/jobs/{id}/follow_up`."""

    kind = CommandKind.FOLLOW_UP


class Abort(_Command):
    """`/jobs/{id}/abort`: a job that nobody holds has stopped with the answer, and `command` is null (A55, E5)."""

    kind = CommandKind.ABORT
    known = _WITH_REASON

    @told(_SENT, body=_WITH_REASON, bodiless=True, headers=("Idempotency-Key",), refuses=_REFUSED)
    def post(self, request: Request, name: str) -> Response:
        """Ask it to stop: 202, or 200 for what had been said before. One that nobody holds has stopped with it."""
        return super().post(request, name)

    def _said(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"reason": fields.text(body, "reason", default=commands.ABORT_REASON)}
