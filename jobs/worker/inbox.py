"""Commands as a handler reads them: each unread one once an attempt, and waiting for the next (A6, E8).

A handler that never asks has no inbox. The worker rings when it has heard that something is unread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from asgiref.sync import sync_to_async

from jobs import clock
from jobs.services import commands
from jobs.services.commands import Command


class Inbox:
    """What one attempt has been handed out, and what wakes whoever waits for more."""

    def __init__(self, job_id: str, fence: str, is_stopping: Callable[[], bool]) -> None:
        self._job_id, self._fence, self._is_stopping = job_id, fence, is_stopping
        self._guard = threading.Condition()
        self._handed: set[str] = set()
        # Counted, so that of several threads which wait none takes another's ring.
        self._rings = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def ring(self) -> None:
        """There may be something to read, or the attempt should stop. From any thread."""
        with self._guard:
            self._rings += 1
            self._guard.notify_all()
            waiting = list(self._waiting)
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # the loop has been closed
                continue

    def read(self) -> list[Command]:
        """The unread commands that this attempt has not been handed out yet, the oldest first."""
        return self._fresh(self._unread())

    def _unread(self) -> list[Command]:
        return commands.unread([self._job_id], fence=self._fence).get(self._job_id, [])

    def _fresh(self, found: list[Command]) -> list[Command]:
        with self._guard:
            fresh = [command for command in found if command.id not in self._handed]
            self._handed.update(command.id for command in fresh)
        return fresh

    def wait(self, seconds: float) -> list[Command]:
        """The same, once there is one: at most so long, and no longer than until the attempt should stop."""
        until = clock.monotonic() + seconds
        while True:
            # Before the look: what comes after it rings again.
            seen = self._rings
            left = until - clock.monotonic()
            if (fresh := self.read()) or left <= 0 or self._is_stopping():
                return fresh
            with self._guard:
                self._guard.wait_for(lambda seen=seen: self._rings != seen, left)  # type: ignore[misc]

    async def wait_async(self, seconds: float) -> list[Command]:
        """The same on a loop, which it does not block."""
        until = clock.monotonic() + seconds
        here = asyncio.get_running_loop(), asyncio.Event()
        with self._guard:
            self._waiting.append(here)
        try:
            while True:
                here[1].clear()
                left = until - clock.monotonic()
                # Handed out here and not in the thread: who is cancelled meanwhile has got none of them.
                found = await sync_to_async(self._unread)()
                if (fresh := self._fresh(found)) or left <= 0 or self._is_stopping():
                    return fresh
                try:
                    await asyncio.wait_for(here[1].wait(), left)
                except TimeoutError:
                    continue
        finally:
            with self._guard:
                self._waiting.remove(here)
