"""Settling: what holders report becomes moves, in one durable transaction a batch.

A batch that fails for one member's sake is settled one by one, so that no neighbour suffers (DESIGN 4).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.transaction import TransactionManagementError

from jobs import failpoints, meters
from jobs.codecs import printable
from jobs.errors import Conflict, StaleFence
from jobs.outcomes import VERB_OF, Failed, Outcome, storable
from jobs.services import workers
from jobs.services.assignments import LOCK_NOT_AVAILABLE, Locked, claim_around, claim_within
from jobs.states import Verb
from jobs.store import due
from jobs.store.claim import Batch, Claimer
from jobs.store.moves import Answer, Moved, apply
from jobs.store.spoilt import Unclaimable
from jobs.store.sql import ALIAS, NotInTransaction, durable, is_read_only, run, sqlstate
from jobs.store.verbs import CODE_LIMIT, Move

log = logging.getLogger("jobs.settlement")
__all__ = ["TRIES", "Locked", "Report", "SettlementRefused", "is_read_only", "settle", "settle_and_claim",
           "settle_free", "settle_within", "spoil"]
# A36: how often a last settlement is tried before it is left to the lease.
TRIES = 5
# How long a settlement waits for a row that somebody holds: a caller's open transaction must not stall a worker.
PATIENCE_MS = 500
ALONE_MS = 100


class Report(NamedTuple):
    """One holder's word: this attempt of this job ended so.

    `unknown` names the `type@version` that its holder does not know: where nobody alive does, the job is paused (E7).
    """

    job_id: str
    fence: str
    outcome: Outcome
    unknown: str | None = None


class SettlementRefused(Conflict):
    """The database refused this settlement; the attempt is left to its lease."""

    code = "settlement_refused"


def settle(reports: Sequence[Report], by: str) -> list[Answer]:
    """Settle each attempt; refusals (`stale_claim`, `job_locked`, ...) stand in their places (E1, E5)."""
    return settle_and_claim(reports, by, None, 0)[0]


def settle_and_claim(reports: Sequence[Report], by: str, claimer: Claimer | None,
                     slots: int) -> tuple[list[Answer], Batch]:
    """Settle what ended and claim for the free slots in one transaction: settle comes before claim (DESIGN 5)."""
    moves = _moves(reports, by)

    def work() -> tuple[list[Answer], Batch]:
        answers = _patiently(moves, PATIENCE_MS) if moves else []
        return answers, claim_within(claimer, slots) if claimer is not None and slots > 0 else Batch([])

    if moves:
        failpoints.at("settle.ready")
    try:
        with meters.timed("settle" if moves else "claim"):
            done = durable(work)
    except (OperationalError, InterfaceError, NotInTransaction) as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return _free(moves), Batch([], again=slots > 0)
    except Unclaimable:
        # No fault of what is settled.
        answers = settle(reports, by) if moves else []
        return answers, Batch([]) if claimer is None else claim_around(claimer, slots)
    except DatabaseError as error:
        if not moves or is_read_only(error):
            raise
        log.exception("a batch of %d settlements was refused; settling one by one", len(moves))
        return [_alone(move) for move in moves], Batch([], again=slots > 0)
    if moves:
        failpoints.at("settle.committed")
    return done


def settle_within(report: Report, by: str) -> Answer:
    """Settle in the present transaction: what its holder wrote there commits with the end or not at all (DESIGN 6).

    The holder's last statement. It waits for whoever holds the job's row, with all that the transaction has locked;
    where that is a deadlock the database ends one of the two. The same end once more is no repeat here but stale.
    """
    if not connections[ALIAS].in_atomic_block:
        raise TransactionManagementError("There is no transaction to settle in.")
    answer = apply([_move(report, by)], release=False)[0]
    return StaleFence(status=answer.state) if isinstance(answer, Moved) and answer.repeated else answer


def settle_free(reports: Sequence[Report], by: str) -> list[Answer]:
    """Settle those whose rows nobody holds at this moment; the others are answered Locked at once."""
    return _free(_moves(reports, by))


def _free(moves: Sequence[Move]) -> list[Answer]:
    def work() -> list[Answer]:
        free = due.unlocked([m.job_id for m in moves])
        mine = [m for m in moves if m.job_id in free]
        answers = iter(_patiently(mine, ALONE_MS) if mine else [])
        return [next(answers) if m.job_id in free else Locked() for m in moves]

    try:
        return durable(work)
    except (OperationalError, InterfaceError, NotInTransaction) as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
    except DatabaseError as error:
        if is_read_only(error):
            raise
        log.exception("a batch of %d settlements was refused; settling one by one", len(moves))
    return [_alone(move) for move in moves]


def _patiently(moves: Sequence[Move], patience_ms: int) -> list[Answer]:
    run(f"SET LOCAL lock_timeout = {int(patience_ms)}")
    answers = apply(moves)
    failpoints.at("settle.written")
    return answers


def _alone(move: Move) -> Answer:
    try:
        return durable(lambda: _patiently([move], ALONE_MS))[0]
    except (OperationalError, InterfaceError, NotInTransaction) as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return Locked()
    except DatabaseError as error:
        if is_read_only(error):
            raise
        # Its words are for the log alone: they may quote rows.
        log.exception("the settlement of job %s was refused", move.job_id)
        return SettlementRefused()


def _moves(reports: Sequence[Report], by: str) -> list[Move]:
    unknown = {r.unknown for r in reports if r.unknown is not None}
    nobodys = unknown - workers.known_types() if unknown else set()
    return [_pause(r, by) if r.unknown in nobodys else _move(r, by) for r in reports]


def _pause(report: Report, by: str) -> Move:
    return Move(report.job_id.lower(), Verb.PAUSE, by=by, fence=report.fence.lower(), reason="unregistered_type")


def _move(report: Report, by: str) -> Move:
    outcome = report.outcome
    if isinstance(outcome, Failed):
        code = printable(outcome.code, CODE_LIMIT) or "attempt_error"
        outcome = Failed(code, storable(outcome.message), outcome.retryable)
    # Rows spell ids in lower case; whoever holds one may not.
    return Move(report.job_id.lower(), VERB_OF[type(outcome)], by=by, fence=report.fence.lower(), outcome=outcome)


def spoil(job_id: str, fence: str, message: str, by: str) -> Answer:
    """The persisted input no longer decodes: the job fails for good (B21, E1)."""
    return _alone(Move(job_id.lower(), Verb.SPOIL, by=by, fence=fence.lower(), reason=storable(message, 500)))
