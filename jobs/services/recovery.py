"""The duties that keep the claim honest: promotion, lapsed leases, deadlines, lost releases, empty lines.

Each is a `tick(limit) -> did_work` in a short transaction of its own; every claimer calls the ones that its own
claims depend on, and the loops call them all.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from jobs import clock
from jobs.conf import conf
from jobs.leases import heartbeat_s
from jobs.store import admission, due
from jobs.store.moves import Moved
from jobs.store.sql import durable, rows

BY = "loop:recovery"
PROMOTE = 500
BATCH = 200
# Longer than the pause between two ticks of whoever calls Recovery.tick.
GAP_S = 10.0


def promote(limit: int = PROMOTE) -> bool:
    """Let due jobs into the claim; true when there may be more."""
    return durable(lambda: due.promote(limit)) >= limit


def deadlines(limit: int = BATCH) -> bool:
    """Fail queued jobs past their deadline or out of claims; true when something was done."""
    return bool(durable(lambda: due.expire(limit, BY))) | bool(durable(lambda: due.exhaust(limit, BY)))


class Recovery:
    """Hands lapsed jobs out again; stands still after an outage, so that it does not lapse the whole fleet (E8)."""

    def __init__(self) -> None:
        self._after = due.FIRST
        self._last = clock.monotonic()
        self._hold_until: float | None = None

    def tick(self, limit: int = BATCH) -> bool:
        """Look at one batch of live attempts and end the lapsed ones; true when some were."""
        return self._batch(limit) > 0

    def run(self, limit: int = BATCH) -> int:
        """One full pass over the live attempts; how many were ended."""
        ended, self._after = 0, due.FIRST
        while True:
            ended += self._batch(limit)
            if self._after == due.FIRST:
                return ended

    def _batch(self, limit: int) -> int:
        if self._stand_still():
            return 0
        grace_us = int(conf().RECOVERY_GRACE_S * 1_000_000)
        found, after = due.lapsed(grace_us, self._after, limit)
        self._after = after or due.FIRST
        if not found:
            return 0
        return sum(isinstance(a, Moved) for a in durable(lambda: due.lapse(found, grace_us, BY)))

    def _stand_still(self) -> bool:
        quiet = heartbeat_s(conf().LEASE_S) + conf().RECOVERY_GRACE_S
        here, before = clock.monotonic(), self._last
        self._last = here
        if self._hold_until is not None:
            if here < self._hold_until:
                return True
            # Waited out: this tick is good, however rarely somebody ticks.
            self._hold_until = None
        # Where leases are short, the usual pause between two ticks is no gap.
        elif here - before > max(quiet, GAP_S):
            self._hold_until = here + quiet
            return True
        return server_age() < timedelta(seconds=quiet)


def server_age() -> timedelta:
    """How long the database server has been up."""
    started, now = rows("SELECT pg_postmaster_start_time(), statement_timestamp()")[0]
    age: timedelta = now - started
    return age


class Repair:
    """Brings back what a lost release left behind: parked tenants with room, held jobs of groups with room.

    It also counts live attempts under caps that were set after they were claimed.
    """

    def __init__(self) -> None:
        self._tenant = 0
        self._group = (0, "")
        self._live: str | None = None

    def tick(self, limit: int = BATCH) -> bool:
        """One bounded look at each; true when something was repaired."""
        lines, self._tenant = durable(lambda: admission.repair_lines(self._tenant, limit))
        jobs, self._group = durable(lambda: admission.repair_groups(self._group, limit))
        live, self._live = durable(lambda: admission.count_live(self._live or due.FIRST, limit))
        return bool(lines or jobs or live)


class Closing:
    """Takes tenants without claimable work out of the rotation, in the background and a batch at a time."""

    def __init__(self) -> None:
        self._after = 0

    def tick(self, limit: int = 500) -> bool:
        """Look at one batch of lines; true while there are more to look at."""
        _, self._after = durable(lambda: admission.close_lines(self._after, limit))
        return self._after != 0


def now() -> datetime:
    """The database's moment."""
    return clock.now()
