"""Jobs that no claim can take, for what a hand has put into their rows: an infinite moment, a counter set back.

The database refuses the whole statement, and so all the others that would be claimed with one of them. Whoever claims
leaves them alone for a minute at a time, lest a poisoned row stops a worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import DatabaseError, DataError, IntegrityError, NotSupportedError

from jobs import clock

ALONE_S = 60.0
# What the database, and the driver that reads from it, say of values; never of connections, locks or resources.
FAULTS = (DataError, IntegrityError, NotSupportedError)


class Unclaimable(DatabaseError):
    """A claim failed for what the row of one of these jobs holds."""

    def __init__(self, job_ids: Iterable[str]) -> None:
        super().__init__("a claim failed for what the row of a job holds")
        self.job_ids = sorted(job_ids)


class Spoilt:
    """The jobs that this claimer leaves alone."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def present(self) -> set[str]:
        """Those that are left alone now."""
        if not self._until:
            return set()
        now = clock.monotonic()
        # A copy first: in a web process another thread may add to it.
        self._until = {id_: until for id_, until in list(self._until.items()) if until > now}
        return set(self._until)

    def leave(self, job_ids: Iterable[str]) -> None:
        """Leave these alone from now on, for a minute."""
        until = clock.monotonic() + ALONE_S
        self._until.update((id_, until) for id_ in job_ids)
