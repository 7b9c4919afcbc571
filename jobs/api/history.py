"""What a job left behind: its receipts, its attempts, its artifact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.describing import Fields, ref, text, told, whole
from jobs.api.security import tenant_scope
from jobs.api.views import View, answer
from jobs.errors import Invalid
from jobs.selectors import Page
from jobs.services.keys import Permission

MOST = 500
MAX_NUMBER = 999_999_999


_PAGE = {"after": whole(0, MAX_NUMBER, "Those behind this number", default=0),
         "limit": whole(1, MOST, default=100)}
_LOGS = {**_PAGE, "include": text("What each has logged too", among=("log",))}
_NO_JOB = {404: "job_not_found"}


def _numbered(request: Request, name: str, noun: str, read: Callable[..., Page],
              shape: Callable[[Any], Any], known: Fields = _PAGE) -> Response:
    said = parsing.query(request, *known)
    after = fields.whole(said, "after", 0, 0, MAX_NUMBER)
    limit = fields.whole(said, "limit", 100, 1, MOST)
    found = read(selectors.job(tenant_scope(request), name), after=after, limit=limit)
    return answer(shapes.page(noun, found, [shape(row) for row in found.items], "after"))


class Receipts(View):
    """`/jobs/{id}/receipts`."""

    permissions = {"GET": Permission.READ}

    @told({200: ref("Receipts")}, query=_PAGE, refuses=_NO_JOB)
    def get(self, request: Request, name: str) -> Response:
        """The facts about a job behind a number, in order (A12, E12)."""
        return _numbered(request, name, "receipts", selectors.receipts, shapes.receipt)


class Attempts(View):
    """`/jobs/{id}/attempts`."""

    permissions = {"GET": Permission.READ}

    @told({200: ref("Attempts")}, query=_LOGS, refuses=_NO_JOB)
    def get(self, request: Request, name: str) -> Response:
        """Every claim of a job and how it ended (E2); `?include=log` shows what each has logged (A64)."""
        include = parsing.query(request, *_LOGS).get("include")
        if include is None:
            return _numbered(request, name, "attempts", selectors.attempts, shapes.attempt)
        if include != "log":
            raise Invalid("can include log", field="include", code="invalid_include")
        return _numbered(request, name, "attempts", selectors.attempts_with_logs, shapes.attempt_with_log, _LOGS)


class Artifact(View):
    """`/jobs/{id}/artifact`."""

    permissions = {"GET": Permission.READ}

    @told({200: ref("Artifact")}, refuses={404: "job_not_found artifact_not_found"})
    def get(self, request: Request, name: str) -> Response:
        """The validated result of a completed job (B29, E2)."""
        parsing.query(request)
        job = selectors.job(tenant_scope(request), name)
        return answer(shapes.artifact(job, selectors.artifact(job)))
