"""News and hooks: what runs inside the moving transaction, and what goes out after its commit.

After commit only ids travel, by notifications that a process sends at most so often; whoever hears one reads the
database. Two channels: a bare wake for workers, and which jobs have news for those who follow them. A lost one costs
at most a poll interval.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from django.db import connections, transaction

from jobs import clock, failpoints
from jobs.states import State

log = logging.getLogger("jobs.publish")
CHANNEL = "jobs_wake"
NEWS_CHANNEL = "jobs_news"
# A notification holds less than 8000 bytes, and whoever hears of more jobs than this reads everything anew anyway.
MOST_JOBS = 180
MOST_BYTES = 7_900
MOST_TENANTS = 1_000
EVERYBODY = "*"
# A flood tells nobody more than that there is one: a worker that drains has better to do.
CALM_S, FLOOD_S = 0.05, 0.25
RETRY_S = 5.0
Hook = Callable[[Sequence["News"]], None]
News = tuple[str, int, State]  # job id, receipt number, state
Call = tuple[str, State, int]  # job id, state, the events of which somebody wants to hear
# Something to claim, or a claim that may be void: both are news for workers.
_WAKING = frozenset({State.QUEUED, State.CANCELLED, State.PAUSED, State.SUPERSEDED})

# With what says which types it is about; None: all.
_in_transaction: list[tuple[Hook, Callable[[], frozenset[str]] | None]] = []
_after_commit: list[Hook] = []
_on_call: list[Callable[[Sequence[Call]], None]] = []


def in_transaction(hook: Hook, types: Callable[[], frozenset[str]] | None = None) -> Hook:
    """Call `hook` with every batch of moves inside its transaction; an exception undoes them.

    With `types` it is not called for batches that are known to move none of these: what it asks costs others nothing.
    """
    _in_transaction.append((hook, types))
    return hook


def on_call(hook: Callable[[Sequence[Call]], None]) -> None:
    """Call `hook` inside the transaction with those moves of a batch of which somebody hears by callback (E11)."""
    _on_call.append(hook)


def called(calls: Sequence[Call]) -> None:
    """Called by the store with such moves, if there are any."""
    for hook in _on_call:
        hook(calls)


def after_commit(hook: Hook) -> Hook:
    """Call `hook` with every batch of moves after its commit; an exception is logged and undoes nothing."""
    _after_commit.append(hook)
    return hook


def forget(hook: Hook) -> None:
    """Take a hook out again."""
    _in_transaction[:] = [entry for entry in _in_transaction if entry[0] != hook]
    _after_commit[:] = [kept for kept in _after_commit if kept != hook]


def moved(news: Sequence[News], *, tenants: Collection[int] = (), types: Collection[str] = (),
          moves: bool = True) -> None:
    """Called by the store with what it wrote: tell the hooks and followers, and wake workers when one should look.

    `tenants` are the owners of these jobs and `types` what they are (empty: unknown). Without `moves` these are
    receipts that moved nothing, which is no business of the hooks inside.
    """
    for hook, wanted in _in_transaction if moves else ():
        if wanted is None or not types or not wanted().isdisjoint(types):
            hook(news)
    if _after_commit:
        transaction.on_commit(lambda: _tell(news), robust=True)
    if news:
        transaction.on_commit(lambda: _reporter.add(news, tenants), robust=True)
    if any(state in _WAKING for _, _, state in news):
        wake_after_commit()


def _tell(news: Sequence[News]) -> None:
    for hook in _after_commit:
        try:
            hook(news)
        except Exception:
            log.exception("an after-commit hook failed; the move stands")


def give_back() -> None:
    """Give this thread's connection back to the pool, but for one that was made while the server took no writes.

    That one stays read-only for life, and would be handed to a handler long after the server writes again.
    """
    here = connections["default"]
    raw = here.connection
    if raw is not None and not raw.closed and raw.info.parameter_status("default_transaction_read_only") == "on":
        raw.close()
    here.close()


class _Sender:
    """Sends at once, then at most once an interval, from a thread of its own, in autocommit."""

    name: str
    interval_s: float

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new: a forked process has no such thread, and may have got locks that one holds."""
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
                threading.Thread(target=self._run, args=(self._asked,), name=self.name, daemon=True).start()
                self._pid = os.getpid()

    def _run(self, asked: threading.Event) -> None:
        while True:
            asked.wait()
            asked.clear()
            self._send()
            clock.sleep(self.interval_s)

    def _send(self) -> None:
        raise NotImplementedError

    def _notify(self, sql: str, params: Sequence[Any] = ()) -> bool:
        try:
            connection = connections["default"]
            try:
                failpoints.at("wake.sending")
                with connection.cursor() as cursor:
                    cursor.execute(sql, params or None)
            finally:
                give_back()
        except Exception:
            # A hint only: others poll anyway. This thread must go on, or the process would never tell anyone again.
            log.debug("a notification was lost", exc_info=True)
            return False
        return True


