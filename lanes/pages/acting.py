"""The verbs of a lane, pressed: what it means, a reason, then the service, guarded by the version that was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from jobs.errors import Invalid, JobsError, NotFound
from lanes import axes, selectors, sightings
from lanes.axes import Axis
from lanes.errors import LaneVersionChanged, RoleRequired
from lanes.models import Lane
from lanes.pages.access import LanePage
from lanes.pages.lane import told
from lanes.pages.tracks import DEEDS, Deed, possible
from lanes.services import lanes, quorums

FIELDS = ("reason", "commit", "assignee")
_STATUS: tuple[tuple[type[JobsError], int], ...] = ((Invalid, 400), (RoleRequired, 403))


class Asking(LanePage):
    """A page that asks before it does something to a lane or quorum; GET asks, POST does it and leads back."""

    live = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Ask."""
        return self._ask()

    def _said(self) -> dict[str, str]:
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        return {name: given.get(name, "").strip() for name in FIELDS}

    def _do(self, verb: Callable[[], Any], done: str, back: str) -> HttpResponseBase:
        """What the service said: done, or asked again with what is wrong. Raises what a missing one raises."""
        try:
            verb()
        except NotFound:
            raise
        except JobsError as error:
            return self._ask(error)
        except OperationalError:
            messages.error(self.request, "The database was too busy. Nothing was changed; try again.")
        else:
            messages.success(self.request, done)
        return HttpResponseRedirect(back)

    def _ask(self, refused: JobsError | None = None) -> HttpResponse:
        raise NotImplementedError

    def _shown(self, refused: JobsError | None, **more: Any) -> HttpResponse:
        status = 200 if refused is None else next((n for kind, n in _STATUS if isinstance(refused, kind)), 409)
        faults = {fault["field"]: fault["message"] for fault in getattr(refused, "faults", [])}
        context = self.get_context_data(said=self._said(), refused=refused, faults=faults, **more)
        return self.render_to_response(context, status=status)


class OfLane(Asking):
    """Asks about one lane as it was shown: what has changed it since is told instead of overwritten."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Raises BadRequest for what no form of ours sends."""
        self.id = kwargs["pk"]
        return super().dispatch(request, *args, **kwargs)

    def _version(self) -> int:
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        said = given.get("version", "")
        if not said.isascii() or not said.isdigit() or not 0 < len(said) < 10 or int(said) == 0:
            raise BadRequest("This form names no version.")
        return int(said)

    def _back(self) -> str:
        return reverse("lanes:lane", args=[self.id])

    def _lane(self, refused: JobsError | None) -> tuple[Lane, list[dict[str, Any]]]:
        """The lane as it is now, and what has happened since it was shown."""
        lane = selectors.lane(self.id, by=self.actor)
        stale = isinstance(refused, LaneVersionChanged) or lane.version > self._version()
        return lane, [told(one) for one in sightings.since(lane, self._version())] if stale else []


class Act(OfLane):
    """`/lanes/<uuid>/act/?deed=start&version=3`."""

    template_name = "lanes/act.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Do it."""
        deed, said, version = self._deed(), self._said(), self._version()
        run: dict[Axis, Callable[..., Lane]] = {Axis.EXECUTION: lanes.set_state, Axis.REVIEW: lanes.review,
                                                Axis.MERGE: lanes.merge}
        more = {"commit": said["commit"]} if deed.axis is Axis.MERGE else {}
        return self._do(lambda: run[deed.axis](self.id, deed.verb, by=self.actor, version=version,
                                               reason=said["reason"], **more),
                        f"The lane is {deed.done}.", self._back())

    def _deed(self) -> Deed:
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        deed = DEEDS.get(given.get("deed", ""))
        if deed is None:
            raise BadRequest("There is no such button.")
        return deed

    def _ask(self, refused: JobsError | None = None) -> HttpResponse:
        deed = self._deed()
        lane, meanwhile = self._lane(refused)
        allowed = axes.may(axes.needed(deed.axis, deed.verb), self.roles.get(lane.workspace_id),
                           lane.assignee_user == self.actor.user_id)
        return self._shown(refused, lane=lane, deed=deed, meanwhile=meanwhile, possible=possible(lane, deed),
                           allowed=allowed, takes_commit=deed.verb in ("merged", "conflicted"),
                           must_commit=deed.verb == "merged")


class Assign(OfLane):
    """`/lanes/<uuid>/assign/?version=3`: give a lane to somebody else."""

    template_name = "lanes/assign.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Do it."""
        said, version = self._said(), self._version()
        return self._do(lambda: lanes.reassign(self.id, said["assignee"], by=self.actor, version=version,
                                               reason=said["reason"]),
                        f"The lane is given to {said['assignee']}.", self._back())

    def _ask(self, refused: JobsError | None = None) -> HttpResponse:
        lane, meanwhile = self._lane(refused)
        allowed = self.conducts(lane.workspace_id)
        return self._shown(refused, lane=lane, meanwhile=meanwhile, allowed=allowed, possible=lane.ended_at is None,
                           names=sightings.assignable(lane.workspace_id) if allowed else [])


class Depend(OfLane):
    """`/lanes/<uuid>/depend/?version=3`: what a lane waits for."""

    template_name = "lanes/depend.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Do it."""
        said, version, on = self._said(), self._version(), request.POST.getlist("depends_on")
        return self._do(lambda: lanes.depend(self.id, on, by=self.actor, version=version, reason=said["reason"]),
                        "What the lane waits for is changed.", self._back())

    def _ask(self, refused: JobsError | None = None) -> HttpResponse:
        lane, meanwhile = self._lane(refused)
        now, allowed = lane.depends_on, self.conducts(lane.workspace_id)
        chosen = [str(other.pk) for other in now] if refused is None else self.request.POST.getlist("depends_on")
        # Those that it waits for now can be taken away however old they are.
        others = {other.pk: other for other in (*now, *sightings.siblings(lane.quorum)) if other.pk != lane.pk}
        return self._shown(refused, lane=lane, meanwhile=meanwhile, allowed=allowed, possible=lane.ended_at is None,
                           siblings=list(others.values()) if allowed else [], chosen=chosen)


class Close(Asking):
    """`/lanes/quorums/<uuid>/close/`."""

    template_name = "lanes/close.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Do it."""
        id_ = self.kwargs["pk"]
        return self._do(lambda: quorums.close(id_, by=self.actor, reason=self._said()["reason"]),
                        "The quorum is closed.", reverse("lanes:quorum", args=[id_]))

    def _ask(self, refused: JobsError | None = None) -> HttpResponse:
        quorum = selectors.quorum(self.kwargs["pk"], by=self.actor)
        return self._shown(refused, quorum=quorum, allowed=self.conducts(quorum.workspace_id))
