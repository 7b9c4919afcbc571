"""The duties of the claim, each at its own pace, for a process that claims (CLAIM): promotion every 200 ms, and where
no loops run beside it repair and recovery each second, deadlines every 5 s, closing of empty lines. All are bounded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from jobs.clock import Every
from jobs.services import recovery
from jobs.services.owners import Owners
from jobs.services.recovery import Closing, Deadlines, Recovery, Repair
from jobs.services.throttles import Ends
from jobs.store.sql import ALIAS, NotInTransaction, is_read_only

log = logging.getLogger("jobs.duties")
FIRST_AFTER_S = 1.0
# A duty that fails for a reason of its own must neither stop the claims nor fill the log.
AFTER_FAILURE_S = 5.0
AFTER_LOSS_S = 1.0
REGISTERED_EVERY_S = 60.0
Duty = tuple[Every, Callable[[], bool]]


class Duties:
    """Ticks what is due. A duty that says it has more to do is due again at once."""

    def __init__(self, *, looped: bool = False, more: Sequence[Duty] = ()) -> None:
        """`looped`: loops run beside us; promotion and the ends of pauses, which must be prompt, are ours anyway."""
        self._duties: list[Duty] = [(Every(0.2), lambda: recovery.promote()), (Every(1.0), Ends().tick)]
        if not looped:
            self._duties += [
                (Every(1.0, FIRST_AFTER_S), Repair().tick),
                (Every(1.0, FIRST_AFTER_S), Recovery(aside=True).tick),
                (Every(5.0, FIRST_AFTER_S), Deadlines().tick),
                (Every(2.0, FIRST_AFTER_S), Closing().tick),
                (Every(5.0, FIRST_AFTER_S), Owners().tick),
                *more,
            ]

    def tick(self) -> None:
        """Run one round of each duty that is due; raises only where the connection was lost."""
        for every, duty in self._duties:
            if every.due():
                self._run(every, duty)

    @staticmethod
    def _run(every: Every, duty: Callable[[], bool]) -> None:
        before = connections[ALIAS].connection
        try:
            if duty():
                every.now()
        except NotInTransaction:
            every.now()
            raise
        except Exception as error:
            # Whatever it was, a lock or a time limit of the server's too: while statements work, it is the duty's own.
            if isinstance(error, (DatabaseError, InterfaceError)) and (is_read_only(error) or _lost(before)):
                every.after(AFTER_LOSS_S)
                raise
            log.exception("a duty of the claim failed; it is tried again in %s s", AFTER_FAILURE_S)
            every.after(AFTER_FAILURE_S)

    def now(self) -> None:
        """Make every duty due."""
        for every, _ in self._duties:
            every.now()

    def wait_s(self) -> float:
        """Seconds until the next duty."""
        return min(every.wait_s() for every, _ in self._duties)


def _lost(before: Any) -> bool:
    """Whether this thread's connection is not the one it was before, or does not work, or there is none to be had."""
    here = connections[ALIAS]
    if before is not None:
        # Django connects again by itself where not even a rollback works.
        return here.connection is not before or not here.is_usable()
    try:
        here.ensure_connection()
    except (DatabaseError, InterfaceError):
        return True
    return not here.is_usable()


def _of_requests() -> Duties:
    return Duties(more=[(Every(REGISTERED_EVERY_S), recovery.Registered.external().tick)])


class Upkeep:
    """The duties of a process that claims in requests: one thread at a time, and no trouble of theirs fails a claim."""

    def __init__(self) -> None:
        self._duties: Duties | None = None
        self._lock = threading.Lock()

    def tick(self) -> None:
        """Run what is due (C35, E8: recovery each second); another thread of this process that is at it suffices."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._duties is None:
                self._duties = _of_requests()
            self._duties.tick()
        except (DatabaseError, InterfaceError) as error:
            if isinstance(error, NotInTransaction):
                raise
            # The claim takes another connection, and says so if there is none.
            connections[ALIAS].close()
            log.warning("the duties of the claim lost their connection: %s", str(error).strip())
        finally:
            self._lock.release()

    def now(self) -> None:
        """Make every duty due with the next tick."""
        with self._lock:
            self._duties = self._duties or _of_requests()
            self._duties.now()
