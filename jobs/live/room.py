"""Where runners wait: claims for something to claim, heartbeats for something to hear; without a thread or connection.

Those who wait for the same stand in one line, and one look serves as many of them as it can, in the order in which they
came: one job that comes costs one claim, however many wait. Wakes are hints, and each line looks by itself now and
then. One room an event loop.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from django.db import connections

from jobs import clock
from jobs.conf import conf
from jobs.errors import JobsError
from jobs.live import bridge
from jobs.live.access import TooMany

T = TypeVar("T")
log = logging.getLogger("jobs.live")
THREADS = 4
# A look that brought nothing is not repeated sooner, however many wakes come.
REST_S = 0.1
MOST_REST_S = 5.0
TROUBLE_S = 1.0
LINGER_S = 5.0
AT_ONCE = 500
# So many lines look each second by themselves.
LOOKS_A_S = 20


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-runners")


async def asked(question: Callable[..., T], *args: Any) -> T:
    """The answer of a verb, in one of a few threads, which gives its connection back; it commits by itself."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), _asked, question, args)


def _asked(question: Callable[..., T], args: tuple[Any, ...]) -> T:
    try:
        return question(*args)
    finally:
        connections.close_all()


class Looked(NamedTuple):
    """What a look brought each of those it was for (None: wait on), and whether another one at once may bring more."""

    answers: Sequence[Any]
    more: bool


Look = Callable[[Sequence[Any]], Looked]


