"""Threads for `def` handlers: as many as there are slots, started when needed, daemons.

The standard executor's threads are joined when the interpreter ends, so that one handler which ignores its end
would keep a drained worker alive for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Work = tuple[Callable[..., None], tuple[Any, ...]]


class Threads:
    """Runs work in at most `size` threads; work must not raise."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        # Threads that wait, less work that nobody has taken yet.
        self._free = 0

    def submit(self, work: Callable[..., None], *args: Any) -> None:
        """Run `work(*args)` soon. Raises RuntimeError, with nothing submitted, when no thread can be started."""
        with self._lock:
            if self._free <= 0 and self._count < self._size:
                threading.Thread(target=self._run, name=f"{self._name}-{self._count}", daemon=True).start()
                self._count += 1
            else:
                self._free -= 1
        self._queue.put((work, args))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            item[0](*item[1])
            # A waiting thread must not keep what its last work held.
            del item
            with self._lock:
                self._free += 1

    def close(self) -> None:
        """End the threads that wait, and the others after their work."""
        with self._lock:
            for _ in range(self._count):
                self._queue.put(None)
