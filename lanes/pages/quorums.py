"""Quorums: the list of those that somebody may see, and one of them with its board."""

from __future__ import annotations

from typing import Any

from jobs.errors import Invalid
from jobs.sightings import patiently
from lanes import selectors
from lanes.pages.access import LanePage
from lanes.pages.board import columns, read


class Quorums(LanePage):
    """`/lanes/quorums/`, newest first; `?cursor=...` further back."""

    template_name = "lanes/quorums.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The list. A cursor of another list leads to the newest."""
        cursor = self.request.GET.get("cursor") or None
        try:
            page = patiently(lambda: selectors.quorums(by=self.actor, cursor=cursor))
        except Invalid:
            page = patiently(lambda: selectors.quorums(by=self.actor))
        return super().get_context_data(page=page, further=cursor is not None, conducts=bool(self.conducted), **kwargs)


class Quorum(LanePage):
    """`/lanes/quorums/<uuid>/`: what it is, and its lanes."""

    template_name = "lanes/quorum.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The page. Raises QuorumNotFound."""
        quorum = selectors.quorum(kwargs.pop("pk"), by=self.actor)
        said = {**read(self.request), "quorum": str(quorum.pk)}
        said.pop("execution", None)
        conducts = self.conducts(quorum.workspace_id)
        return super().get_context_data(quorum=quorum, said=said, role=self.roles.get(quorum.workspace_id),
                                        conducts=conducts, quorums=[quorum],
                                        **columns(self, said, quorum), **kwargs)
