"""Hears wake notifications on a raw connection of its own, outside the pool; a hint only, polling is the truth."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg
from django.db import connections

from jobs import clock
from jobs.conf import conf
from jobs.publish import CHANNEL
from jobs.worker.connection import TROUBLE, Patience, sentence
from jobs.worker.outage import worth_a_line
from jobs.worker.output import Output

log = logging.getLogger("jobs.worker")
LOOK_UP_S = 0.25
MAX_PAUSE_S = 2.0
# A server that is gone without a word says nothing, and so does one with nothing to say: asked, one of them answers.
ASK_EVERY_S = 8.0
ANSWER_S = 5.0


def direct_dsn() -> str:
    """Where to listen: the setting LISTEN_DSN behind a transaction pooler, else the site's database."""
    if conf().LISTEN_DSN:
        return str(conf().LISTEN_DSN)
    # Django's parameters hold more than an address (pool, cursor_factory, context, ...): keep what libpq knows.
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    params = connections["default"].get_connection_params()
    return psycopg.conninfo.make_conninfo(**{k: v for k, v in params.items() if k in known and v not in (None, "")})


class Listener(threading.Thread):
    """Calls `on_wake` at each notification and after each reconnect, since some may have been missed (case-A12).

    Idle and in autocommit: however long it does not read, it keeps no row version from being vacuumed (case-C09).
    """

    def __init__(self, on_wake: Callable[[], None], say: Output) -> None:
        super().__init__(name="jobs-listen", daemon=True)
        self._on_wake, self._say = on_wake, say
        self._ends = threading.Event()
        self._lines = clock.Every(30.0)
        self._failures = 0

    def ask_end(self) -> None:
        """End the thread soon."""
        self._ends.set()

    def run(self) -> None:
        """Listen until asked to end, reconnecting with a growing pause."""
        while not self._ends.is_set():
            try:
                self._listen()
            except Exception as error:
                self._failures = min(self._failures + 1, 5)
                if worth_a_line(self._lines, self._failures):
                    self._say("worker.listener_trouble", level=0, error=sentence(error), note="polling goes on")
                    if not isinstance(error, (psycopg.Error, *TROUBLE)):
                        log.error("the listener met something unexpected and goes on", exc_info=error)
                self._ends.wait(min(MAX_PAUSE_S, 0.1 * 2**self._failures))

    def _listen(self) -> None:
        with psycopg.connect(direct_dsn(), autocommit=True, application_name="jobs listener") as connection:
            Patience(ANSWER_S).bound(connection)
            connection.execute(f"LISTEN {CHANNEL}")
            self._failures = 0
            self._on_wake()
            asks = clock.Every(ASK_EVERY_S, ASK_EVERY_S)
            while not self._ends.is_set():
                for _ in connection.notifies(timeout=LOOK_UP_S, stop_after=1):
                    self._on_wake()
                    asks.after(ASK_EVERY_S)
                if asks.due():
                    connection.execute("SELECT 1")
