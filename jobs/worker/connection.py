"""Connections of the worker's own threads: outside the pool, so that handlers can never starve them (DESIGN 5).

A pool also waits longer and longer between its attempts to reach a lost server; these try again when asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DEFAULT_DB_ALIAS, Error, connections

log = logging.getLogger("jobs.worker")
# What a database in trouble raises: InterfaceError is no DatabaseError, and a socket may speak for itself.
TROUBLE = (Error, OSError)


@contextmanager
def own_connection() -> Iterator[None]:
    """Within, this thread's connection is one of its own; it is opened when used and closed at the end."""
    pooled = connections[DEFAULT_DB_ALIAS]
    pooled.close()
    own = pooled.copy()
    own.settings_dict["OPTIONS"].pop("pool", None)
    connections[DEFAULT_DB_ALIAS] = own
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = pooled
        drop(own)


def drop(connection: object = None) -> None:
    """Close a connection (default: this thread's) that may be broken; the next statement opens another."""
    # Trouble means that it is gone already, which is all that was wanted.
    with suppress(*TROUBLE):
        (connection or connections[DEFAULT_DB_ALIAS]).close()  # type: ignore[attr-defined]


def sentence(error: BaseException) -> str:
    """The first line of an error, for a log line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
