"""Commands to active jobs: written with their receipt, read by the holder, consumed under its fence (A6, E12).

Whoever sends one has locked the job in a statement of its own before: so many unread ones and no more, and moments in
the order of the receipts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from jobs import publish
from jobs.ids import uuid7
from jobs.receipts import Kind, body_text
from jobs.states import HELD, CommandKind, State
from jobs.store.owning import BELIEVED
from jobs.store.sql import array, chain_hash, packed, rows, run
from jobs.store.verbs import holder

MOST_UNREAD = 100


@dataclass(frozen=True, slots=True)
class Draft:
    """A command that is to be written: its payload as canonical text, and the request that it stands for."""

    kind: CommandKind
    payload: str
    payload_hash: bytes
    by: str
    reason: str | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    fingerprint: bytes | None = None


class Standing(NamedTuple):
    """A locked job: where it stands, and whether it has been asked to stop."""

    tenant_id: int
    state: State
    abort_reason: str | None


class Written(NamedTuple):
    """A command that was written, and where its job stands."""

    job_id: str
    command: str
    state: State
    at: datetime


class Unread(NamedTuple):
    """A command that nobody has consumed."""

    job_id: str
    id: str
    kind: str
    payload: str
    by: str
    created_at: datetime


# Waits for whoever holds the row: a command to a job that is ending must know how it ended.
_LOCK = "SELECT tenant_id, state, abort_reason FROM jobs_job WHERE id = %s::uuid FOR NO KEY UPDATE"
_COUNT = "SELECT count(*) FROM jobs_command WHERE job_id = %s::uuid AND consumed_at IS NULL"


def lock(job_id: str) -> Standing | None:
    """Lock a job that is to be told something."""
    found = rows(_LOCK, [job_id])
    return Standing(found[0][0], State(found[0][1]), found[0][2]) if found else None


def unread_of(job_id: str) -> int:
    """How many commands to this job are unread."""
    return int(rows(_COUNT, [job_id])[0][0])


_GUARDS = {
    False: f"job.ended_at IS NULL AND (SELECT count(*) FROM jobs_command x WHERE x.job_id = job.id"
           f" AND x.consumed_at IS NULL) < {MOST_UNREAD}",
    True: f"job.state IN ({', '.join(repr(s.value) for s in sorted(HELD))}) AND job.abort_reason IS NULL",
}
_WRITE = """WITH v AS MATERIALIZED (SELECT * FROM unnest({ids}, {commands}, {bodies}) v(id, command, body)),
    l AS MATERIALIZED (SELECT job.id, job.tenant_id FROM v JOIN jobs_job job ON job.id = v.id WHERE {guard}
        ORDER BY job.id FOR NO KEY UPDATE OF job),
    c AS (INSERT INTO jobs_command (id, job_id, kind, payload, payload_hash, by, reason, idempotency_key, external_id,
            fingerprint, tenant_id, created_at)
        SELECT v.command, l.id, '{kind}', %s, decode(%s, 'hex'), %s, %s, %s, %s, decode(%s, 'hex'), l.tenant_id,
            jobs_now()
        FROM l JOIN v ON v.id = l.id ON CONFLICT DO NOTHING RETURNING id, job_id),
    j AS (UPDATE jobs_job job SET number = job.number + 1, head = {head}{sets}
        FROM c JOIN v ON v.command = c.id WHERE job.id = c.job_id
        RETURNING job.id, job.number, job.head, job.state, job.tenant_id, v.body, v.command),
    r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)
        SELECT id, number, '{receipt}', jobs_now(), body, head FROM j)
    SELECT id::text, command::text, state, number, tenant_id, jobs_now() FROM j"""


def write(job_ids: Sequence[str], draft: Draft) -> list[Written]:
    """Write this command to each of these locked jobs, as far as it may be told: the guard is in the WHERE.

    Missing in the answer: it has ended, has too many unread ones (an abort: is not held, or is asked to stop already),
    or a key of the draft is taken.
    """
    if not job_ids:
        return []
    abort = draft.kind is CommandKind.ABORT
    ids = [str(uuid7()) for _ in job_ids]
    bodies = [body_text(by=draft.by, command=draft.kind, id=id_, payload=draft.payload_hash.hex(), reason=draft.reason)
              for id_ in ids]
    sql = _WRITE.format(
        ids=array("uuid"), commands=array("uuid"), bodies=array("text"), guard=_GUARDS[abort], kind=draft.kind.value,
        head=chain_hash("job.head", "job.id", "job.number + 1", Kind.COMMAND.value, "v.body"),
        sets=", abort_reason = %s" if abort else "", receipt=Kind.COMMAND.value)
    mark = None if draft.fingerprint is None else draft.fingerprint.hex()
    found = rows(sql, [
        packed(job_ids), packed(ids), packed(bodies), draft.payload, draft.payload_hash.hex(), draft.by, draft.reason,
        draft.idempotency_key, draft.external_id, mark, *([draft.reason] if abort else [])])
    publish.moved([(job_id, number, State(state)) for job_id, _, state, number, _, _ in found],
                  tenants={r[4] for r in found}, moves=False)
    if any(state in HELD for _, _, state, *_ in found):
        # Its holder listens to wakes, and looks then what is said of its jobs.
        publish.wake_after_commit()
    return [Written(job_id, command, State(state), at) for job_id, command, state, _, _, at in found]


def pending_abort(job_id: str) -> str | None:
    """The abort that this job has not honoured yet."""
    found = rows("SELECT id::text FROM jobs_command WHERE job_id = %s::uuid AND consumed_at IS NULL"
                 " AND kind = 'abort'", [job_id])
    return found[0][0] if found else None


_UNREAD = f"""SELECT u.job_id::text, c.id::text, c.kind, c.payload, c.by, c.created_at
    FROM unnest({array('uuid')}) u(job_id) CROSS JOIN LATERAL (
        SELECT x.* FROM jobs_command x WHERE x.job_id = u.job_id AND x.consumed_at IS NULL AND x.kind <> 'abort'
        ORDER BY x.created_at, x.id LIMIT {{limit}}) c {{guard}} ORDER BY u.job_id, c.created_at, c.id"""
_HOLDS = "JOIN jobs_job job ON job.id = u.job_id AND job.attempt_id = %s::uuid"


def unread(job_ids: Sequence[str], limit: int = MOST_UNREAD, fence: str | None = None) -> list[Unread]:
    """The oldest unread commands to each of these jobs but aborts; with a fence only while that attempt is live."""
    sql = _UNREAD.format(limit=int(limit), guard="" if fence is None else _HOLDS)
    return [Unread._make(r) for r in rows(sql, [packed(job_ids), *([] if fence is None else [fence])])]


_KNOWN = f"SELECT id::text FROM jobs_command WHERE job_id = %s::uuid AND kind <> 'abort' AND id = ANY({array('uuid')})"
_CONSUME = """WITH l AS MATERIALIZED (SELECT job.id FROM jobs_job job WHERE job.id = %s::uuid
            AND job.attempt_id = %s::uuid AND {believed} FOR NO KEY UPDATE OF job),
    c AS (UPDATE jobs_command c SET consumed_at = jobs_now(), attempt_id = %s::uuid FROM l
        WHERE c.job_id = l.id AND c.consumed_at IS NULL AND c.kind <> 'abort' AND c.id = ANY({ids}) RETURNING c.id),
    b AS (SELECT %s || string_agg('"' || c.id || '"', ',' ORDER BY c.id) || ']}}' AS body FROM c
        HAVING count(*) > 0),
    j AS (UPDATE jobs_job job SET number = job.number + 1, head = {head} FROM l, b WHERE job.id = l.id
        RETURNING job.id, job.number, job.head, job.state, job.tenant_id, b.body),
    r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)
        SELECT id, number, '{kind}', jobs_now(), body, head FROM j)
    SELECT l.id::text, j.number, j.state, j.tenant_id, (SELECT count(*) FROM c) FROM l LEFT JOIN j ON true"""


def known(job_id: str, ids: Sequence[str]) -> set[str]:
    """Those of these that are commands to this job which a holder may consume."""
    return {r[0] for r in rows(_KNOWN, [job_id, packed(ids)])}


def consume(job_id: str, fence: str, ids: Sequence[str], by: str) -> int | None:
    """Mark these as consumed by the live attempt, with one receipt that names those that were not yet; how many.

    None: the attempt is not the live one, and nothing has changed.
    """
    # The canonical body, but for the ids, which only the statement knows.
    head = f'{{"attempt":"{fence}","by":"{holder(by)}","commands":['
    sql = _CONSUME.format(
        ids=array("uuid"), kind=Kind.CONSUMED.value, believed=BELIEVED.format(fence="job.attempt_id"),
        head=chain_hash("job.head", "job.id", "job.number + 1", Kind.CONSUMED.value, "b.body"))
    found = rows(sql, [job_id, fence, fence, packed(ids), head])
    if not found:
        return None
    _, number, state, tenant_id, count = found[0]
    if number is not None:
        publish.moved([(job_id, number, State(state))], tenants={tenant_id}, moves=False)
    return int(count)


_HONOUR = f"""UPDATE jobs_command c SET consumed_at = jobs_now(), attempt_id = v.attempt
    FROM unnest({array('uuid')}, {array('uuid')}) v(job, attempt)
    WHERE c.job_id = v.job AND c.kind = 'abort' AND c.consumed_at IS NULL"""


def honour(stopped: Sequence[tuple[str, str | None]]) -> None:
    """These (job, attempt) have stopped: their aborts are no longer pending. The receipt is that of their move."""
    run(_HONOUR, [packed([job for job, _ in stopped]), packed([attempt for _, attempt in stopped])])
