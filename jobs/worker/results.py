"""What may become of an attempt that ran here, and what an exception of a handler means.

Nothing here raises: a failure that cannot be described is still a failure (E4).
"""

from __future__ import annotations

import logging
import traceback

from jobs.errors import JobError, JobsError
from jobs.outcomes import Failed, Interrupted, Outcome, storable
from jobs.redaction import masked
from jobs.worker import logs
from jobs.worker.context import TOO_LATE, Stopped
from jobs.worker.middleware import Swallowed

__all__ = ["NOT_STORED", "PUBLISHED", "SHUTDOWN", "TOO_LATE", "Published", "Result", "Spoilt", "describe", "failure"]
log = logging.getLogger("jobs.worker")
SHUTDOWN = "runner_shutdown"
# Storage would not take the end: never a failure of the job (RELIABILITY 3.8).
NOT_STORED = Interrupted("not_stored")


class Spoilt(Exception):
    """The persisted input does not decode any more (B21)."""


class Published:
    """The attempt has been settled already, by its publication hook or its transaction; nothing is left to report."""


PUBLISHED = Published()
Result = Outcome | Published | Spoilt


def failure(error: BaseException) -> Outcome:
    """What an exception of a handler means (B25, E4): its own safe code, or `attempt_error`. Never raises."""
    try:
        if isinstance(error, Stopped):
            return Interrupted(SHUTDOWN if error.reason == SHUTDOWN else "stopped")
        if isinstance(error, Swallowed):
            return Failed("attempt_error", storable(f"{error}\n{describe(error.thrown)}"))
        if isinstance(error, JobError):
            return Failed(str(error.reason_code), storable(_told(str(error.message))), bool(error.retryable))
        if isinstance(error, JobsError):
            return Failed(str(error.reason_code), storable(_told(str(error.message))))
    except BaseException:
        log.debug("an exception of a handler cannot be read", exc_info=True)
    return Failed("attempt_error", describe(error))


def _told(text: str) -> str:
    """Without the credential of the attempt that runs here: before a cut can leave a part of it."""
    run = logs.present.get()
    return text if run is None else masked(text, run.masks)


def describe(error: BaseException) -> str:
    """The traceback as storable text; an exception that cannot even be shown is named by its class."""
    try:
        return storable(_told("".join(traceback.format_exception(error, limit=-20))))
    except BaseException:
        return storable(f"{type(error).__module__}.{type(error).__qualname__} (its text cannot be shown)")
