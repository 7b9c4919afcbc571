"""New quorums and lanes: forms that keep what was typed, and say at each field what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from jobs.conf import registry
from jobs.errors import Invalid, JobsError, NotFound
from jobs.models import Workspace
from jobs.pages.payload import edited
from lanes import selectors, sightings
from lanes.models import Quorum
from lanes.pages.access import LanePage
from lanes.services import lanes, quorums
from lanes.services.lanes import LaneDraft

TEXTS = ("name", "title", "branch", "assignee", "task")
FIELDS = frozenset({*TEXTS, "depends_on"})


class Making(LanePage):
    """A form that makes something, for conductors; for others the page says who may."""

    live = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form."""
        return self._shown({name: request.GET.get(name, "") for name in request.GET})

    def _typed(self) -> dict[str, str]:
        return {name: value.strip() for name, value in self.request.POST.items() if isinstance(value, str)}

    def _refused(self, said: dict[str, Any], error: JobsError) -> HttpResponse:
        """The form again: what is wrong stands at its field, and above it what belongs to none."""
        faults = {self._field(fault["field"]): fault["message"] for fault in getattr(error, "faults", [])}
        if error.field:
            faults.setdefault(self._field(error.field), error.message)
        return self._shown(said, status=400 if isinstance(error, Invalid) else 409, refused=error, faults=faults)

    def _field(self, name: str) -> str:
        """The field of the form that a fault belongs to."""
        return name

    def _shown(self, said: dict[str, Any], status: int = 200, **more: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(said=said, **more), status=status)


class NewQuorum(Making):
    """`/lanes/quorums/new/`."""

    template_name = "lanes/new_quorum.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Make it, and go there."""
        said = self._typed()
        # Of the reader's own alone: whether there are others is nothing to be told.
        workspace = next((one for one in self._workspaces() if one.slug == said.get("workspace")), None)
        try:
            if workspace is None:
                raise Invalid("must be a workspace of which you are a conductor", field="workspace")
            made = quorums.create(workspace, said.get("name", ""), said.get("title", ""), by=self.actor)
        except JobsError as error:
            return self._refused(said, error)
        messages.success(request, "The quorum is there. Lanes go out from it.")
        return redirect("lanes:quorum", pk=made.pk)

    def _workspaces(self) -> list[Workspace]:
        return sightings.named(self.conducted)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the workspaces to choose from."""
        return super().get_context_data(workspaces=self._workspaces(), **kwargs)


class NewLane(Making):
    """`/lanes/new/?quorum=<uuid>`; without a quorum it asks for one first."""

    template_name = "lanes/new_lane.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Make it, and go there. Raises QuorumNotFound."""
        said: dict[str, Any] = {**self._typed(), "depends_on": request.POST.getlist("depends_on")}
        try:
            made = lanes.create(said.get("quorum"), _draft(said), by=self.actor)
        except NotFound:
            raise
        except JobsError as error:
            return self._refused(said, error)
        messages.success(request, "The lane is there, and open.")
        return redirect("lanes:lane", pk=made.pk)

    def _field(self, name: str) -> str:
        # What is wrong with its input is named by where it stands in that.
        return name if name in FIELDS else "reconcile"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the quorum, and whom and what to choose from; or with the quorums."""
        said = kwargs["said"]
        if not said.get("quorum"):
            return super().get_context_data(quorums=self._open(), **kwargs)
        quorum = selectors.quorum(said["quorum"], by=self.actor)
        conducts = self.conducts(quorum.workspace_id)
        if conducts:
            kwargs |= {"names": sightings.assignable(quorum.workspace_id), "siblings": sightings.siblings(quorum)}
        return super().get_context_data(quorum=quorum, conducts=conducts, types=registry().names(), **kwargs)

    def _open(self) -> list[Quorum]:
        found: Sequence[Quorum] = selectors.quorums(by=self.actor, closed=False, limit=sightings.CHOICES).items
        return [one for one in found if self.conducts(one.workspace_id)]


def _draft(said: dict[str, Any]) -> LaneDraft:
    """What was typed, as the service takes it. Raises Invalid for what is no JSON."""
    type_, reconcile = said.get("reconcile_type"), None
    if type_:
        try:
            reconcile = {"type": type_, "input": edited(said.get("reconcile_input") or "{}", None)}
        except Invalid as error:
            raise Invalid(error.message, field="reconcile", code=error.reason_code) from None
    return LaneDraft(**{name: said.get(name, "") for name in TEXTS}, depends_on=said["depends_on"], reconcile=reconcile)
