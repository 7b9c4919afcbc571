"""Timers over the API: put, read, paused, run now; what they will do and what they did (D13). Scoped as jobs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import fields, parsing, shapes
from jobs.api.describing import anything, mapping, moment, number, or_null, ref, text, told, whole
from jobs.api.jobs import REFUSED
from jobs.api.security import caller, named_tenant, tenant_scope, without_subject
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.errors import Invalid
from jobs.models import Firing, Timer
from jobs.models.timer import CATCH_UPS, OVERLAPS
from jobs.schedules import EXPRESSION_LIMIT, MAX_EVERY_S, MIN_EVERY_S, ZONE_LIMIT
from jobs.selectors import Scope
from jobs.services import timers, timetable
from jobs.services.keys import Permission
from jobs.services.recurring import MOST_MADE_UP, OPTIONS
from jobs.services.timers import Draft
from jobs.services.timetable import Line, Upcoming

MOST = 100
_CADENCE = {
    "cron": or_null(text("Five fields, or a name as @daily; or say `every_s`", most=EXPRESSION_LIMIT)),
    "every_s": or_null(whole(MIN_EVERY_S, MAX_EVERY_S, "Seconds from one moment to the next; or say `cron`")),
    "zone": or_null(text("Whose clocks `cron` means, as Europe/Berlin; by default UTC", most=ZONE_LIMIT)),
    "anchor_at": or_null(moment("Where `every_s` is counted from; by default when it is first put")),
}
_FIELDS = {
    "type": text("What is to run, by the catalogue", most=64),
    "version": or_null(whole(1, means="By default the current one at each moment")),
    "input": anything("By its definition's schema"),
    "options": or_null(mapping("What an enqueue takes beside it: `queue`, `priority`, `retry`, `target` and so on")),
    **_CADENCE,
    "moment_field": or_null(text("The field of the input that is given the moment", most=64)),
    "catch_up": or_null(text("Of moments that nobody was there for: none, the last, all of them", among=CATCH_UPS)),
    "catch_up_most": or_null(whole(1, MOST_MADE_UP, "With `all`: the last so many; by default 10")),
    "overlap": or_null(text("While its job before is active", among=OVERLAPS)),
}
_NEW = {"name": text("Unique in its tenant", most=100, pattern="^[a-z0-9][a-z0-9._-]*$"), **_FIELDS,
        "tenant_subject": or_null(text(most=255))}
_PAUSE = {"reason": text("Why; shown wherever the timer is", most=512),
          "until": or_null(moment("When it ends by itself")), "for_s": or_null(number("Or after so many seconds"))}
_RESUME = {"reason": text("Why; it stands in the log", most=512)}
_RUN = {"reason": text("Why; it is kept with the firing", most=512), "idempotency_key": or_null(text(most=100))}
_LIST = {"state": text(among=("active", "paused")), "limit": whole(1, MOST, default=50),
         "cursor": text("As `next_cursor` said")}
_PAGE = {name: _LIST[name] for name in ("limit", "cursor")}
_ONE = {"include": text("Its input too", among=("input",))}
_NONE = {404: "timer_not_found"}
_UNTIMELY = "invalid_schedule invalid_cron timer_never_fires invalid_every_s unknown_zone invalid_anchor_at"
# What is wrong with a job is wrong with what enqueues it; fields of the job stand in `options`.
_OF_JOBS = {**REFUSED, 400: " ".join([REFUSED[400], *(f"invalid_{name}" for name in OPTIONS)]), 404: "", 409: ""}
_PUT = {
    **_OF_JOBS, 400: f"invalid_timer_name {_UNTIMELY} invalid_moment_field unknown_catch_up invalid_catch_up_most"
                     f" unknown_overlap invalid_options {_OF_JOBS[400]}",
    409: "timer_declared timer_exists too_many_timers tenant_deleting"}
_EXAMPLE = {"type": "noop", "cron": "0 3 * * *", "zone": "Europe/Berlin", "catch_up": "last"}


class Timers(View):
    """`/timers`."""

    permissions = {"GET": Permission.TIMERS, "POST": Permission.TIMERS}

    @told({200: ref("Timers")}, query=_LIST, refuses={503: "too_slow"})
    def get(self, request: Request) -> Response:
        """List the tenant's, newest first, without inputs."""
        said = parsing.query(request, *_LIST)
        state = said.get("state")
        if state not in (None, "active", "paused"):
            raise Invalid("is active or paused", field="state", code="invalid_state")
        found = timetable.page(tenant_scope(request), state, limit=fields.whole(said, "limit", 50, 1, MOST),
                               cursor=said.get("cursor"))
        return answer(shapes.page("timers", found, [shape(line) for line in found.items]))

    @told({201: ref("Timer")}, body=_NEW, needed=("name", "type"), refuses=_PUT,
          example={"name": "nightly", **_EXAMPLE})
    def post(self, request: Request) -> Response:
        """Make one; its name must be free. A new tenant is made with it."""
        body = without_subject(request, parsing.body(request, _NEW))
        made = _put(request, fields.text(body, "name"), body, create=True)
        return _told(made, 201, Location=f"{request.path}/{made.name}")


