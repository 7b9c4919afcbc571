"""The duties that keep the claim honest: promotion, lapsed leases, deadlines, lost releases, empty lines, wakes.

Each is a `tick(limit) -> did_work` in a short transaction of its own; the loops call them all, and a claimer without
loops calls the ones that its own claims depend on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from django.db import connections

from jobs import publish
from jobs.conf import conf, registry
from jobs.definition import Span
from jobs.leases import heartbeat_s
from jobs.services import overtime
from jobs.services.leaders import RENEW_S, lease_s
from jobs.store import admission, counting, due, leading, throttling
from jobs.store.moves import Answer, Moved
from jobs.store.sql import ALIAS, NotInTransaction, durable, is_read_only, rows

T = TypeVar("T")
log = logging.getLogger("jobs.recovery")
BY = "loop:recovery"
PROMOTE = 500
BATCH = 200
TYPES = 20
# A47: younger work is the polls' business.
OLD_S = 30.0


def promote(limit: int = PROMOTE) -> bool:
    """Let due jobs into the claim; true when there may be more."""
    return durable(lambda: due.promote(limit)) >= limit


def each(found: Sequence[T], work: Callable[[Sequence[T]], list[Answer]]) -> int:
    """Do `work` on all of these in one transaction, or one by one where one raises; how many moved (DESIGN 4).

    One that cannot be moved, for a hook of the site that raises, say, is left as it is and holds up nobody.
    """
    if not found:
        return 0
    try:
        return _moved(durable(lambda: work(found)))
    except NotInTransaction:
        raise
    except Exception as error:
        if is_read_only(error) or not connections[ALIAS].is_usable():
            raise
    return _one_by_one(found, work)


def _one_by_one(found: Sequence[T], work: Callable[[Sequence[T]], list[Answer]]) -> int:
    moved, left = 0, []
    for one in found:
        try:
            moved += _moved(durable(lambda one=one: work([one])))  # type: ignore[misc]
        except Exception as error:
            if not connections[ALIAS].is_usable():
                raise
            left.append((one, error))
    if left:
        log.error("%d of %d jobs cannot be moved; the first is %s", len(left), len(found), left[0][0],
                  exc_info=left[0][1])
    return moved


def _moved(answers: Sequence[Answer]) -> int:
    return sum(isinstance(a, Moved) for a in answers)


class Deadlines:
    """Fails queued jobs past their deadline or out of claims, a batch at a time, round and round."""

    def __init__(self) -> None:
        self._late, self._spent = due.FIRST_SPOT, due.FIRST

    def tick(self, limit: int = BATCH) -> bool:
        """One batch of each; true when something was done."""
        late, spot = durable(lambda: due.late(self._late, limit))
        self._late = spot or due.FIRST_SPOT
        spent, after = durable(lambda: due.spent(self._spent, limit))
        self._spent = after or due.FIRST
        return each(late, lambda some: due.expire(some, BY)) + each(spent, lambda some: due.exhaust(some, BY)) > 0


def deadlines(limit: int = BATCH) -> bool:
    """One batch from the beginning."""
    return Deadlines().tick(limit)


class Registered:
    """Resumes jobs that were paused because no live worker knew their type, in a process that registers it (E7).

    A worker has the types that it runs; a process in which runners claim has the `external` ones, of worker groups
    that runners serve, since anywhere else they would be paused again.
    """

    def __init__(self, types: Sequence[tuple[str, int]], by: str, groups: Sequence[str] | None = None) -> None:
        self._types, self._by, self._groups = types, by, groups
        self._after = due.FIRST

    @classmethod
    def external(cls) -> Registered:
        """For what runners over HTTP serve."""
        known = registry()
        groups = set(known.groups(external=True)) | {rule.worker_group for rule in conf().ROUTING}
        return cls([(d.type, d.version) for d in known if d.executor == "external"], "loop:registered",
                   sorted(groups - set(known.groups())))

    def tick(self, limit: int = BATCH) -> bool:
        """One batch; true while there may be more."""
        found, after = durable(lambda: due.unregistered(self._types, self._after, limit, self._groups))
        self._after = after or due.FIRST
        each(found, lambda some: due.resume(some, self._by))
        return after is not None


def quiet_s() -> float:
    """Time enough for every holder to beat once more after an outage: recovery stands still for that long (E8)."""
    return heartbeat_s(conf().LEASE_S) + conf().RECOVERY_GRACE_S


def every_s() -> float:
    """Seconds between two passes: 5, less where leases are short."""
    return min(5.0, quiet_s() / 2)


def gap_s() -> float:
    """From here on a gap in the fleet's ticks is an outage: before the first lease of a holder that was cut off ends.

    Where leases are long enough, a leader that dies leaves a shorter one; else its death costs a stand-still too.
    """
    safe = min(s - heartbeat_s(s) for s in _leases_s()) + conf().RECOVERY_GRACE_S - 2 * RENEW_S
    return max(1.5 * every_s(), min(safe, max(quiet_s(), every_s() + lease_s(every_s()) + 2 * RENEW_S)))


def _leases_s() -> list[float]:
    said = [d.lease_s.cap_s if isinstance(d.lease_s, Span) else d.lease_s for d in registry()]
    return [conf().LEASE_S, *(float(s) for s in said if s is not None)]


class Recovery:
    """Hands lapsed jobs out again; stands still after an outage, so that it does not lapse the whole fleet (E8).

    What it knows of outages is the fleet's (`Leader`), so that a process that has just begun knows it too. `aside`
    keeps quiet where a leader is at it.
    """

    def __init__(self, *, aside: bool = False) -> None:
        self._after = due.FIRST
        self._aside = aside

    def tick(self, limit: int = BATCH) -> bool:
        """Look at one batch of live attempts, end the lapsed and runners' that are over; true while there are more."""
        return self._batch(limit)[1]

    def run(self, limit: int = BATCH) -> int:
        """One full pass over the live attempts; how many were ended."""
        ended, more, self._after = 0, True, due.FIRST
        while more:
            here, more = self._batch(limit)
            ended += here
        return ended

    def _batch(self, limit: int) -> tuple[int, bool]:
        if self._stand_still():
            return 0, False
        grace_us = int(conf().RECOVERY_GRACE_S * 1_000_000)
        found = due.look(grace_us, self._after, limit)
        self._after = found.after or due.FIRST
        ended = each(found.lapsed, lambda some: due.lapse(some, grace_us, BY))
        ended += each(due.overtime(found.outside), lambda some: overtime.end(some, BY))
        return ended, found.after is not None

    def _stand_still(self) -> bool:
        goes = leading.tick_recovery(int(quiet_s() * 1e6), int(gap_s() * 1e6), aside=self._aside)
        return not goes or server_age() < timedelta(seconds=quiet_s())


