"""Atomic settle: a handler's writes and its completion commit together, so that both happen exactly once (DESIGN 6).

The handler runs in a transaction of its own connection; the job's row is locked last, when the settlement is written.
Whatever keeps the whole from committing rolls all of it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, InterfaceError, OperationalError, connections, transaction
from psycopg.pq import TransactionStatus

from jobs import failpoints
from jobs.errors import JobsError
from jobs.outcomes import Completed, Failed, Interrupted, Outcome
from jobs.registry import Definition
from jobs.services import settlement
from jobs.services.assignments import Claimed
from jobs.services.settlement import Report, is_read_only
from jobs.worker.connection import let_go
from jobs.worker.context import Run
from jobs.worker.publication import JoiningCommit, publish
from jobs.worker.results import NOT_STORED, PUBLISHED, TOO_LATE, Result, failure

log = logging.getLogger("jobs.worker")
OVER = Interrupted("claim_lost")


class _Undo(Exception):
    """Roll everything back; `result` is what the attempt has come to."""

    def __init__(self, result: Result) -> None:
        self.result = result


def atomically(definition: Definition, job: Claimed, run: Run, by: str, handle: Callable[[], Outcome]) -> Result:
    """Run `handle`, which answers the handler's outcome, and settle a completion in the same transaction.

    A claim that was lost meanwhile rolls back quietly; so does storage that fails, which is no failure of the job.
    """
    try:
        with transaction.atomic(using=DEFAULT_DB_ALIAS):
            _begin()
            # Among the hooks of the commit ours is the first: from then on nothing can undo the completion.
            transaction.on_commit(run.note_settled, using=DEFAULT_DB_ALIAS)
            _settle(definition, job, run, by, _outcome(handle))
            _soften_hooks(job)
            failpoints.at("atomic.written")
    except _Undo as undo:
        if undo.__cause__ is not None:
            let_go(undo.__cause__)
        return undo.result
    except BaseException as error:
        if not run.settled:
            return _uncommitted(error, job)
        log.exception("after the commit of job %s something failed; the completion stands", job.id)
    return PUBLISHED


def _begin() -> None:
    """The driver begins a transaction with its first statement: from here on there is one that a handler may break."""
    try:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute("SELECT 1")
    except (OperationalError, InterfaceError):
        log.warning("an atomic job found no database to begin with", exc_info=True)
        raise _Undo(NOT_STORED) from None


def _outcome(handle: Callable[[], Outcome]) -> Completed:
    try:
        outcome = handle()
    except BaseException as error:
        raise _Undo(NOT_STORED if _is_lost(error) else failure(error)) from error
    if not isinstance(outcome, Completed):
        raise _Undo(outcome)
    return outcome


def _is_lost(error: BaseException) -> bool:
    """Whether the database went away under the handler, or takes no writes: neither is a failure of the job."""
    here = connections[DEFAULT_DB_ALIAS]
    gone = here.connection is None or here.connection.info.transaction_status is TransactionStatus.UNKNOWN
    lost = isinstance(error, (OperationalError, InterfaceError)) and gone and not here.closed_in_transaction
    return lost or is_read_only(error)


def _settle(definition: Definition, job: Claimed, run: Run, by: str, done: Completed) -> None:
    _check_whole()
    if run.stop_reason in TOO_LATE:
        raise _Undo(OVER)
    if definition.publish is None:
        _write(job, by, done)
    else:
        result = publish(definition, job, run, done, JoiningCommit(job, run, done, by))
        if result is not PUBLISHED:
            raise _Undo(OVER if isinstance(result, Failed) and result.code == "stale_claim" else result)
    # A COMMIT of a broken transaction is a rollback that nobody reports.
    _check_whole()


def _write(job: Claimed, by: str, done: Completed) -> None:
    try:
        answer = settlement.settle_within(Report(job.id, job.fence, done), by)
    except Exception:
        log.warning("the settlement of the atomic job %s was not stored", job.id, exc_info=True)
        raise _Undo(NOT_STORED) from None
    if isinstance(answer, JobsError):
        raise _Undo(OVER)


def _check_whole() -> None:
    fault = _fault(connections[DEFAULT_DB_ALIAS])
    if fault is not None:
        raise _Undo(fault)


def _fault(here: Any) -> Outcome | None:
    """What has become of our transaction, if it is not as we began it."""
    if here.closed_in_transaction or here.connection is None:
        return _broken("closed its database connection")
    if here.needs_rollback:
        return _broken("caught an exception that had broken its transaction; catch it outside of an atomic block")
    if not here.in_atomic_block or len(here.atomic_blocks) != 1 or here.savepoint_ids:
        return _broken("left an atomic block open, or ours")
    match here.connection.info.transaction_status:
        case TransactionStatus.INTRANS:
            return None
        case TransactionStatus.INERROR:
            return _broken("caught a database error without a savepoint around what raised it")
        case TransactionStatus.IDLE:
            return _broken("ended its transaction by itself")
        case _:
            return NOT_STORED


def _broken(deed: str) -> Failed:
    return Failed("transaction_broken", f"The atomic handler {deed}. Nothing of it was kept.", retryable=False)


def _soften_hooks(job: Claimed) -> None:
    """Hooks of the handler that raise after the commit must neither hide each other nor the completion (case-D02)."""
    here = connections[DEFAULT_DB_ALIAS]
    hooks: Any = [(entry[0], _softened(entry[1], job), True) for entry in here.run_on_commit]
    here.run_on_commit = hooks


def _softened(hook: Callable[[], object], job: Claimed) -> Callable[[], None]:
    def call() -> None:
        try:
            hook()
        except Exception:
            log.exception("an on_commit hook of job %s failed; the completion stands", job.id)

    return call


def _uncommitted(error: BaseException, job: Claimed) -> Outcome:
    """The COMMIT failed: by a constraint that the handler had deferred, or because it could not be stored."""
    if isinstance(error, Error) and not isinstance(error, (OperationalError, InterfaceError)):
        return failure(error)
    log.warning("the commit of the atomic job %s was not stored, or its answer was lost", job.id, exc_info=error)
    return NOT_STORED