class TimerOfTenant(View):
    """`/timers/{name}`."""

    permissions = {"GET": Permission.TIMERS, "PUT": Permission.TIMERS, "DELETE": Permission.TIMERS}

    @told({200: ref("Timer")}, query=_ONE, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """Read one; `?include=input` shows what it enqueues."""
        said = parsing.query(request, *_ONE)
        if said.get("include", "input") != "input":
            raise Invalid("can include input", field="include", code="invalid_include")
        return _told(_found(request, name), with_input="include" in said)

    @told({200: ref("Timer"), 201: ref("Timer")}, body=_FIELDS, needed=("type",), headers=("If-Match", "If-None-Match"),
          example=_EXAMPLE, refuses={**_PUT, 400: f"{_PUT[400]} invalid_if_none_match", **_NONE})
    def put(self, request: Request, name: str) -> Response:
        """Make it, or say anew all that it says; a pause stays. `If-None-Match: *` only makes it, If-Match does not."""
        body = without_subject(request, parsing.body(request, (*_FIELDS, "tenant_subject")))
        made = _put(request, name, body, create=_only_new(request), revision=parsing.if_match(request))
        return _told(made, 201 if made.fresh else 200)

    @told({204: {}}, headers=("If-Match",), refuses={**_NONE, 409: "timer_declared"})
    def delete(self, request: Request, name: str) -> Response:
        """End it for good. Its jobs stay."""
        parsing.query(request)
        timers.remove(_found(request, name), by=caller(request).by, revision=parsing.if_match(request))
        return answer(None, 204)


class Pause(View):
    """`/timers/{name}/pause`."""

    permissions = {"POST": Permission.TIMERS}

    @told({200: ref("Timer")}, body=_PAUSE, needed=("reason",), headers=("If-Match",), refuses=_NONE,
          example={"reason": "the vendor is down", "for_s": 3_600})
    def post(self, request: Request, name: str) -> Response:
        """Let it make no jobs, until an end if one is said; said anew if paused. What lies in it is not made up for."""
        body = without_subject(request, parsing.body(request, (*_PAUSE, "tenant_subject")))
        until = timetable.end_of(fields.moment(body, "until", "invalid_until"),
                                 fields.seconds(body, "for_s", "invalid_for_s"))
        found = _found(request, name)
        return _told(timers.pause(found, by=caller(request).by, reason=fields.text(body, "reason"), until=until,
                                  revision=parsing.if_match(request)))


class Resume(View):
    """`/timers/{name}/resume`."""

    permissions = {"POST": Permission.TIMERS}

    @told({200: ref("Timer")}, body=_RESUME, bodiless=True, headers=("If-Match",),
          refuses={**_NONE, 409: "timer_not_paused"})
    def post(self, request: Request, name: str) -> Response:
        """End its pause."""
        body = without_subject(request, parsing.body(request, (*_RESUME, "tenant_subject"), optional=True))
        return _told(timers.resume(_found(request, name), by=caller(request).by, revision=parsing.if_match(request),
                                   reason=fields.text(body, "reason", default="")))


class Run(View):
    """`/timers/{name}/run`."""

    permissions = {"POST": Permission.TIMERS}

    @told({202: ref("Firing")}, body=_RUN, bodiless=True, headers=("Idempotency-Key",), refuses={
        **_OF_JOBS, **_NONE, 400: f"invalid_idempotency_key {_OF_JOBS[400]}", 409: "timer_job_active tenant_deleting"})
    def post(self, request: Request, name: str) -> Response:
        """Make its job now, paused or not; its moments stay as they are. The same key again is the same firing."""
        body = without_subject(request, parsing.body(request, (*_RUN, "tenant_subject"), optional=True))
        key = fields.idempotency_key(request, body)
        caller(request).check_enqueues()
        return answer(firing(timers.run_now(_found(request, name), by=caller(request).by, key=key,
                                            reason=fields.text(body, "reason", default=""))), 202)


class Next(View):
    """`/timers/{name}/upcoming`."""

    permissions = {"GET": Permission.TIMERS}

    @told({200: ref("Upcoming")}, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """Its next five moments; none while it is paused without an end."""
        parsing.query(request)
        row = _found(request, name)
        return answer(_moments(timetable.words(row), row.zone, timetable.moments(row)))


class Preview(View):
    """`/timers/preview`."""

    permissions = {"POST": Permission.TIMERS}

    @told({200: ref("Upcoming")}, body=_CADENCE, tenant=False, example={"cron": "0 3 * * *", "zone": "Europe/Berlin"},
          refuses={400: _UNTIMELY})
    def post(self, request: Request) -> Response:
        """The next five moments of a schedule that no timer has: nothing is kept."""
        body = parsing.body(request, _CADENCE)
        cadence = _cadence(body)
        schedule, found = timetable.preview(**cadence)
        return answer(_moments(schedule.said, cadence.get("zone", "UTC"), found))


class Firings(View):
    """`/timers/{name}/firings`."""

    permissions = {"GET": Permission.TIMERS}

    @told({200: ref("Firings")}, query=_PAGE, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """What became of its moments, the latest first."""
        said = parsing.query(request, *_PAGE)
        found = timetable.firings(_found(request, name), limit=fields.whole(said, "limit", 50, 1, MOST),
                                  cursor=said.get("cursor"))
        return answer(shapes.page("firings", found, [firing(row) for row in found.items]))


# --- reading requests ----------------------------------------------------------------------------------------------


def _found(request: Request, name: str) -> Timer:
    scope: Scope = tenant_scope(request)
    if scope.tenant_id is None:
        raise timers.TimerNotFound()
    return timers.get(scope.tenant_id, name)


def _put(request: Request, name: str, body: dict[str, Any], *, create: bool = False,
         revision: int | None = None) -> Timer:
    who = caller(request)
    # Whoever puts a timer enqueues, again and again.
    who.check_enqueues()
    with parsing.beneath("input"):
        return timers.put_for(who.place, who.subject(named_tenant(request)), name, _draft(body), by=who.by,
                              revision=revision, create=create, origin=who.origin)


def _draft(body: dict[str, Any]) -> Draft:
    """What it should say; what is null is as if it were not said."""
    said = {"options": fields.entry(body, "options"), "version": body.get("version"), **_cadence(body),
            **{name: body.get(name) for name in ("moment_field", "catch_up", "catch_up_most", "overlap")}}
    return Draft(fields.text(body, "type"), body.get("input", {}),
                 **{name: value for name, value in said.items() if value is not None})


def _cadence(body: dict[str, Any]) -> dict[str, Any]:
    said = {"cron": body.get("cron"), "every_s": body.get("every_s"), "zone": body.get("zone"),
            "anchor_at": fields.moment(body, "anchor_at", "invalid_anchor_at")}
    return {name: value for name, value in said.items() if value is not None}


def _only_new(request: Request) -> bool:
    """Whether If-None-Match asks that there be none. Raises Invalid for another word."""
    said = request._request.META.get("HTTP_IF_NONE_MATCH")
    if said not in (None, "*"):
        raise Invalid("can only be *: make it where there is none", field="If-None-Match", code="invalid_if_none_match")
    return said == "*"


# --- shapes --------------------------------------------------------------------------------------------------------


def shape(line: Line, *, with_input: bool = False) -> dict[str, Any]:
    """A timer as callers see it, with what it did last. A pause whose end has come is none."""
    row, paused = line.timer, line.paused
    told = {
        "name": row.name, "tenant_subject": row.tenant.subject, "type": row.type, "version": row.version,
        "options": shapes.parsed(row.options), "cron": row.cron, "every_s": row.every_s, "zone": row.zone,
        "anchor_at": jsonable(row.anchor_at), "schedule": line.words, "moment_field": row.moment_field,
        "catch_up": row.catch_up, "catch_up_most": row.catch_up_most, "overlap": row.overlap,
        "declared": row.declared, "next_at": None if paused else jsonable(row.next_at),
        "paused": paused, "paused_at": jsonable(row.paused_at) if paused else None,
        "paused_until": jsonable(row.paused_until) if paused else None, "paused_by": row.paused_by if paused else None,
        "paused_reason": row.paused_reason if paused else None,
        "last": None if line.last is None else firing(line.last), "revision": row.revision, "by": row.by,
        "created_at": jsonable(row.created_at), "updated_at": jsonable(row.updated_at)}
    return {**told, "input": shapes.parsed(row.input)} if with_input else told


def firing(row: Firing) -> dict[str, Any]:
    """One moment and what became of it."""
    return {"moment": jsonable(row.moment), "made_at": jsonable(row.made_at), "outcome": row.outcome,
            "missed": row.missed, "code": row.code, "detail": row.detail,
            "job": None if row.job_id is None else str(row.job_id), "manual": row.manual, "by": row.by}


def _told(row: Timer, status: int = 200, *, with_input: bool = False, **headers: str) -> Response:
    [line] = timetable.lines([row])
    return answer(shape(line, with_input=with_input), status, ETag=f'"r{row.revision}"', **headers)


def _moments(said: str, zone: str, found: Sequence[Upcoming]) -> dict[str, Any]:
    return {"schedule": said, "zone": zone,
            "upcoming": [{"at": jsonable(one.at), "there": one.there.isoformat()} for one in found]}