def server_age() -> timedelta:
    """How long the database server has been up."""
    started, now = rows("SELECT pg_postmaster_start_time(), statement_timestamp()")[0]
    age: timedelta = now - started
    return age


class Repair:
    """Brings back what a lost release left behind: parked tenants with room, held jobs of groups and types with room.

    It also counts live attempts under caps that were set after they were claimed.
    """

    def __init__(self) -> None:
        self._tenant = 0
        self._group = (0, "")
        self._live: str | None = None
        self._type, self._paused = "", 0

    def tick(self, limit: int = BATCH) -> bool:
        """One bounded look at each; true when something was repaired."""
        lines, self._tenant = durable(lambda: admission.repair_lines(self._tenant, limit))
        jobs, self._group = durable(lambda: admission.repair_groups(self._group, limit))
        live, self._live = durable(lambda: counting.count_live(self._live or due.FIRST, limit))
        typed, self._type = durable(lambda: admission.repair_types(self._type, TYPES))
        resumed, self._paused = durable(lambda: throttling.unpark(self._paused, limit))
        if lines or jobs or resumed:
            publish.wake_after_commit()
        return bool(lines or jobs or live or typed or resumed)


class Closing:
    """Takes tenants without claimable work out of the rotation, in the background and a batch at a time."""

    def __init__(self) -> None:
        self._after = 0

    def tick(self, limit: int = 500) -> bool:
        """Look at one batch of lines; true while there are more to look at."""
        _, self._after = durable(lambda: admission.close_lines(self._after, limit))
        return self._after != 0


class Redrive:
    """Wakes workers where something claimable has waited for long: a notification was lost, or nobody heard it (A47).

    There is no other driver: claims deliver. One wake a pass, however much waits.
    """

    def __init__(self) -> None:
        self._after = 0

    def tick(self, limit: int = 500) -> bool:
        """Look at the heads of one batch of lines; the pass ends with the first that waits. Rests of it come later."""
        waits, after = due.waiting(OLD_S, self._after, limit)
        self._after = after
        if waits:
            publish.wake_after_commit()
        return not waits and after != 0
