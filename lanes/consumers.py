"""Websockets of lanes' pages: `/live/lanes/` for all that somebody may see, `/live/lanes/<uuid>/` for one lane.

By the session's cookie from our own pages alone, as jobs' are; what is beyond the routes here is theirs.
"""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from django.conf import settings
from django.urls import re_path

from jobs import consumers
from jobs.conf import conf
from jobs.consumers import Message, Socket, for_people, route
from jobs.errors import Invalid, JobsError
from jobs.live import access
from jobs.live.access import Guest, NotAllowed, Unauthenticated
from jobs.live.follower import refusal
from jobs.live.hub import hub
from lanes import actors, selectors, sightings
from lanes.live import Looking, Reader, watch


class Watching(Socket):
    """A page of lanes, in a browser that is signed in."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.follower = Reader(conf().LIVE_PING_S)

    async def _serve(self) -> None:
        try:
            await super()._serve()
        finally:
            watch().leave(self.follower)

    async def _open(self) -> None:
        cookie = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME)
        grant, looking = await access.asked(guest, cookie, self.scope["url_route"]["kwargs"].get("pk"))
        await hub().join(self.follower, grant)
        watch().join(self.follower, looking)
        self.follower.answer({"type": "init"})
        self.follower.ready = True
        # Between the page and this moment something may have happened, and no number says whether.
        self.follower.resync()

    async def _answer(self, message: Message) -> None:
        self.follower.answer(refusal(Invalid("There is no such message here.", code="unknown_message")))


def guest(session_key: str | None, lane_id: Any) -> tuple[Guest, Looking]:
    """Who this is and what they may look at. Raises Unauthenticated, NotAllowed without a grant, and NotFound."""
    user = access.signed_in(session_key)
    if user is None or session_key is None:
        raise Unauthenticated()
    mine = sightings.workspaces(user.pk)
    if not mine:
        raise NotAllowed("You are a member of no workspace.")
    quorum_id = None if lane_id is None else selectors.lane(lane_id, by=actors.of_user(user)).quorum_id
    return Guest(str(user.pk), session_key, _Over(mine)), Looking(mine, quorum_id, lane_id)


class _Over:
    """Whether somebody's workspaces are others by now: without any it is over, else the client comes back."""

    def __init__(self, mine: frozenset[int]) -> None:
        self._mine = mine

    def __call__(self, user: Any) -> JobsError | None:
        now = sightings.workspaces(user.pk)
        if not now:
            return NotAllowed("You are a member of no workspace.")
        return None if now == self._mine else JobsError("What you may see has changed.", code="unavailable")


_people = for_people([
    route("live/lanes/", Watching.serve),
    route("live/lanes/<uuid:pk>/", Watching.serve),
])
websockets = URLRouter([
    re_path("^(?=live/lanes/)", _people),
    re_path("^", consumers.websockets),
])
