"""Who may see lanes' pages: whoever has a grant in any workspace; all others are told how to get one."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from jobs.pages.access import Page
from jobs.selectors import TooSlow
from lanes import actors, sightings
from lanes.actors import Actor
from lanes.axes import Role
from lanes.errors import LaneNotFound, QuorumNotFound

CONDUCTOR = Role.CONDUCTOR


class LanePage(Page):
    """A page of lanes. `roles` is what its reader is, by workspace; `actor` is how the services know them."""

    permission_required: Any = ()
    live: str | None = "/live/lanes/"
    roles: dict[int, Role]

    @property
    def actor(self) -> Actor:
        """The reader, as the services know them."""
        return actors.of_user(self.request.user)

    def has_permission(self) -> bool:
        """A grant anywhere; nothing else."""
        self.roles = sightings.roles(self.request.user.pk)
        return bool(self.roles)

    def handle_no_permission(self) -> Any:
        """To the login for a stranger; how to get a grant for everybody else."""
        if not self.request.user.is_authenticated:
            return super().handle_no_permission()
        self.live = None
        return render(self.request, "lanes/no_grant.html", Page.get_context_data(self), status=403)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """What is not there, foreign or slow is a page that says so."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except (LaneNotFound, QuorumNotFound) as error:
            return self._sorry("There is no such quorum" if isinstance(error, QuorumNotFound) else
                               "There is no such lane", error.message, 404)
        except TooSlow:
            return self._sorry("This takes too long just now", "The database is busy. Try again in a moment.", 200)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page."""
        return self.render_to_response(self.get_context_data(**kwargs))

    def _sorry(self, heading: str, said: str, status: int) -> HttpResponse:
        self.live = None
        context = Page.get_context_data(self, heading=heading, said=said)
        return render(self.request, "lanes/sorry.html", context, status=status)

    def conducts(self, workspace_id: int) -> bool:
        """Whether the reader is a conductor there."""
        return self.roles.get(workspace_id) == CONDUCTOR

    @property
    def conducted(self) -> list[int]:
        """The workspaces of which the reader is a conductor."""
        return [workspace_id for workspace_id, role in self.roles.items() if role == CONDUCTOR]


def id_of(said: str | None) -> uuid.UUID | None:
    """The id that a URL says; None for anything else."""
    try:
        return uuid.UUID(said) if said else None
    except ValueError:
        return None
