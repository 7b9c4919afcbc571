"""What an audit reads: rows and receipts of the next jobs by id, and what no constraint of the database sees (E12).

Only reads, which take moments and hashes as numbers and text: whatever somebody has put into a row by hand can be read.
All of a batch is read within one `snapshot`, so that a job which moves meanwhile says one thing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections, transaction

from jobs import clock
from jobs.comparing import MOMENTS, PLAIN
from jobs.ids import earliest
from jobs.receipts import Receipt
from jobs.store.sql import ALIAS, array, packed, rows, run

FIRST = str(uuid.UUID(int=0))
CHUNK = 2_000
# Ids are made by machines whose clocks need not agree with the database's.
SKEW = timedelta(days=1)
# Of what is listed of one kind in one batch.
MOST = 1_000


class Selection(NamedTuple):
    """Which jobs: of a workspace or a tenant by their ids, made since a moment, or one by its id. None: all."""

    workspace_id: int | None = None
    tenant_id: int | None = None
    since: datetime | None = None
    job_id: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing narrows it."""
        return self == Selection()


class Stored(NamedTuple):
    """A row as `comparing` wants it."""

    id: str
    row: dict[str, Any]


@contextmanager
def snapshot() -> Iterator[None]:
    """One moment for all that is read within; a transaction of its own, that writes nothing."""
    with transaction.atomic(using=ALIAS, durable=True):
        run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _us(column: str) -> str:
    # Beyond every moment where it is infinite, which no calendar of Python's has.
    return (f"CASE WHEN isfinite({column}) THEN (extract(epoch FROM {column}) * 1000000)::bigint"
            f" WHEN {column} IS NOT NULL THEN 9223372036854775807 END")


_COLUMNS = ", ".join([
    "job.id::text", *(f"job.{name}" for name in PLAIN), *(_us(f"job.{name}") for name in MOMENTS),
    "encode(job.input_hash, 'hex')", "encode(job.checkpoint_hash, 'hex')", "encode(a.hash, 'hex')",
    "job.attempt_id::text", "job.progress", "job.head"])
_NAMES = (*PLAIN, *MOMENTS, "input_hash", "checkpoint_hash", "artifact_hash", "attempt", "progress", "head")
_ROWS = (f"SELECT {_COLUMNS} FROM jobs_job job LEFT JOIN jobs_artifact a ON a.job_id = job.id"
         " WHERE {where} ORDER BY job.id LIMIT {limit}")


