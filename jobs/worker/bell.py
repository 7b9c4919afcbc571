"""Wakes one waiting thread. Ringing is safe in a signal handler, which threading.Event is not.

An Event's lock is held for a moment by whoever clears it; a handler that runs in that moment, in the same thread,
would wait for itself.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Bell:
    """Rung by anyone, waited for by one."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """End the wait that is on, or the next one."""
        if self._queue.empty():
            self._queue.put(None)

    def wait(self, seconds: float) -> None:
        """Until rung, or until so many seconds have passed."""
        try:
            self._queue.get(timeout=max(0.0, seconds))
            while True:
                self._queue.get_nowait()
        except Empty:
            pass
