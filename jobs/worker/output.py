"""What a worker says: lines for people on a terminal, one JSON object a line elsewhere (A64)."""

from __future__ import annotations

import os
import select
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from jobs import clock
from jobs.logs import is_terminal, line_of

MOST_LINES = 5_000
# Lines of one write.
TOGETHER = 100
LAST_S = 1.0


class Silent:
    """Says nothing."""

    level = 0

    def __call__(self, event: str, level: int = 1, **facts: Any) -> None:
        """Say nothing."""

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Write nothing."""


class Output:
    """Writes events; `level` 0 only trouble, 1 the usual, 2 every job.

    Nobody who says something ever waits for whoever reads it: a reader that stands still would stop claims and
    heartbeats. Lines for it are kept, a few thousand of them; then they are lost, and counted.
    """

    def __init__(self, stream: TextIO | None = None, *, as_json: bool | None = None, level: int = 1) -> None:
        self.stream: TextIO | None = stream or sys.stdout
        self.as_json = as_json if as_json is not None else not is_terminal(self.stream)
        self.level = level
        # Again by its own thread: what the collector ends in the middle of a line may have something to log.
        self._lock = threading.RLock()
        self._writer = _writer(self.stream, self._line)

    def __call__(self, event: str, level: int = 1, **facts: Any) -> None:
        """Write one event with a stable name."""
        if level <= self.level:
            self.write(event, {name: value for name, value in facts.items() if value is not None})

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Write one event, whatever its level."""
        if self.stream is None:
            return
        line = self._line(event, facts)
        if self._writer is not None:
            self._writer.write(line)
            return
        with self._lock, suppress(ValueError):  # it has been closed
            self.stream.write(line)

    def _line(self, event: str, facts: dict[str, Any]) -> str:
        return line_of(clock.wall(), event, facts, as_json=self.as_json) + "\n"

    def close(self) -> None:
        """Give what was said a second to be read; what nobody reads then is lost."""
        if self._writer is not None:
            self._writer.finish(LAST_S)


class _Writer:
    """Writes lines to a descriptor from a thread of its own, which is the only one that waits for the reader.

    Past Python's own buffer, whose lock a blocked writer would hold against the end of the process.
    """

    def __init__(self, fd: int, encoding: str, line: Callable[[str, dict[str, Any]], str]) -> None:
        self._fd, self._encoding, self._line = fd, encoding, line
        self._lines: deque[str] = deque()
        self._change = threading.Condition()
        self._lost = 0
        self._writing = self._gone = False
        self._thread: threading.Thread | None = None
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forked(mine()))

    def begin_anew(self) -> None:
        """In a process that a handler has forked: what was not written yet is the worker's to write."""
        self._change = threading.Condition()
        self._lines.clear()
        self._lost, self._writing, self._thread = 0, False, None

    def write(self, line: str) -> None:
        """Take a line; never waits. Where no thread can be had, the lines wait for one."""
        with self._change:
            if len(self._lines) >= MOST_LINES or self._gone:
                self._lost += 1
                return
            self._lines.append(line)
            self._change.notify_all()
            # The first line starts it; and a fork has no threads but its own.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="jobs-output", daemon=True)
                with suppress(RuntimeError):
                    self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait until everything is written, at most so long."""
        with self._change:
            self._change.wait_for(lambda: not self._lines and not self._writing, seconds)

    def _run(self) -> None:
        while True:
            with self._change:
                self._writing = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._lines)
                self._writing = True
            self._put("".join(self._take()))

    def _take(self) -> list[str]:
        with self._change:
            taken = [self._lines.popleft() for _ in range(min(len(self._lines), TOGETHER))]
            if self._lost and not self._lines:
                taken.append(self._line("worker.lines_lost", {"lines": self._lost}))
                self._lost = 0
            return taken

    def _put(self, said: str) -> None:
        left = said.encode(self._encoding, "backslashreplace")
        while left:
            try:
                left = left[os.write(self._fd, left):]
            except BlockingIOError:
                # Somebody made it non-blocking.
                select.select([], [self._fd], [], LAST_S)
            except OSError:
                self._to_nowhere()
                return

    def _to_nowhere(self) -> None:
        """Nobody reads us any more; that is no reason to stop working, nor for what handlers print to fail."""
        self._gone = True
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._fd)
            os.close(nowhere)


def _forked(writer: _Writer | None) -> None:
    if writer is not None:
        writer.begin_anew()


def _writer(stream: TextIO | None, line: Callable[[str, dict[str, Any]], str]) -> _Writer | None:
    """A writer for what has a descriptor; a text in memory waits for nobody."""
    try:
        if stream is None:
            return None
        stream.flush()
        return _Writer(stream.fileno(), stream.encoding or "utf-8", line)
    except (OSError, ValueError, AttributeError):
        return None
