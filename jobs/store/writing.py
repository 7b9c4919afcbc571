"""The one statement that writes moves: jobs guarded by their fence, attempts, receipts, artifacts, letters at once.

Moves of the same shape travel together; the statement of a shape is built once. The guard is in the WHERE:
a row whose state or fence has changed since is not touched, and its receipt not written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from jobs import meters
from jobs.clusters import normal
from jobs.outcomes import END_OF, End
from jobs.receipts import KIND_OF
from jobs.routing import SYSTEM
from jobs.states import TERMINAL, State, Verb
from jobs.store.letters import CLUSTER
from jobs.store.owning import BELIEVED
from jobs.store.sql import array, chain_hash, packed, rows
from jobs.store.verbs import Change

# Columns a move may set from values of its own: SQL type of the parameter, expression for the job row.
COLUMNS: dict[str, tuple[str, str]] = {
    "reason": ("text", "reason = v.reason"),
    "abort_reason": ("text", "abort_reason = v.abort_reason"),
    "after_us": ("bigint", "available_at = jobs_now() + v.after_us * interval '1 microsecond'"),
    "at_us": ("bigint", "available_at = timestamptz 'epoch' + v.at_us * interval '1 microsecond'"),
}
END_COLUMNS = {"reason_code": "text", "message": "text", "retryable": "boolean"}

_RESET = (
    "chain = job.chain + 1, chain_claims = 0, failures = 0, lapses = 0, releases = 0, interruptions = 0, pauses = 0,"
    " chain_started_at = NULL, ended_at = NULL, deadline_at = CASE WHEN job.deadline_ms IS NOT NULL"
    " OR job.deadline_at <= jobs_now() THEN NULL ELSE job.deadline_at END"
)
# Behind the claim index while it is not due, or may not be claimed any more (E4).
_GATE = (
    "gate = CASE WHEN job.max_claims IS NOT NULL AND {claims} >= job.max_claims THEN 'spent'"
    " WHEN {available} > jobs_now() THEN 'scheduled' END"
)


class Written(NamedTuple):
    """One job after its move. `owned`: it needs an owner; `callback_events`: somebody hears of these; `capped`: the
    ended attempt counted under a cap; `ran_us`: its length.
    """

    id: str
    revision: int
    number: int
    gate: str | None
    workspace_id: int
    tenant_id: int
    exclusive_group: str | None
    worker_group: str
    queue: str
    type: str
    owned: bool
    callback_events: int | None
    capped: bool
    ran_us: int


_PAIR = itemgetter(Written._fields.index("worker_group"), Written._fields.index("queue"))
_RAN = Written._fields.index("ran_us")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a statement depends on; everything else is a parameter."""

    verb: Verb
    to: State
    fenced: bool
    counters: tuple[str, ...]
    columns: tuple[str, ...]
    end: tuple[str, ...]
    artifact: bool
    letter: bool
    unseen: bool


def write(changes: Sequence[Change]) -> dict[str, Written]:
    """Write the changes, a statement a shape; the jobs whose guard held, by id."""
    groups: dict[Shape, list[Change]] = defaultdict(list)
    for change in changes:
        groups[_shape(change)].append(change)
    found: dict[str, Written] = {}
    for shape, group in groups.items():
        written = [Written._make(row) for row in rows(_sql(shape), _params(shape, group))]
        found.update((row.id, row) for row in written)
        if counts := _counts(shape):
            meters.note(counts, written, _PAIR, *((_RAN, meters.RAN) if _ends(shape) else ()))
    return found


def _ends(shape: Shape) -> bool:
    """Whether an attempt ends with it."""
    return shape.fenced and shape.verb is not Verb.START


def _end(shape: Shape) -> End:
    """How it ends: an interruption that counts as a failure is one (E4)."""
    counted = shape.verb is Verb.INTERRUPT and "failures" in shape.counters
    return End.FAILED if counted else END_OF[shape.verb]


_ATTEMPTS = {End.COMPLETED: "completed", End.FAILED: "erred", End.LAPSED: "lapsed", End.RELEASED: "released",
             End.INTERRUPTED: "interrupted"}
_JOBS = {State.FAILED: "failed", State.CANCELLED: "cancelled", State.SUPERSEDED: "superseded"}


@lru_cache(maxsize=256)
def _counts(shape: Shape) -> tuple[str, ...]:
    """What such a move counts as: the end of an attempt, the end of a job, a dead letter opened or answered."""
    attempt = _ATTEMPTS.get(_end(shape), "stopped") if _ends(shape) else None
    letter = "letters_opened" if shape.letter else "letters_answered" if shape.verb is Verb.REQUEUE else None
    return tuple(name for name in (attempt, _JOBS.get(shape.to), letter) if name is not None)


