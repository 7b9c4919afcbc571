"""How starts of children go: after one that failed the next comes later, and later each time, until one is ready."""

from __future__ import annotations

from jobs import clock

SAY_EVERY_S = 5.0
MAX_PAUSE_S = 60.0
MIN_PAUSE_US = 5_000_000


class Starts:
    """The failed starts in a row, and when to start again."""

    def __init__(self) -> None:
        self.failures = 0
        self._again_at = 0.0
        self._lines = clock.Every(SAY_EVERY_S)

    @property
    def wait(self) -> bool:
        """Whether it is too early to start another one."""
        return clock.monotonic() < self._again_at

    @property
    def pause_us(self) -> int:
        """For how long a job that no child could be started for is handed back, in microseconds."""
        return max(MIN_PAUSE_US, int((self._again_at - clock.monotonic()) * 1_000_000))

    def succeeded(self) -> None:
        """One is ready."""
        self.failures, self._again_at = 0, 0.0

    def failed(self) -> tuple[float, bool]:
        """One more could not be started: seconds until the next, and whether that is worth a line."""
        self.failures += 1
        pause = min(MAX_PAUSE_S, 2.0 ** min(self.failures - 1, 8))
        self._again_at = clock.monotonic() + pause
        return pause, self._lines.due()
