"""`lane-watchdog@1`: one round of the watchdog as a job, which a timer enqueues (A49, D13).

The site's setting `LANES` says how many lanes a round looks at and how long it may take. A project of its own names
this module in `JOBS["DEFINITIONS"]`, and the timer in `JOBS["TIMERS"]`; without that nobody looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from pydantic import Field

from jobs import job
from jobs.registry import Definition
from lanes import standstill, watchdog

TYPE: Final = "lane-watchdog"
LEAST_TIMEOUT_S: Final = 10.0
# A round a minute: what they did is of no interest for long.
KEPT_S: Final = 86_400.0
ScanLimit = Annotated[int, Field(ge=1, le=standstill.MOST)]


def definition(said: Mapping[str, Any]) -> Definition:
    """The job under the setting `LANES`: `WATCHDOG_SCAN_LIMIT` (1 to 2000), `WATCHDOG_TIMEOUT_S` (10 and more).

    Raises ImproperlyConfigured for a limit that cannot be.
    """
    most = said.get("WATCHDOG_SCAN_LIMIT", standstill.SCAN_LIMIT)
    if type(most) is not int or not 1 <= most <= standstill.MOST:
        raise ImproperlyConfigured(f"LANES_WATCHDOG_SCAN_LIMIT is {most!r}, and must be a whole number from 1 to "
                                   f"{standstill.MOST}.")

    def look(run: Any, scan_limit: ScanLimit | None = None) -> watchdog.Round:
        """Finds lanes in progress that stand still, and asks once for the job that looks into each."""
        return watchdog.round_(most if scan_limit is None else scan_limit, watchdog.went_on_from(run.job_id))

    # Never again by itself: the next round is due in a minute, and asks for what this one has not asked for.
    declared = job(
        TYPE, label="Lane watchdog", isolated=False, retry=None, dead_letter=False, retention=KEPT_S,
        origins={"scheduler"},
        timeout_s=max(LEAST_TIMEOUT_S, float(said.get("WATCHDOG_TIMEOUT_S", 60.0))))(look)
    made: Definition = declared.definition
    return made


DEFINITIONS = [definition(getattr(settings, "LANES", {}))]
