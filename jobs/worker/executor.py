"""One attempt becomes an Outcome: decode the input, run the handler, validate the artifact, publish.

An exception anywhere becomes an Outcome; nothing here touches the attempt's row but the publication hook's commit.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any

from asgiref.sync import sync_to_async
from django.db import InterfaceError, InternalError, OperationalError, connections

from jobs import clock
from jobs.codecs import digest
from jobs.errors import Invalid, JobError, JobsError
from jobs.outcomes import Completed, Failed, Interrupted, Outcome, storable
from jobs.registry import Definition
from jobs.services import settlement
from jobs.services.assignments import Answer, Claimed, Locked
from jobs.worker.connection import discard
from jobs.worker.context import Run, Stopped

log = logging.getLogger("jobs.worker")
_NULL = Completed("null", digest("null"))
# After these the attempt has been given up here; after any other stop a completion still wins (E1).
TOO_LATE = frozenset({"attempt_timeout", "claim_lost"})
SHUTDOWN = "runner_shutdown"
# What a codec raises about a value that it cannot write, beside its own refusal: the same value fails again.
_UNWRITABLE = (RecursionError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
# The loop keeps no strong reference to its tasks.
_mending: set[asyncio.Task[None]] = set()


class Spoilt(Exception):
    """The persisted input does not decode any more (B21)."""


class Published:
    """The publication hook has settled the attempt already; there is nothing left to report."""


PUBLISHED = Published()
Result = Outcome | Published | Spoilt


class Commit:
    """The `commit` of a publication hook: settles the attempt as completed, once and while the claim is live (B33)."""

    def __init__(self, job: Claimed, run: Run, done: Completed, by: str) -> None:
        self._job, self._run, self._done, self._by = job, run, done, by
        self.committed = False
        self.unstored = False
        self.over = False

    def __call__(self) -> None:
        """Settle now. Raises JobsError when late, twice, or after the claim was lost."""
        if self.committed:
            raise JobsError("commit() was called twice.", code="already_committed")
        if self.over or self._run.stop_reason in TOO_LATE:
            raise JobsError("commit() came too late.", code="too_late")
        answer = self._settle()
        # Somebody's open transaction holds the row: nothing else is to be done here than to ask again.
        while isinstance(answer, Locked) and self._run.stop_reason not in TOO_LATE and not self.over:
            answer = self._settle()
        if isinstance(answer, JobsError):
            raise answer
        self.committed = self._run.settled = True

    def _settle(self) -> Answer:
        """Storage that fails for a moment is no failure of the job: the same settlement may be sent again (E5)."""
        for tried in range(1, settlement.TRIES + 1):
            try:
                return settlement.settle([settlement.Report(self._job.id, self._job.fence, self._done)], self._by)[0]
            except (OperationalError, InterfaceError, InternalError) as error:
                if isinstance(error, InternalError) and not settlement.is_read_only(error):
                    raise
                let_go(error)
                if tried == settlement.TRIES:
                    self.unstored = True
                    raise
                clock.sleep(0.15 * tried)
        raise AssertionError("unreachable")


def decode(definition: Definition, job: Claimed) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the handler; raises Spoilt."""
    try:
        return definition.input.bind(job.input)
    except Invalid as error:
        raise Spoilt(storable(error.message, 400)) from None


def artifact(definition: Definition, value: Any) -> Outcome:
    """The completed outcome of a handler's value, or the failure that it is no valid artifact (B8, B9)."""
    try:
        text = definition.artifact.encode_python(value)
    except Invalid as error:
        return Failed("invalid_artifact", storable(error.message), retryable=False)
    except _UNWRITABLE as error:
        return Failed("invalid_artifact", describe(error), retryable=False)
    return _NULL if text == "null" else Completed(text, digest(text))


async def run_async(definition: Definition, job: Claimed, run: Run, by: str) -> Result:
    """Run an `async def` handler on this loop; its cancellation is the caller's to explain."""
    try:
        args, fields = decode(definition, job)
        outcome = artifact(definition, await definition.handler(run, *args, **fields))  # type: ignore[misc]
        if definition.publish is not None and isinstance(outcome, Completed):
            return await asyncio.to_thread(_publish, definition, job, run, outcome, by)
        return outcome
    except Spoilt as spoilt:
        return spoilt
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        _mend(error)
        return failure(error)


def _mend(error: BaseException) -> None:
    """Let go of what may be a broken connection in the one thread in which Django serves async code.

    Nobody else would: there is no request whose end gives connections back, and each later handler would fail on it.
    """
    task = asyncio.get_running_loop().create_task(_close_old(error))
    _mending.add(task)
    task.add_done_callback(_mending.discard)


async def _close_old(error: BaseException) -> None:
    def close() -> None:
        if settlement.is_read_only(error):
            discard()
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()

    try:
        await sync_to_async(close)()
    except Exception:
        log.warning("a handler left a database connection that does not close", exc_info=True)


def run_sync(definition: Definition, job: Claimed, run: Run, by: str) -> Result:
    """Run a `def` handler in this thread and give its database connection back."""
    try:
        args, fields = decode(definition, job)
        outcome = artifact(definition, definition.handler(run, *args, **fields))  # type: ignore[misc]
        if definition.publish is not None and isinstance(outcome, Completed):
            return _publish(definition, job, run, outcome, by)
        return outcome
    except Spoilt as spoilt:
        return spoilt
    except BaseException as error:
        let_go(error)
        return failure(error)
    finally:
        close_connections()


def _publish(definition: Definition, job: Claimed, run: Run, done: Completed, by: str) -> Result:
    commit = Commit(job, run, done, by)
    try:
        definition.publish(run, done.artifact, commit)  # type: ignore[misc]
    except BaseException as error:
        if not commit.committed:
            return Interrupted("not_stored") if commit.unstored else failure(error)
        log.exception("the publication hook of job %s failed after its commit; the completion stands", job.id)
    finally:
        commit.over = True
        close_connections()
    return PUBLISHED if commit.committed else Failed("not_published", "The publication hook did not commit.")


def failure(error: BaseException) -> Outcome:
    """What an exception of a handler means (B25, E4): its own safe code, or `attempt_error`. Never raises."""
    try:
        if isinstance(error, Stopped):
            return Interrupted(SHUTDOWN if error.reason == SHUTDOWN else "stopped")
        if isinstance(error, JobError):
            return Failed(str(error.reason_code), storable(str(error.message)), bool(error.retryable))
        if isinstance(error, JobsError):
            return Failed(str(error.reason_code), storable(str(error.message)))
    except BaseException:
        log.debug("an exception of a handler cannot be read", exc_info=True)
    return Failed("attempt_error", describe(error))


def describe(error: BaseException) -> str:
    """The traceback as storable text; an exception that cannot even be shown is named by its class."""
    try:
        return storable("".join(traceback.format_exception(error, limit=-20)))
    except BaseException:
        return storable(f"{type(error).__module__}.{type(error).__qualname__} (its text cannot be shown)")


def let_go(error: BaseException) -> None:
    """Give this thread's connections back; one that takes no writes would be handed out long after others do."""
    if settlement.is_read_only(error):
        discard()
    close_connections()


def close_connections() -> None:
    """Give this thread's connections back to the pool; also those that a handler broke."""
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:
                # A handler left its transaction open: nothing of it may be kept.
                connection.needs_rollback = True
                connection.in_atomic_block = False
                connection.savepoint_ids = []
                connection.run_on_commit = []
            connection.close()
        except Exception:
            log.warning("a handler left a database connection that does not close", exc_info=True)
