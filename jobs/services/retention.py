"""Retention: ended jobs go when their time is over, answered dead letters and their attempts before them (E13, C26).

How long is the definition's word, else the site's; None keeps for ever, and so does a type that this process does not
know: another may. Jobs are walked by id from the oldest, a bounded stretch a tick, so that many that are kept in
front delay the others but cost a tick nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import IntegrityError, OperationalError

from jobs import clock
from jobs.conf import conf, registry
from jobs.ids import earliest
from jobs.registry import Site
from jobs.services import traffic
from jobs.store import calling, claim_requests, due, erase, timers
from jobs.store.erase import Keep
from jobs.store.sql import durable, sqlstate

T = TypeVar("T")
log = logging.getLogger("jobs.retention")
LIMIT = 2_000
# A lost answer of a claim is asked for again within its lease; what is held still stays.
REQUESTS_MS = 15 * 60 * 1_000
# What a bulk operation did to each can be read for a week after its end.
ITEMS_MS = 7 * 86_400_000
# What became of a timer's moments can be read for a month.
FIRINGS_MS = 30 * 86_400_000
# The statement took longer than this connection allows.
QUERY_CANCELED = "57014"


def keeps() -> list[Keep]:
    """How long the jobs of each definition are kept, those that are kept for ever left out."""
    said = [(d, conf().RETENTION_S if isinstance(d.retention, Site) else d.retention) for d in registry()]
    return [Keep(d.type, d.version, int(seconds * 1000)) for d, seconds in said if seconds is not None]


def _small(limit: int) -> bool:
    """Names of claims, hosts of callbacks, firings, bulk operations and their items; true while there is more."""
    durable(lambda: claim_requests.forget_old(REQUESTS_MS))
    durable(lambda: calling.forget_hosts(limit))
    kept_s = conf().RETENTION_S
    kept_ms = ITEMS_MS if kept_s is None else int(kept_s * 1000)
    if durable(lambda: timers.forget(FIRINGS_MS, limit)) >= limit:
        return True
    if durable(lambda: erase.bulk_items(min(ITEMS_MS, kept_ms), limit)) >= limit:
        return True
    return kept_s is not None and durable(lambda: erase.bulk_operations(kept_ms)) >= erase.BATCH


class Retention:
    """Deletes what has outlived its time, a batch at a time, round and round."""

    def __init__(self) -> None:
        self._job: str | None = due.FIRST
        self._letter = 0
        self._batch = erase.BATCH

    def tick(self, limit: int = LIMIT) -> bool:
        """Look at so many jobs, then letters, then minutes, and delete a batch; true while there is more."""
        known = keeps()
        if not known:
            return _small(limit) or traffic.forget(limit)
        if self._job is not None:
            self._job = self._jobs(known, self._job, limit)
            return True
        self._letter = self._letters(known, limit)
        if self._letter == 0:
            self._job = due.FIRST
            return _small(limit) or traffic.forget(limit)
        return True

    def _jobs(self, known: list[Keep], after: str, limit: int) -> str | None:
        now_ms = (clock.micros(clock.now()) or 0) // 1000
        # No job ends before it is made: what is younger than the shortest span is not looked at.
        until = str(earliest(now_ms - min(keep.ms for keep in known)))
        past, on = erase.oldest(known, after, until, limit, self._batch)
        return on if self._delete(past, lambda some: erase.jobs(some, known)) else after

    def _letters(self, known: list[Keep], limit: int) -> int:
        past, on = erase.answered(known, self._letter, limit, self._batch)
        # Not 0, which would be the end of a pass: the next one would begin with whole batches again.
        return on if self._delete(past, erase.letters) else self._letter or -1

    def _delete(self, past: Sequence[T], work: Callable[[Sequence[T]], object]) -> bool:
        """All in one transaction, or in parts where some cannot go: they hold up nobody. False: too many at once."""
        if not past:
            return True
        try:
            left = _halves(past, work)
        except OperationalError as error:
            if sqlstate(error) != QUERY_CANCELED:
                raise
            # Half of it with the next tick: the other duties have their turns, and leases are renewed, in between.
            self._batch = max(1, len(past) // 2)
            if len(past) > 1:
                return False
            left = [(past[0], error)]
        self._batch = min(erase.BATCH, 2 * self._batch)
        if left:
            log.warning("%d of %d that have outlived their time cannot be deleted; the first is %s: %s",
                        len(left), len(past), left[0][0], str(left[0][1]).strip())
        return True


def _halves(past: Sequence[T], work: Callable[[Sequence[T]], object]) -> list[tuple[T, Exception]]:
    """Delete these, in halves where one of them is referred to; what is left."""
    try:
        durable(lambda: work(past))
        return []
    except IntegrityError as error:
        if len(past) == 1:
            return [(past[0], error)]
    half = len(past) // 2
    return _halves(past[:half], work) + _halves(past[half:], work)
