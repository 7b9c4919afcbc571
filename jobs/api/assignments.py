"""A live attempt in the hands of a runner: extend it, and end it in one of four ways (C32, C33, C38, E5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints, selectors
from jobs.api import fields, parsing, shapes
from jobs.api.describing import (
    anything,
    boolean,
    listed,
    mapping,
    moment,
    number,
    or_null,
    ref,
    text,
    thing,
    told,
    whole,
)
from jobs.api.places import place
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.conf import conf
from jobs.live.room import Looked
from jobs.models import Key
from jobs.outcomes import Completed, Failed
from jobs.selectors import Assignment
from jobs.services import beats, claiming, costs, runners
from jobs.services.keys import Permission
from jobs.worker import handed_in

_MONEY = anything("US dollars that this attempt has cost so far, as text or a number")
_BEAT = {
    "checkpoint": or_null(mapping("Resume data with a `seq`")), "consumed": or_null(
        listed(text(), "Ids of commands that were read", most=fields.MAX_LIST)),
    "progress": or_null(thing({"stage": text(), "event": text(among=("started", "completed"))},
                              "A stage that the definition declares")),
    "diagnostic": or_null(mapping("Bounded numbers for the log alone")), "cost_usd": _MONEY}
REPORTS = tuple(_BEAT)
_WAITING = {**_BEAT, "wait_seconds": whole(0, means="Longest wait for something to hear; cut", default=0)}
_ARTIFACT = {"artifact": anything("By the definition's schema"), "cost_usd": _MONEY}
_FAILURE = {
    "reason_code": text("A stable word", most=64, pattern=r"^[a-z][a-z0-9_]*$"),
    "message": or_null(text("What happened, for people")),
    "retryable": boolean("Whether to try again", default=True), "diagnostic": _BEAT["diagnostic"], "cost_usd": _MONEY}
_RELEASE = {"delay_s": or_null(number("Seconds until it may be claimed again", least=0)),
            "not_before": or_null(moment("Or from this moment on"))}
_LATE = "stale_claim duration_exceeded not_held not_claimed illegal_move"
_REFUSED = {404: "assignment_not_found", 409: _LATE, 503: "job_locked not_stored"}


class Waits(NamedTuple):
    """A heartbeat that its view has left to the room."""

    key: Key
    name: str
    seconds: float

    @property
    def line(self) -> Any:
        """One look serves them all."""
        return "heartbeats"

    @property
    def holder(self) -> str:
        """Whose waits are counted together."""
        return f"extend:{self.key.pk}"

    @property
    def look(self) -> Callable[[Sequence[Any]], Looked]:
        """One look for the room."""
        return _look

    @staticmethod
    def lost(answer: Any) -> None:
        """Its client has left, and nothing is lost."""


def _look(waits: Sequence[Waits]) -> Looked:
    return Looked([True if news else None for news in beats.has_news([one.name for one in waits])], False)


class Extend(View):
    """`/assignments/{id}/extend`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("Extended")}, body=_WAITING, bodiless=True, tenant=False,
          refuses={**_REFUSED, 400: "unknown_command", 409: f"{_LATE} stale_checkpoint budget_exhausted",
                   422: "undeclared_stage", 429: "too_much_progress too_many_connections"})
    def post(self, request: Request, name: str) -> Response:
        """Heartbeat, with what the runner has to report; the first says that the job runs (A9, C33, E8).

        With `wait_seconds` it is answered once there is something to hear, or when the next one is due.
        """
        plain: Any = request._request
        key = caller(request).key
        if (waited := getattr(plain, "jobs_waited", None)) is not None:
            if isinstance(waited, Exception):
                raise waited
            return answer(shapes.extended(beats.look(key, name)))
        body = parsing.body(request, _WAITING, optional=True)
        wanted = fields.wait_seconds(body)
        told = beat(key, name, body, _WAITING)
        if wanted and told.abort is None and not told.commands:
            seconds = min(claiming.longest_s(key, wanted), told.heartbeat_after_s)
            # As rows spell it.
            waits = Waits(key, str(UUID(name)), seconds)
            if seconds and hasattr(plain, "jobs_parked"):
                plain.jobs_parked = waits
            elif seconds:
                with place(waits.holder, conf().WAITS_PER_KEY, retry_after_s=1):
                    beats.wait(waits.name, seconds)
                told = beats.look(key, name)
        return answer(shapes.extended(told))


