"""What a person may do to a job: cancel, pause, resume and redact it."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.describing import moment, number, or_null, ref, text, told
from jobs.api.security import caller, tenant_scope, without_subject
from jobs.api.views import View, answer
from jobs.errors import Invalid
from jobs.registry import nearest
from jobs.services import cancellation, erasure
from jobs.services.keys import Permission

_REASON = or_null(text("Why, for the job's history", most=512))
_CONTROL = {"action": text(among=("cancel", "pause", "resume")), "reason": _REASON,
            "available_at": or_null(moment("Of a resume: from when on it may run")),
            "delay_s": or_null(number("The same, from now", least=0))}
_MOVES = ("illegal_move not_paused already_paused already_running not_queued job_ended")
# What each may say beside its name.
ACTIONS = {"cancel": ("reason",), "pause": ("reason",), "resume": ("reason", "available_at", "delay_s")}


def _read_again(request: Request, name: str, **more: Any) -> Response:
    job = selectors.job(tenant_scope(request), name)
    return answer({**shapes.job(job), **more}, ETag=shapes.etag(job))


class Controls(View):
    """`/jobs/{id}/controls`."""

    permissions = {"POST": Permission.CONTROL}

    @told({200: ref("JobInFull")}, body=_CONTROL, needed=("action",), headers=("If-Match",),
          example={"action": "cancel"}, refuses={
              400: "unknown_action invalid_availability", 403: "tenant_archived", 404: "job_not_found", 409: _MOVES,
              422: "unregistered_version", 503: "job_locked"})
    def post(self, request: Request, name: str) -> Response:
        """Cancel, pause or resume at once; If-Match holds it to the revision that was read (B28, C30, E5).

        A resume may say from when on it waits, by `available_at` or `delay_s`.
        """
        body = without_subject(request, parsing.free_body(request))
        action = fields.text(body, "action")
        if action not in ACTIONS:
            parsing.refuse_unknown(body, ("action", *ACTIONS["resume"]))
            raise Invalid(f"is not an action{nearest(action, ACTIONS)} Known are {', '.join(ACTIONS)}.", field="action",
                          code="unknown_action")
        parsing.refuse_unknown(body, ("action", *ACTIONS[action]))
        job = selectors.job(tenant_scope(request), name)
        said: dict[str, Any] = {"by": caller(request).by, "revision": parsing.if_match(request)}
        match action:
            case "cancel":
                done = cancellation.cancel(str(job.pk), reason=fields.text(body, "reason", default="cancelled"), **said)
            case "pause":
                done = cancellation.pause(str(job.pk), reason=fields.text(body, "reason", default="paused"), **said)
            case _:
                done = cancellation.resume(
                    str(job.pk), available_at=fields.moment(body, "available_at", "invalid_available_at"),
                    delay_s=fields.seconds(body, "delay_s", "invalid_availability"),
                    reason=fields.text(body, "reason") if body.get("reason") is not None else None, **said)
        return _read_again(request, name, repeated=done.repeated)


class Redact(View):
    """`/jobs/{id}/redact`."""

    permissions = {"POST": Permission.ERASE}

    @told({200: ref("JobInFull")}, body={"reason": _REASON}, bodiless=True,
          refuses={404: "job_not_found", 409: "job_active", 503: "job_locked"})
    def post(self, request: Request, name: str) -> Response:
        """Empty what an ended job says, for good; its receipts stay (E13)."""
        body = without_subject(request, parsing.body(request, ("reason", "tenant_subject"), optional=True))
        job = selectors.job(tenant_scope(request), name)
        done = erasure.redact_job(str(job.pk), by=caller(request).by,
                                  reason=fields.text(body, "reason", default="redacted"))
        # By our id: the caller's own is gone.
        return _read_again(request, str(job.pk), repeated=done.repeated)