def _where(chosen: Selection) -> tuple[str, list[Any]]:
    told: list[tuple[str, Any]] = [("job.id > %s::uuid", FIRST)]
    if chosen.since is not None:
        floor = earliest((clock.micros(chosen.since - SKEW) or 0) // 1_000)
        told[0] = ("job.id > %s::uuid", str(floor))
        told.append(("job.created_at >= %s::timestamptz", chosen.since))
    narrowed = (("workspace_id = %s::bigint", chosen.workspace_id), ("tenant_id = %s::bigint", chosen.tenant_id),
                ("id = %s::uuid", chosen.job_id))
    told += [(f"job.{sql}", value) for sql, value in narrowed if value is not None]
    return " AND ".join(sql for sql, _ in told), [value for _, value in told]


def count(chosen: Selection, most: int | None = None) -> int:
    """How many jobs there are of these, at most `most`."""
    where, values = _where(chosen)
    limit = "" if most is None else f"LIMIT {int(most)}"
    return int(rows(f"SELECT count(*) FROM (SELECT 1 FROM jobs_job job WHERE {where} {limit}) x", values)[0][0])


def jobs_after(after: str, chosen: Selection, limit: int) -> list[Stored]:
    """The next rows by id."""
    where, values = _where(chosen)
    found = rows(_ROWS.format(where=f"{where} AND job.id > %s::uuid", limit=int(limit)), [*values, after])
    return [_stored(r) for r in found]


def jobs_of(ids: Sequence[str]) -> list[Stored]:
    """These rows, as far as they are there."""
    return [_stored(r) for r in rows(_ROWS.format(where=f"job.id = ANY({array('uuid')})", limit="ALL"), [packed(ids)])]


def _stored(found: Sequence[Any]) -> Stored:
    row = dict(zip(_NAMES, found[1:], strict=True))
    row["head"] = bytes(row["head"])
    return Stored(found[0], row)


_RECEIPTS = f"""SELECT job_id, number, kind, {_us('at')}, body, hash FROM jobs_receipt
    WHERE job_id = ANY(%s::uuid[]) ORDER BY job_id, number"""


def receipts_of(ids: Sequence[str]) -> Iterator[Receipt]:
    """Their receipts by job and number, however many, a chunk at a time; within a transaction."""
    with connections[ALIAS].chunked_cursor() as cursor:
        cursor.execute(_RECEIPTS, [list(ids)])
        while chunk := cursor.fetchmany(CHUNK):
            for job_id, number, kind, at_us, body, digest in chunk:
                yield Receipt(job_id, number, kind, at_us, body, bytes(digest))


# --- what no constraint sees ------------------------------------------------------------------------------------------

_NOT_REDACTED = "NOT EXISTS (SELECT 1 FROM jobs_receipt r WHERE r.job_id = job.id AND r.kind = 'job.redacted')"
# Each says what must never be of a job, in one snapshot. Ended attempts may be gone (C26), and payloads redacted.
LAWS: dict[str, tuple[str, str]] = {
    "live_attempt": ("the attempt that the job names is not alive and its own", """job.attempt_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM jobs_attempt a WHERE a.id = job.attempt_id AND a.job_id = job.id
            AND a.ended_at IS NULL AND a.number = job.claims)"""),
    "stray_attempt": ("an attempt is alive that the job does not name", """EXISTS (SELECT 1 FROM jobs_attempt a
        WHERE a.job_id = job.id AND a.ended_at IS NULL AND a.id IS DISTINCT FROM job.attempt_id)"""),
    "input_hash": ("the input is not what its hash says", f"""sha256(convert_to(job.input, 'UTF8')) <> job.input_hash
        AND {_NOT_REDACTED}"""),
    "checkpoint_hash": ("the checkpoint is not what its hash says", f"""(job.checkpoint IS NULL)
            <> (job.checkpoint_hash IS NULL) AND {_NOT_REDACTED}
        OR sha256(convert_to(job.checkpoint, 'UTF8')) <> job.checkpoint_hash AND {_NOT_REDACTED}"""),
    "artifact_hash": ("the artifact is not what its hash says", f"""EXISTS (SELECT 1 FROM jobs_artifact a
        WHERE a.job_id = job.id AND sha256(convert_to(a.value, 'UTF8')) <> a.hash) AND {_NOT_REDACTED}"""),
    "letter_of_another": ("an open dead letter is not of the chain that failed", """EXISTS (
        SELECT 1 FROM jobs_dead_letter d WHERE d.job_id = job.id AND d.resolved_at IS NULL
            AND (job.state <> 'failed' OR d.chain <> job.chain))"""),
    "letter_missing": ("its receipts opened a dead letter that nobody has answered, and there is none",
        """job.state = 'failed' AND EXISTS (SELECT 1 FROM jobs_receipt r WHERE r.job_id = job.id
            AND r.body LIKE '%%"dead_letter":%%' AND r.kind NOT IN ('job.discarded', 'job.requeued')
            AND NOT EXISTS (SELECT 1 FROM jobs_receipt later WHERE later.job_id = job.id AND later.number > r.number
                AND later.kind IN ('job.discarded', 'job.requeued')))
        AND NOT EXISTS (SELECT 1 FROM jobs_dead_letter d WHERE d.job_id = job.id AND d.chain = job.chain)"""),
    "line_missing": ("it could be claimed and its tenant has no line, so that nobody looks",
        """job.state = 'queued' AND job.gate IS NULL AND NOT EXISTS (SELECT 1 FROM jobs_claim_line l
            WHERE l.worker_group = job.worker_group AND l.queue = job.queue AND l.tenant_id = job.tenant_id)"""),
    "gate": ("its gate has no reason", """job.gate = 'spent' AND (job.max_claims IS NULL
            OR job.chain_claims < job.max_claims) OR job.gate = 'exclusive' AND job.exclusive_group IS NULL"""),
    "workspace": ("its tenant is another workspace's", """NOT EXISTS (SELECT 1 FROM jobs_tenant t
        WHERE t.id = job.tenant_id AND t.workspace_id = job.workspace_id)"""),
    "target": ("its target is another tenant's, or has no such generation yet", """job.target_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM jobs_target t WHERE t.id = job.target_id AND t.tenant_id = job.tenant_id
            AND t.generation >= job.generation)"""),
}
_BROKEN = "SELECT id::text, broken FROM (SELECT job.id, array_remove(ARRAY[{laws}], NULL) AS broken FROM jobs_job job" \
          " WHERE job.id = ANY({ids})) x WHERE broken <> '{{}}' ORDER BY id".format(
              laws=", ".join(f"CASE WHEN {law} THEN '{code}' END" for code, (_, law) in LAWS.items()),
              ids=array("uuid"))


def laws_broken(ids: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Of these jobs, those that break laws, and which."""
    return [(id_, list(codes)) for id_, codes in rows(_BROKEN, [packed(ids)])]


_ORPHANS = f"""SELECT DISTINCT r.job_id::text FROM jobs_receipt r WHERE r.job_id > %s::uuid AND r.job_id <= %s::uuid
    AND NOT EXISTS (SELECT 1 FROM jobs_job job WHERE job.id = r.job_id) LIMIT {MOST}"""


def receipts_without_job(after: str, until: str) -> list[str]:
    """Jobs that have receipts and no row, by ids from `after` to `until`."""
    return sorted(r[0] for r in rows(_ORPHANS, [after, until]))


_CAPS = f"""SELECT DISTINCT c.attempt_id::text FROM jobs_attempt_cap c LEFT JOIN jobs_attempt a ON a.id = c.attempt_id
    WHERE a.id IS NULL OR a.ended_at IS NOT NULL LIMIT {MOST}"""
_LOGS = f"""SELECT l.attempt_id::text FROM jobs_attempt_log l
    WHERE NOT EXISTS (SELECT 1 FROM jobs_attempt a WHERE a.id = l.attempt_id) LIMIT {MOST}"""


def attempts_gone() -> tuple[list[str], list[str]]:
    """Attempts that are counted under a cap and not alive, and attempts that are not there and have a log."""
    return sorted(r[0] for r in rows(_CAPS)), sorted(r[0] for r in rows(_LOGS))
