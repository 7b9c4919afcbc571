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
from jobs.registry import Definition, nearest
from lanes import standstill, watchdog

TYPE: Final = "lane-watchdog"
KNOWN: Final = ("WATCHDOG_SCAN_LIMIT", "WATCHDOG_TIMEOUT_S")
LEAST_TIMEOUT_S: Final = 10.0
# A round a minute: what they did is of no interest for long.
KEPT_S: Final = 86_400.0
ScanLimit = Annotated[int, Field(ge=1, le=standstill.MOST)]


def definition(said: Mapping[str, Any]) -> Definition:
    """The job under the setting `LANES`: `WATCHDOG_SCAN_LIMIT` (1 to 2000), `WATCHDOG_TIMEOUT_S` (10 and more).

    Raises ImproperlyConfigured for a word that it does not know, and for what cannot be.
    """
    for name in said:
        if name not in KNOWN:
            raise ImproperlyConfigured(f"LANES[{name!r}] is no setting{nearest(str(name), KNOWN)}")
    timeout_s = said.get("WATCHDOG_TIMEOUT_S", 60.0)
    if type(timeout_s) not in (int, float) or not 0 < timeout_s < float("inf"):
        raise ImproperlyConfigured(f"LANES_WATCHDOG_TIMEOUT_S is {timeout_s!r}, and must be a number of seconds.")
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
        timeout_s=max(LEAST_TIMEOUT_S, float(timeout_s)))(look)
    made: Definition = declared.definition
    return made


DEFINITIONS = [definition(getattr(settings, "LANES", {}))]
