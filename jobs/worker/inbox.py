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
        self._guard = threading.Lock()
        self._handed: set[str] = set()
        self._rung = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def ring(self) -> None:
        """There may be something to read, or the attempt should stop. From any thread."""
        self._rung.set()
        with self._guard:
            waiting = list(self._waiting)
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # the loop has been closed
                continue

    def read(self) -> list[Command]:
        """The unread commands that this attempt has not been handed out yet, the oldest first."""
        found = commands.unread([self._job_id], fence=self._fence).get(self._job_id, [])
        with self._guard:
            fresh = [command for command in found if command.id not in self._handed]
            self._handed.update(command.id for command in fresh)
        return fresh

    def wait(self, seconds: float) -> list[Command]:
        """The same, once there is one: at most so long, and no longer than until the attempt should stop."""
        until = clock.monotonic() + seconds
        while True:
            # Before the look: what comes after it rings again.
            self._rung.clear()
            left = until - clock.monotonic()
            fresh, stopping = self.read(), self._is_stopping()
            if stopping:
                # For whoever else of this handler waits: the bell may have been cleared here before it was heard there.
                self._rung.set()
            if fresh or left <= 0 or stopping:
                return fresh
            self._rung.wait(left)

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
                if (fresh := await sync_to_async(self.read)()) or left <= 0 or self._is_stopping():
                    return fresh
                try:
                    await asyncio.wait_for(here[1].wait(), left)
                except TimeoutError:
                    continue
        finally:
            with self._guard:
                self._waiting.remove(here)
