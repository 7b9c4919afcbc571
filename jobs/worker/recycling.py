"""When a worker has worked enough and makes room for a fresh process: by jobs, by age, by memory."""

from __future__ import annotations

import math
import resource
import sys

from jobs import clock
from jobs.worker.plan import Plan

LOOK_EVERY_S = 1.0
MB = 1024 * 1024


class Recycling:
    """The limits of one life. Jobs are counted as they are claimed, so that the limit is exact."""

    def __init__(self, plan: Plan) -> None:
        self._max_jobs = math.inf if plan.max_jobs is None else plan.max_jobs
        self._max_age_s = math.inf if plan.max_age_s is None else plan.max_age_s
        self._max_memory = math.inf if plan.max_memory_mb is None else plan.max_memory_mb * MB
        self._born = clock.monotonic()
        self._looks = clock.Every(LOOK_EVERY_S)

    @classmethod
    def by(cls, plan: Plan) -> Recycling | None:
        """None where the plan has no limit."""
        return None if (plan.max_jobs, plan.max_age_s, plan.max_memory_mb) == (None, None, None) else cls(plan)

    def room(self, claimed: int) -> float:
        """How many jobs may still be claimed."""
        return self._max_jobs - claimed

    def reason(self, claimed: int) -> str | None:
        """Why this life should end now, if it should; age and memory are looked at once a second."""
        if claimed >= self._max_jobs:
            return "max_jobs"
        if not self._looks.due():
            return None
        if clock.monotonic() - self._born >= self._max_age_s:
            return "max_age"
        return "max_memory" if self._max_memory < math.inf and resident() > self._max_memory else None


def resident() -> int:
    """Bytes of memory that this process holds now; where the kernel does not say, the most it ever held."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
