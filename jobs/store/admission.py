"""Who may be claimed: lines of tenants, caps by key, exclusive groups and their held jobs.

Usage is counted from the live attempts' rows, never kept in a counter. A cap's key is locked in a statement of
its own before the one that counts: the lock inside the counting statement does not protect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from django.db import transaction

from jobs import publish
from jobs.callbacks import MARK, PER_HOST
from jobs.states import Gate
from jobs.store import owning, throttling
from jobs.store.sql import array, durable, packed, rows, run

BUCKETS = 63
RELEASE_AT_MOST = 500
_BUCKET = f"(hashtext(u.worker_group || '/' || u.queue || '/' || u.tenant_id) & {BUCKETS})"
LIMITS = """LEFT JOIN jobs_limits own ON own.tenant_id = {t}.tenant_id
    LEFT JOIN jobs_limits ws ON ws.workspace_id = {t}.workspace_id AND ws.tenant_id IS NULL"""
_GROUP_MAX = "coalesce(own.exclusive_group_max, ws.exclusive_group_max)"
_GROUP_SCOPE = "coalesce(own.exclusive_group_scope, ws.exclusive_group_scope, 'tenant')"
# Of deliveries to a host: so many at once over all tenants, and none while it rests after failures (E11).
_RESTS = "EXISTS (SELECT 1 FROM jobs_callback_host h WHERE h.name = {name} AND h.open_until > jobs_now())"
# Claimed, or in the claim index: what already counts toward the group.
_ACTIVE = ("o.exclusive_group IS NOT NULL AND o.gate IS NULL AND o.state IN ('queued', 'leased', 'running')"
           " AND o.workspace_id = {g}.workspace_id AND o.exclusive_group = {g}.name"
           " AND (o.tenant_id = {g}.tenant_id OR {g}.scope = 'workspace')")

Line = tuple[int, str, str, int]  # workspace, worker group, queue, tenant


def group_max(name: str) -> str:
    """SQL: the most of the group of this name that may run, where its tenant's and workspace's limits are joined."""
    house = f"CASE WHEN {_RESTS.format(name=name)} THEN 0 ELSE {PER_HOST} END"
    return f"CASE WHEN left({name}, 1) = '{MARK}' THEN {house} ELSE {_GROUP_MAX} END"


def group_scope(name: str) -> str:
    """SQL: over what that is counted."""
    return f"CASE WHEN left({name}, 1) = '{MARK}' THEN 'workspace' ELSE {_GROUP_SCOPE} END"


class Group(NamedTuple):
    """An exclusive group as its limit counts it."""

    workspace_id: int
    tenant_id: int
    name: str


class Ended(Protocol):
    """What the release needs to know of a job whose attempt has ended."""

    @property
    def workspace_id(self) -> int: ...
    @property
    def tenant_id(self) -> int: ...
    @property
    def exclusive_group(self) -> str | None: ...
    @property
    def worker_group(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def owned(self) -> bool: ...


def tenant_key(tenant_id: int) -> str:
    """The name under which a tenant's concurrency is counted and locked."""
    return f"tenant:{tenant_id}"


def group_key(scope: str, workspace_id: int, tenant_id: int, name: str) -> str:
    """The name under which an exclusive group is counted and locked."""
    return f"group:w{workspace_id}:{name}" if scope == "workspace" else f"group:{tenant_id}:{name}"


# -- lines ------------------------------------------------------------------------------------------------

_LOCK_BUCKETS = f"""SELECT pg_advisory_xact_lock_shared(3, s.b) FROM (SELECT DISTINCT {_BUCKET} AS b
    FROM unnest({array('text')}, {array('text')}, {array('bigint')}) u(worker_group, queue, tenant_id) ORDER BY 1) s"""
_OPEN = f"""INSERT INTO jobs_claim_line (workspace_id, worker_group, queue, tenant_id)
    SELECT DISTINCT u.workspace_id, u.worker_group, u.queue, u.tenant_id
    FROM unnest({array('bigint')}, {array('text')}, {array('text')}, {array('bigint')})
        u(workspace_id, worker_group, queue, tenant_id)
    -- An old snapshot may show a line that is gone; a second line does no harm.
    WHERE current_setting('transaction_isolation') <> 'read committed' OR NOT EXISTS (
        SELECT 1 FROM jobs_claim_line line WHERE line.worker_group = u.worker_group AND line.queue = u.queue
            AND line.tenant_id = u.tenant_id)"""


