"""What is told of a job, on its page, and sending it again."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from jobs.callbacks import names
from jobs.errors import JobsError
from jobs.models import Delivery, DeliveryTry
from jobs.models import Job as Row
from jobs.models.permissions import Permission
from jobs.pages.access import Page, operator
from jobs.services import deliveries


class Shown(NamedTuple):
    """A delivery with its tries."""

    row: Delivery
    log: list[DeliveryTry]


def shown(job: Row) -> dict[str, Any]:
    """Which events are told, and how that went."""
    rows = deliveries.of_job(job.pk, 50)
    log = deliveries.tries(rows)
    return {"heard": names(job.callback_events) if job.worker_group != "system" else [],
            "deliveries": [Shown(row, log[row.pk]) for row in rows]}


class Replay(Page):
    """`/jobs/<id>/callbacks/<delivery>/replay/`: once more, for who may requeue."""

    http_method_names = ["post"]
    permission_required = (Permission.VIEW.label, Permission.REQUEUE.label)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Back to the job, with a word about why not where it was refused."""
        pk: UUID = kwargs["pk"]
        try:
            if not any(row.pk == kwargs["delivery"] for row in deliveries.of_job(pk)):
                raise deliveries.DeliveryNotFound()
            deliveries.replay(kwargs["delivery"], by=operator(request))
        except JobsError as error:
            messages.warning(request, error.message)
        return redirect("console:job", pk=pk)
