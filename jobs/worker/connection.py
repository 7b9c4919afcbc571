"""Connections of the worker's own threads: outside the pool, so that handlers can never starve them (DESIGN 5).

A pool also waits longer and longer between its attempts to reach a lost server; these try again when asked. And these
give up on a server that is silent: a peer that is gone, or a middle box that forgot us, may never say so.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, cast

import psycopg
from django.db import DEFAULT_DB_ALIAS, Error, connections

from jobs import clock
from jobs.services.settlement import is_read_only

log = logging.getLogger("jobs.worker")
# What a database in trouble raises: InterfaceError is no DatabaseError, and a socket may speak for itself.
TROUBLE = (Error, OSError)
# How long one statement may go without an answer: with the pauses around it, silence is noticed within 15 s.
PATIENCE_S = 12.0
# The server gives up first, so that slow statements do not pile up behind a lock, one for every reconnect.
SERVER_FIRST_S = 2.0
# A worker that is gone without a word, or stands still, must not keep rows locked for hours.
IDLE_LIMIT_S = 60


class Patience:
    """How long the connections it bounds wait for one answer of their server; may be changed while one waits.

    Raises psycopg's OperationalError out of the statement, and closes the connection. A statement that is answered in
    time costs one more generator, a microsecond.
    """

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self.seconds = seconds

    def bound(self, raw: psycopg.Connection[Any]) -> None:
        """From now on every wait of this connection is bounded: statements, BEGIN, COMMIT."""
        raw.wait = self._patient(raw, raw.wait)  # type: ignore[method-assign]

    def _patient(self, raw: psycopg.Connection[Any], wait: Callable[..., Any]) -> Callable[..., Any]:
        def patient(gen: Any, *args: Any, **more: Any) -> Any:
            return wait(self._watched(raw, gen), *args, **more)

        return patient

    def _watched(self, raw: psycopg.Connection[Any], gen: Any) -> Generator[Any, Any, Any]:
        """The same wait; psycopg resumes it with nothing several times a second, and then the time is looked at."""
        begun = clock.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and clock.monotonic() - begun > self.seconds:
                    gen.close()
                    # Closed: a rollback would only wait for the same silence.
                    raw.close()
                    raise psycopg.OperationalError(f"the database has not answered for {self.seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


@contextmanager
def own_connection(patience: Patience | None = None) -> Iterator[None]:
    """Within, this thread's connection is one of its own; it is opened when used and closed at the end.

    No statement on it waits longer than the patience (default 12 s); the duties of a loop may take one of their own.
    """
    pooled = connections[DEFAULT_DB_ALIAS]
    pooled.close()
    own = _own(cast("Hashable", type(pooled)))(copy.deepcopy(pooled.settings_dict), pooled.alias)
    own.patience = patience or Patience()
    own.settings_dict["OPTIONS"].pop("pool", None)
    connections[DEFAULT_DB_ALIAS] = own
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = pooled
        drop(own)


@lru_cache
def _own(kind: Any) -> Any:
    class Own(kind):  # type: ignore[misc]
        """The site's kind of connection, with patience."""

        patience: Patience

        def get_new_connection(self, conn_params: Any) -> Any:
            raw = super().get_new_connection(conn_params)
            self.patience.bound(raw)
            return raw

        def init_connection_state(self) -> None:
            super().init_connection_state()
            # Behind a pooler (nothing is prepared) a session's settings would become somebody else's.
            if getattr(self.connection, "prepare_threshold", None) is not None:
                limit = max(1.0, self.patience.seconds - SERVER_FIRST_S)
                with self.cursor() as cursor:
                    cursor.execute(f"SET statement_timeout = '{limit:g}s';"
                                   f"SET idle_in_transaction_session_timeout = '{IDLE_LIMIT_S}s'")

        def set_autocommit(self, autocommit: bool, *args: Any, **more: Any) -> None:
            # At the end of a transaction that broke the connection Django would open another one there and then, and
            # wait for it, and raise that trouble instead of this.
            if self.connection is not None or not autocommit:
                super().set_autocommit(autocommit, *args, **more)

    return Own


def drop(connection: object = None) -> None:
    """Close a connection (default: this thread's) that may be broken; the next statement opens another."""
    # Trouble means that it is gone already, which is all that was wanted.
    with suppress(*TROUBLE):
        (connection or connections[DEFAULT_DB_ALIAS]).close()  # type: ignore[attr-defined]


def discard() -> None:
    """Close this thread's connection to the server itself: one of the pool does not go back to be handed out again."""
    with suppress(*TROUBLE, psycopg.Error):
        here = connections[DEFAULT_DB_ALIAS]
        if here.connection is not None:
            here.connection.close()
    drop()


def sentence(error: BaseException) -> str:
    """The first line of an error, for a log line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def let_go(error: BaseException) -> None:
    """Give this thread's connections back; one that takes no writes would be handed out long after others do."""
    if is_read_only(error):
        discard()
    close_all()


def close_all() -> None:
    """Give this thread's connections back to the pool; also those that a handler broke."""
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:
                # A handler left its transaction open: nothing of it may be kept.
                connection.needs_rollback = True
                connection.in_atomic_block = False
                connection.savepoint_ids = []
                connection.run_on_commit = []
            connection.close()
        except Exception:
            log.warning("a handler left a database connection that does not close", exc_info=True)
