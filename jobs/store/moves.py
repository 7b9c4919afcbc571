"""The one writer. Every change of a job's state goes through `apply`; `record` appends receipts that move nothing.

A batch locks its jobs by id, decides on what it read (`verbs`), writes with the guard in the WHERE (`writing`),
and releases what the ended attempts held (`admission`). A stale member is a refusal in its place and changes
nothing for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs import publish
from jobs.clock import EPOCH
from jobs.errors import JobNotFound, JobsError, StaleFence
from jobs.outcomes import END_OF, Completed, Failed
from jobs.receipts import Kind, body_text
from jobs.routing import SYSTEM
from jobs.states import State, Verb
from jobs.store import admission, commands, windows
from jobs.store.owning import BELIEVED
from jobs.store.sql import array, chain_hash, packed, rows
from jobs.store.verbs import Change, Move, Row, completion, decide, refusal
from jobs.store.writing import Written, write

_LEAN = ("id::text, state, attempt_id::text, workspace_id, tenant_id, worker_group, queue, exclusive_group")
_FULL = _LEAN + (
    ", revision, reason, chain, failures, lapses, releases, interruptions, max_attempts, base_delay_ms, max_delay_ms,"
    " retry_on, lapse_counts, max_lapses, dead_letter, deadline_ms, deadline_at, abort_reason,"
    f" CASE WHEN worker_group <> '{SYSTEM}' THEN {windows.limit(windows.Kind.RETRY, 'jobs_job')} END")
# Waits for whoever holds a job: a settle must happen, so it is the claim that skips locked rows and never this.
_LOCK = "SELECT jobs_now(), {columns} FROM jobs_job WHERE id = ANY(" + array("uuid") + ") ORDER BY id FOR NO KEY UPDATE"
_SHORT = frozenset({Verb.COMPLETE, Verb.START})


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that was written. `repeated` when the same end was already on the attempt (E5)."""

    job_id: str
    state: State
    revision: int = 0
    number: int = 0
    repeated: bool = False
    letter: str | None = None
    reason: str | None = None
    # What the caller should know, by codes: `deadline_dropped` (E4).
    warnings: tuple[str, ...] = ()


Answer = Moved | JobsError


def apply(moves: Sequence[Move], *, release: bool = True) -> list[Answer]:
    """Do each move in the caller's transaction; a refusal stands in its place.

    `release=False` is for joining verbs: what their ended attempts held is released after commit (DESIGN 4).
    """
    if not moves:
        return []
    if all(m.verb is Verb.COMPLETE and m.fence and m.revision is None for m in moves):
        return _complete(moves, release)
    return _apply(moves, release)


def _complete(moves: Sequence[Move], release: bool) -> list[Answer]:
    """Completions alone are written at once; what the fence did not let through is looked at like any other move."""
    answers: list[Answer | None] = [None] * len(moves)
    changes = {move.job_id: (n, completion(move)) for n, move in enumerate(moves)}
    _write(changes, answers, release)
    left = [n for n, answer in enumerate(answers) if not isinstance(answer, Moved)]
    for n, answer in zip(left, _apply([moves[n] for n in left], release) if left else [], strict=True):
        answers[n] = answer
    return [a for a in answers if a is not None]


def _apply(moves: Sequence[Move], release: bool) -> list[Answer]:
    locked, now = _lock(moves)
    answers: list[Answer | None] = [None] * len(moves)
    changes: dict[str, tuple[int, Change]] = {}
    again: list[int] = []
    for n, move in enumerate(moves):
        row = locked.get(move.job_id)
        if row is None:
            answers[n] = JobNotFound()
        elif move.job_id in changes:
            again.append(n)
        else:
            try:
                changes[move.job_id] = (n, decide(move, row, now))
            except JobsError as error:
                answers[n] = error
    spent = _spend(moves, changes, now)
    _write(changes, answers, release)
    if spent:
        _give_back(spent, changes, answers)
    # Only an end that takes a pending abort back names the column; a completion has not honoured it.
    stopped = [(id_, change.row.attempt_id) for id_, (n, change) in changes.items()
               if "abort_reason" in change.sets and isinstance(answers[n], Moved)]
    if stopped:
        commands.honour(stopped)
    _recognise_repeats(moves, answers)
    if again:
        for n, answer in zip(again, _apply([moves[n] for n in again], release), strict=True):
            answers[n] = answer
    return [a for a in answers if a is not None]