class _Waker(_Sender):
    """Wakes listening workers."""

    name = "jobs-wake"
    interval_s = 0.005

    def _send(self) -> None:
        self._notify(f"NOTIFY {CHANNEL}")


class _Reporter(_Sender):
    """Tells followers which jobs have news: `id:number` each, or whose they are when they are too many (E12).

    Whoever commits only appends a batch to a queue; everything else is done by the thread, for so many jobs an interval
    at most, however many there were. What could not be sent goes with the next.
    """

    name = "jobs-news"
    interval_s = CALM_S

    def reset(self) -> None:
        """As new: what the other process has yet to tell is its own business."""
        super().reset()
        self._queue: deque[tuple[Sequence[News], Collection[int]]] = deque(maxlen=1_000)
        self._waiting = 0
        self._jobs: dict[str, int] = {}
        self._tenants: set[int] = set()
        self._many = self._everybody = False
        self._sent = threading.Event()
        self._sent.set()

    def add(self, news: Sequence[News], tenants: Collection[int]) -> None:
        """Tell soon of these."""
        self._waiting += len(news)
        # More than can be told need not be kept. The queue forgets its oldest only where the database is away for long.
        self._queue.append((news if self._waiting <= 4 * MOST_JOBS else (), tenants))
        self.ask()

    def finish(self, patience_s: float) -> None:
        """Wait until everything was sent, for the end of a short process."""
        until = clock.monotonic() + patience_s
        while self._pid == os.getpid() and (self._queue or not self._sent.is_set()) and clock.monotonic() < until:
            clock.sleep(0.01)

    def _send(self) -> None:
        # Before the queue is emptied: there is no moment at which `finish` would find nothing left to send.
        self._sent.clear()
        self._gather()
        told = self._payload()
        self.interval_s = FLOOD_S if self._many else CALM_S
        if told and not self._notify("SELECT pg_notify(%s, %s)", [NEWS_CHANNEL, told]):
            clock.sleep(RETRY_S)
            self._asked.set()
            return
        self._jobs, self._tenants = {}, set()
        self._many = self._everybody = False
        self._sent.set()

    def _gather(self) -> None:
        if len(self._queue) == self._queue.maxlen:
            self._many = self._everybody = True
        self._waiting = 0
        while self._queue:
            news, tenants = self._queue.popleft()
            self._tenants.update(tenants)
            self._everybody |= not tenants or len(self._tenants) > MOST_TENANTS
            self._many |= not news or len(self._jobs) + len(news) > MOST_JOBS
            if not self._many:
                for job_id, number, _ in news:
                    self._jobs[job_id] = max(number, self._jobs.get(job_id, 0))

    def _payload(self) -> str:
        if self._many:
            whose = " ".join([EVERYBODY, *map(str, self._tenants)])
            return EVERYBODY if self._everybody or len(whose) > MOST_BYTES else whose
        return " ".join([f"{job_id.replace('-', '')}:{number}" for job_id, number in self._jobs.items()])


_waker = _Waker()
_reporter = _Reporter()
# A process that ends right after its commit still tells of it.
atexit.register(_reporter.finish, 1.0)
os.register_at_fork(after_in_child=_waker.reset)
os.register_at_fork(after_in_child=_reporter.reset)


def wake_after_commit() -> None:
    """Wake listening workers once the present transaction has committed."""
    transaction.on_commit(_wake, robust=True)


def _wake() -> None:
    failpoints.at("wake.asked")
    _waker.ask()
