"""The claim of runners over HTTP (C31)."""

from __future__ import annotations

from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints, selectors
from jobs.api import fields, parsing, shapes
from jobs.api.describing import listed, or_null, ref, text, told, whole
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.services import commands, runners
from jobs.services.keys import Permission

_NAMES = or_null(listed(text(), most=fields.MAX_LIST))
_FIELDS = {"worker_groups": _NAMES, "queues": _NAMES, "slots": whole(1, runners.MAX_SLOTS, default=1),
           "wait_seconds": whole(0, means="Longest wait for the first; too long is cut", default=0)}


class Claim(View):
    """`/runtime/claim`."""

    permissions = {"POST": Permission.CLAIM}
    waits = True

    @told({200: ref("Assignments")}, body=_FIELDS, bodiless=True, tenant=False,
          refuses={400: "unknown_worker_group unknown_queue", 403: "group_forbidden group_served_in_process"})
    @method_decorator(sensitive_variables())
    def post(self, request: Request) -> Response:
        """Take what is claimable, waiting for the first; nothing to do is an empty list, never an error."""
        body = parsing.body(request, _FIELDS, optional=True)
        batch = runners.claim(
            caller(request).key, worker_groups=fields.texts(body, "worker_groups"), queues=fields.texts(body, "queues"),
            slots=fields.count(body, "slots", 1, 1, runners.MAX_SLOTS), wait_s=fields.wait_seconds(body))
        batch, credentials = runners.credentials(caller(request).key, batch)
        failpoints.at("api.claimed")
        ids = [job.id for job in batch.jobs]
        names = selectors.external_ids(ids) if ids else {}
        unread = commands.unread(ids, limit=commands.AT_ONCE) if ids else {}
        told = [{**shapes.assignment(job, names, unread.get(job.id, ())), **credentials.get(job.fence, {})}
                for job in batch.jobs]
        return answer({"assignments": told, "again": batch.again})
