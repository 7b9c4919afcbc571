"""What a worker remembers of trouble with its database: how long it lasts, what was said of it, what is in doubt."""

from __future__ import annotations

import math

from jobs import clock

# A36: again after 150 ms, 300 ms and so on; a lost server is asked for every two seconds.
AGAIN_S = 0.15
MAX_PAUSE_S = 2.0
LINES_EVERY_S = 2.0
# A COMMIT that was given up may be done yet, by a server that was slow to hear of it: how long that is looked for.
DOUBT_S = 60.0
DOUBT_EVERY_S = 2.0


def worth_a_line(mine: clock.Every, failures: int) -> bool:
    """Whether a thread beside the claiming one may say that there is trouble: what is over after a few more tries,
    that one has said, and many voices at once fill a log.
    """
    return failures > 3 and mine.due()


class Outage:
    """Counts failures in a row. After each, answers may be lost, and with them attempts in our name (E8)."""

    def __init__(self) -> None:
        self.failures = 0
        self._since = 0.0
        self._lines = clock.Every(LINES_EVERY_S)
        self._complained = False
        self._look_at = math.inf
        self._doubt_until = 0.0

    def again(self) -> float:
        """Something failed; how many seconds to wait before the next try."""
        now = clock.monotonic()
        self._since = self._since if self.failures else now
        self.failures += 1
        self._look_at, self._doubt_until = 0.0, now + DOUBT_S
        return min(MAX_PAUSE_S, AGAIN_S * self.failures)

    def over(self) -> bool:
        """The database has answered; whether that is news."""
        self.failures = 0
        news, self._complained = self._complained, False
        return news

    @property
    def lasts_s(self) -> float:
        """Seconds since the first of these failures."""
        return clock.monotonic() - self._since if self.failures else 0.0

    def worth_a_line(self) -> bool:
        """Whether it is time to say that there is trouble."""
        due = self._lines.due()
        self._complained = self._complained or due
        return due

    def in_doubt(self) -> bool:
        """Whether to look now for attempts in our name that we do not know."""
        return clock.monotonic() >= self._look_at

    def wait_s(self) -> float:
        """Seconds until the next such look."""
        return max(0.0, self._look_at - clock.monotonic())

    def looked(self) -> None:
        """That has been done; for a minute after the trouble it is done again and again."""
        now = clock.monotonic()
        self._look_at = now + DOUBT_EVERY_S if now < self._doubt_until else math.inf

    def leave_it(self) -> None:
        """Look no more: the looking itself cannot be done."""
        self._look_at = math.inf
