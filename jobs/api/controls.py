"""What a person may do to a job: cancel it, requeue it, discard its dead letter."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.security import caller, tenant_scope
from jobs.api.views import View, answer
from jobs.errors import Invalid
from jobs.services import cancellation, dead_letters, erasure
from jobs.services.keys import Permission

ACTIONS = ("cancel",)


def _read_again(request: Request, name: str, **more: Any) -> Response:
    job = selectors.job(tenant_scope(request), name)
    return answer({**shapes.job(job), **more}, ETag=shapes.etag(job))


class Controls(View):
    """`/jobs/{id}/controls`."""

    permissions = {"POST": Permission.CONTROL}

    def post(self, request: Request, name: str) -> Response:
        """Cancel at once; If-Match holds it to the revision that was read (C30, E5)."""
        body = parsing.body(request, ("action", "reason"))
        if fields.text(body, "action") not in ACTIONS:
            raise Invalid("is not an action; known is cancel", field="action", code="unknown_action")
        job = selectors.job(tenant_scope(request), name)
        reason = fields.text(body, "reason", default="cancelled")
        wanted = parsing.if_match(request)
        done = cancellation.cancel(str(job.pk), by=caller(request).by, reason=reason, revision=wanted)
        return _read_again(request, name, repeated=done.repeated)


class Requeue(View):
    """`/jobs/{id}/requeue`."""

    permissions = {"POST": Permission.DEAD_LETTERS}

    def post(self, request: Request, name: str) -> Response:
        """Start a new chain of a job with an open dead letter (C27)."""
        body = parsing.body(request, ("reason",), optional=True)
        letter = selectors.open_letter(selectors.job(tenant_scope(request), name))
        reason = fields.text(body, "reason", default="requeued")
        done = dead_letters.requeue(letter, by=caller(request).by, reason=reason)
        return _read_again(request, name, warnings=shapes.warnings(done))


class Redact(View):
    """`/jobs/{id}/redact`."""

    permissions = {"POST": Permission.ERASE}

    def post(self, request: Request, name: str) -> Response:
        """Empty what an ended job says, for good; its receipts stay (E13)."""
        body = parsing.body(request, ("reason",), optional=True)
        job = selectors.job(tenant_scope(request), name)
        done = erasure.redact_job(str(job.pk), by=caller(request).by,
                                  reason=fields.text(body, "reason", default="redacted"))
        # By our id: the caller's own is gone.
        return _read_again(request, str(job.pk), repeated=done.repeated)


class DeadLetter(View):
    """`/jobs/{id}/dead-letter`."""

    permissions = {"DELETE": Permission.DEAD_LETTERS}

    def delete(self, request: Request, name: str) -> Response:
        """Discard the open dead letter; the job stays failed (C29)."""
        letter = selectors.open_letter(selectors.job(tenant_scope(request), name))
        dead_letters.discard(letter, by=caller(request).by)
        return _read_again(request, name)
