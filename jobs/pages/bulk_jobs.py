"""One verb for all jobs that the list's filter matches: a look at what it would meet, then a bulk operation."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from jobs import sightings
from jobs.errors import Invalid, JobsError, NotFound
from jobs.pages import filters
from jobs.pages.access import Page, operator
from jobs.pages.acting import ACTIONS, Action
from jobs.pages.bulk import as_token, whole
from jobs.pages.filters import Filters
from jobs.pages.letter import status_of
from jobs.selectors import TooSlow
from jobs.services import letters, operations
from jobs.services.operations import JOB_VERBS, JobMatch, Pace
from jobs.states import State

SAMPLE = 20


class JobsPreview(Page):
    """`/jobs/act/all/?verb=cancel&...`: how many jobs are meant and twenty of them; sent, it begins the operation."""

    template_name = "jobs/jobs_all.html"
    live = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The verb's permission, beside that to view. Raises BadRequest for what no button of ours asks."""
        self.said = request.POST if request.method == "POST" else request.GET
        if self.said.get("verb", "") not in JOB_VERBS:
            raise BadRequest("There is no such button.")
        self.action: Action = ACTIONS[self.said["verb"]]
        if request.user.is_authenticated and not request.user.has_perm(self.action.permission.label):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The preview; the jobs that there are now are fixed with it."""
        return self._shown(token=uuid.uuid4())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Begin; the same form sent again leads to the same operation."""
        said = {name: request.POST.get(name, "").strip() for name in ("why", "rate", "token")}
        try:
            begun = operations.begin(
                self.action.verb, self._match()._replace(upto=request.POST.get("upto") or None), by=operator(request),
                reason=said["why"], token=as_token(said["token"]), pace=Pace(rate=whole(said, "rate")),
                allow_archived=True)
        except JobsError as error:
            return self._shown(status_of(error), refused=error, **said)
        return redirect("console:bulk", pk=begun.pk)

    def _match(self) -> JobMatch:
        form = Filters(self.said)
        if not form.is_valid():
            raise Invalid(form.faults()[0])
        return _meant(form)

    def _shown(self, status: int = 200, **more: Any) -> HttpResponse:
        query = filters.without(self.said)
        context = self.get_context_data(action=self.action, query=query, chips=Filters(self.said).chips(self.said),
                                        most=operations.COUNTED, count=None, sample=[], slow=False)
        try:
            found = operations.preview(self.action.verb, self._match(), SAMPLE)
            chosen = found.match
            upto = chosen.upto if isinstance(chosen, JobMatch) else None
            context |= {"count": found.expected, "upto": upto, "some": bool(found.sample),
                        "sample": sightings.some([uuid.UUID(id_) for id_ in found.sample])}
        except TooSlow:
            context["slow"] = True
        except JobsError as error:
            more.setdefault("refused", error)
            status = status_of(error) if status == 200 else status
        return self.render_to_response({**context, **more}, status=status)


def _meant(form: Filters) -> JobMatch:
    """What the list's filter means, as far as it can be meant of jobs that nobody has looked at."""
    said = form.narrowed()
    if said.search:
        raise Invalid("A search finds single jobs: choose them in the list.", field="q", code="invalid_selection")
    place, tenants = letters.places(said.workspace, said.tenant)
    if said.workspace and place is None:
        raise NotFound("There is no such workspace.", field="workspace")
    if said.tenant and len(tenants) != 1:
        raise Invalid("is in several workspaces; choose one" if tenants else "is unknown", field="tenant")
    name, _, version = said.type.partition("@")
    return JobMatch(place, tenants[0] if tenants else None, name or None, int(version) if version else None,
                    said.queue or None, said.worker_group or None,
                    tuple(s.value for s in State if s.value in said.states), said.reason or None,
                    since=said.since, until=said.until)
