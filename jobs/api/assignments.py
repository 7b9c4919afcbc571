"""A live attempt in the hands of a runner: extend it, and end it in one of four ways (C32, C33, C38, E5)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints
from jobs.api import fields, parsing, shapes
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.outcomes import Failed
from jobs.services import beats, runners
from jobs.services.keys import Permission
from jobs.worker import handed_in


class Extend(View):
    """`/assignments/{id}/extend`."""

    permissions = {"POST": Permission.CLAIM}

    def post(self, request: Request, name: str) -> Response:
        """Heartbeat, with what the runner has to report; the first says that the job runs (A9, C33, E8)."""
        body = parsing.body(request, ("checkpoint", "progress", "diagnostic", "consumed"), optional=True)
        stage = fields.entry(body, "progress")
        parsing.refuse_unknown(stage or (), ("stage", "event"), beneath="progress.")
        with parsing.beneath("checkpoint"):
            beat = beats.extend(caller(request).key, name, checkpoint=fields.entry(body, "checkpoint"), stage=stage,
                                diagnostic=fields.entry(body, "diagnostic"),
                                consumed=fields.texts(body, "consumed") or ())
        return answer(shapes.extended(beat))


class Complete(View):
    """`/assignments/{id}/complete`."""

    permissions = {"POST": Permission.CLAIM}
    waits = True

    def post(self, request: Request, name: str) -> Response:
        """Hand the artifact in: refused by its codec the attempt stays live, not published it has failed (B29, B33)."""
        body = parsing.body(request, ("artifact",), optional=True)
        with parsing.beneath("artifact"):
            end = handed_in.complete(caller(request).key, name, body.get("artifact"))
        failpoints.at("api.settled")
        return answer(shapes.settled(end))


class Fail(View):
    """`/assignments/{id}/fail`."""

    permissions = {"POST": Permission.CLAIM}

    def post(self, request: Request, name: str) -> Response:
        """Report a failure by its stable code (C14 to C17)."""
        body = parsing.body(request, ("reason_code", "message", "retryable", "diagnostic"))
        outcome = Failed(fields.reason_code(body), fields.text(body, "message", default=""),
                         fields.boolean(body, "retryable", True))
        end = runners.fail(caller(request).key, name, outcome, fields.entry(body, "diagnostic"))
        return answer(shapes.settled(end))


class Cancelled(View):
    """`/assignments/{id}/cancelled`."""

    permissions = {"POST": Permission.CLAIM}

    def post(self, request: Request, name: str) -> Response:
        """Say that an abort was honoured (E5, E8)."""
        parsing.body(request, (), optional=True)
        return answer(shapes.settled(runners.cancelled(caller(request).key, name)))


class Release(View):
    """`/assignments/{id}/release`."""

    permissions = {"POST": Permission.CLAIM}

    def post(self, request: Request, name: str) -> Response:
        """Give it back, uncounted: claimable now, after `delay_s`, or from `not_before` on (C32)."""
        body = parsing.body(request, ("delay_s", "not_before"), optional=True)
        end = runners.release(caller(request).key, name, delay_s=fields.seconds(body, "delay_s", "invalid_release"),
                              not_before=fields.moment(body, "not_before", "invalid_release"))
        return answer(shapes.settled(end))