def _shape(c: Change) -> Shape:
    return Shape(c.verb, c.to, c.fence is not None, c.counters, tuple(c.sets), tuple(c.end) if c.fence else (),
                 c.artifact is not None, c.letter is not None, c.row.state is None)


def _params(shape: Shape, group: list[Change]) -> list[Any]:
    params: list[Any] = [packed([c.row.id for c in group]), packed([c.body for c in group])]
    if not shape.unseen:
        params.append(packed([c.row.state for c in group]))
    if shape.fenced:
        params.append(packed([c.fence for c in group]))
    params += [_column([c.sets[name] for c in group], COLUMNS[name][0]) for name in shape.columns]
    params += [_column([c.end[name] for c in group], END_COLUMNS[name]) for name in shape.end]
    if shape.artifact:
        done = [c.artifact for c in group if c.artifact is not None]
        params += [packed([d.artifact for d in done]), packed([d.digest.hex() for d in done])]
    if shape.letter:
        letters = [c.letter for c in group if c.letter is not None]
        params += [packed([reason for reason, _ in letters]), packed([code for _, code in letters]),
                   packed([normal(c.end.get("message")) or None for c in group])]
    return params


def _column(values: Iterable[Any], type_: str) -> Any:
    # Free text may hold newlines and travels as a real array.
    return list(values) if type_ == "text" else packed(values)


def _unpack(type_: str) -> str:
    return "%s::text[]" if type_ == "text" else array(type_)


@lru_cache(maxsize=256)
def _sql(shape: Shape) -> str:
    kind = KIND_OF[shape.verb].value
    parts = [_values(shape), *([_LOCK] if shape.unseen else []), _job(shape, kind), _receipt(kind)]
    if shape.fenced:
        parts.append(_attempt(shape))
        if shape.verb is not Verb.START:
            parts.append("k AS (DELETE FROM jobs_attempt_cap cap USING j WHERE cap.attempt_id = j.fence"
                         " RETURNING cap.attempt_id)")
    if shape.artifact:
        parts.append("f AS (INSERT INTO jobs_artifact (job_id, value, hash, created_at)"
                     " SELECT j.id, v.artifact, decode(v.artifact_hash, 'hex'), jobs_now()"
                     " FROM j JOIN v ON v.id = j.id)")
    if shape.letter:
        parts.append(_LETTER)
    if shape.verb is Verb.REQUEUE:
        parts.append(_RESOLVE)
    if not _ends(shape):
        return f"WITH {', '.join(parts)} SELECT {_told('j')}, false, 0 FROM j"
    # From the attempts' own statement: the planner takes each of these for one row, and would join a batch by loops.
    ran = "greatest(0, extract(epoch FROM jobs_now() - a.leased_at) * 1000000)::bigint"
    return (f"WITH {', '.join(parts)} SELECT {_told('a')}, EXISTS (SELECT 1 FROM k WHERE k.attempt_id = a.fence), {ran}"
            " FROM a")


def _told(source: str) -> str:
    """What is told of a written job, in the order of `Written`."""
    return f"{source}.id::text, " + ", ".join(f"{source}.{name}" for name in Written._fields[1:-2])


def _values(shape: Shape) -> str:
    columns = [("id", array("uuid")), ("body", array("text"))]
    if not shape.unseen:
        columns.append(("state", array("text")))
    if shape.fenced:
        columns.append(("fence", array("uuid")))
    columns += [(name, _unpack(COLUMNS[name][0])) for name in shape.columns]
    columns += [(name, _unpack(END_COLUMNS[name])) for name in shape.end]
    if shape.artifact:
        columns += [("artifact", array("text")), ("artifact_hash", array("text"))]
    if shape.letter:
        columns += [("letter", array("text")), ("letter_code", array("text")), ("letter_error", array("text"))]
    return (f"v AS MATERIALIZED (SELECT * FROM unnest({', '.join(sql for _, sql in columns)})"
            f" AS v({', '.join(name for name, _ in columns)}))")


