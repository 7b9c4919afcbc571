"""The pump: every loop in the foreground and no jobs, for sites whose workers run without loops or only over HTTP (E2).

It is no worker: it has no row in the workers' table, since it can run no type. Promotion stands before the other
duties here too, so it has this thread for itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from jobs import clock
from jobs.conf import registry
from jobs.definition import ENDED_TYPE
from jobs.services import traffic, workers
from jobs.services.duties import Duties
from jobs.worker.bell import Bell
from jobs.worker.connection import TROUBLE, drop, own_connection, sentence
from jobs.worker.loops import LINES_EVERY_S, MAX_PAUSE_S, Loops, loops
from jobs.worker.outage import worth_a_line
from jobs.worker.output import Output

log = logging.getLogger("jobs.loops")
LAST_S = 10.0


class Pump:
    """Runs the loops until told to stop."""

    def __init__(self, output: Output) -> None:
        self._output, self._bell = output, Bell()
        self._loops = Loops(loops(), output)
        self._duties = Duties(looped=True)
        self._lines = clock.Every(LINES_EVERY_S)
        self._failures = 0
        self._stops = False
        with own_connection():
            clock.now()

    def ask_stop(self) -> None:
        """End after the batch that is on. Safe in a signal handler."""
        self._stops = True
        self._bell.ring()

    def run(self) -> None:
        """Go on until asked to stop; then give the leadership back."""
        self._loops.start()
        self._output("pump.ready", holder=str(self._loops.leadership.holder))
        with own_connection():
            self._say_if_nobody_tells()
            while not self._stops:
                self._bell.wait(self._pause_s())
        self._loops.ask_end()
        self._loops.join(LAST_S)
        if not self._failures:
            traffic.flusher.end()
        self._output("pump.stopped")

    def _say_if_nobody_tells(self) -> None:
        """A pump runs no jobs: those that tell of ends need a worker (B34)."""
        with suppress(*TROUBLE):
            if registry().told and not any(name.startswith(f"{ENDED_TYPE}@") for name in workers.known_types()):
                self._output("pump.nobody_tells", level=0, types=sorted(registry().told)[:8],
                             note="their ends wait for a runworker, which a pump is not")

    def _pause_s(self) -> float:
        """Promote what is due; how long to wait for the next look."""
        try:
            self._duties.tick()
            self._failures = 0
        except TROUBLE as error:
            self._failures = min(self._failures + 1, 6)
            drop()
            if worth_a_line(self._lines, self._failures):
                log.warning("promotion waits for the database: %s", sentence(error))
            return min(MAX_PAUSE_S, 0.1 * 2.0**self._failures)
        return self._duties.wait_s()
