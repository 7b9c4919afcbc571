"""What reaches whoever looks at lanes: changes of lanes, and of jobs that belong to lanes; a hint each, and no content.

Lanes' own news come on a channel of their own. Those of jobs come by the followers that jobs have: one of them hears of
all jobs, and which lanes those belong to is asked once for everybody. Frames say nothing but "read again" (`resync`),
to those alone who may see the lane; who hears one reads the page, which asks anew what they may see. One watch an event
loop, at work while somebody looks.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import Error

from jobs import clock
from jobs.live import Follower, access, bridge, hub
from jobs.live.follower import SITE
from lanes import news, sightings
from lanes.news import News

log = logging.getLogger("lanes.live")
# A page that is loaded again need not begin everything anew.
LINGER_S = 5.0
_NEVER_S = 1e6


class Looking(NamedTuple):
    """What somebody looks at: the lanes of these workspaces; or one lane of a quorum, with those that it waits for."""

    workspaces: frozenset[int]
    quorum: uuid.UUID | None = None
    lane: uuid.UUID | None = None

    def concerns(self, one: News, *, job: bool = False) -> bool:
        """Whether their page shows what has changed. Of another lane it shows where that stands, and not its jobs."""
        near = self.lane in (None, one.lane_id) if job else self.quorum in (None, one.quorum_id)
        return near and one.workspace_id in self.workspaces


class Reader(Follower):
    """The mailbox of one page of lanes. It knows no numbers, so that it reads again now and then whatever it heard."""

    rereads = True


class Watch:
    """The readers of one event loop."""

    def __init__(self) -> None:
        self.readers: dict[Follower, Looking] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._jobs: Follower | None = None
        self._ending: asyncio.TimerHandle | None = None

    def join(self, reader: Follower, looking: Looking) -> None:
        """From now on it is told."""
        self.readers[reader] = looking
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if not self._tasks:
            self._begin()

    def leave(self, reader: Follower) -> None:
        """It has gone. Waits for nothing."""
        if self.readers.pop(reader, None) is not None and not self.readers:
            self._ending = asyncio.get_running_loop().call_later(LINGER_S, self._end)

    def hear(self, payload: str) -> None:
        """One notification of lanes."""
        # Anybody with a login to the database may say anything on the channel.
        if (found := news.parse(payload)) is not None:
            self._tell([found])

    def _begin(self) -> None:
        # It is nobody's connection: the hub asks nothing of it, counts it for nobody, and it need not be kept open.
        self._jobs = Follower(_NEVER_S)
        self._jobs.stream, self._jobs.ready = SITE, True
        hub().followers.add(self._jobs)
        self._tasks = [asyncio.create_task(bridge.listen_to(news.CHANNEL, self.hear, self._everybody)),
                       asyncio.create_task(self._follow(self._jobs))]

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        if self._jobs is not None:
            hub().followers.discard(self._jobs)
            self._jobs = None

    async def _follow(self, jobs: Follower) -> None:
        async for frame in jobs.frames():
            if frame["type"] == "jobs":
                await self._look([one["job"] for one in frame["jobs"]])
            elif frame["type"] == "resync":
                self._everybody()

    async def _look(self, job_ids: list[str]) -> None:
        try:
            self._tell(await access.asked(sightings.belonging, job_ids), job=True)
        except (Error, OSError) as error:
            # Nobody knows now whom it concerns: everybody reads.
            log.warning("lanes of jobs could not be looked up for now: %s", error)
            await clock.pause(1.0)
            self._everybody()

    def _tell(self, found: Sequence[News], *, job: bool = False) -> None:
        for reader, looking in self.readers.items():
            if any(looking.concerns(one, job=job) for one in found):
                reader.resync()

    def _everybody(self) -> None:
        for reader in self.readers:
            reader.resync()


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = weakref.WeakKeyDictionary()


def watch() -> Watch:
    """The watch of the running loop."""
    return _watches.setdefault(asyncio.get_running_loop(), Watch())
