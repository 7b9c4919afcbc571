"""What each verb does to a locked row: decide first. Values in, a `Change` out; no clock, no database.

A refusal is raised as the error that the caller will read. Writing is `store.writing`'s.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from jobs import retry
from jobs.errors import Conflict, IllegalMove, JobEnded, JobsError, RevisionMismatch, StaleFence
from jobs.outcomes import Completed, Failed, Interrupted, Released, Stopped, final_status
from jobs.receipts import body_text
from jobs.retry import Again, Budget, Over
from jobs.states import FENCED, MOVES, TERMINAL, State, Verb

MS = 1_000
_HOLDER = re.compile(r"[A-Za-z0-9:._-]{1,200}")
CODE_LIMIT = 64
INTERRUPTED_TOO_OFTEN = "interrupted_too_often"
# The job had an absolute deadline that has passed; its new chain has none (E4).
DEADLINE_DROPPED = "deadline_dropped"


class Row(NamedTuple):
    """A job as the locking statement read it; `state` None where a completion is written without a look."""

    id: str
    state: str | None
    attempt_id: str | None
    workspace_id: int
    tenant_id: int
    worker_group: str
    queue: str
    exclusive_group: str | None
    revision: int = 0
    reason: str | None = None
    chain: int = 1
    failures: int = 0
    lapses: int = 0
    releases: int = 0
    interruptions: int = 0
    max_attempts: int | None = None
    base_delay_ms: int = 0
    max_delay_ms: int = 0
    retry_on: list[str] | None = None
    lapse_counts: bool = True
    max_lapses: int = 0
    dead_letter: bool = True
    deadline_ms: int | None = None
    deadline_at: datetime | None = None
    abort_reason: str | None = None
    # The tenant's restarts in a window; None: unlimited, or the house's own job (C20).
    retry_budget: int | None = None
    broke: bool = False


@dataclass(slots=True)
class Move:
    """One wish: do `verb` to a job. `fence` is the attempt's id for the holder's verbs; `revision` an If-Match."""

    job_id: str
    verb: Verb
    by: str = "system"
    fence: str | None = None
    outcome: Completed | Failed | Stopped | Released | Interrupted | None = None
    reason: str | None = None
    after_us: int = 0
    at_us: int | None = None
    revision: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Change:
    """What to write for one move. `sets` are row values by column, `counters` are raised by one."""

    row: Row
    verb: Verb
    to: State
    body: str
    fence: str | None = None
    counters: tuple[str, ...] = ()
    sets: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    artifact: Completed | None = None
    letter: tuple[str, str | None] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def restarts(self) -> bool:
        """Whether it runs again after a failure or a lapse, which spends the tenant's retry budget (C20)."""
        return self.to is State.QUEUED and (self.verb is Verb.LAPSE or "failures" in self.counters)


def decide(move: Move, row: Row, now: datetime) -> Change:
    """The change that a move means for this row; raises the refusal (E1, E14)."""
    state = State(row.state or "")
    fenced = move.verb in FENCED or move.fence is not None
    if fenced and (move.fence is None or move.fence != row.attempt_id):
        raise StaleFence(status=state)
    if move.revision is not None and move.revision != row.revision:
        raise RevisionMismatch(f"The job is at revision {row.revision}.", revision=row.revision)
    if (state, move.verb) not in MOVES or move.verb is Verb.CLAIM:
        raise refusal(state, move.verb)
    change = _DECIDERS[move.verb](move, row, now)
    if change.to not in MOVES[state, move.verb]:
        raise IllegalMove(f"A {state} job cannot become {change.to} by {move.verb}.")
    return change


def refusal(state: State, verb: Verb) -> JobsError:
    """Why this verb is not for a job in this state, with a stable code for each pair's kind (E1)."""
    if state in TERMINAL and verb is not Verb.REQUEUE:
        return JobEnded(f"The job is {state}.", status=state)
    code = {
        Verb.RESUME: "not_paused", Verb.REQUEUE: "not_dead_lettered",
        Verb.CLAIM: "not_queued" if state is not State.QUEUED else "illegal_move",
        Verb.EXPIRE: "not_queued", Verb.EXHAUST: "not_queued", Verb.PAUSE: "already_paused",
        Verb.START: "already_running", Verb.SPOIL: "not_claimed",
    }.get(verb, "not_held")
    return IllegalMove(f"The job is {state}; {verb} is not possible.", code=code, status=state)


def budget(row: Row) -> Budget:
    """The retry arithmetic's view of a row."""
    return Budget(
        max_attempts=row.max_attempts, base_delay_us=row.base_delay_ms * MS, max_delay_us=row.max_delay_ms * MS,
        retry_on=None if row.retry_on is None else tuple(row.retry_on), failures=row.failures, lapses=row.lapses,
        releases=row.releases, interruptions=row.interruptions, lapse_counts=row.lapse_counts,
        max_lapses=row.max_lapses, deadline_at=row.deadline_at, broke=row.broke)