def lock_buckets(lines: Iterable[Line]) -> None:
    """Hold the closing of these lines off until our commit: what we make claimable must not be stranded."""
    lines = list(lines)
    rows(_LOCK_BUCKETS, [packed([x[1] for x in lines]), packed([x[2] for x in lines]), packed([x[3] for x in lines])])


def open_lines(lines: Iterable[Line]) -> None:
    """Put these tenants into the rotation. Whatever makes a job claimable calls this in the same transaction."""
    distinct = sorted(set(lines))
    if distinct:
        lock_buckets(distinct)
        run(_OPEN, [packed(column) for column in zip(*distinct, strict=True)])


_EMPTY = """NOT EXISTS (SELECT 1 FROM jobs_job job WHERE job.state = 'queued' AND job.gate IS NULL
    AND job.worker_group = line.worker_group AND job.queue = line.queue AND job.tenant_id = line.tenant_id)"""
# Enqueues that could not see each other open a line each: one is enough, and many hide the tenants behind them.
_DOUBLED = """EXISTS (SELECT 1 FROM jobs_claim_line d WHERE d.worker_group = line.worker_group AND d.queue = line.queue
    AND d.tenant_id = line.tenant_id AND d.id < line.id)"""
_CLOSABLE = f"SELECT s.id, s.closable FROM (SELECT line.id, {_EMPTY} OR {_DOUBLED} AS closable" \
    " FROM jobs_claim_line line" \
    " WHERE line.id > %s ORDER BY line.id LIMIT {limit}) s ORDER BY s.id"
_TRY_BUCKETS = f"""SELECT u.id FROM (SELECT line.id, {_BUCKET.replace('u.', 'line.')} AS b FROM jobs_claim_line line
    WHERE line.id = ANY({array('bigint')})) u
    JOIN (SELECT s.b, pg_try_advisory_xact_lock(3, s.b) AS mine
        FROM (SELECT DISTINCT {_BUCKET.replace('u.', 'line.')} AS b FROM jobs_claim_line line
            WHERE line.id = ANY({array('bigint')}) ORDER BY 1) s OFFSET 0) k ON k.b = u.b AND k.mine"""
_CLOSE = f"""DELETE FROM jobs_claim_line line WHERE line.id IN (
    SELECT x.id FROM jobs_claim_line x WHERE x.id = ANY({array('bigint')}) FOR UPDATE SKIP LOCKED)
    AND ({_EMPTY} OR {_DOUBLED})"""


def close_lines(after: int, limit: int) -> tuple[int, int]:
    """Close lines without claimable work, and second lines; how many, and the line id to go on from (0: done)."""
    seen = rows(_CLOSABLE.format(limit=int(limit)), [after])
    closable = [id_ for id_, may_close in seen if may_close]
    closed = 0
    if closable:
        # An enqueue holds its bucket shared until its commit: with the bucket ours, the next statement sees it all.
        mine = [r[0] for r in rows(_TRY_BUCKETS, [packed(closable), packed(closable)])]
        closed = run(_CLOSE, [packed(mine)]) if mine else 0
    return closed, seen[-1][0] if len(seen) == limit else 0


# -- caps in the claim ------------------------------------------------------------------------------------

_TRY = f"""SELECT s.name, s.key, pg_try_advisory_xact_lock(s.key)
    FROM (SELECT n.name, hashtextextended(n.name, 0) AS key FROM unnest({array('text')}) n(name) ORDER BY 2) s"""
_USAGE = f"SELECT cap_key, count(*) FROM jobs_attempt_cap WHERE cap_key = ANY({array('bigint')}) GROUP BY cap_key"


def tried(names: Iterable[str]) -> dict[str, int]:
    """The keys of those of these caps that could be taken without waiting, until the end of the transaction."""
    return {name: key for name, key, mine in rows(_TRY, [packed(sorted(set(names)))]) if mine}


