"""A second connection for the settlements of a busy worker, so that they commit while the first one claims.

The worker's one thread still decides everything: it asks, claims meanwhile, and waits for the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from jobs.worker.connection import TROUBLE, Patience, drop, own_connection

T = TypeVar("T")


class Aside(threading.Thread, Generic[T]):
    """Runs one piece of work at a time on a connection of its own."""

    def __init__(self, patience: Patience | None = None) -> None:
        super().__init__(name="jobs-settle", daemon=True)
        self._patience = patience
        self._asked: SimpleQueue[tuple[Callable[[], T], Future[T]] | None] = SimpleQueue()

    def ask(self, work: Callable[[], T]) -> Future[T]:
        """Begin `work`; its answer or its exception is the future's."""
        answer: Future[T] = Future()
        self._asked.put((work, answer))
        return answer

    def ask_end(self) -> None:
        """End after what was asked before."""
        self._asked.put(None)

    def run(self) -> None:
        """Work until asked to end."""
        with own_connection(self._patience):
            while (item := self._asked.get()) is not None:
                work, answer = item
                try:
                    answer.set_result(work())
                except BaseException as error:
                    # The asker's to judge; a broken connection must not be used again.
                    if isinstance(error, TROUBLE):
                        drop()
                    answer.set_exception(error)
