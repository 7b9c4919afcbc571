"""Who follows what in this process: hears of news, looks it up once for everybody, and tells each follower its own.

One hub an event loop. It listens from the first follower on and until a while after the last; followed jobs are read
again every few seconds whatever was heard, so a lost notification costs no more than that.
"""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable

from django.db import OperationalError

from jobs import clock, selectors
from jobs.conf import conf
from jobs.live import access, bridge
from jobs.live.access import Grant, TooMany
from jobs.live.follower import SITE, Follower
from jobs.publish import EVERYBODY
from jobs.routing import SYSTEM
from jobs.selectors import Seen

log = logging.getLogger("jobs.live")
REREAD_S = 5.0
PLACES_S = 1.0
PLACES_AT_ONCE = 50
JOBS_AT_ONCE = 1_000
MOST_HEARD = 10_000
LINGER_S = 5.0
LISTENING_S = 2.0
# Looking things up is for all news of this while at once.
GATHER_S = 0.05


# Anybody with a login to the database may say anything on the channel.
_NEWS = re.compile(r"[0-9a-f]{32}:[0-9]{1,9}")


class Hub:
    """The followers of one event loop."""

    def __init__(self) -> None:
        self.followers: set[Follower] = set()
        self._connections = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.TimerHandle | None = None
        self._listening = asyncio.Event()
        self._asked = asyncio.Event()
        self._heard: dict[str, int] = {}
        self._look: set[str] = set()
        self._tenants: set[int] = set()
        self._everything = False
        self._queued: dict[str, None] = {}

    # --- followers come and go -----------------------------------------------------------------------------------

    def open(self) -> None:
        """One connection more, of nobody yet. Raises TooMany."""
        if self._connections >= conf().LIVE_MOST:
            raise TooMany("This process holds as many connections as it may.")
        self._connections += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if not self._tasks:
            self._tasks = [asyncio.create_task(bridge.listen(self.hear, self._connected)),
                           asyncio.create_task(self._run(self._news, GATHER_S, self._asked)),
                           asyncio.create_task(self._run(self._reread, REREAD_S)),
                           asyncio.create_task(self._run(self._places, PLACES_S)),
                           asyncio.create_task(self._run(self._check, conf().LIVE_CHECK_S))]

    async def join(self, follower: Follower, grant: Grant) -> None:
        """From now on it hears; once this process does, or after a moment. Raises TooMany."""
        theirs = sum(1 for other in self.followers if other.grant is not None and other.grant.holder == grant.holder)
        if theirs >= conf().LIVE_PER_HOLDER:
            raise TooMany(f"{theirs} connections of yours are open already.")
        follower.grant = grant
        self.followers.add(follower)
        if not self._listening.is_set():
            try:
                await asyncio.wait_for(self._listening.wait(), LISTENING_S)
            except TimeoutError:
                log.debug("a follower begins while nothing can be heard")

    def close(self, follower: Follower) -> None:
        """One connection less. Waits for nothing."""
        self.followers.discard(follower)
        self._connections -= 1
        if self._connections == 0:
            self._ending = asyncio.get_running_loop().call_later(LINGER_S, self.stop)

    def stop(self) -> None:
        """Hear no more."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._listening.clear()

    # --- news come -----------------------------------------------------------------------------------------------

    def hear(self, payload: str) -> None:
        """One notification, as `publish` words it."""
        words = payload.split(" ")
        if words[0] == EVERYBODY:
            self._everything = True
            whose = [int(word) for word in words[1:] if word.isdecimal()]
            for follower in self._streams():
                if not whose or follower.stream in (SITE, *whose):
                    follower.resync()
            self._asked.set()
            return
        for word in words:
            if _NEWS.fullmatch(word):
                id_, _, number = word.partition(":")
                id_ = f"{id_[:8]}-{id_[8:12]}-{id_[12:16]}-{id_[16:20]}-{id_[20:]}"
                # Of two processes the one that wrote first may be heard last.
                self._heard[id_] = max(int(number), self._heard.get(id_, 0))
        if len(self._heard) > MOST_HEARD:
            self._heard.clear()
            self._resync()
        self._asked.set()

    def look(self, job_id: str) -> None:
        """This job is watched from now on: what came between reading it and watching it must not be missed."""
        self._look.add(job_id)
        self._asked.set()

    def _connected(self) -> None:
        self._listening.set()
        self._resync()

    def _resync(self) -> None:
        for follower in self.followers:
            if follower.ready:
                follower.resync()
        self._everything = True
        self._asked.set()

    def _streams(self) -> list[Follower]:
        return [follower for follower in self.followers if follower.ready and follower.stream is not None]

    # --- and are told --------------------------------------------------------------------------------------------

    async def _run(self, duty: Callable[[], Awaitable[None]], every_s: float,
                   asked: asyncio.Event | None = None) -> None:
        while True:
            if asked is not None:
                await asked.wait()
                asked.clear()
            await clock.pause(every_s)
            try:
                await duty()
            except Exception as error:
                log.warning("followers could not be told for now: %s", error)
                await clock.pause(1.0)
                # What was heard is lost: everything is looked at instead.
                self._resync()

    async def _news(self) -> None:
        heard, self._heard = self._heard, {}
        looked, self._look = self._look, set()
        everything, self._everything = self._everything, False
        watched = self._watched()
        wanted = set(watched) if everything else {id_ for id_ in (*heard, *looked) if id_ in watched}
        tenants = {follower.stream for follower in self._streams()} - {SITE}
        for follower in self._streams():
            if follower.stream == SITE:
                for id_, number in heard.items():
                    follower.invalidate(id_, number)
        seen = await self._read(wanted | set(heard) if tenants else wanted)
        self._tell(wanted, seen, watched)
        for found in seen.values():
            # The house's own jobs are nobody's.
            if found.id in heard and found.tenant_id in tenants and found.worker_group != SYSTEM:
                for follower in self._streams():
                    if follower.stream == found.tenant_id:
                        follower.invalidate(found.id, max(found.number, heard[found.id]))

    async def _reread(self) -> None:
        watched = self._watched()
        self._tell(set(watched), await self._read(watched), watched)

    async def _read(self, wanted: Iterable[str]) -> dict[str, Seen]:
        left: list[str] = list(wanted)
        found: dict[str, Seen] = {}
        while left:
            found |= await access.asked(selectors.seen, left[:JOBS_AT_ONCE])
            del left[:JOBS_AT_ONCE]
        return found

    def _watched(self) -> dict[str, list[Follower]]:
        watched: dict[str, list[Follower]] = {}
        for follower in self.followers:
            for id_ in follower.jobs:
                watched.setdefault(id_, []).append(follower)
        return watched

    def _tell(self, wanted: Collection[str], seen: dict[str, Seen], watched: dict[str, list[Follower]]) -> None:
        for id_ in wanted:
            found = seen.get(id_)
            for follower in watched[id_]:
                if id_ not in follower.jobs:
                    continue
                if found is None:
                    follower.gone(id_)
                else:
                    follower.moved(found)
            if found is not None and found.state == "queued":
                self._queued.setdefault(id_)
            else:
                self._queued.pop(id_, None)

    async def _places(self) -> None:
        watched = self._watched()
        self._queued = {id_: None for id_ in self._queued if id_ in watched}
        turn = list(self._queued)[:PLACES_AT_ONCE]
        if not turn:
            return
        # Those that were looked at go to the end.
        for id_ in turn:
            del self._queued[id_]
            self._queued[id_] = None
        try:
            found = await access.asked(selectors.positions, turn)
        except OperationalError as error:
            # Where a job stands is told when it can be found out; it is nothing that anybody could have missed.
            log.debug("positions could not be looked up for now: %s", error)
            return
        for id_, stands in found.items():
            for follower in watched[id_]:
                if id_ in follower.jobs:
                    follower.placed(id_, stands)

    async def _check(self) -> None:
        grants = {follower.grant for follower in self.followers if follower.grant is not None}
        over = await access.asked(access.ended, grants) if grants else {}
        for follower in list(self.followers):
            if follower.grant in over:
                follower.end(over[follower.grant])


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


def hub() -> Hub:
    """The hub of the running loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), Hub())