def usage(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """For each cap whose key could be taken without waiting: its key and how many live attempts count under it."""
    keys = tried(names)
    if not keys:
        return {}
    used = dict(rows(_USAGE, [packed(keys.values())]))
    return {name: (key, used.get(key, 0)) for name, key in keys.items()}


_PARK = f"""UPDATE jobs_claim_line SET parked = '{{word}}' WHERE id IN (SELECT x.id FROM jobs_claim_line x
    WHERE x.worker_group = %s AND x.queue = %s AND x.tenant_id = ANY({array('bigint')}) AND x.parked IS NULL
    FOR NO KEY UPDATE SKIP LOCKED)"""


def park(pair: tuple[str, str], tenants: Sequence[int], word: str = "cap") -> None:
    """Take full (`cap`) or `paused` tenants out of a pair's rotation.

    The end of an attempt takes the same key as a cap and brings them back; a resume brings back the paused ones.
    """
    run(_PARK.format(word=word), [*pair, packed(tenants)])


def hold(job_ids: Sequence[str], gate: Gate = Gate.EXCLUSIVE) -> None:
    """Take jobs, locked by us, out of the claim index: of full groups, or of a full or paused type.

    One that had another gate by the time we locked it keeps that.
    """
    # Not `gate IS NULL`, which would offer the planner the claim's index: by it the whole backlog can be read.
    sql = (f"UPDATE jobs_job SET gate = '{gate.value}' WHERE id = ANY({array('uuid')}) AND state = 'queued'"
           " AND coalesce(gate, '') = ''")
    run(sql, [packed(job_ids)])


# -- ends of attempts -------------------------------------------------------------------------------------

# With the keys of the types' caps; of queues' and worker groups' the names alone, since they put nobody aside.
_WAIT = f"""SELECT s.name, CASE WHEN s.waits THEN pg_advisory_xact_lock(s.key)::text END FROM (
    SELECT DISTINCT n.name, n.waits, hashtextextended(n.name, 0) AS key FROM (
        SELECT u.name, true AS waits FROM unnest({array('text')}) u(name)
        UNION ALL SELECT {throttling.NAME}, t.kind = 'type' FROM jobs_throttle t
        WHERE t.most IS NOT NULL AND (t.kind = 'type' AND t.name = ANY({array('text')})
            OR t.kind = 'queue' AND t.name = ANY({array('text')})
            OR t.kind = 'worker_group' AND t.name = ANY({array('text')}))) n ORDER BY key) s"""
_FREE = f"""SELECT g.workspace_id, g.tenant_id, g.name, g.scope,
        CASE WHEN g.most IS NULL THEN {RELEASE_AT_MOST} ELSE g.most - (SELECT count(*) FROM (
            SELECT 1 FROM jobs_job o WHERE {_ACTIVE.format(g='g')} LIMIT g.most) c) END
    FROM (SELECT u.*, {group_max('u.name')} AS most, {group_scope('u.name')} AS scope
        FROM unnest({array('bigint')}, {array('bigint')}, %s::text[]) u(workspace_id, tenant_id, name)
        {LIMITS.format(t='u')}) g"""
_HELD = """SELECT h.id::text, h.workspace_id, h.worker_group, h.queue, h.tenant_id, g.n,
        row_number() OVER (PARTITION BY g.n ORDER BY h.priority DESC, h.available_at, h.id)
    FROM unnest({arrays}, %s::text[]) WITH ORDINALITY g(workspace_id, tenant_id, name, n) CROSS JOIN LATERAL (
        SELECT k.id, k.workspace_id, k.worker_group, k.queue, k.tenant_id, k.priority, k.available_at FROM jobs_job k
        WHERE k.gate = 'exclusive' AND {scope} AND k.exclusive_group = g.name
        ORDER BY k.priority DESC, k.available_at, k.id LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED) h"""
_SCOPES = {"tenant": "k.tenant_id = g.tenant_id", "workspace": "k.workspace_id = g.workspace_id"}
# Waits: a park that we skipped would keep the tenant out although it has room.
_UNPARK = f"""UPDATE jobs_claim_line SET parked = NULL WHERE id = ANY(ARRAY(SELECT x.id FROM jobs_claim_line x
    WHERE x.parked = 'cap' AND x.tenant_id = ANY({array('bigint')}) ORDER BY x.id FOR NO KEY UPDATE))"""


def release(ended: Sequence[Ended]) -> None:
    """What ended attempts under a cap held goes to who waits for it: every key first, then held jobs, then lines."""
    groups = {Group(r.workspace_id, r.tenant_id, r.exclusive_group) for r in ended if r.exclusive_group is not None}
    owned = {r.tenant_id for r in ended if r.owned}
    if owned:
        groups |= {Group(*g) for g in owning.groups_waiting(owned)}
    names = {tenant_key(r.tenant_id) for r in ended} | {owning.owner_key(t) for t in owned}
    names |= {group_key(scope, *g) for g in groups for scope in ("tenant", "workspace")}
    met = {name for name, _ in rows(_WAIT, [
        packed(sorted(names)), *(packed(sorted({str(getattr(r, of)) for r in ended}))
                                 for of in ("type", "queue", "worker_group"))])} - names
    lines = release_held(sorted(groups)) + (owning.let_in(owned) if owned else [])
    for type_ in sorted({name.split(":", 2)[2] for name in met if name.startswith("type:")}):
        lines += throttling.let_in(type_)
    unparked = run(_UNPARK, [packed(sorted({r.tenant_id for r in ended}))])
    open_lines(lines)
    if lines or unparked or met:
        publish.wake_after_commit()


def release_held(groups: Sequence[Group]) -> list[Line]:
    """Let as many held jobs of each group into the claim index as it has room for; the lines to open for them."""
    if not groups:
        return []
    columns = [packed([g.workspace_id for g in groups]), packed([g.tenant_id for g in groups]),
               [g.name for g in groups]]
    free = [(Group(*f[:3]), f[3], f[4]) for f in rows(_FREE, columns) if f[4] > 0]
    lines: list[Line] = []
    for scope in ("tenant", "workspace"):
        lines += _let_in([(g, room) for g, s, room in free if s == scope], scope)
    return lines


def _let_in(free: list[tuple[Group, int]], scope: str) -> list[Line]:
    if not free:
        return []
    sql = _HELD.format(arrays=f"{array('bigint')}, {array('bigint')}", scope=_SCOPES[scope],
                       limit=min(RELEASE_AT_MOST, max(room for _, room in free)))
    groups = [g for g, _ in free]
    found = rows(sql, [packed([g.workspace_id for g in groups]), packed([g.tenant_id for g in groups]),
                       [g.name for g in groups]])
    let_in = [r for r in found if r[6] <= free[r[5] - 1][1]]
    if let_in:
        run(f"UPDATE jobs_job SET gate = NULL WHERE id = ANY({array('uuid')}) AND gate = 'exclusive'",
            [packed([r[0] for r in let_in])])
    return [(r[1], r[2], r[3], r[4]) for r in let_in]


def release_after(ended: Sequence[Ended]) -> None:
    """`release` after the caller's commit, in a transaction of its own; the repair loop stands behind it."""
    kept = list(ended)
    transaction.on_commit(lambda: durable(lambda: release(kept)), robust=True)


# -- gates at enqueue and promotion -----------------------------------------------------------------------


def group_rooms(groups: Sequence[Group]) -> dict[Group, int | None]:
    """How many more jobs of each group may enter the claim index; None for unlimited. A guess by snapshot."""
    if not groups:
        return {}
    distinct = sorted(set(groups))
    found = rows(_FREE.replace(f"THEN {RELEASE_AT_MOST} ", "THEN NULL "),
                 [packed([g.workspace_id for g in distinct]), packed([g.tenant_id for g in distinct]),
                  [g.name for g in distinct]])
    return {Group(*f[:3]): f[4] for f in found}


def gates(groups: Sequence[Group | None]) -> list[str | None]:
    """The gate of each job that is about to become claimable, in order: `exclusive` where its group has no room."""
    rooms = group_rooms([g for g in groups if g is not None])
    answers: list[str | None] = []
    for group in groups:
        room = rooms.get(group) if group is not None else None
        if group is None or room is None:
            answers.append(None)
            continue
        answers.append(None if room > 0 else Gate.EXCLUSIVE.value)
        rooms[group] = room - 1
    return answers


_PARKED = """SELECT DISTINCT s.tenant_id, s.workspace_id FROM (
    SELECT line.tenant_id, line.workspace_id FROM jobs_claim_line line
    WHERE line.parked = 'cap' AND line.tenant_id > %s ORDER BY line.tenant_id LIMIT {limit}) s ORDER BY s.tenant_id"""
_CAPS = f"""SELECT u.tenant_id, coalesce(own.tenant_concurrency, ws.tenant_concurrency)
    FROM unnest({array('bigint')}, {array('bigint')}) u(tenant_id, workspace_id) {LIMITS.format(t='u')}"""
_HELD_GROUPS = """WITH RECURSIVE g AS (
    (SELECT tenant_id, exclusive_group, workspace_id FROM jobs_job WHERE gate = 'exclusive'
        AND (tenant_id, exclusive_group) > (%s, %s) ORDER BY tenant_id, exclusive_group LIMIT 1)
    UNION ALL SELECT n.* FROM g CROSS JOIN LATERAL (
        SELECT j.tenant_id, j.exclusive_group, j.workspace_id FROM jobs_job j
        WHERE j.gate = 'exclusive' AND (j.tenant_id, j.exclusive_group) > (g.tenant_id, g.exclusive_group)
        ORDER BY j.tenant_id, j.exclusive_group LIMIT 1) n)
    SELECT workspace_id, tenant_id, exclusive_group FROM g LIMIT {limit}"""


def repair_lines(after: int, limit: int) -> tuple[int, int]:
    """Bring back tenants whose release was lost; how many lines, and the tenant to go on from (0: done)."""
    parked = rows(_PARKED.format(limit=int(limit)), [after])
    if not parked:
        return 0, 0
    caps = dict(rows(_CAPS, [packed([p[0] for p in parked]), packed([p[1] for p in parked])]))
    used = usage(tenant_key(t) for t in caps)
    free = [t for t, cap in caps.items() if tenant_key(t) in used and (cap is None or used[tenant_key(t)][1] < cap)]
    return run(_UNPARK, [packed(free)]) if free else 0, parked[-1][0]


def repair_groups(after: tuple[int, str], limit: int) -> tuple[int, tuple[int, str]]:
    """Let in held jobs whose release was lost; how many, and the group to go on from ((0, ''): done)."""
    groups = [Group(*r) for r in rows(_HELD_GROUPS.format(limit=int(limit)), list(after))]
    if not groups:
        return 0, (0, "")
    names = {group_key(s, *g): g for g in groups for s in ("tenant", "workspace")}
    mine = usage(names)
    lines = release_held([g for g in groups if all(group_key(s, *g) in mine for s in ("tenant", "workspace"))])
    open_lines(lines)
    return len(lines), (groups[-1].tenant_id, groups[-1].name) if len(groups) == limit else (0, "")


def repair_owners(after: int, limit: int) -> tuple[int, int]:
    """Let in what waits behind owners with room; how many, and the tenant to go on from (0: done)."""
    tenants, on = owning.waiting(after, limit)
    return let_in_owned(tenants), on


def let_in_owned(tenants: Sequence[int]) -> int:
    """Let in what waits behind the owners of these tenants, as far as there is room and nobody else is at them."""
    keys = tried(owning.owner_key(t) for t in tenants) if tenants else {}
    lines = owning.let_in([t for t in tenants if owning.owner_key(t) in keys]) if keys else []
    open_lines(lines)
    if lines:
        publish.wake_after_commit()
    return len(lines)


def repair_types(after: str, limit: int, batch: int = throttling.ASIDE) -> tuple[int, str]:
    """Let in jobs of types with room; how many, and the type to go on from ('': done)."""
    types = throttling.held_types(after, limit)
    caps = {name for _, names in types for name in names}
    mine = tried(caps) if caps else {}
    lines: list[Line] = []
    for type_, names in types:
        if all(name in mine for name in names):
            lines += throttling.let_in(type_, batch)
    open_lines(lines)
    if lines:
        publish.wake_after_commit()
    return len(lines), types[-1][0] if len(types) == limit else ""


_EXCESS = f"""WITH g AS MATERIALIZED (SELECT u.*, {group_max('u.name')} AS most, {group_scope('u.name')} AS scope FROM (
        SELECT o.workspace_id, o.tenant_id, o.exclusive_group AS name, count(*) AS n,
            count(*) FILTER (WHERE o.state = 'queued') AS waiting FROM jobs_job o
        WHERE o.exclusive_group IS NOT NULL AND o.gate IS NULL AND o.state IN ('queued', 'leased', 'running')
            AND o.workspace_id = %s GROUP BY 1, 2, 3) u {LIMITS.format(t='u')}),
    s AS (SELECT workspace_id, CASE WHEN scope = 'tenant' THEN tenant_id END AS tenant_id, name,
            least(sum(n) - min(most), sum(waiting)) AS over
        FROM g WHERE most IS NOT NULL GROUP BY 1, 2, 3 HAVING sum(n) > min(most) AND sum(waiting) > 0)
    SELECT s.workspace_id, s.tenant_id, s.name, s.over FROM s ORDER BY s.name, s.tenant_id LIMIT 100"""
_EXCESS_JOBS = """SELECT id::text FROM jobs_job WHERE exclusive_group IS NOT NULL AND gate IS NULL AND state = 'queued'
    AND workspace_id = %s AND exclusive_group = %s {tenant}
    ORDER BY priority, available_at DESC, jobs_job.id DESC LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED"""


def hold_excess(workspace_id: int, limit: int) -> int:
    """Send up to `limit` jobs of a workspace's over-full groups behind their gate, the last first; how many."""
    held = 0
    for _, tenant, name, over in rows(_EXCESS, [workspace_id]):
        sql = _EXCESS_JOBS.format(tenant="AND tenant_id = %s" if tenant is not None else "",
                                  limit=int(min(over, limit - held)))
        ids = [r[0] for r in rows(sql, [workspace_id, name, *([] if tenant is None else [tenant])])]
        if ids:
            hold(ids)
            held += len(ids)
        if held >= limit:
            break
    return held
