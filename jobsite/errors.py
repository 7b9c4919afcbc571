"""Refusals outside of any view: problems for callers of the API, pages for people."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from jobs.api import errors as api

API = "/api/"


def _answer(problem: Any, status: int, heading: str, said: str) -> Any:
    def handler(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
        if request.path.startswith(API):
            answer: HttpResponseBase = problem(request) if exception is None else problem(request, exception)
            return answer
        return render(request, "jobs/error.html", {"heading": heading, "said": said}, status=status)
    return handler


bad_request = _answer(api.bad_request, 400, "This request makes no sense", "Go back and try again.")
permission_denied = _answer(api.permission_denied, 403, "Not for this account",
                            "Ask an administrator for the permission, or sign in with another account.")
page_not_found = _answer(api.page_not_found, 404, "Nothing is here", "The page is gone, or never was.")
server_error = _answer(api.server_error, 500, "Something broke on our side",
                       "It has been written to the log. Try again in a moment.")
