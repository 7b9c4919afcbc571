"""The loops: periodic duties with one leader each, in a thread and on a connection of their own (E2, DESIGN 8.8).

A duty is `tick(limit) -> did_work`, one bounded batch; interval, jitter and leadership live here. Duties take turns
batch by batch, so a long pass of one delays another by a batch at most; a leader that cannot renew stands down.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Sequence

from jobs import clock
from jobs.services import declared, erasure, recovery, workers
from jobs.services.firing import Timers
from jobs.services.leaders import Leadership, lease_s
from jobs.services.owners import Owners
from jobs.services.recovery import BATCH, Closing, Deadlines, Recovery, Redrive, Registered, Repair
from jobs.services.retention import Retention
from jobs.services.throttles import Ends
from jobs.services.triage import DUTY, Triage
from jobs.worker.connection import TROUBLE, drop, own_connection, sentence
from jobs.worker.outage import worth_a_line
from jobs.worker.output import Output

log = logging.getLogger("jobs.loops")
# A50, A47: after the start.
FIRST_AFTER_S = 1.0
REDRIVE_FIRST_AFTER_S = 5.0
# A48: said once a pass, and nothing else; the leader keeps its duty, and missed ticks are one.
SLOW_S = 15.0
AFTER_FAILURE_S = 5.0
MAX_PAUSE_S = 2.0
LINES_EVERY_S = 5.0
JITTER = 0.1
# A gentle pass over very many rows takes at most a tenth of the time.
GENTLE = 9


class Loop:
    """One duty and when it is due. `led`: by one process at a time; `gentle`: it rests as long as it worked."""

    def __init__(self, duty: str, tick: Callable[[int], bool], interval_s: float, *, limit: int = BATCH,
                 first_after_s: float = FIRST_AFTER_S, led: bool = True, gentle: bool = False) -> None:
        self.duty, self.led = duty, led
        self._tick, self._limit, self._interval_s, self._gentle = tick, limit, interval_s, gentle
        self._next = clock.monotonic() + first_after_s
        self._busy_s = 0.0
        self._said = False

    @property
    def lease_s(self) -> float:
        """How long its leader is believed."""
        return lease_s(self._interval_s)

    def wait_s(self) -> float:
        """Seconds until it is due; below 0 where it has been for so long."""
        return self._next - clock.monotonic()

    def put_off(self, seconds: float) -> None:
        """Not before so many seconds from now; the pass goes on then."""
        self._next = clock.monotonic() + seconds

    def run(self, output: Output) -> None:
        """One batch. While there may be more it is due again, else an interval after this."""
        began = clock.monotonic()
        more = self._tick(self._limit)
        took = clock.monotonic() - began
        self._busy_s += took
        if self._busy_s >= SLOW_S and not self._said:
            self._said = True
            output("loop.slow", level=0, duty=self.duty, seconds=round(self._busy_s, 1))
        if more:
            self.put_off(took if self._gentle else 0.0)
            return
        pause = max(self._interval_s, GENTLE * self._busy_s) if self._gentle else self._interval_s
        self.put_off(pause * random.uniform(1 - JITTER, 1 + JITTER))
        self._busy_s, self._said = 0.0, False


def loops(registered: Registered | None = None, workspaces: tuple[int, ...] | None = None) -> list[Loop]:
    """Every periodic duty; `registered` is that of a process that runs jobs, and every such process's own (E7).

    A process for some `workspaces` leads what is the whole site's as any other does; only their timers fire there, and
    nobody needs to lead for that (D13).
    """
    every = recovery.every_s()
    mine = [
        Loop("recovery", Recovery().tick, every),
        Loop("deadlines", Deadlines().tick, 5.0),
        Loop("repair", Repair().tick, 1.0),
        Loop("throttles", Ends().tick, 1.0, limit=100),
        Loop("closing", Closing().tick, 2.0, limit=500),
        Loop("redrive", Redrive().tick, 15.0, limit=500, first_after_s=REDRIVE_FIRST_AFTER_S),
        Loop("workers", workers.tidy, 30.0),
        Loop("owners", Owners().tick, 5.0, limit=500, gentle=True),
        Loop(DUTY, Triage().tick, 1.0, limit=500),
        Loop(erasure.DUTY, erasure.Erasures().tick, 1.0, limit=500),
        Loop("timers", Timers(workspaces).tick, 1.0, limit=100, led=workspaces is None),
        # Once: what each process is started with.
        Loop("declared", declared.AtStart().tick, 3_600.0, led=False),
        Loop("retention", Retention().tick, 60.0, limit=2_000, gentle=True),
    ]
    return mine if registered is None else [*mine, Loop("registered", registered.tick, 60.0, led=False)]


class Loops(threading.Thread):
    """Ticks what is due and led here until asked to end; trouble is waited out."""

    def __init__(self, mine: Sequence[Loop], output: Output, holder: uuid.UUID | None = None) -> None:
        super().__init__(name="jobs-loops", daemon=True)
        self._loops, self._output = list(mine), output
        self.leadership = Leadership({x.duty: x.lease_s for x in mine if x.led}, holder)
        self._renewal = clock.Every(self.leadership.every_s)
        self._lines = clock.Every(LINES_EVERY_S)
        self._ends = threading.Event()
        self._failures = 0

    def ask_end(self) -> None:
        """End the thread soon: after the batch that is on."""
        self._ends.set()

    def run(self) -> None:
        """Go round until asked to end, and give the leadership back."""
        with own_connection():
            while not self._ends.is_set():
                try:
                    self._round()
                    self._failures = 0
                except Exception as error:
                    self._trouble(error)
                self._ends.wait(self._pause_s())
            self._resign()

    def _round(self) -> None:
        """One batch of each duty that is due, the longest overdue first; leases are renewed in between."""
        for loop in sorted(self._loops, key=Loop.wait_s):
            self._renew()
            if self._ends.is_set():
                return
            if loop.wait_s() <= 0 and self._is_mine(loop):
                self._run(loop)

    def _renew(self) -> None:
        if self._renewal.due():
            self.leadership.renew()

    def _is_mine(self, loop: Loop) -> bool:
        return not loop.led or self.leadership.leads(loop.duty)

    def _run(self, loop: Loop) -> None:
        try:
            loop.run(self._output)
        except Exception:
            # The others have their turns before it comes again.
            loop.put_off(AFTER_FAILURE_S)
            raise
        self.leadership.ticked(loop.duty)

    def _trouble(self, error: Exception) -> None:
        self._failures = min(self._failures + 1, 6)
        drop()
        if worth_a_line(self._lines, self._failures):
            log.warning("a loop failed and is tried again: %s", sentence(error),
                        exc_info=None if isinstance(error, TROUBLE) else error)

    def _pause_s(self) -> float:
        if self._failures:
            return min(MAX_PAUSE_S, 0.1 * 2.0**self._failures)
        due = [x.wait_s() for x in self._loops if self._is_mine(x)]
        return max(0.0, min([self._renewal.wait_s(), *due]))

    def _resign(self) -> None:
        try:
            self.leadership.resign()
        except TROUBLE as error:
            log.debug("the leases are left to run out: %s", sentence(error))
