"""Every refusal as problem+json (RFC 9457), and the only place where HTTP numbers of refusals stand.

The class of an error says the number, a few codes say another. Clients' faults are never a 500; what we did not
expect is a 500 without its insides, and is logged.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse, UnreadablePostError
from django.views import defaults
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from jobs import codecs
from jobs.errors import Conflict, Invalid, JobsError, NotFound, Refused, RevisionMismatch
from jobs.outcomes import refused_status
from jobs.requests import present_id
from jobs.states import State, status

log = logging.getLogger("jobs.api")

MEDIA_TYPE = "application/problem+json"
API_PREFIX = "/api/"
RETRY_AFTER_S = 2

BY_CODE = {
    "batch_refused": 422,
    "idempotency_key_reused": 422,
    "invalid_artifact": 422,
    "job_locked": 503,
    "needs_asgi": 501,
    "not_stored": 503,
    "precondition_required": 428,
    "queue_saturated": 429,
    "rate_limited": 429,
    "request_id_reused": 422,
    "too_large": 413,
    "too_many_assignments": 429,
    "too_many_commands": 429,
    "too_many_connections": 429,
    "too_many_releases": 429,
    "too_much_progress": 429,
    "too_slow": 503,
    "undeclared_stage": 422,
    "unknown_job_type": 422,
    "unregistered_version": 422,
    "unsupported_media_type": 415,
}
# The first that fits.
BY_CLASS: tuple[tuple[type[JobsError], int], ...] = (
    (RevisionMismatch, 412), (NotFound, 404), (Conflict, 409), (Invalid, 400), (Refused, 403))
CODES = {
    400: "bad_request", 401: "unauthenticated", 403: "permission_denied", 404: "not_found", 405: "method_not_allowed",
    406: "not_acceptable", 413: "too_large", 415: "unsupported_media_type",
}
TITLES = {
    400: "The request is malformed.", 401: "A key is needed.", 403: "This is not allowed.",
    404: "There is no such thing, or it is not yours.", 405: "This resource does not take this method.",
    406: "This form of answer is not available.", 409: "The thing is in a state that does not allow this.",
    412: "The thing has moved on since it was read.", 413: "This is too large.",
    415: "Only application/json in UTF-8 is read here.", 422: "The request cannot be followed.",
    428: "Say by If-Match what you have read.", 429: "Too much for now.", 500: "Something went wrong on our side.",
    501: "This server cannot do this.", 503: "The service cannot answer this for now.",
}


class Unauthenticated(APIException):
    """No key, or none that we know."""

    status_code = 401
    auth_header = 'Bearer realm="jobs"'


class UnsupportedMedia(Invalid):
    """Only application/json in UTF-8 is read here."""

    code = "unsupported_media_type"


def number_of(error: JobsError) -> int:
    """The HTTP number of a refusal."""
    by_class = next((number for kind, number in BY_CLASS if isinstance(error, kind)), 400)
    return BY_CODE.get(error.reason_code, by_class)


def problem(error: Exception, context: Any = None) -> Response:
    """Any exception of a view as an answer; the exception handler of REST_FRAMEWORK."""
    # Not above: the framework's views import the classes that its settings name, which import this module.
    from rest_framework.views import set_rollback

    set_rollback()
    number, body, headers = told(error)
    return Response(body, status=number, headers=headers, content_type=MEDIA_TYPE)


def told(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The number, the members and the headers of the problem that any exception is."""
    match error:
        case JobsError():
            return refusal(error)
        case APIException():
            return _of_framework(error)
        case RequestDataTooBig():
            return 413, body_of(413), {}
        case Http404():
            return 404, body_of(404), {}
        case PermissionDenied():
            return 403, body_of(403), {}
        case SuspiciousOperation() | UnreadablePostError():
            return 400, body_of(400), {}
        case OperationalError() | InterfaceError():
            log.warning("storage is unavailable: %s", error)
            detail = "The database cannot be reached; try again."
            return 503, body_of(503, "storage_unavailable", detail), {"Retry-After": str(RETRY_AFTER_S)}
        case _:
            log.error("a request failed unexpectedly", exc_info=error)
            return 500, body_of(500, "internal_error"), {}


def body_of(number: int, code: str | None = None, detail: str | None = None, **more: Any) -> dict[str, Any]:
    """The members of a problem."""
    code = code or CODES[number]
    told = {"type": f"urn:jobs:problem:{code}", "title": TITLES[number], "status": number,
            "detail": detail or TITLES[number], "code": code}
    more["request_id"] = present_id()
    return told | {name: value for name, value in more.items() if value not in (None, [])}


def refusal(error: JobsError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The number, the members and the headers of the problem that a refusal is."""
    number = number_of(error)
    facts = {"result_status": refused_status(error.reason_code, error.facts.get("status")), **_facts(error.facts)}
    wait = facts.get("retry_after_s")
    headers = {"Retry-After": str(max(1, math.ceil(wait)))} if wait is not None else {}
    faults = getattr(error, "faults", None)
    field = codecs.printable(error.field) if error.field is not None else None
    message = codecs.printable(error.message, 1_000)
    return number, body_of(number, error.reason_code, message, field=field, faults=faults, **facts), headers


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The plain facts of a refusal. The state of a job is told in both words; `status` is the problem's own member."""
    told = {name: value for name, value in facts.items() if isinstance(value, (str, int, float, bool))}
    if (state := told.pop("status", None)) in set(State):
        told |= {"job_status": status(str(state)), "job_state": str(state)}
    return told


def _of_framework(error: APIException) -> tuple[int, dict[str, Any], dict[str, str]]:
    number = error.status_code
    headers = {"WWW-Authenticate": error.auth_header} if isinstance(error, Unauthenticated) else {}
    if number not in CODES:
        return 400, body_of(400), {}
    return number, body_of(number, None, codecs.printable(str(error.detail))), headers


def refusal_of_one(error: JobsError) -> dict[str, Any]:
    """A refusal as the member of an answer to many: the members of its problem, of which `status` is the number."""
    number, body, _ = refusal(error)
    return {"status": number, **{name: value for name, value in body.items() if name not in ("request_id", "status")}}


# --- outside of views ------------------------------------------------------------------------------------------------


def _plain(number: int, code: str | None = None) -> JsonResponse:
    return JsonResponse(body_of(number, code), status=number, content_type=MEDIA_TYPE,
                        headers={"Cache-Control": "no-store"})


def answered(error: Exception) -> HttpResponseBase:
    """Any exception as an answer, where there is no view."""
    number, body, headers = told(error)
    return JsonResponse(body, status=number, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", **headers})


def unreachable(error: Exception) -> HttpResponseBase:
    """The answer where the database failed before a view could."""
    log.warning("storage is unavailable: %s", error)
    refused = _plain(503, "storage_unavailable")
    refused["Retry-After"] = str(RETRY_AFTER_S)
    return refused


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """The site's handler400: under /api/ a problem, elsewhere Django's page."""
    return _plain(400) if request.path.startswith(API_PREFIX) else defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """The site's handler403."""
    return _plain(403) if request.path.startswith(API_PREFIX) else defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """The site's handler404."""
    return _plain(404) if request.path.startswith(API_PREFIX) else defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """The site's handler500."""
    return _plain(500, "internal_error") if request.path.startswith(API_PREFIX) else defaults.server_error(request)
