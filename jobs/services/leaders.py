"""Leadership of periodic duties: a lease in a row, believed by the steady clock, given back in order (E2, case-E05).

A duty is safe with two leaders for a moment, a wake too many at the worst: leadership saves work, it guards nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from jobs import clock
from jobs.conf import conf
from jobs.store import leading

# How often a process renews what it leads and asks for what nobody does, at the most.
RENEW_S = 1.0
FLOOR_S = 6.0
MAKE_EVERY_S = 60.0
# A leader stands down before its lease ends: clocks run at slightly different speeds.
BELIEVED = 0.9


def lease_s(interval_s: float) -> float:
    """The lease of a duty that is due every so many seconds: twice that, and not shorter than a hiccup."""
    return max(min(FLOOR_S, max(2.0, conf().LEASE_S / 2)), 2 * interval_s)


class Leadership:
    """What one life of a process leads, as far as it may believe it. `leases`: seconds, by the name of the duty."""

    def __init__(self, leases: Mapping[str, float], holder: uuid.UUID | None = None) -> None:
        self.leases = dict(leases)
        # Never a host's name or a process id: two lives must not be taken for one (case-E04).
        self.holder = holder or uuid.uuid4()
        self._believed: dict[str, float] = {}
        self._ticked: set[str] = set()
        self._known = False
        # Somebody may delete a row.
        self._makes = clock.Every(MAKE_EVERY_S)
        self.every_s = min([RENEW_S, *(s / 3 for s in self.leases.values())])

    def renew(self) -> None:
        """Renew what is ours, take what is nobody's; whatever goes wrong, beliefs end with their leases."""
        if self._makes.due() or not self._known:
            leading.make(list(self.leases))
        # Before the question: however late the answer comes, the lease began after this.
        asked, ticked = clock.monotonic(), set(self._ticked)
        found = leading.take(self.holder, self.leases, ticked)
        for duty, ours in found.items():
            if ours:
                self._believed[duty] = asked + BELIEVED * self.leases[duty]
            else:
                self._believed.pop(duty, None)
        # Without an answer somebody has emptied the table.
        self._known = bool(found)
        self._ticked -= ticked

    def leads(self, duty: str) -> bool:
        """Whether this duty is ours at this moment."""
        return clock.monotonic() < self._believed.get(duty, 0.0)

    def ticked(self, duty: str) -> None:
        """A round of this duty is done: noted with the next renewal."""
        self._ticked.add(duty)

    def resign(self) -> None:
        """Give everything back, so that another takes over at once."""
        self._believed.clear()
        leading.give_back(self.holder)
