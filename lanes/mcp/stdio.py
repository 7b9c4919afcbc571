"""The tools on standard input and output, for a client that starts us as its child: one line of JSON a message.

Nothing but the protocol goes to standard output; logs go to standard error. We end when the input does, or when told to
by SIGTERM or SIGINT: a call that is on its way is done to its end, and a claim whose answer nobody can read any more is
given back. What was answered stays held by the key, for whoever comes next with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from mcp.server.stdio import stdio_server

from jobs.api.parsing import limit
from lanes.mcp import server
from lanes.mcp.calls import Call, counted

# Longer lines than so many times the longest arguments are no messages.
ROOM: Final = 16
CHUNK: Final = 64 * 1024
# Lines that are read before they are served, and answers that nobody has read yet; a client that only talks waits.
AHEAD: Final = 8
# How long a call may take to end once we were asked to; a client that does not read would keep us for ever.
GRACE_S: Final = 10.0

log = logging.getLogger("jobs.mcp")


def serve(secret: str) -> None:
    """Serve with this key until the input ends or a signal comes."""
    asyncio.run(_served(secret))


async def _served(secret: str) -> None:
    lines = Lines(_last_call)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, lines)
    tools = server.make(lambda context: Call(partial(counted, secret)))
    try:
        async with stdio_server(stdin=lines) as (said, answers):  # type: ignore[arg-type]
            await tools.run(said, Answers(answers, lines), tools.create_initialization_options())  # type: ignore[arg-type]
    except* (BrokenPipeError, ConnectionResetError):
        log.info("the client is gone")


def _stop(lines: Lines) -> None:
    lines.end()
    _last_call()


def _last_call() -> None:
    asyncio.get_running_loop().call_later(GRACE_S, os._exit, 1)


class Lines:
    """Standard input, line by line. Read by a thread that nobody has to wait for: a read cannot be given up."""

    def __init__(self, at_end: Callable[[], None] = lambda: None) -> None:
        self._at_end = at_end
        self._unread = 0
        self._taken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._ended = False
        threading.Thread(target=self._read, args=(sys.stdin.fileno(),), name="jobs-mcp-stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        """The lines until the end."""
        while (line := await self._lines.get()) is not None and not self._ended:
            yield line
            while self._unread > AHEAD and not self._ended:
                self._taken.clear()
                await self._taken.wait()
            self._room.release()
        self._at_end()

    def end(self) -> None:
        """Read no more, whatever is still said."""
        self._ended = True
        self._taken.set()
        self._lines.put_nowait(None)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """An answer is on its way to a client that may read it or not."""
        self._unread += 1
        try:
            yield
        finally:
            self._unread -= 1
            self._taken.set()

    def _read(self, number: int) -> None:
        # The loop may be gone before the input is.
        with suppress(RuntimeError):
            for line in _lines(number, ROOM * limit()):
                self._tell(line.decode("utf-8", "replace"))
            self._tell(None)

    def _tell(self, line: str | None) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


class Answers:
    """The stream of answers, counted until the client has room for them."""

    def __init__(self, stream: Any, lines: Lines) -> None:
        self._stream, self._lines = stream, lines

    async def send(self, answer: Any) -> None:
        """Send it, once there is room."""
        with self._lines.answering():
            await self._stream.send(answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()


def _lines(number: int, most: int) -> Iterator[bytes]:
    """The lines until the end of the input, or until one of more bytes."""
    rest = b""
    while chunk := _chunk(number):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if len(line) > most:
                break
            yield line
        if max(map(len, (*whole, rest))) > most:
            log.error("a line of more than %d bytes is no message: that is the end", most)
            return


def _chunk(number: int) -> bytes:
    try:
        return os.read(number, CHUNK)
    except OSError:
        return b""
