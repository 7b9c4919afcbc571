"""Small reads and locks that intake needs inside its transaction: keys, targets, places."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from jobs.store.sql import array, packed, rows, run


class Hit(NamedTuple):
    """A job that a key already names; `command`: the key is that of a command to it, an enqueue's that it became."""

    id: str
    external_id: str | None
    idempotency_key: str | None
    fingerprint: bytes
    type: str
    version: int
    normal_hash: bytes | None
    command: str | None = None


_HITS = f"""SELECT u.n, job.id::text, job.external_id, job.idempotency_key, job.fingerprint, job.type, job.version,
        job.normal_hash, NULL::text
    FROM unnest({array('bigint')}, {array('text')}) WITH ORDINALITY u(tenant_id, name, n) JOIN jobs_job job
    ON job.tenant_id = u.tenant_id AND job.{{column}} = u.name
    UNION ALL SELECT u.n, c.job_id::text, c.external_id, c.idempotency_key, c.fingerprint, '', 0, NULL::bytea,
        c.id::text
    FROM unnest({array('bigint')}, {array('text')}) WITH ORDINALITY u(tenant_id, name, n) JOIN jobs_command c
    ON c.tenant_id = u.tenant_id AND c.{{column}} = u.name"""


def by_keys(keys: Sequence[tuple[int, str | None, str | None]]) -> list[list[Hit]]:
    """For each (tenant, job_id, idempotency key): the jobs that they already name, as their own or a command's (E3)."""
    found: list[list[Hit]] = [[] for _ in keys]
    for column, position in (("external_id", 1), ("idempotency_key", 2)):
        asked = [(n, k[0], k[position]) for n, k in enumerate(keys) if k[position] is not None]
        if not asked:
            continue
        sql = _HITS.format(column=column)
        names = [packed([a[1] for a in asked]), packed([a[2] for a in asked])]
        for place, *hit in rows(sql, names * 2):
            normal = None if hit[6] is None else bytes(hit[6])
            found[asked[place - 1][0]].append(
                Hit(hit[0], hit[1], hit[2], bytes(hit[3]), hit[4], hit[5], normal, hit[7]))
    return found


def lock_target(tenant_id: int, key: str) -> int:
    """The target's id, made if missing, locked until the commit: enqueues for one thing stand in line (B16)."""
    while True:
        run("INSERT INTO jobs_target (tenant_id, key, generation, created_at) VALUES (%s, %s, 0, jobs_now())"
            " ON CONFLICT DO NOTHING", [tenant_id, key])
        found = rows("SELECT id FROM jobs_target WHERE tenant_id = %s AND key = %s FOR NO KEY UPDATE", [tenant_id, key])
        # Redaction may have taken its name from it while we waited: the next one of this name is another target.
        if found:
            return int(found[0][0])


_MAKE_TARGETS = f"""INSERT INTO jobs_target (tenant_id, key, generation, created_at)
    SELECT u.tenant_id, u.key, 0, jobs_now() FROM unnest({array('bigint')}, {array('text')}) u(tenant_id, key)
    ORDER BY 1, 2 ON CONFLICT DO NOTHING"""
# These wait, as every enqueue for a target does, but in one order for all of a batch.
_LOCK_TARGETS = f"""SELECT t.id FROM jobs_target t JOIN unnest({array('bigint')}, {array('text')}) u(tenant_id, key)
    ON t.tenant_id = u.tenant_id AND t.key = u.key ORDER BY t.tenant_id, t.key FOR NO KEY UPDATE OF t"""
_LOCK_ACTIVE = f"""SELECT 1 FROM jobs_job WHERE id IN (
        SELECT id FROM jobs_job WHERE target_id = ANY({array('bigint')}) AND ended_at IS NULL
        UNION ALL SELECT job.id FROM unnest({array('bigint')}, {array('text')}) u(tenant_id, name) JOIN jobs_job job
            ON job.tenant_id = u.tenant_id AND job.session_key = u.name WHERE job.ended_at IS NULL)
    ORDER BY id FOR NO KEY UPDATE"""


def lock_targets(targets: Sequence[tuple[int, str]]) -> list[int]:
    """Lock these targets, made if missing, in one order for everybody; their ids."""
    if not targets:
        return []
    distinct = sorted(set(targets))
    columns = [packed([t for t, _ in distinct]), packed([key for _, key in distinct])]
    run(_MAKE_TARGETS, columns)
    return [r[0] for r in rows(_LOCK_TARGETS, columns)]


def lock_active(targets: Sequence[int], sessions: Sequence[tuple[int, str]]) -> None:
    """Lock all active jobs of these targets and session keys by id, before they are ended one group after another."""
    rows(_LOCK_ACTIVE, [packed(targets), packed([t for t, _ in sessions]), packed([key for _, key in sessions])])


def next_generation(target_id: int) -> int:
    """Raise the generation of a locked target."""
    sql = "UPDATE jobs_target SET generation = generation + 1 WHERE id = %s RETURNING generation"
    return int(rows(sql, [target_id])[0][0])