def _start(move: Move, row: Row, now: datetime) -> Change:
    return Change(row, move.verb, State.RUNNING, body_text(attempt=row.attempt_id, by=move.by, to=State.RUNNING),
                  fence=row.attempt_id)


def _complete(move: Move, row: Row, now: datetime) -> Change:
    return completion(move, row)


@lru_cache(maxsize=1024)
def holder(by: str) -> str:
    """A holder's name as it may stand in SQL and in a body without escaping; anything else is a programming error."""
    if not _HOLDER.fullmatch(by):
        raise ValueError(f"A holder is named by letters, digits and : . _ -, not {by!r}.")
    return by


def completion(move: Move, row: Row | None = None) -> Change:
    """A completion depends on nothing of the row but its fence, which the write checks: it can go without a look."""
    done = move.outcome
    if not isinstance(done, Completed):
        raise Conflict("A completion carries its artifact.", code="illegal_move")
    # The hottest body of all, spelled out in canonical order: actors and ids hold nothing to escape.
    body = f'{{"artifact":"{done.digest.hex()}","attempt":"{move.fence}","by":"{holder(move.by)}","to":"completed"}}'
    unseen = row or Row(move.job_id, None, move.fence, 0, 0, "", "", None)
    return Change(unseen, Verb.COMPLETE, State.COMPLETED, body, fence=move.fence, artifact=done)


def _after_abort(move: Move, row: Row, end: dict[str, Any], counters: tuple[str, ...], **facts: Any) -> Change:
    """A pending abort wins over every end but a completion (E1)."""
    return _ended(move, row, State.CANCELLED, row.abort_reason, end, counters, None, **facts)


def _ended(move: Move, row: Row, to: State, reason: str | None, end: dict[str, Any], counters: tuple[str, ...],
           letter: tuple[str, str | None] | None, **facts: Any) -> Change:
    sets: dict[str, Any] = {"reason": reason}
    if end.get("reason_code"):
        # A person's reason may be longer than the code that the attempt keeps of it.
        end = {**end, "reason_code": end["reason_code"][:CODE_LIMIT]}
    if row.abort_reason is not None:
        sets["abort_reason"] = None
    body = body_text(attempt=row.attempt_id, by=move.by, to=to, reason=reason,
                     failure=True if "failures" in counters else None,
                     dead_letter=letter[0] if letter else None,
                     result_status=final_status(to, end.get("reason_code")) if row.attempt_id else None, **facts)
    return Change(row, move.verb, to, body, fence=row.attempt_id, counters=counters, sets=sets, end=end, letter=letter)


def _again(move: Move, row: Row, reason: str | None, after_us: int, at_us: int | None, end: dict[str, Any],
           counters: tuple[str, ...], **facts: Any) -> Change:
    change = _ended(move, row, State.QUEUED, reason, end, counters, None, **_when(after_us, at_us), **facts)
    change.sets.update(_available(after_us, at_us))
    return change


def _when(after_us: int, at_us: int | None) -> dict[str, int]:
    if at_us is not None:
        return {"available_at": at_us}
    return {"after": after_us} if after_us else {}


def _available(after_us: int, at_us: int | None) -> dict[str, int]:
    return {"after_us": after_us} if at_us is None else {"at_us": at_us}


def _judged(move: Move, row: Row, decision: retry.Decision, code: str, end: dict[str, Any],
            counters: tuple[str, ...]) -> Change:
    counters = (*counters, "failures") if decision.failure else counters
    match decision:
        case Again(after_us=after):
            return _again(move, row, code, after, None, end, counters, code=code)
        case Over(letter=letter):
            kept = row.dead_letter or letter == "quarantined"
            return _ended(move, row, State.FAILED, letter, end, counters, (letter, code) if kept else None, code=code)


def _fail(move: Move, row: Row, now: datetime) -> Change:
    failed = move.outcome
    if not isinstance(failed, Failed):
        raise Conflict("A failure carries its reason code.", code="illegal_move")
    end = {"reason_code": failed.code, "message": failed.message or None, "retryable": failed.retryable}
    if row.abort_reason is not None:
        return _after_abort(move, row, end, ("failures",), code=failed.code)
    decision = retry.after_failure(budget(row), failed.code, failed.retryable, now, random.random())
    return _judged(move, row, decision, failed.code, end, ())


def _spoil(move: Move, row: Row, now: datetime) -> Change:
    code = "invalid_persisted_input"
    end = {"reason_code": code, "message": move.reason, "retryable": False}
    counters = ("failures",) if row.attempt_id else ()
    letter = ("terminal_error", code) if row.dead_letter else None
    return _ended(move, row, State.FAILED, code, end, counters, letter, code=code)


