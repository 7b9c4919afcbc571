"""Threads for races: all start at the same moment, each with a connection of its own, and every error comes out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection

from tests.database import own_connection, rows

T = TypeVar("T")
LONG = os.environ.get("JOBSITE_LONG") == "1"
PATIENCE_S = 120.0


def together(works: Sequence[Callable[[], T]]) -> list[T]:
    """Run each in a thread of its own, all from the same moment; their answers in order. Raises the first error."""
    start = threading.Barrier(len(works))
    answers: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(n: int) -> None:
        with own_connection():
            try:
                connection.ensure_connection()
                start.wait(PATIENCE_S)
                answers[n] = works[n]()
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), name=f"race-{n}", daemon=True) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread of the race hangs"
    if errors:
        raise errors[0]
    return answers


@contextmanager
def elsewhere(sql: str, *params: object, after: str = "") -> Iterator[None]:
    """Another connection that has run a statement in an open transaction for as long as the block runs."""
    ready, go = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def hold() -> None:
        from django.db import transaction

        with own_connection():
            try:
                with transaction.atomic():
                    rows(sql, *params)
                    ready.set()
                    assert go.wait(PATIENCE_S)
                    if after:
                        rows(after)
            except BaseException as error:
                errors.append(error)
            finally:
                ready.set()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield
    finally:
        go.set()
        thread.join(PATIENCE_S)
    if errors:
        raise errors[0]


def deadlocks() -> int:
    """Deadlocks that the server has counted in this database.

    A backend reports what it counted when it has been idle for a while or ends: so all of ours end first.
    Those of a server that a browser looks at had no part in the race.
    """
    until = time.monotonic() + PATIENCE_S
    others = 1
    while others:
        assert time.monotonic() < until, "a connection of the race is still there"
        # Again each time: the thread that wakes workers may just have opened one.
        connection.close()
        connection.close_pool()
        others = rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                      " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                      " AND application_name NOT IN ('served', 'jobs live')")[0][0]
    rows("SELECT pg_stat_clear_snapshot()")
    return int(rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0])
