"""The one clock: the database's `jobs_now()` in every condition and stored moment, a steady clock for waiting.

`jobs_now()` is the moment of the statement. Tests pass time by replacing the function in their database.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections, models

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The smallest step between two moments.
TICK = timedelta(microseconds=1)


class Now(models.Func):
    """`jobs_now()` in a queryset."""

    function = "jobs_now"
    template = "%(function)s()"
    output_field = models.DateTimeField()
    arity = 0


def now(using: str = "default") -> datetime:
    """The database's moment, by a statement of its own."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT jobs_now()")
        return _as_utc(cursor.fetchone()[0])


def _as_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):
        # At the far ends of time there is no other zone; whoever asks for such a moment is refused later.
        return moment.replace(tzinfo=UTC)


def micros(moment: datetime | None) -> int | None:
    """Whole microseconds since 1970, exact; None stays None."""
    if moment is None:
        return None
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(us: int) -> datetime:
    """The moment that lies `us` microseconds after 1970."""
    return EPOCH + timedelta(microseconds=us)


def wall() -> datetime:
    """This machine's idea of the time, for log lines only."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds of a clock that never jumps, for waiting only."""
    return time.monotonic()


def epoch(seconds: int) -> int:
    """A number that rises once in so many seconds of the steady clock."""
    return int(time.monotonic()) // seconds


def sleep(seconds: float) -> None:
    """Wait on the steady clock."""
    time.sleep(seconds)


async def pause(seconds: float) -> None:
    """Wait on the steady clock, in a coroutine."""
    await asyncio.sleep(seconds)


class Every:
    """Says when a duty is due again, by the steady clock."""

    def __init__(self, interval_s: float, first_after_s: float = 0.0) -> None:
        self.interval_s = interval_s
        self._next = monotonic() + first_after_s

    def due(self) -> bool:
        """Whether the interval has passed; answering yes starts the next one."""
        if monotonic() < self._next:
            return False
        self._next = monotonic() + self.interval_s
        return True

    def now(self) -> None:
        """Make the next look due at once."""
        self._next = 0.0

    def after(self, seconds: float) -> None:
        """Put the next time off."""
        self._next = monotonic() + seconds

    def wait_s(self) -> float:
        """Seconds until due, not below 0."""
        return max(0.0, self._next - monotonic())


def jsonable(moment_: datetime | None) -> Any:
    """RFC 3339 in UTC, or None."""
    return None if moment_ is None else _as_utc(moment_).isoformat().replace("+00:00", "Z")