def _stop(move: Move, row: Row, now: datetime) -> Change:
    reason = row.abort_reason or (move.outcome.reason if isinstance(move.outcome, Stopped) else move.reason)
    return _ended(move, row, State.CANCELLED, reason or "abort_requested", {"reason_code": reason}, (), None)


def _release(move: Move, row: Row, now: datetime) -> Change:
    back = move.outcome if isinstance(move.outcome, Released) else Released()
    if row.abort_reason is not None:
        return _after_abort(move, row, {}, ("releases",))
    after = back.after_us
    if back.at_us is not None:
        after = max(0, back.at_us - int(now.timestamp() * retry.SECOND))
    retry.after_release(budget(row), after, now)
    return _again(move, row, "released", back.after_us, back.at_us, {}, ("releases",))


def _interrupt(move: Move, row: Row, now: datetime) -> Change:
    cut = move.outcome if isinstance(move.outcome, Interrupted) else Interrupted()
    end: dict[str, Any] = {"reason_code": cut.reason}
    if row.abort_reason is not None:
        return _after_abort(move, row, end, ("interruptions",))
    decision = retry.after_interruption(budget(row), cut.after_us, now, random.random())
    if not decision.failure:
        return _judged(move, row, decision, cut.reason, end, ("interruptions",))
    # One too many is a failure and none of the uncounted: `attempt_count` has it (E1, E4).
    end = {"reason_code": INTERRUPTED_TOO_OFTEN, "message": cut.reason, "retryable": True}
    return _judged(move, row, decision, INTERRUPTED_TOO_OFTEN, end, ())


def _lapse(move: Move, row: Row, now: datetime) -> Change:
    end: dict[str, Any] = {"reason_code": "lease_expired"}
    if row.abort_reason is not None:
        return _after_abort(move, row, end, ("lapses",))
    return _judged(move, row, retry.after_lapse(budget(row), now, random.random()), "lease_expired", end, ("lapses",))


def _expire(move: Move, row: Row, now: datetime) -> Change:
    letter = ("deadline_exceeded", None) if row.dead_letter else None
    return _ended(move, row, State.FAILED, "deadline_exceeded", {}, (), letter)


def _exhaust(move: Move, row: Row, now: datetime) -> Change:
    letter = ("attempts_exhausted", None) if row.dead_letter else None
    return _ended(move, row, State.FAILED, "attempts_exhausted", {}, (), letter, code="max_claims")


def _pause(move: Move, row: Row, now: datetime) -> Change:
    reason = move.reason or "paused"
    counters = ("pauses",) if row.attempt_id else ()
    if row.attempt_id and row.abort_reason is not None:
        return _after_abort(move, row, {}, counters)
    return _ended(move, row, State.PAUSED, reason, {"reason_code": reason}, counters, None, **move.facts)


def _resume(move: Move, row: Row, now: datetime) -> Change:
    if row.deadline_at is not None and row.deadline_at <= now:
        return _expire(move, row, now)
    return _again(move, row, move.reason, move.after_us, move.at_us, {}, (), **move.facts)


def _cancel(move: Move, row: Row, now: datetime) -> Change:
    reason = move.reason or "cancelled"
    return _ended(move, row, State.CANCELLED, reason, {"reason_code": reason}, (), None, **move.facts)


def _supersede(move: Move, row: Row, now: datetime) -> Change:
    reason = move.reason or "superseded"
    return _ended(move, row, State.SUPERSEDED, reason, {"reason_code": reason}, (), None, **move.facts)


def _requeue(move: Move, row: Row, now: datetime) -> Change:
    late = row.deadline_ms is None and row.deadline_at is not None and row.deadline_at <= now
    facts = {**move.facts, DEADLINE_DROPPED: True} if late else move.facts
    change = _again(move, row, move.reason, 0, None, {}, (), **facts)
    change.warnings = (DEADLINE_DROPPED,) if late else ()
    return change


_DECIDERS: dict[Verb, Callable[[Move, Row, datetime], Change]] = {
    Verb.START: _start, Verb.COMPLETE: _complete, Verb.FAIL: _fail, Verb.SPOIL: _spoil, Verb.STOP: _stop,
    Verb.RELEASE: _release, Verb.INTERRUPT: _interrupt, Verb.LAPSE: _lapse, Verb.EXPIRE: _expire,
    Verb.EXHAUST: _exhaust, Verb.PAUSE: _pause, Verb.RESUME: _resume, Verb.CANCEL: _cancel,
    Verb.SUPERSEDE: _supersede, Verb.REQUEUE: _requeue,
}
