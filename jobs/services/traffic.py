"""The rollup of what happened by minute: this process's counts, flushed every few seconds from a thread of its own.

These are statistics: a killed process loses the seconds since its last flush, a COMMIT whose answer is lost may count
a flush twice, and what is flushed just after a minute's end stands in the next one. Nothing decides by them.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from django.db import connections, transaction

from jobs import clock, publish
from jobs.meters import Pair, Vector, here
from jobs.store import traffic
from jobs.store.sql import ALIAS, run

log = logging.getLogger("jobs.traffic")
FLUSH_S = 2.0
AFTER_FAILURE_S = 5.0
# For one flush; for the last one of a process that ends.
PATIENCE_MS = 2_000
LAST_S = 2.0
KEPT_DAYS = 8
MINUTES = 60


class Flusher:
    """Adds to the rollup what was counted since the last time. It begins with the first count and never raises."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new, without a thread: a forked process begins its own."""
        self._begins, self._flushes = threading.Lock(), threading.Lock()
        self._asked, self._hurries = threading.Event(), threading.Event()
        self._flushed: dict[Pair, Vector] = {}
        self._database = ""
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Something was counted: flush it soon. Safe and cheap after every commit."""
        if self._thread is None:
            self._begin()
        self._asked.set()

    def _begin(self) -> None:
        with self._begins:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jobs-traffic", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._hurries.wait(FLUSH_S)
            try:
                try:
                    self.flush()
                finally:
                    publish.give_back()
            except Exception:
                # Kept, and tried again: this thread must go on, or the process would be silent from here on.
                log.debug("counts could not be flushed and are kept", exc_info=True)
                self._asked.set()
                clock.sleep(AFTER_FAILURE_S)

    def flush(self) -> None:
        """Add what was counted since the last flush, in one short transaction. Raises what the database raises."""
        with self._flushes:
            self._asked.clear()
            database = str(connections[ALIAS].settings_dict["NAME"])
            if database != self._database:
                # Tests go from one database to another.
                self._database, self._flushed = database, {}
            now = {pair: vector for (name, pair), vector in here.totals().items() if name == database}
            fresh = {pair: _less(vector, self._flushed.get(pair)) for pair, vector in now.items()
                     if vector != self._flushed.get(pair)}
            if fresh:
                with transaction.atomic(using=ALIAS):
                    run(f"SET LOCAL lock_timeout = {PATIENCE_MS}")
                    run(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
                    traffic.add(fresh)
                self._flushed.update(now)

    def end(self, seconds: float = LAST_S) -> None:
        """Wait for the last flush, for so long at most: the process ends."""
        if self._thread is None:
            return
        self._hurries.set()
        until = clock.monotonic() + seconds
        while (self._asked.is_set() or self._flushes.locked()) and clock.monotonic() < until:
            clock.sleep(0.01)
        self._hurries.clear()


def _less(vector: Vector, before: Vector | None) -> Vector:
    return vector if before is None else [a - b for a, b in zip(vector, before, strict=True)]


flusher = Flusher()


def begin() -> None:
    """Count what this process moves, and flush it, also at the end of the process."""
    here.on_note = flusher.ask
    atexit.register(flusher.end)
    os.register_at_fork(after_in_child=flusher.reset)


def forget(limit: int) -> bool:
    """Erase minutes older than 8 days, at most so many rows; true while there may be more."""
    return traffic.forget(KEPT_DAYS, limit) >= limit
