"""The last log lines of one attempt: bounded in number and size, whatever a handler writes."""

from __future__ import annotations

import threading
from collections import deque

from jobs.redaction import masked

MOST = 200
LONGEST = 2_000
MOST_CHARACTERS = 64 * 1024


class Lines:
    """Keeps the latest lines; safe to add to from any thread."""

    __slots__ = ("_guard", "_kept", "_size", "dropped", "masks")

    def __init__(self) -> None:
        self._kept: deque[str] = deque()
        self._size = 0
        self._guard = threading.RLock()
        # How many earlier lines had to go.
        self.dropped = 0
        # Secrets to leave out of what is kept: of what a child prints they may be known later.
        self.masks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, line: str) -> None:
        """Keep one line, cut to 2,000 characters; the oldest go once there are 200, or 64 Ki characters."""
        line = line[:LONGEST]
        with self._guard:
            self._kept.append(line)
            self._size += len(line)
            while len(self._kept) > MOST or self._size > MOST_CHARACTERS:
                self._size -= len(self._kept.popleft())
                self.dropped += 1

    def text(self) -> str:
        """What is kept, one line each."""
        with self._guard:
            return masked("\n".join(self._kept), self.masks)
