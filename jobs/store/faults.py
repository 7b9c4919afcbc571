"""Faults of the database for failpoints: this thread's connection is ended, or a COMMIT's answer is lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import psycopg
from django.db import OperationalError, connections

from jobs import clock
from jobs.store.sql import ALIAS

_WAIT_S = 5.0


def drop() -> None:
    """The server ends this thread's connection, as an administrator or a failover does."""
    mine = connections[ALIAS]
    mine.ensure_connection()
    pid = mine.connection.info.backend_pid
    with psycopg.connect(mine.connection.info.dsn, password=mine.connection.info.password or None,
                         autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
        until = clock.monotonic() + _WAIT_S
        while clock.monotonic() < until and other.execute(
                "SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone():
            clock.sleep(0.01)


def cut() -> None:
    """The next COMMIT of this thread is done by the server, but its answer does not come back (E8).

    Outside of a transaction the connection is cut at once.
    """
    mine = connections[ALIAS]
    mine.ensure_connection()
    if not mine.in_atomic_block:
        _sever()
        return
    commit = mine._commit  # type: ignore[attr-defined]

    def commit_unheard() -> None:
        mine._commit = commit  # type: ignore[attr-defined]
        commit()
        _sever()
        raise OperationalError("the answer of a COMMIT was lost")

    mine._commit = commit_unheard  # type: ignore[attr-defined]


def _sever() -> None:
    with socket.socket(fileno=os.dup(connections[ALIAS].connection.fileno())) as its:
        its.shutdown(socket.SHUT_RDWR)


FAULTS: dict[str, Callable[[], None]] = {"drop": drop, "cut": cut}