def _spend(moves: Sequence[Move], changes: dict[str, tuple[int, Change]], now: datetime) -> list[str]:
    """Restarts of tenants with a retry budget spend it, oldest jobs first; beyond it they are decided anew (C20)."""
    most = windows.platform()
    wanted = [id_ for id_, (_, change) in changes.items() if change.restarts and change.row.worker_group != SYSTEM
              and (most is not None or change.row.retry_budget is not None)]
    if not wanted:
        return []
    granted = windows.take(windows.Kind.RETRY, Counter(changes[id_][1].row.tenant_id for id_ in wanted))
    spent = []
    for id_ in sorted(wanted):
        n, change = changes[id_]
        if granted[change.row.tenant_id] > 0:
            granted[change.row.tenant_id] -= 1
            spent.append(id_)
        else:
            changes[id_] = (n, decide(moves[n], change.row._replace(broke=True), now))
    return spent


def _give_back(spent: list[str], changes: dict[str, tuple[int, Change]], answers: list[Answer | None]) -> None:
    """What the write refused was no restart."""
    lost = Counter(changes[id_][1].row.tenant_id for id_ in spent if not isinstance(answers[changes[id_][0]], Moved))
    if lost:
        windows.give_back(windows.Kind.RETRY, lost)


def _lock(moves: Sequence[Move]) -> tuple[dict[str, Row], datetime]:
    lean = all(m.verb in _SHORT and m.revision is None for m in moves)
    found = rows(_LOCK.format(columns=_LEAN if lean else _FULL), [packed([m.job_id for m in moves])])
    # No row, no moment: there is nothing to decide then.
    return {r[1]: Row(*r[1:]) for r in found}, found[0][0] if found else EPOCH


def _write(changes: dict[str, tuple[int, Change]], answers: list[Answer | None], release: bool) -> None:
    if not changes:
        return
    written = write([change for _, change in changes.values()])
    for job_id, (n, change) in changes.items():
        done = written.get(job_id)
        answers[n] = _moved(change, done) if done else _unwritten(change)
    kept = [changes[job_id][1] for job_id in written]
    admission.open_lines([(c.row.workspace_id, c.row.worker_group, c.row.queue, c.row.tenant_id) for c in kept
                          if c.to is State.QUEUED and written[c.row.id].gate is None])
    capped = [w for w in written.values() if w.capped]
    if capped:
        (admission.release if release else admission.release_after)(capped)
    publish.moved([(c.row.id, written[c.row.id].number, c.to) for c in kept],
                  tenants={w.tenant_id for w in written.values()}, types={w.type for w in written.values()})
    heard = [(w.id, changes[w.id][1].to, w.callback_events) for w in written.values() if w.callback_events is not None]
    if heard:
        publish.called(heard)


def _unwritten(change: Change) -> JobsError:
    """The two guards that the locked row did not show: a strict lease that has run out, a letter that is closed."""
    return refusal(State.FAILED, change.verb) if change.verb is Verb.REQUEUE else StaleFence()


def _moved(change: Change, done: Written) -> Moved:
    return Moved(done.id, change.to, done.revision, done.number, letter=change.letter[0] if change.letter else None,
                 reason=change.sets.get("reason"), warnings=change.warnings)


_ENDED = ("SELECT a.id::text, a.outcome, a.answer_hash, a.reason_code, job.state, job.revision, job.number,"
          " job.id::text FROM jobs_attempt a"
          " JOIN jobs_job job ON job.id = a.job_id WHERE a.ended_at IS NOT NULL AND a.id = ANY(" + array("uuid") + ")")


def _recognise_repeats(moves: Sequence[Move], answers: list[Answer | None]) -> None:
    """The same end again is a quiet yes: the first answer was lost on its way (E5, D4)."""
    stale = [n for n, a in enumerate(answers) if isinstance(a, StaleFence) and moves[n].fence]
    if not stale:
        return
    ends = {r[0]: r for r in rows(_ENDED, [packed([moves[n].fence for n in stale])])}
    for n in stale:
        end = ends.get(str(moves[n].fence))
        if end is not None and end[7] == moves[n].job_id:
            same = _same_end(moves[n], end[1], end[2], end[3])
            answers[n] = (Moved(moves[n].job_id, State(end[4]), end[5], end[6], repeated=True) if same
                          else StaleFence(status=end[4]))


