"""How far a long command is: a bar on a terminal, a plain line now and then elsewhere, always on stderr."""

from __future__ import annotations

import shutil
from typing import Any

from jobs import clock

REDRAWN_S = 0.2
SAID_S = 10.0
MOST_COLUMNS = 100


class Progress:
    """Draws `done` of `total`; what else is written meanwhile goes between `clear` and the next `tell`."""

    def __init__(self, stream: Any, total: int, *, draws: bool) -> None:
        self._stream, self._total, self._draws = stream, total, draws
        self._every = clock.Every(REDRAWN_S if draws else SAID_S, first_after_s=0.0 if draws else SAID_S)
        self._begun = clock.monotonic()
        self._drawn = 0

    def tell(self, done: int, words: str) -> None:
        """So many are done; `words` stand behind the count."""
        if not self._every.due():
            return
        # Jobs that were made meanwhile are looked at too.
        total = max(self._total, done)
        line = f"{done:,} of {total:,} jobs, {words}{self._left(done, total)}"
        if not self._draws:
            self._stream.write(line + "\n")
            return
        columns = min(MOST_COLUMNS, shutil.get_terminal_size().columns - 1)
        width = max(0, min(30, columns - len(line) - 3))
        full = width * done // total if total else width
        bar = f"[{'#' * full}{'.' * (width - full)}] " if width >= 10 else ""
        self._write(f"{bar}{line}"[:columns])

    def clear(self) -> None:
        """Take the bar away."""
        if self._drawn:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _left(self, done: int, total: int) -> str:
        spent = clock.monotonic() - self._begun
        if not done or spent < 1:
            return ""
        return f", {round(spent * (total - done) / done):,} s left"

    def _write(self, line: str) -> None:
        # What is shorter than before leaves nothing of it behind.
        self._stream.write("\r" + line.ljust(self._drawn))
        self._stream.flush()
        self._drawn = len(line)