class Seat:
    """One that waits. `lost` gets an answer that nobody takes any more."""

    def __init__(self, item: Any, holder: str, lost: Callable[[Any], object]) -> None:
        self.item, self.holder, self.lost = item, holder, lost
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Line:
    """Those who wait for the same, the one that came first in front."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.seats: dict[Seat, None] = {}
        self.looking: asyncio.Task[None] | None = None
        self.due = True
        self.rests_until = 0.0
        self.looks_at = 0.0


class Room:
    """The lines of one event loop."""

    def __init__(self) -> None:
        self.lines: dict[Hashable, Line] = {}
        self.closed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._asked = asyncio.Event()
        self._ending: asyncio.TimerHandle | None = None
        self.looks = 0

    # --- who waits -----------------------------------------------------------------------------------------------

    async def wait(self, line: Hashable, item: Any, look: Look, *, holder: str, seconds: float, left: asyncio.Event,
                   lost: Callable[[Any], object] = lambda answer: None) -> Any:
        """The answer that a look has for this one; None where nothing came in time, it has `left`, or we close.

        Raises what the look of its line has raised as a refusal, and TooMany. What a look under way brings to one whose
        time is over is waited for; what it brings to one that has left is `lost`.
        """
        self._check(holder)
        seat = Seat(item, holder, lost)
        self._enter(line, look, seat)
        try:
            await self._first(seat.answer, seconds, left)
            if not seat.answer.done() and not left.is_set() and (task := self._task(line)) is not None:
                await asyncio.wait({task})
        finally:
            self._leave(line, seat)
        return seat.answer.result() if seat.answer.done() else None

    def _check(self, holder: str) -> None:
        seats = [seat for line in self.lines.values() for seat in line.seats]
        if sum(seat.holder == holder for seat in seats) >= conf().WAITS_PER_KEY:
            raise TooMany(f"{conf().WAITS_PER_KEY} requests of this key wait already.", retry_after_s=1)
        if len(seats) >= conf().LIVE_MOST:
            raise TooMany("This process holds as many requests as it may.", retry_after_s=1)

    async def _first(self, answer: asyncio.Future[Any], seconds: float, left: asyncio.Event) -> None:
        events = [asyncio.ensure_future(event.wait()) for event in (left, self.closed)]
        try:
            await asyncio.wait({answer, *events}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()

    def _task(self, name: Hashable) -> asyncio.Task[None] | None:
        line = self.lines.get(name)
        return None if line is None else line.looking

    def _enter(self, name: Hashable, look: Look, seat: Seat) -> None:
        line = self.lines.setdefault(name, Line(look))
        line.seats[seat] = None
        # What came between its own look and now.
        line.due = True
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if not self._tasks:
            self._tasks = [asyncio.create_task(bridge.wakes(self.wake)), asyncio.create_task(self._run())]
        self._asked.set()

    def _leave(self, name: Hashable, seat: Seat) -> None:
        line = self.lines.get(name)
        if line is not None:
            line.seats.pop(seat, None)
            if not line.seats and line.looking is None:
                del self.lines[name]
        if not self.lines and self._tasks and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(LINGER_S, self.stop)

    def stop(self) -> None:
        """Hear no more."""
        for task in self._tasks:
            task.cancel()
        self._tasks, self._ending = [], None

    # --- who looks -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something for somebody."""
        for line in self.lines.values():
            line.due = True
        self._asked.set()

    async def _run(self) -> None:
        while True:
            pause = self._begin()
            try:
                await asyncio.wait_for(self._asked.wait(), pause)
            except TimeoutError:
                continue
            self._asked.clear()

    def _begin(self) -> float:
        """Begin the looks that are due; how long until the next one is."""
        now, soon = clock.monotonic(), TROUBLE_S
        for line in self.lines.values():
            if line.looking is not None or not line.seats:
                continue
            at = line.rests_until if line.due else max(line.looks_at, line.rests_until)
            if at <= now:
                line.looking = asyncio.create_task(self._look(line))
            else:
                soon = min(soon, at - now)
        return max(0.001, soon)

    async def _look(self, line: Line) -> None:
        rest = REST_S
        try:
            more = True
            while more and line.seats:
                line.due = False
                more, took = await self._served(line)
                # A dear look, as for a few types among many others, must not be all that the database does.
                rest = max(REST_S, min(MOST_REST_S, took))
        except JobsError as error:
            for seat in list(line.seats):
                _answer(seat, error)
        except Exception as error:
            # They wait on: a database that is away for a moment is no answer to anybody.
            log.warning("nothing could be looked up for those who wait: %s", error)
            rest = TROUBLE_S
        finally:
            now = clock.monotonic()
            line.looking = None
            line.rests_until = now + rest
            line.looks_at = now + max(conf().POLL_S, len(self.lines) / LOOKS_A_S)
            for name in [name for name, kept in self.lines.items() if not kept.seats and kept.looking is None]:
                del self.lines[name]
            self._asked.set()

    async def _served(self, line: Line) -> tuple[bool, float]:
        """One look for those in front; whether another one may bring more, and how long it took, once begun."""
        seats = list(line.seats)[:AT_ONCE]
        self.looks += 1
        looked, took = await asked(_timed, line.look, [seat.item for seat in seats])
        found = [(seat, answer) for seat, answer in zip(seats, looked.answers, strict=True) if answer is not None]
        gone = [(seat, answer) for seat, answer in found if seat not in line.seats]
        # Everybody who is here first: what is done for those who have left may fail.
        for seat, answer in found:
            if seat in line.seats:
                line.seats.pop(seat)
                _answer(seat, answer)
        for seat, answer in gone:
            await asked(seat.lost, answer)
        return looked.more, took

    def close(self) -> None:
        """Let everybody go, with what there is to say."""
        self.closed.set()


def _timed(look: Look, items: Sequence[Any]) -> tuple[Looked, float]:
    """A look and the time that it took, without that for which it waited for a thread."""
    began = clock.monotonic()
    return look(items), clock.monotonic() - began


def _answer(seat: Seat, answer: Any) -> None:
    if seat.answer.done():
        return
    if isinstance(answer, Exception):
        seat.answer.set_exception(answer)
    else:
        seat.answer.set_result(answer)


_rooms: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Room] = weakref.WeakKeyDictionary()


def room() -> Room:
    """The room of the running loop."""
    return _rooms.setdefault(asyncio.get_running_loop(), Room())


def close_all() -> None:
    """This process ends: nobody waits here any more, also of those whose request is not that far yet.

    In the thread of the loop.
    """
    with suppress(RuntimeError):
        room()
    for one in list(_rooms.values()):
        one.close()
