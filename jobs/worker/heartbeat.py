"""Heartbeats of all attempts of a worker, from a thread and connection of their own, and what they bring back."""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterable

from jobs import clock, failpoints
from jobs.errors import StaleFence
from jobs.leases import heartbeat_s
from jobs.outcomes import Interrupted, Stopped
from jobs.services import assignments, workers
from jobs.worker.connection import TROUBLE, drop, own_connection, sentence
from jobs.worker.outage import worth_a_line
from jobs.worker.output import Output
from jobs.worker.slots import Live, Slots, facts

log = logging.getLogger("jobs.worker")
# A job that short needs no peek: its end is nearer than the answer.
YOUNG_S = 0.05
BURST_S = 0.02
PEEK_EVERY_S = 0.1
ROW_EVERY_S = 10.0
TICK_S = 0.25
MAX_PAUSE_S = 1.0
PATIENCE_MS = 200
LOCKED_S = 5.0


class Heartbeats(threading.Thread):
    """Renews leases, records first heartbeats, and stops attempts that were aborted or whose claim is void."""

    def __init__(self, slots: Slots, worker_id: uuid.UUID, by: str, on_void: Callable[[Live], None],
                 say: Output) -> None:
        super().__init__(name="jobs-heartbeat", daemon=True)
        self._slots, self._worker_id, self._by, self._on_void, self._say = slots, worker_id, by, on_void, say
        self._ends = threading.Event()
        self._woken = threading.Event()
        self._row = clock.Every(ROW_EVERY_S, ROW_EVERY_S)
        self._lines = clock.Every(5.0)
        self._beats: dict[str, float] = {}
        self._failures = 0
        self._peeked = 0.0
        self._young: list[Live] = []

    def hurry(self, fences: Iterable[str]) -> None:
        """Renew these with the next tick: much of their lease had passed before they could begin."""
        for fence in fences:
            self._beats[fence] = 0.0

    def wake(self) -> None:
        """Something was said about some job: look at ours soon."""
        self._woken.set()

    def ask_end(self) -> None:
        """End the thread soon."""
        self._ends.set()
        self._woken.set()

    def run(self) -> None:
        """Beat until asked to end; trouble is logged and tried again, whatever it is: leases hang on this thread."""
        with own_connection():
            while not self._ends.is_set():
                self._safely(self._tick)
                pause = TICK_S if not self._failures else min(MAX_PAUSE_S, TICK_S * 2**self._failures)
                if self._woken.wait(pause) and not self._ends.is_set():
                    # Wakes come in bursts; one look serves them all.
                    self._ends.wait(max(BURST_S, self._peeked + PEEK_EVERY_S - clock.monotonic()))
                    self._woken.clear()
                    self._safely(self._peek)

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._failures = 0
        except Exception as error:
            self._failures = min(self._failures + 1, 8)
            drop()
            if not worth_a_line(self._lines, self._failures):
                return
            # By the output, which never waits: what a log is written to may stand still, and leases with it.
            self._say("worker.heartbeat_trouble", level=0, error=sentence(error))
            if not isinstance(error, TROUBLE):
                log.error("heartbeats met something unexpected and go on", exc_info=error)

    def _tick(self) -> None:
        now = clock.monotonic()
        live = list(self._slots.live.values())
        self._renew(live, now)
        if self._young and now > self._peeked + YOUNG_S:
            # Too young at the last look, and still there: what was said then may have been said of them.
            young, self._young = [x for x in self._young if not x.ended], []
            self._look(young)
        self._first([x for x in live if now >= x.first_at and not x.ended], now)
        if self._row.due():
            workers.seen(self._worker_id, len(live))

    def _renew(self, live: list[Live], now: float) -> None:
        """Before anything that may wait."""
        due = [x for x in live if now >= self._beats.get(x.job.fence, x.begun + heartbeat_s(x.job.lease_ms / 1000))]
        if due:
            self._apply(due, assignments.extend([x.job.fence for x in due]))
            for x in due:
                self._beats[x.job.fence] = now + heartbeat_s(x.job.lease_ms / 1000)
        if len(self._beats) > 4 * self._slots.size:
            self._beats = {x.job.fence: self._beats[x.job.fence] for x in live if x.job.fence in self._beats}

    def _first(self, young: list[Live], now: float) -> None:
        """Together; where somebody holds one of the rows, each for itself, so that one does not hide the others."""
        if not young:
            return
        try:
            answers = assignments.start([(x.job.id, x.job.fence) for x in young], self._by, patience_ms=PATIENCE_MS)
            failpoints.at("start.committed")
            for x, answer in zip(young, answers, strict=True):
                x.first_at = math.inf
                # If it still runs, the next renewal finds the same, and says so.
                x.refused = isinstance(answer, StaleFence)
        except assignments.Locked:
            if len(young) == 1:
                young[0].first_at = now + LOCKED_S
                return
            for x in young:
                self._first([x], now)
        except assignments.FAULTS as error:
            if len(young) == 1:
                # What its row holds keeps it from ever being recorded; its end says the rest.
                young[0].first_at = math.inf
                self._say("worker.not_started", level=0, error=sentence(error), **facts(young[0].job))
                return
            for x in young:
                self._first([x], now)

    def _peek(self) -> None:
        self._peeked = clock.monotonic()
        live = list(self._slots.live.values())
        self._young = [x for x in live if self._peeked - x.begun <= YOUNG_S]
        self._look([x for x in live if self._peeked - x.begun > YOUNG_S])

    def _look(self, live: list[Live]) -> None:
        if live:
            self._apply(live, assignments.peek([x.job.fence for x in live]))

    def _apply(self, asked: list[Live], beats: dict[str, assignments.Beat]) -> None:
        void = [x.job.fence for x in asked if x.job.fence not in beats and not self._is_over(x)]
        # Its own transaction was committed in a child, or in a thread, that has not come to say so.
        settled = assignments.completed(void) if void else set()
        for live in asked:
            beat = beats.get(live.job.fence)
            if self._is_over(live) or live.job.fence in settled:
                continue
            if beat is None:
                self._slots.stop(live, "claim_lost", Interrupted("claim_lost"))
                self._on_void(live)
                continue
            if beat.abort is not None:
                self._slots.stop(live, beat.abort, Stopped(beat.abort))
            if beat.unread:
                live.run.heard()

    @staticmethod
    def _is_over(live: Live) -> bool:
        return live.ended or live.run.settled or live.verdict is not None