def _same_end(move: Move, outcome: str, answer_hash: Any, code: str | None) -> bool:
    if move.verb not in END_OF or END_OF[move.verb] != outcome:
        return False
    match move.outcome:
        case Completed(digest=digest):
            return answer_hash is not None and bytes(answer_hash) == digest
        case Failed(code=wanted):
            return code == wanted
        case _:
            return True


@dataclass(slots=True)
class Fact:
    """A receipt that moves nothing. `fence` guards it by the live attempt; `sets` are the job's columns it writes."""

    job_id: str
    kind: Kind
    facts: dict[str, Any]
    fence: str | None = None
    progress: str | None = None
    checkpoint: tuple[str, int, bytes] | None = None
    abort_reason: str | None = None


def record(facts: Sequence[Fact]) -> list[Answer]:
    """Append one receipt each, in order; facts of a holder are refused when its fence is stale."""
    return [_record(fact) for fact in sorted(facts, key=lambda fact: fact.job_id)]


def _record(fact: Fact) -> Answer:
    body = body_text(attempt=fact.fence, **fact.facts)
    sets, params = ["number = job.number + 1"], [body, fact.job_id]
    sets.append("head = " + chain_hash("job.head", "job.id", "job.number + 1", fact.kind.value, "v.body"))
    values: list[Any] = []
    if fact.progress is not None:
        sets.append("progress = %s")
        values.append(fact.progress)
    if fact.checkpoint is not None:
        sets.append("checkpoint = %s, checkpoint_number = %s, checkpoint_hash = %s")
        values += list(fact.checkpoint)
    if fact.abort_reason is not None:
        sets.append("abort_reason = %s")
        values.append(fact.abort_reason)
    guard = "job.id = v.id"
    if fact.fence is not None:
        guard += f" AND job.attempt_id = %s AND {BELIEVED.format(fence='job.attempt_id')}"
        values.append(fact.fence)
    if fact.checkpoint is not None:
        guard += " AND job.checkpoint_number < %s"
        values.append(fact.checkpoint[1])
    found = rows(
        f"WITH v AS (SELECT %s::text AS body, %s::uuid AS id),"
        f" j AS (UPDATE jobs_job job SET {', '.join(sets)} FROM v WHERE {guard}"
        f" RETURNING job.*, v.body AS receipt_body),"
        f" r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)"
        f" SELECT id, number, '{fact.kind.value}', jobs_now(), receipt_body, head FROM j)"
        f" SELECT id::text, state, revision, number, tenant_id FROM j", params + values)
    if not found:
        return StaleFence()
    id_, state, revision, number, tenant = found[0]
    publish.moved([(id_, number, State(state))], tenants={tenant}, moves=False)
    return Moved(id_, State(state), revision, number)


_NOTE = (
    "WITH v AS MATERIALIZED (SELECT * FROM unnest({ids}, {bodies}) v(id, body)),"
    " j AS (UPDATE jobs_job job SET number = job.number + 1, head = {head} FROM v WHERE job.id = v.id"
    " RETURNING job.id, job.number, job.head, job.state, job.revision, v.body),"
    " r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)"
    " SELECT id, number, '{kind}', jobs_now(), body, head FROM j)"
    " SELECT id::text, state, revision, number FROM j")


def note(kind: Kind, facts: Sequence[tuple[str, dict[str, Any]]]) -> list[Answer]:
    """One receipt of this kind for each of these jobs, which the caller has locked: `record` for very many at once."""
    if not facts:
        return []
    sql = _NOTE.format(ids=array("uuid"), bodies=array("text"), kind=kind.value,
                       head=chain_hash("job.head", "job.id", "job.number + 1", kind.value, "v.body"))
    found = rows(sql, [packed([job for job, _ in facts]), packed([body_text(**said) for _, said in facts])])
    written = {id_: Moved(id_, State(state), revision, number) for id_, state, revision, number in found}
    publish.moved([(m.job_id, m.number, m.state) for m in written.values()], moves=False)
    return [written.get(job) or JobNotFound() for job, _ in facts]
