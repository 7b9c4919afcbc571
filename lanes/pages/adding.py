"""Jobs into a lane: one that there is, or a new one."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from jobs.conf import conf
from jobs.errors import JobNotFound, JobsError, NotFound
from jobs.pages.access import operator
from jobs.pages.enqueue import offered, options
from jobs.pages.payload import edited
from jobs.services.draft import Door, Options, Request
from lanes import selectors
from lanes.pages.making import Making
from lanes.services import lane_jobs


class Adding(Making):
    """A form about the jobs of one lane."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the lane. Raises LaneNotFound."""
        lane = selectors.lane(self.kwargs["pk"], by=self.actor)
        return super().get_context_data(lane=lane, conducts=self.conducts(lane.workspace_id), **kwargs)


class Attach(Adding):
    """`/lanes/<uuid>/jobs/attach/`."""

    template_name = "lanes/attach.html"

    def post(self, request: HttpRequest, *args: Any, pk: UUID, **kwargs: Any) -> HttpResponseBase:
        """Attach it, and go back to the lane."""
        said = self._typed()
        try:
            fresh = lane_jobs.attach(pk, said.get("job_id", ""), by=self.actor)
        except JobNotFound as error:
            return self._refused(said, error)
        except NotFound:
            raise
        except JobsError as error:
            return self._refused(said, error)
        messages.success(request, "The job is this lane's." if fresh else "The job was this lane's already.")
        return redirect("lanes:lane", pk=pk)


class Enqueue(Adding):
    """`/lanes/<uuid>/jobs/new/`: the job is there and the lane's, or neither."""

    template_name = "lanes/enqueue.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form. Its key makes a job that is sent twice one job."""
        return self._shown({"type": request.GET.get("type", ""), "input": "{}", "idempotency_key": f"lane:{uuid4()}"})

    def post(self, request: HttpRequest, *args: Any, pk: UUID, **kwargs: Any) -> HttpResponseBase:
        """Enqueue, and go back to the lane. Raises LaneNotFound."""
        said = self._typed()
        try:
            # The lane's workspace is the only one that there is.
            asked = Options(**options({name: value for name, value in said.items() if name != "workspace"}))
            wanted = Request(said.get("type", ""), edited(said.get("input", ""), None), asked)
            made = lane_jobs.enqueue(pk, wanted, by=self.actor, door=Door("console", "user", operator(request)))
        except NotFound:
            raise
        except JobsError as error:
            return self._refused(said, error)
        messages.success(request, "This form had been sent before: its job is here." if made.repeated else "Enqueued.")
        return redirect("lanes:lane", pk=pk)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With what may be asked for."""
        return super().get_context_data(types=offered(), queues=conf().QUEUES, **kwargs)