def _job(shape: Shape, kind: str) -> str:
    sets = [f"state = '{shape.to.value}'", "revision = job.revision + 1", "number = job.number + 1",
            f"head = {chain_hash('job.head', 'job.id', 'job.number + 1', kind, 'v.body')}"]
    sets += [f"{name} = job.{name} + 1" for name in shape.counters]
    sets += [COLUMNS[name][1] for name in shape.columns]
    if shape.verb is not Verb.START:
        sets.append("attempt_id = NULL")
    if shape.to in TERMINAL:
        sets.append("ended_at = jobs_now()")
    if shape.to is State.CANCELLED:
        sets.append("cancelled_at = jobs_now()")
    if shape.verb is Verb.REQUEUE:
        sets.append(_RESET)
    sets.append(_gate(shape))
    source = "v JOIN l ON l.id = v.id" if shape.unseen else "v"
    guard = "job.id = v.id"
    if not shape.unseen:
        guard += " AND job.state = v.state"
    if shape.fenced:
        guard += " AND job.attempt_id = v.fence"
    if shape.fenced and shape.verb in (Verb.START, Verb.COMPLETE, Verb.FAIL, Verb.STOP, Verb.RELEASE):
        guard += f" AND {BELIEVED.format(fence='v.fence')}"
    if shape.verb is Verb.REQUEUE:
        guard += " AND EXISTS (SELECT 1 FROM jobs_dead_letter d WHERE d.job_id = v.id AND d.resolved_at IS NULL)"
    fence = "v.fence" if shape.fenced else "NULL::uuid"
    return (f"j AS (UPDATE jobs_job job SET {', '.join(sets)} FROM {source} WHERE {guard}"
            f" RETURNING job.id, job.revision, job.number, job.head, job.gate, job.workspace_id, job.tenant_id,"
            f" job.type, job.version, job.worker_group, job.queue, job.exclusive_group,"
            f" job.credential = 'owner' AS owned, job.callback_events,"
            f" job.chain, job.chain_claims, job.releases, job.interruptions, job.pauses, {fence} AS fence, v.body)")


def _gate(shape: Shape) -> str:
    if shape.to is not State.QUEUED:
        return "gate = NULL"
    if "at_us" in shape.columns:
        available = "timestamptz 'epoch' + v.at_us * interval '1 microsecond'"
    else:
        available = "jobs_now() + v.after_us * interval '1 microsecond'"
    return _GATE.format(available=available, claims="0" if shape.verb is Verb.REQUEUE else "job.chain_claims")


def _receipt(kind: str) -> str:
    return (f"r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)"
            f" SELECT j.id, j.number, '{kind}', jobs_now(), j.body, j.head FROM j)")


def _attempt(shape: Shape) -> str:
    # `outcome IS NULL` is `ended_at IS NULL` by constraint, but offers no partial index of all live attempts.
    if shape.verb is Verb.START:
        return ("a AS (UPDATE jobs_attempt attempt SET started_at = jobs_now() FROM j"
                " WHERE attempt.id = j.fence AND attempt.outcome IS NULL)")
    sets = ["ended_at = jobs_now()", f"outcome = '{_end(shape).value}'"]
    sets += [f"{name} = v.{name}" for name in shape.end]
    if shape.artifact:
        sets.append("answer_hash = decode(v.artifact_hash, 'hex')")
    return (f"a AS (UPDATE jobs_attempt attempt SET {', '.join(sets)} FROM j JOIN v ON v.id = j.id"
            f" WHERE attempt.id = j.fence AND attempt.outcome IS NULL"
            f" RETURNING j.fence, attempt.leased_at, {', '.join(f'j.{name}' for name in Written._fields[:-2])})")


# A completion needs nothing of the row but its fence, so locking and writing share one statement; by id, as always.
_LOCK = ("l AS MATERIALIZED (SELECT job.id FROM v JOIN jobs_job job ON job.id = v.id"
         " ORDER BY job.id FOR NO KEY UPDATE OF job)")
_CLUSTER = CLUSTER.format(type="j.type", version="j.version", reason="v.letter", code="v.letter_code",
                          error="v.letter_error")
_LETTER = (
    "d AS (INSERT INTO jobs_dead_letter (job_id, workspace_id, tenant_id, type, version, house, chain, reason,"
    " reason_code, error, cluster, attempt_count, opened_at) SELECT j.id, j.workspace_id, j.tenant_id, j.type,"
    f" j.version, j.worker_group = '{SYSTEM}', j.chain, v.letter, v.letter_code, coalesce(v.letter_error, ''),"
    f" {_CLUSTER}, greatest(0, j.chain_claims - j.releases - j.interruptions - j.pauses), jobs_now()"
    " FROM j JOIN v ON v.id = j.id)"
)
_RESOLVE = (
    "d AS (UPDATE jobs_dead_letter letter SET resolved_at = jobs_now(), resolution = 'requeued',"
    " resolved_by = left((j.body::json)->>'by', 200), resolve_reason = (j.body::json)->>'reason',"
    " bulk_id = ((j.body::json)->>'bulk')::bigint FROM j"
    " WHERE letter.job_id = j.id AND letter.resolved_at IS NULL)"
)
