"""Settling: what holders report becomes moves, in one durable transaction a batch.

A batch that fails for one member's sake is settled one by one, so that no neighbour suffers (DESIGN 4).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError

from jobs.codecs import printable
from jobs.errors import Conflict
from jobs.outcomes import VERB_OF, Failed, Outcome, storable
from jobs.states import Verb
from jobs.store.claim import Batch, Claimer, claim
from jobs.store.moves import Answer, apply
from jobs.store.sql import NotInTransaction, durable
from jobs.store.verbs import CODE_LIMIT, Move

log = logging.getLogger("jobs.settlement")
# A36: how often a last settlement is tried before it is left to the lease.
TRIES = 5


class Report(NamedTuple):
    """One holder's word: this attempt of this job ended so."""

    job_id: str
    fence: str
    outcome: Outcome


class SettlementRefused(Conflict):
    """The database refused this settlement; the attempt is left to its lease."""

    code = "settlement_refused"


def settle(reports: Sequence[Report], by: str) -> list[Answer]:
    """Settle each attempt; refusals (`stale_claim`, ...) stand in their places (E1, E5)."""
    return settle_and_claim(reports, by, None, 0)[0]


def settle_and_claim(reports: Sequence[Report], by: str, claimer: Claimer | None, slots: int) -> tuple[list[Answer], Batch]:
    """Settle what ended and claim for the free slots in one transaction: settle comes before claim (DESIGN 5)."""
    moves = [_move(report, by) for report in reports]

    def work() -> tuple[list[Answer], Batch]:
        answers = apply(moves) if moves else []
        return answers, claim(claimer, slots) if claimer is not None and slots > 0 else Batch([])

    try:
        return durable(work)
    except (OperationalError, InterfaceError, NotInTransaction):
        raise
    except DatabaseError:
        if not moves:
            raise
        log.exception("a batch of %d settlements was refused; settling one by one", len(moves))
        return [_alone(move) for move in moves], Batch([])


def _alone(move: Move) -> Answer:
    try:
        return durable(lambda: apply([move]))[0]
    except (OperationalError, InterfaceError, NotInTransaction):
        raise
    except DatabaseError:
        # Its words are for the log alone: they may quote rows.
        log.exception("the settlement of job %s was refused", move.job_id)
        return SettlementRefused()


def _move(report: Report, by: str) -> Move:
    outcome = report.outcome
    if isinstance(outcome, Failed):
        code = printable(outcome.code, CODE_LIMIT) or "attempt_error"
        outcome = Failed(code, storable(outcome.message), outcome.retryable)
    return Move(report.job_id, VERB_OF[type(outcome)], by=by, fence=report.fence, outcome=outcome)


def spoil(job_id: str, fence: str, message: str, by: str) -> Answer:
    """The persisted input no longer decodes: the job fails for good (B21, E1)."""
    return _alone(Move(job_id, Verb.SPOIL, by=by, fence=fence, reason=storable(message, 500)))
