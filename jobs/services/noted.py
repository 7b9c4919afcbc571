"""The latest diagnostics of runners' attempts: in memory and in the log, never in rows or receipts (B32).

Each one is a line; what this process heard last of an attempt is said once more when it ends badly here.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Any, Final

from jobs.diagnostics import Snapshot
from jobs.outcomes import Failed, Outcome
from jobs.selectors import Assignment

MOST: Final = 1_000
log = logging.getLogger("jobs.runners")
_latest: OrderedDict[str, Snapshot] = OrderedDict()
_guard = threading.Lock()


def note(held: Assignment, said: Snapshot) -> None:
    """Keep and log what a live attempt says; of an ended one nothing is heard any more."""
    if not held.live:
        return
    with _guard:
        _latest[held.id] = said
        _latest.move_to_end(held.id)
        if len(_latest) > MOST:
            _latest.popitem(last=False)
    log.info("a runner's diagnostic", extra={"event": "attempt.diagnostic", "diagnostic": said, **_facts(held)})


def end(held: Assignment, outcome: Outcome) -> None:
    """The attempt has ended by this outcome, which is said where it is a failure."""
    with _guard:
        said = _latest.pop(held.id, None)
    if isinstance(outcome, Failed):
        log.info("a runner's attempt failed", extra={
            "event": "attempt.failed", "code": outcome.code, "diagnostic": said, **_facts(held)})


def _facts(held: Assignment) -> dict[str, Any]:
    return {"job": held.job_id, "attempt": held.number, "type": f"{held.type}@{held.version}"}
