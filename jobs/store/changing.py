"""Payload columns of a job and the receipt that says they were replaced: the job is locked by the caller."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs import publish
from jobs.receipts import Kind, body_text
from jobs.states import State
from jobs.store.sql import chain_hash, rows

# What a person may have replaced; nothing that is folded but the hash, which the receipt carries.
_TYPES = {"input": "text", "input_hash": "bytea", "subject": "text", "lease_ms": "int", "timeout_ms": "bigint",
          "max_duration_ms": "bigint"}


class Payload(NamedTuple):
    """The input of a job, the definition that reads it, and whom the job is for."""

    type: str
    version: int
    input: str
    agent: str | None


def read(job_id: str) -> Payload | None:
    """The present input of a job."""
    found = rows("SELECT type, version, input, agent FROM jobs_job WHERE id = %s::uuid", [job_id])
    return Payload._make(found[0]) if found else None


def write(job_id: str, row: dict[str, Any], kind: Kind, facts: dict[str, Any]) -> None:
    """Replace these columns and append the receipt, in one statement."""
    sets = ", ".join(f"{name} = %s::{_TYPES[name]}" for name in row)
    head = chain_hash("job.head", "job.id", "job.number + 1", kind.value, "v.body")
    (state, number), = rows(
        f"WITH v AS (SELECT %s::uuid AS id, %s::text AS body),"
        f" j AS (UPDATE jobs_job job SET {sets}, number = job.number + 1, head = {head} FROM v WHERE job.id = v.id"
        f" RETURNING job.id, job.number, job.head, job.state, v.body),"
        f" r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)"
        f" SELECT id, number, '{kind.value}', jobs_now(), body, head FROM j)"
        f" SELECT state, number FROM j", [job_id, body_text(**facts), *row.values()])
    publish.moved([(job_id, number, State(state))], moves=False)
