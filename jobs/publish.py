"""News and hooks: what runs inside the moving transaction, and what goes out after its commit.

After commit only ids travel, by one notification per process every few milliseconds; whoever hears one reads
the database. A lost one costs at most a poll interval.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from django.db import connections, transaction

from jobs import clock, failpoints
from jobs.states import State

log = logging.getLogger("jobs.publish")
CHANNEL = "jobs_wake"
Hook = Callable[[Sequence["News"]], None]
News = tuple[str, int, State]  # job id, receipt number, state
# Something to claim, or a claim that may be void: both are news for workers.
_WAKING = frozenset({State.QUEUED, State.CANCELLED, State.PAUSED, State.SUPERSEDED})

_in_transaction: list[Hook] = []
_after_commit: list[Hook] = []


def in_transaction(hook: Hook) -> Hook:
    """Call `hook` with every batch of moves inside its transaction; an exception undoes them."""
    _in_transaction.append(hook)
    return hook


def after_commit(hook: Hook) -> Hook:
    """Call `hook` with every batch of moves after its commit; an exception is logged and undoes nothing."""
    _after_commit.append(hook)
    return hook


def forget(hook: Hook) -> None:
    """Take a hook out again."""
    for hooks in (_in_transaction, _after_commit):
        if hook in hooks:
            hooks.remove(hook)


def moved(news: Sequence[News], *, moves: bool = True) -> None:
    """Called by the store with what it wrote: tell the hooks, and wake workers when one of them should look.

    Without `moves` these are receipts that moved nothing, which is no business of the hooks inside.
    """
    for hook in _in_transaction if moves else ():
        hook(news)
    if _after_commit:
        transaction.on_commit(lambda: _tell(news), robust=True)
    if any(state in _WAKING for _, _, state in news):
        wake_after_commit()


def _tell(news: Sequence[News]) -> None:
    for hook in _after_commit:
        try:
            hook(news)
        except Exception:
            log.exception("an after-commit hook failed; the move stands")


class _Waker:
    """Sends at once, then at most one notification per interval, from a thread of its own, in autocommit."""

    interval_s = 0.005

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._pid = 0

    def ask(self) -> None:
        """Send soon; asks within the interval share one notification."""
        if self._pid != os.getpid():
            self._begin()
        self._asked.set()

    def _begin(self) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._asked = threading.Event()
                threading.Thread(target=self._run, args=(self._asked,), name="jobs-wake", daemon=True).start()
                self._pid = os.getpid()

    def _run(self, asked: threading.Event) -> None:
        while True:
            asked.wait()
            asked.clear()
            self._send()
            clock.sleep(self.interval_s)

    def _send(self) -> None:
        try:
            connection = connections["default"]
            try:
                failpoints.at("wake.sending")
                with connection.cursor() as cursor:
                    cursor.execute(f"NOTIFY {CHANNEL}")
            finally:
                connection.close()
        except Exception:
            # A hint only: workers poll anyway. This thread must go on, or the process would never wake anyone again.
            log.debug("a wake was lost", exc_info=True)


_waker = _Waker()


def wake_after_commit() -> None:
    """Wake listening workers once the present transaction has committed."""
    transaction.on_commit(_wake, robust=True)


def _wake() -> None:
    failpoints.at("wake.asked")
    _waker.ask()