def beat(key: Key, name: str, body: dict[str, Any], known: Collection[str]) -> beats.Extended:
    """One heartbeat with the reports that its body holds."""
    parsing.refuse_unknown(body, known)
    stage = fields.entry(body, "progress")
    parsing.refuse_unknown(stage or (), ("stage", "event"), beneath="progress.")
    cost = costs.read(body.get("cost_usd"))
    with parsing.beneath("checkpoint"):
        return beats.extend(key, name, checkpoint=fields.entry(body, "checkpoint"), stage=stage, cost=cost,
                            diagnostic=fields.entry(body, "diagnostic"), consumed=fields.texts(body, "consumed") or ())


class Complete(View):
    """`/assignments/{id}/complete`."""

    permissions = {"POST": Permission.CLAIM}
    waits = ("POST",)

    @told({200: ref("Settled")}, body=_ARTIFACT, bodiless=True, tenant=False,
          refuses={**_REFUSED, 409: f"{_LATE} not_published publication_failed publish_timeout",
                   422: "invalid_artifact", 503: "not_stored job_locked"})
    def post(self, request: Request, name: str) -> Response:
        """Hand the artifact in: refused by its codec the attempt stays live, not published it has failed (B29, B33)."""
        body = parsing.body(request, _ARTIFACT, optional=True)
        key = caller(request).key
        held = selectors.assignment(key.pk, name)
        finished(key, held, body)
        with parsing.beneath("artifact"):
            end = handed_in.hand_in(key, held, body.get("artifact"))
        failpoints.at("api.settled")
        return answer(shapes.settled(end))


def finished(key: Key, held: Assignment, body: dict[str, Any]) -> Completed:
    """What a completion hands in, its cost kept: nothing is, unless both may be said."""
    cost = costs.read(body.get("cost_usd"))
    with parsing.beneath("artifact"):
        done = runners.completed(held, body.get("artifact"))
    costs.last_word(key, held.id, cost)
    return done


class Fail(View):
    """`/assignments/{id}/fail`."""

    permissions = {"POST": Permission.CLAIM}

    @told({200: ref("Settled")}, body=_FAILURE, needed=("reason_code",), tenant=False, refuses=_REFUSED,
          example={"reason_code": "upstream_unavailable", "message": "503 from the store", "retryable": True})
    def post(self, request: Request, name: str) -> Response:
        """Report a failure by its stable code (C14 to C17)."""
        key = caller(request).key
        outcome, diagnostic = failure(key, name, parsing.free_body(request))
        return answer(shapes.settled(runners.fail(key, name, outcome, diagnostic)))


def failure(key: Key, name: str, body: dict[str, Any]) -> tuple[Failed, dict[str, Any] | None]:
    """A failure as a body says it, with what it has cost, and its diagnostic."""
    parsing.refuse_unknown(body, _FAILURE)
    outcome = Failed(fields.reason_code(body), fields.text(body, "message", default=""),
                     fields.boolean(body, "retryable", True))
    diagnostic = fields.entry(body, "diagnostic")
    return costs.failing(key, name, body.get("cost_usd"), outcome), diagnostic


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
        delay_s, not_before = until(parsing.free_body(request, optional=True))
        end = runners.release(caller(request).key, name, delay_s=delay_s, not_before=not_before)
        return answer(shapes.settled(end))


def until(body: dict[str, Any]) -> tuple[float | None, datetime | None]:
    """When a released job may be claimed again, as a body says it."""
    parsing.refuse_unknown(body, _RELEASE)
    return fields.seconds(body, "delay_s", "invalid_release"), fields.moment(body, "not_before", "invalid_release")
