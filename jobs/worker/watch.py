"""Watches over time: attempts past their timeouts, handlers that ignore their stop, a loop that is blocked (case-A09).

A thread of its own that needs neither the loop nor the database, so that neither can keep it from looking.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from jobs import clock
from jobs.worker.results import PUBLISHED
from jobs.worker.slots import Live, Slots, facts

log = logging.getLogger("jobs.worker")
LOOK_EVERY_S = 0.05
# How long a handler may ignore its cancellation before its attempt is settled without it.
IGNORES_S = 5.0
# An isolated one whose job belongs to others by now.
LOST_S = 1.0
CALL_EVERY_S = 0.5
BLOCKED_S = 1.0


class Say(Protocol):
    """What takes the watch's events."""

    def __call__(self, event: str, level: int = 1, **facts: object) -> None:
        """Write one."""


class Watch(threading.Thread):
    """Looks at every live attempt 20 times a second."""

    def __init__(self, slots: Slots, say: Say) -> None:
        super().__init__(name="jobs-watch", daemon=True)
        self._slots, self._say = slots, say
        self._ends = threading.Event()
        self._call = clock.Every(CALL_EVERY_S)
        self._called: float | None = None
        self._blocked = False

    def ask_end(self) -> None:
        """End the thread soon."""
        self._ends.set()

    def run(self) -> None:
        """Look until asked to end."""
        while not self._ends.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception:
                log.exception("the watch over timeouts stumbled; it goes on")

    def look(self) -> None:
        """One look at everything."""
        now = clock.monotonic()
        for live in list(self._slots.live.values()):
            self._look_at(live, now)
        for live in list(self._slots.stuck.values()):
            if not live.told and now - live.verdict_at > IGNORES_S:
                live.told = True
                self._say("worker.ignores_stop", level=0, reason=live.run.stop_reason, **facts(live.job))
        self._look_at_loop(now)

    def _look_at(self, live: Live, now: float) -> None:
        if live.ended:
            return
        if live.verdict is None and live.run.until is not None and now >= live.run.until:
            over = live.run.timed_out()
            # What has committed stands, but what it does afterwards holds its attempt no longer (B33).
            verdict = PUBLISHED if live.run.settled else over
            self._slots.stop(live, over.code, verdict)
            # A thread cannot be cancelled, and a child is killed: nothing is gained by waiting.
            if (live.threaded or live.isolated) and live.verdict is verdict:
                self._slots.abandon(live, verdict)
        elif live.verdict is not None and now - live.verdict_at > self._patience_s(live):
            self._slots.abandon(live, live.verdict)

    @staticmethod
    def _patience_s(live: Live) -> float:
        lost = live.isolated and live.run.stop_reason == "claim_lost" and not live.run.settled
        return LOST_S if lost else IGNORES_S

    def _look_at_loop(self, now: float) -> None:
        if self._called is not None and self._slots.loop_seen >= self._called:
            if self._blocked:
                self._say("worker.loop_free", level=0, blocked_s=round(self._slots.loop_seen - self._called, 1))
            self._called, self._blocked = None, False
        if self._called is not None and not self._blocked and now - self._called > BLOCKED_S:
            self._blocked = True
            running = [x for x in list(self._slots.live.values()) if not (x.threaded or x.isolated)]
            self._say("worker.loop_blocked", level=0, types=sorted({x.run.definition.name for x in running})[:8],
                      note="a handler blocks the loop; make it a plain def, or await")
        if self._called is None and self._slots.live and self._call.due():
            self._called = now
            self._slots.call_loop()
