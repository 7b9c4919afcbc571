"""Backlogs by plain SQL: hundreds of thousands of rows that a claim must not notice, and what a claim reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from jobs.store.claim import Claimer, claim
from tests.making import statements

_ROWS = """INSERT INTO jobs_job (id, workspace_id, tenant_id, type, version, queue, worker_group, origin, priority,
        input, input_hash, fingerprint, singleton, exclusive_group, state, gate, available_at, created_at, ended_at,
        base_delay_ms, max_delay_ms, lapse_counts, max_lapses, dead_letter, lease_ms, duration_scope, strict_lease,
        credential, claims, chain, chain_claims, failures, lapses, releases, interruptions, pauses, checkpoint_number,
        revision, number, head)
    SELECT {id}, {workspace}, {tenant}, '{type}', 1, '{queue}', '{group}', 'user', {priority},
        '{{}}', '\\x00', '\\x00', 'allow', {exclusive}, '{state}', {gate},
        jobs_now() + {after} * interval '1 second' - n * interval '1 ms', jobs_now(), {ended},
        5000, 300000, true, 10, true, 30000, 'attempt', false, {credential}, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, '\\x00'
    FROM generate_series(1, {count}) n"""
_DEFAULTS = {
    "id": "gen_random_uuid()",
    "type": "echo",
    "queue": "collect",
    "group": "default",
    "priority": "0",
    "exclusive": "NULL",
    "state": "queued",
    "gate": "NULL",
    "after": "0",
    "ended": "NULL",
    "credential": "'none'",
}


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def jobs(count: int, workspace: int, tenant: str | int, **columns: str) -> None:
    """So many jobs, columns as SQL; `tenant` may be an expression over n."""
    # The checks of foreign keys have plans too, from when there was a handful of tenants.
    execute("DISCARD PLANS")
    execute(_ROWS.format(**{**_DEFAULTS, **columns}, count=count, workspace=workspace, tenant=tenant))


def tenants(count: int, workspace: int, prefix: str) -> int:
    """So many tenants with consecutive ids; the first one's."""
    execute(f"""INSERT INTO jobs_tenant (workspace_id, subject, revision, created_at)
        SELECT {workspace}, '{prefix}' || n, 0, jobs_now() FROM generate_series(1, {count}) n""")
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(id), max(id), count(*) FROM jobs_tenant WHERE subject LIKE %s", [prefix + "%"])
        first, last, made = cursor.fetchone()
    assert last - first + 1 == made == count
    return int(first)


def lines(workspace: int, first: int, count: int, parked: str = "NULL") -> None:
    """A line for each of these tenants."""
    execute(f"""INSERT INTO jobs_claim_line (workspace_id, worker_group, queue, tenant_id, parked)
        SELECT {workspace}, 'default', 'collect', {first} + n - 1, {parked} FROM generate_series(1, {count}) n""")


Node = tuple[str, str | None, str | None]  # kind, table, index


@dataclass(frozen=True)
class Cost:
    """What the reading statements of one claim did."""

    claimed: int
    buffers: int
    lines: tuple[Node, ...]
    candidates: tuple[Node, ...]

    @property
    def a_job(self) -> float:
        return self.buffers / self.claimed


def scans(nodes: tuple[Node, ...], relation: str) -> set[tuple[str, str | None]]:
    """The ways in which a table was read: node type and index."""
    return {(kind, index) for kind, table, index in nodes if table == relation}


def measure(by: Claimer, slots: int) -> Cost:
    """Claim once and undo it, then explain its reading statements with the same parameters."""
    try:
        with transaction.atomic():
            with statements() as seen:
                taken = len(claim(by, slots).jobs)
            raise _Undo
    except _Undo:
        pass
    buffers = 0
    nodes: dict[bool, list[Node]] = {True: [], False: []}
    for sql, params in seen:
        if "jobs_claim_line x" in sql or "LATERAL" in sql:
            plan = _explain(sql, params)
            buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            nodes["jobs_claim_line x" in sql] += _walk(plan)
    return Cost(taken, buffers, tuple(nodes[True]), tuple(nodes[False]))


class _Undo(Exception):
    pass


def _explain(sql: str, params: Any) -> dict[str, Any]:
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
                found = cursor.fetchone()[0]
            raise _Undo
    except _Undo:
        return (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]


def _walk(plan: dict[str, Any]) -> list[Node]:
    here = (plan["Node Type"], plan.get("Relation Name"), plan.get("Index Name"))
    return [here, *(node for child in plan.get("Plans", ()) for node in _walk(child))]
