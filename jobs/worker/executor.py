"""One attempt becomes an Outcome: decode the input, run the handler, validate the artifact, publish.

An exception anywhere becomes an Outcome; nothing here touches the attempt's row but the publication hook's commit
and an atomic settle.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from jobs.codecs import digest
from jobs.conf import middleware
from jobs.errors import Invalid
from jobs.outcomes import Completed, Failed, Outcome, storable
from jobs.registry import Definition
from jobs.services.assignments import Claimed
from jobs.services.settlement import is_read_only
from jobs.worker import logs
from jobs.worker.atomic import atomically
from jobs.worker.connection import close_all, discard, let_go
from jobs.worker.context import Run
from jobs.worker.credentials import kept, take, take_aside
from jobs.worker.middleware import around
from jobs.worker.publication import Commit, publish
from jobs.worker.results import (
    PUBLISHED,
    SHUTDOWN,
    TOO_LATE,
    Published,
    Result,
    Spoilt,
    describe,
    failure,
)

__all__ = ["PUBLISHED", "SHUTDOWN", "TOO_LATE", "Published", "Result", "Spoilt", "describe", "failure", "run_async",
           "run_sync"]
log = logging.getLogger("jobs.worker")
_NULL = Completed("null", digest("null"))
# What a codec raises about a value that it cannot write, beside its own refusal: the same value fails again.
_UNWRITABLE = (RecursionError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
# The loop keeps no strong reference to its tasks.
_mending: set[asyncio.Task[None]] = set()


def decode(definition: Definition, job: Claimed) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the handler; raises Spoilt."""
    try:
        return definition.input.bind(job.input)
    except Invalid as error:
        raise Spoilt(storable(error.message, 400)) from None


def artifact(definition: Definition, value: Any, masks: tuple[str, ...] = ()) -> Outcome:
    """The completed outcome of a handler's value, or the failure that it is no valid artifact (B8, B9).

    One that holds the owner's credential, of which `masks` are the words, is none (E10).
    """
    try:
        text = definition.artifact.encode_python(value)
    except Invalid as error:
        return Failed("invalid_artifact", storable(error.message), retryable=False)
    except _UNWRITABLE as error:
        return Failed("invalid_artifact", describe(error), retryable=False)
    return _NULL if text == "null" else kept(Completed(text, digest(text)), masks)


async def run_async(definition: Definition, job: Claimed, run: Run, by: str) -> Result:
    """Run an `async def` handler on this loop, in a task of its own; its cancellation is the caller's to explain."""
    logs.present.set(run)
    try:
        args, fields = decode(definition, job)
        if definition.credential != "none" and (refused := await asyncio.to_thread(take_aside, definition, job, run)):
            return refused
        if middleware():
            with around(run):
                value = await definition.handler(run, *args, **fields)  # type: ignore[misc]
        else:
            value = await definition.handler(run, *args, **fields)  # type: ignore[misc]
        outcome = artifact(definition, value, run.masks)
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
        if is_read_only(error):
            discard()
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()

    try:
        await sync_to_async(close)()
    except Exception:
        log.warning("a handler left a database connection that does not close", exc_info=True)


def run_sync(definition: Definition, job: Claimed, run: Run, by: str) -> Result:
    """Run a `def` handler in this thread and give its database connection back."""
    token = logs.present.set(run)
    try:
        args, fields = decode(definition, job)
        if definition.credential != "none" and (refused := take(definition, job, run)) is not None:
            return refused
        if definition.atomic:
            return atomically(definition, job, run, by, lambda: _call(definition, run, args, fields))
        outcome = _call(definition, run, args, fields)
        if definition.publish is not None and isinstance(outcome, Completed):
            return publish(definition, job, run, outcome, Commit(job, run, outcome, by))
        return outcome
    except Spoilt as spoilt:
        return spoilt
    except BaseException as error:
        let_go(error)
        return failure(error)
    finally:
        close_all()
        logs.present.reset(token)


def _call(definition: Definition, run: Run, args: tuple[Any, ...], fields: dict[str, Any]) -> Outcome:
    if middleware():
        with around(run):
            value = definition.handler(run, *args, **fields)  # type: ignore[misc]
    else:
        value = definition.handler(run, *args, **fields)  # type: ignore[misc]
    return artifact(definition, value, run.masks)


def _publish(definition: Definition, job: Claimed, run: Run, done: Completed, by: str) -> Result:
    """For a handler on the loop: in a thread that is nobody's, so its connection is given back."""
    try:
        return publish(definition, job, run, done, Commit(job, run, done, by))
    finally:
        close_all()
