"""The duties of the claim, each at its own pace, for a process that claims (CLAIM): promotion every 200 ms, repair
each second, deadlines and recovery every 5 s, closing of empty lines in the background. All are bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import InterfaceError, OperationalError

from jobs.clock import Every
from jobs.conf import conf
from jobs.leases import heartbeat_s
from jobs.services import recovery
from jobs.services.recovery import Closing, Recovery, Repair

log = logging.getLogger("jobs.duties")
FIRST_AFTER_S = 1.0
# A duty that fails for a reason of its own must neither stop the claims nor fill the log.
AFTER_FAILURE_S = 5.0


def _recover_every_s() -> float:
    """Recovery takes a gap in its own ticks for an outage and stands still: with short leases it must tick faster."""
    return min(5.0, (heartbeat_s(conf().LEASE_S) + conf().RECOVERY_GRACE_S) / 2)


class Duties:
    """Ticks what is due. A duty that says it has more to do is due again at once."""

    def __init__(self) -> None:
        self._duties: list[tuple[Every, Callable[[], bool]]] = [
            (Every(0.2), recovery.promote),
            (Every(1.0, FIRST_AFTER_S), Repair().tick),
            (Every(_recover_every_s(), FIRST_AFTER_S), Recovery().tick),
            (Every(5.0, FIRST_AFTER_S), recovery.deadlines),
            (Every(2.0, FIRST_AFTER_S), Closing().tick),
        ]

    def tick(self) -> None:
        """Run one round of each duty that is due."""
        for every, duty in self._duties:
            if every.due():
                self._run(every, duty)

    @staticmethod
    def _run(every: Every, duty: Callable[[], bool]) -> None:
        try:
            if duty():
                every.now()
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            log.exception("a duty of the claim failed; it is tried again in %s s", AFTER_FAILURE_S)
            every.after(AFTER_FAILURE_S)

    def wait_s(self) -> float:
        """Seconds until the next duty."""
        return min(every.wait_s() for every, _ in self._duties)
