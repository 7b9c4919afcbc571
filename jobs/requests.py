"""What every request has: an id, which its answer and all of its log lines carry, and one line when it is answered.

`identified` stands first in MIDDLEWARE; `RequestFilter` gives the id to records. Of a request nothing is logged that
could be a secret: no query, no headers, no body.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from jobs import clock

HEADER: Final = "X-Request-ID"
_SAID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
# Asked every few seconds, or many times a page: their lines are of level DEBUG.
_QUIET: Final = ("/livez", "/readyz", "/metrics")

log = logging.getLogger("jobs.requests")
_present: ContextVar[str | None] = ContextVar("jobs_request", default=None)


def present_id() -> str | None:
    """The id of the request that is being answered; None outside of one."""
    return _present.get()


class RequestFilter(logging.Filter):
    """Gives records the `request_id` of the request in which they were made; lets every record through."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record. Django logs refusals after the middleware is left, with the request in `extra`."""
        if getattr(record, "request_id", None) is None:
            record.request_id = _present.get() or getattr(getattr(record, "request", None), "jobs_id", None)
        return True


@sync_and_async_middleware
def identified(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Gives a request its id, the caller's if it is 1 to 128 of `A-Za-z0-9._-`, and logs what it was answered."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            with _named(request) as done:
                return done(await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        with _named(request) as done:
            return done(get_response(request))

    return answer


@contextmanager
def _named(request: HttpRequest) -> Iterator[Callable[[HttpResponseBase], HttpResponseBase]]:
    said = request.headers.get(HEADER, "")
    name = said if _SAID.fullmatch(said) else uuid.uuid4().hex
    request.jobs_id = name  # type: ignore[attr-defined]
    began = clock.monotonic()
    before = _present.set(name)

    def done(response: HttpResponseBase) -> HttpResponseBase:
        response[HEADER] = name
        _say(request, response, clock.monotonic() - began)
        return response

    try:
        yield done
    finally:
        _present.reset(before)


def _say(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
    path = request.path
    quiet = response.status_code < 500 and (path in _QUIET or path.startswith(_static()))
    log.log(logging.DEBUG if quiet else logging.INFO, "%s %s %s", request.method, path, response.status_code, extra={
        "event": "request", "method": request.method, "path": path, "status": response.status_code,
        "ms": round(seconds * 1000, 1), "request_id": request.jobs_id, **_who(request)})  # type: ignore[attr-defined]


def _static() -> str:
    prefix = settings.STATIC_URL or ""
    return prefix if prefix.startswith("/") and prefix != "/" else "/static/"


def _who(request: HttpRequest) -> dict[str, str]:
    """The key's prefix or the person, as far as known by now: to log a line is no reason to read a session."""
    if prefix := getattr(getattr(request, "auth", None), "prefix", None):
        return {"key": prefix}
    user = getattr(request, "_cached_user", None) or getattr(request, "_acached_user", None)
    return {"user": user.get_username()} if user is not None and user.is_authenticated else {}
