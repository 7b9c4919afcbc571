"""The list of jobs: newest first over the whole site, narrowed by what its URL says."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobs import sightings
from jobs.models import Job
from jobs.pages import filters
from jobs.pages.access import Page
from jobs.pages.acting import actions_for
from jobs.pages.filters import Filters
from jobs.selectors import TooSlow
from jobs.services.operations import JOB_VERBS
from jobs.sightings import Found
from jobs.states import HELD, State


class Jobs(Page):
    """`/jobs/`. With `select` it stands still, so that what is chosen is what was seen."""

    template_name = "jobs/listing.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A filter that makes no sense is refused with what is wrong, not ignored."""
        form = Filters(request.GET)
        selecting = "select" in request.GET
        found, slow = self._found(form) if form.is_valid() else (Found([]), False)
        # A far look is nothing to repeat at every news.
        still = selecting or slow or found.looked > sightings.NEAR
        self.live = None if still else self.live
        context = self.get_context_data(
            form=form, faults=form.faults(), chips=form.chips(request.GET), known=filters.known(), states=list(State),
            chosen=request.GET.getlist("state"), found=found, slow=slow, many=len(found.jobs),
            rows=[row(job) for job in found.jobs], unfolded=any(name in form.errors for name in filters.FOLDED),
            selecting=selecting, still=still, actions=actions_for(request.user),
            for_all=[a for a in actions_for(request.user) if a.verb in JOB_VERBS], query=filters.without(request.GET),
            here=request.GET.urlencode())
        return self.render_to_response(context, status=200 if form.is_valid() else 400)

    def _found(self, form: Filters) -> tuple[Found, bool]:
        try:
            return sightings.jobs(form.narrowed(), form.place()), False
        except TooSlow:
            return Found([]), True


def row(job: Job) -> dict[str, Any]:
    """A job as a line of a table shows it: `when` is the moment that matters in its state, `word` says which."""
    if job.state in HELD:
        word, when = "since", job.attempt.leased_at if job.attempt else None
    elif job.ended:
        word, when = "ended", job.ended_at
    elif job.state == State.QUEUED:
        word, when = "due", job.available_at
    else:
        word, when = "made", job.created_at
    return {"job": job, "word": word, "when": when}
