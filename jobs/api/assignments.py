"""A live attempt in the hands of a runner: extend it, and end it in one of four ways (C32, C33, C38, E5)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints
from jobs.api import fields, parsing, shapes
from jobs.api.describing import anything, boolean, listed, mapping, moment, number, or_null, ref, text, thing, told
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.outcomes import Failed
from jobs.services import beats, runners
from jobs.services.keys import Permission
from jobs.worker import handed_in

_BEAT = {
    "checkpoint": or_null(mapping("Resume data with a `number`")), "consumed": or_null(
        listed(text(), "Ids of commands that were read", most=fields.MAX_LIST)),
    "progress": or_null(thing({"stage": text(), "event": text(among=("started", "completed"))})),
    "diagnostic": or_null(mapping("Bounded numbers for the log alone"))}
_ARTIFACT = {"artifact": anything("By the definition's schema")}
_FAILURE = {
    "reason_code": text("A stable word", most=64, pattern=r"^[a-z][a-z0-9_]*$"), "message": or_null(text()),
    "retryable": boolean(default=True), "diagnostic": _BEAT["diagnostic"]}
_RELEASE = {"delay_s": or_null(number(least=0)), "not_before": or_null(moment())}
_LATE = "stale_claim duration_exceeded not_held not_claimed illegal_move"
_REFUSED = {404: "assignment_not_found", 409: _LATE, 503: "job_locked not_stored"}


class Extend(View):
    """`/assignments/{id}/extend`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("Extended")}, body=_BEAT, bodiless=True, tenant=False,
          refuses={**_REFUSED, 400: "unknown_command", 409: f"{_LATE} stale_checkpoint", 422: "undeclared_stage",
                   429: "too_much_progress"})
    def post(self, request: Request, name: str) -> Response:
        """Heartbeat, with what the runner has to report; the first says that the job runs (A9, C33, E8)."""
        body = parsing.body(request, _BEAT, optional=True)
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

    @told({200: ref("Settled")}, body=_ARTIFACT, bodiless=True, tenant=False,
          refuses={**_REFUSED, 409: f"{_LATE} not_published publication_failed publish_timeout",
                   422: "invalid_artifact", 503: "not_stored job_locked"})
    def post(self, request: Request, name: str) -> Response:
        """Hand the artifact in: refused by its codec the attempt stays live, not published it has failed (B29, B33)."""
        body = parsing.body(request, _ARTIFACT, optional=True)
        with parsing.beneath("artifact"):
            end = handed_in.complete(caller(request).key, name, body.get("artifact"))
        failpoints.at("api.settled")
        return answer(shapes.settled(end))


class Fail(View):
    """`/assignments/{id}/fail`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("Settled")}, body=_FAILURE, needed=("reason_code",), tenant=False, refuses=_REFUSED,
          example={"reason_code": "upstream_unavailable", "message": "503 from the store", "retryable": True})
    def post(self, request: Request, name: str) -> Response:
        """Report a failure by its stable code (C14 to C17)."""
        body = parsing.body(request, _FAILURE)
        outcome = Failed(fields.reason_code(body), fields.text(body, "message", default=""),
                         fields.boolean(body, "retryable", True))
        end = runners.fail(caller(request).key, name, outcome, fields.entry(body, "diagnostic"))
        return answer(shapes.settled(end))


class Cancelled(View):
    """`/assignments/{id}/cancelled`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("Settled")}, body={}, bodiless=True, tenant=False,
          refuses={**_REFUSED, 409: f"{_LATE} no_abort_pending"})
    def post(self, request: Request, name: str) -> Response:
        """Say that an abort was honoured (E5, E8)."""
        parsing.body(request, (), optional=True)
        return answer(shapes.settled(runners.cancelled(caller(request).key, name)))


class Release(View):
    """`/assignments/{id}/release`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("Settled")}, body=_RELEASE, bodiless=True, tenant=False,
          refuses={**_REFUSED, 400: "invalid_release", 429: "too_many_releases"})
    def post(self, request: Request, name: str) -> Response:
        """Give it back, uncounted: claimable now, after `delay_s`, or from `not_before` on (C32)."""
        body = parsing.body(request, _RELEASE, optional=True)
        end = runners.release(caller(request).key, name, delay_s=fields.seconds(body, "delay_s", "invalid_release"),
                              not_before=fields.moment(body, "not_before", "invalid_release"))
        return answer(shapes.settled(end))
