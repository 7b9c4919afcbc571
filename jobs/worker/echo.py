"""What children print, on the worker's stderr: by a thread of its own, since whoever reads that may have stopped."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from queue import Full, Queue

MOST_LINES = 1_000


class Echo(threading.Thread):
    """Writes lines; those that nobody takes in time are dropped and counted."""

    def __init__(self) -> None:
        super().__init__(name="jobs-echo", daemon=True)
        self._lines: Queue[str | None] = Queue(MOST_LINES)
        self._dropped = 0

    def say(self, line: str) -> None:
        """Write one line soon; never waits."""
        try:
            if self._dropped:
                self._lines.put_nowait(f"({self._dropped} lines of isolated handlers were dropped)")
                self._dropped = 0
            self._lines.put_nowait(line)
        except Full:
            self._dropped += 1

    def ask_end(self) -> None:
        """End after what was said before."""
        with suppress(Full):
            self._lines.put_nowait(None)

    def run(self) -> None:
        """Write until asked to end."""
        while (line := self._lines.get()) is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
