"""Refusals outside of any view: problems for callers of the API, pages for people."""

from __future__ import annotations

import sys
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from jobs.api import errors as api
from jobs.requests import present_id

API = "/api/"


def _answer(problem: Any, status: int, heading: str, said: str) -> Any:
    def handler(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
        if request.path.startswith(API):
            answer: HttpResponseBase = problem(request) if exception is None else problem(request, exception)
            return answer
        return _page(request, status, heading, said)
    return handler


def _page(request: HttpRequest, status: int, heading: str, said: str) -> HttpResponse:
    if not hasattr(request, "user"):
        # Refused before anybody looked whose request it is.
        request.user = AnonymousUser()
    return render(request, "jobs/error.html", {"heading": heading, "said": said, "request_id": present_id()},
                  status=status)


bad_request = _answer(api.bad_request, 400, "This request makes no sense", "Go back and try again.")
permission_denied = _answer(api.permission_denied, 403, "Not for this account",
                            "Ask an administrator for the permission, or sign in with another account.")
page_not_found = _answer(api.page_not_found, 404, "Nothing is here", "The page is gone, or never was.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """A form without a valid token: too old, sent from elsewhere, or by a browser without cookies."""
    return _page(request, 403, "This form was not accepted",
                 "It was open for too long, or your browser keeps no cookies. Load the page again, and repeat.")


def server_error(request: HttpRequest) -> HttpResponseBase:
    """What we did not expect; 503 where it is the database that is away. The page itself asks no database."""
    is_away = isinstance(sys.exc_info()[1], (OperationalError, InterfaceError))
    if request.path.startswith(API):
        return api.server_error(request)
    # As for a stranger: whose session it is stands in the database, which may be what broke.
    request.user = AnonymousUser()
    request.__dict__.pop("_messages", None)
    if not is_away:
        return _page(request, 500, "Something broke on our side",
                     "It has been written to the log. Try again in a moment.")
    answer = _page(request, 503, "The database does not answer", "Jobs wait for it and are not lost. Try again soon.")
    answer["Retry-After"] = str(api.RETRY_AFTER_S)
    return answer