def active_of_target(target_id: int, before: int) -> list[str]:
    """Active jobs of the target with an older generation."""
    return [r[0] for r in rows("SELECT id::text FROM jobs_job WHERE target_id = %s AND ended_at IS NULL"
                               " AND generation < %s"
                               " ORDER BY id", [target_id, before])]


_ENDED = f"""SELECT job.id::text, job.chain, job.state, job.reason, job.workspace_id, coalesce(t.id, job.tenant_id)
    FROM jobs_job job LEFT JOIN jobs_tenant t ON t.workspace_id = job.workspace_id AND t.subject IS NULL
    WHERE job.id = ANY({array('uuid')}) AND job.type = ANY({array('text')}) AND job.ended_at IS NOT NULL
    ORDER BY job.id"""


class End(NamedTuple):
    """A job that has ended in the present transaction, and its workspace's untenanted tenant."""

    job_id: str
    chain: int
    state: str
    reason: str | None
    workspace_id: int
    tenant_id: int


def ended(job_ids: Collection[str], types: Collection[str]) -> list[End]:
    """Those of these jobs that are of these types and have ended."""
    return [End._make(r) for r in rows(_ENDED, [packed(job_ids), packed(types)])]


def versions(job_ids: Collection[str]) -> dict[str, tuple[str, int]]:
    """The type and version that each of these jobs names; they never change."""
    found = rows(f"SELECT id::text, type, version FROM jobs_job WHERE id = ANY({array('uuid')})", [packed(job_ids)])
    return {id_: (type_, version) for id_, type_, version in found}


_OF_ARCHIVED = f"""SELECT job.id::text FROM jobs_job job JOIN jobs_tenant t ON t.id = job.tenant_id
    WHERE job.id = ANY({array('uuid')}) AND job.ended_at IS NULL AND t.archived_at IS NOT NULL
    AND t.subject IS NOT NULL"""


def of_archived(job_ids: Collection[str]) -> set[str]:
    """Those of these jobs that have not ended and whose tenant is archived."""
    return {r[0] for r in rows(_OF_ARCHIVED, [packed(job_ids)])}


class Caps(NamedTuple):
    """What rows say of a tenant's new jobs, its workspace's word where it has none: caps of requests, and ceilings."""

    max_attempts_cap: int | None = None
    max_cost_usd_cap: Decimal | None = None
    tenant_ceiling: int | None = None
    workspace_ceiling: int | None = None


_CAPS = ", ".join(f"coalesce(own.{name}, ws.{name})" for name in Caps._fields[:-1]) + ", ws.workspace_ceiling"
_WORKSPACES = "LEFT JOIN jobs_limits ws ON ws.workspace_id = w.id AND ws.tenant_id IS NULL"
_PLACE = f"""SELECT t.workspace_id, t.id, t.archived_at IS NOT NULL, t.deleting_at IS NOT NULL, {_CAPS}
    FROM jobs_tenant t JOIN jobs_workspace w ON w.id = t.workspace_id LEFT JOIN jobs_limits own ON own.tenant_id = t.id
    {_WORKSPACES}
    WHERE w.slug = %s AND {{subject}}"""
_CAPS_OF_WORKSPACE = f"SELECT {_CAPS.replace('own.', 'ws.')} FROM jobs_workspace w {_WORKSPACES} WHERE w.id = %s"


def place(slug: str, subject: str | None) -> tuple[int, int, bool, bool, Caps] | None:
    """(workspace, tenant, archived, deleting, caps) of a workspace's tenant; None when there is none yet."""
    if subject is None:
        found = rows(_PLACE.format(subject="t.subject IS NULL"), [slug])
    else:
        found = rows(_PLACE.format(subject="t.subject = %s"), [slug, subject])
    return (*found[0][:4], Caps(*found[0][4:])) if found else None  # type: ignore[return-value]


def caps_of_workspace(workspace_id: int) -> Caps:
    """The same for a tenant that is not there yet."""
    return Caps(*rows(_CAPS_OF_WORKSPACE, [workspace_id])[0])


_TENANT = "SELECT id FROM jobs_tenant WHERE workspace_id = %s AND subject"


def tenant(workspace_id: int, subject: str | None) -> int | None:
    """The id of the tenant of this subject (None: the workspace's system tenant), if there is one."""
    named = [] if subject is None else [subject]
    found = rows(f"{_TENANT} {'= %s' if named else 'IS NULL'}", [workspace_id, *named])
    return int(found[0][0]) if found else None


def listed(columns: Sequence[str], hidden_group: str, workspace_id: int, subject: str | None,
           ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """These columns of a tenant's jobs, then its subject, the target's key and generation, and the moment."""
    said = ", ".join(f"job.{column}" for column in columns)
    return rows(
        f"SELECT {said}, tenant.subject, target.key, target.generation, jobs_now()"
        f" FROM unnest({array('uuid')}) u(id) JOIN jobs_job job ON job.id = u.id"
        " JOIN jobs_tenant tenant ON tenant.id = job.tenant_id"
        " LEFT JOIN jobs_target target ON target.id = job.target_id"
        " WHERE tenant.workspace_id = %s AND tenant.subject IS NOT DISTINCT FROM %s AND job.worker_group <> %s",
        [packed(ids), workspace_id, subject, hidden_group])
