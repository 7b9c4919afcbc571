"""Inserting jobs: one statement for a batch, with the first receipt and the tenants' lines.

A key that is taken is no error here: ON CONFLICT leaves the row out and the caller reads the one that won,
because a caught constraint error would poison the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from jobs import meters, publish
from jobs.receipts import ZERO, Kind
from jobs.states import State
from jobs.store import admission
from jobs.store.sql import array, chain_hash, packed, rows

# Column: SQL type. What is not here takes its default. Columns of canonical text, ids and numbers travel packed.
COLUMNS = {
    "id": "uuid", "workspace_id": "bigint", "tenant_id": "bigint", "type": "text", "version": "int", "queue": "text",
    "worker_group": "text", "agent": "text", "origin": "text", "priority": "int", "subject": "text", "input": "text",
    "input_hash": "bytea", "fingerprint": "bytea", "normal_hash": "bytea", "external_id": "text",
    "idempotency_key": "text",
    "session_key": "text", "singleton": "text", "exclusive_group": "text", "target_id": "bigint", "generation": "int",
    "max_attempts": "int", "base_delay_ms": "bigint", "max_delay_ms": "bigint", "retry_on": "text[]",
    "lapse_counts": "boolean", "max_lapses": "int", "max_claims": "int", "dead_letter": "boolean",
    "deadline_ms": "bigint", "deadline_at": "timestamptz", "lease_ms": "int", "timeout_ms": "bigint",
    "max_duration_ms": "bigint", "duration_scope": "text", "strict_lease": "boolean", "credential": "text",
    "callback_url": "text", "callback_events": "smallint",
    "max_cost_usd": "numeric",
}
# Set by the statement itself, from these values of the row.
EXTRA = {"after_us": "bigint", "at_us": "bigint", "held": "text", "body": "text"}
TYPES = COLUMNS | EXTRA
# Every row has its own; the others travel as one value when the whole batch agrees.
OWN = frozenset({"id", "input", "input_hash", "fingerprint", "body"})
_FREE_TEXT = frozenset({"subject"})

_DEFAULTS = {
    "state": "'queued'", "available_at": "s.due",
    "gate": "CASE WHEN s.due > jobs_now() THEN 'scheduled' ELSE s.held END",
    "created_at": "jobs_now()", "claims": "0", "chain": "1", "chain_claims": "0", "failures": "0", "lapses": "0",
    "releases": "0", "interruptions": "0", "pauses": "0", "checkpoint_number": "0", "revision": "1", "number": "1",
    "head": chain_hash(f"'\\x{ZERO.hex()}'::bytea", "s.id", "1", Kind.ENQUEUED.value, "s.body"),
}


class Inserted(NamedTuple):
    """A job that this call made."""

    id: str
    gate: str | None


def insert(jobs: Sequence[dict[str, Any]]) -> dict[str, Inserted]:
    """Insert these rows (values by COLUMNS and EXTRA); the ones that were made, by id. Missing: a key was taken."""
    # A moment of its own may lie in the past: only a delay is surely not claimable yet.
    lines = {(j["workspace_id"], j["worker_group"], j["queue"], j["tenant_id"]) for j in jobs
             if not j["after_us"] or j["at_us"] is not None}
    if lines:
        admission.lock_buckets(sorted(lines))
    if len(jobs) > 1 and any(j["external_id"] or j["idempotency_key"] for j in jobs):
        # Two batches with the same keys wait for each other's inserts: in one order, or they deadlock.
        jobs = sorted(jobs, key=lambda j: (j["tenant_id"], j["external_id"] or "", j["idempotency_key"] or ""))
    own = tuple(name for name in TYPES if name in OWN or _differs(jobs, name))
    params: list[Any] = [_packed(name, [j[name] for j in jobs]) for name in own]
    params += [_plain(jobs[0][name]) for name in TYPES if name not in own]
    made = {m.id: m for m in map(Inserted._make, rows(_sql(own), params))}
    publish.moved([(id_, 1, State.QUEUED) for id_ in made], tenants={j["tenant_id"] for j in jobs})
    meters.note(["enqueued"], [j for j in jobs if j["id"] in made], itemgetter("worker_group", "queue"))
    return made


def _differs(jobs: Sequence[dict[str, Any]], name: str) -> bool:
    first = jobs[0][name]
    return any(j[name] != first for j in jobs)


def _packed(name: str, values: list[Any]) -> Any:
    match TYPES[name]:
        case "bytea":
            return packed([None if v is None else v.hex() for v in values])
        case "text" if name in _FREE_TEXT:
            return values
        case "text[]":
            # Arrays in an array must agree in length: they travel as JSON instead.
            return packed([None if v is None else "{" + ",".join(f'"{x}"' for x in v) + "}" for v in values])
        case _:
            return packed(values)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _unpacked(name: str) -> str:
    if name in _FREE_TEXT:
        return "%s::text[]"
    return array("text" if TYPES[name] in ("bytea", "text[]") else TYPES[name])


def _read(name: str) -> str:
    match TYPES[name]:
        case "bytea":
            return f"decode(v.{name}, 'hex')"
        case "text[]":
            return f"v.{name}::text[]"
        case _:
            return f"v.{name}"


@lru_cache(maxsize=128)
def _sql(own: tuple[str, ...]) -> str:
    unnest = ", ".join(_unpacked(name) for name in own)
    read = [f"{_read(name)} AS {name}" for name in own]
    read += [f"%s::{type_} AS {name}" for name, type_ in TYPES.items() if name not in own]
    # Unnested first: the parameters stand in the order in which the text meets them.
    return (
        f"WITH v AS MATERIALIZED (SELECT * FROM unnest({unnest}) AS v({', '.join(own)})),"
        f" s AS MATERIALIZED (SELECT t.*, CASE WHEN t.at_us IS NOT NULL"
        f" THEN timestamptz 'epoch' + t.at_us * interval '1 microsecond'"
        f" ELSE jobs_now() + t.after_us * interval '1 microsecond' END AS due"
        f" FROM (SELECT {', '.join(read)} FROM v) t),"
        f" j AS (INSERT INTO jobs_job ({', '.join([*COLUMNS, *_DEFAULTS])})"
        f" SELECT {', '.join([*(f's.{c}' for c in COLUMNS), *_DEFAULTS.values()])} FROM s ON CONFLICT DO NOTHING"
        f" RETURNING id, head, gate, workspace_id, worker_group, queue, tenant_id),"
        f" r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)"
        f" SELECT j.id, 1, '{Kind.ENQUEUED.value}', jobs_now(), s.body, j.head FROM j JOIN s ON s.id = j.id),"
        f" l AS (INSERT INTO jobs_claim_line (workspace_id, worker_group, queue, tenant_id)"
        f" SELECT DISTINCT j.workspace_id, j.worker_group, j.queue, j.tenant_id FROM j WHERE j.gate IS NULL"
        f" AND (current_setting('transaction_isolation') <> 'read committed' OR NOT EXISTS ("
        f"SELECT 1 FROM jobs_claim_line line WHERE line.worker_group = j.worker_group AND line.queue = j.queue"
        f" AND line.tenant_id = j.tenant_id)))"
        f" SELECT j.id::text, j.gate FROM j"
    )
