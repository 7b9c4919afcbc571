"""Commands to a job over HTTP: steer it, follow up, ask it to stop (A54, A55)."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.agents import spelled
from jobs.api.security import caller, tenant_scope, without_subject
from jobs.api.views import View, answer
from jobs.services import commands
from jobs.services.keys import Permission
from jobs.states import CommandKind


class _Command(View):
    """`/jobs/{id}/<kind>`."""

    permissions = {"POST": Permission.CONTROL}
    kind: ClassVar[CommandKind]
    known: ClassVar[tuple[str, ...]] = ("payload", "idempotency_key")

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
    known = ("reason", "idempotency_key")

    def _said(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"reason": fields.text(body, "reason", default=commands.ABORT_REASON)}
