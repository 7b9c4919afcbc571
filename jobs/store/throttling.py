"""Throttles in the claim: what caps and pauses of queues, worker groups, types and tenants hold back (C9, C11).

They are read by the statement that reads the lines, which otherwise asks whether there is any, so that a pause that
has committed is seen by every claim that begins later. A cap's key is tried in a statement before the one that counts.
Jobs of a full or paused type leave the claim's index behind the gate `type`, lines of paused tenants are parked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jobs.store.sql import array, packed, rows, run

QUEUE, WORKER_GROUP, TYPE, TENANT = "queue", "worker_group", "type", "tenant"
# What one look of a claim moves out of its way at most, and what one end of an attempt lets in.
ASIDE = 500
LET_IN = 100
Place = tuple[int, str, str, int]  # workspace, worker group, queue, tenant: a line
PAUSED = "(t.paused_at IS NOT NULL AND (t.paused_until IS NULL OR t.paused_until > jobs_now()))"
NAME = "t.kind || ':' || coalesce('w' || t.workspace_id, '*') || ':' || t.name"
USED = f"(SELECT count(*) FROM jobs_attempt_cap c WHERE c.cap_key = hashtextextended({NAME}, 0))"
# Of the pairs that are asked for, and of every type, by an index past those of tenants. The counts are hints, which
# spare a full cap its key.
READ = f"""SELECT 0, 0, t.workspace_id, NULL, t.most, CASE WHEN t.most IS NOT NULL AND t.kind <> 'type' THEN {USED} END,
        t.kind || ':' || t.name, {PAUSED}
    FROM jobs_throttle t WHERE t.tenant_id IS NULL AND (t.kind = 'type'
        OR t.kind = 'queue' AND t.name = ANY({array('text')})
        OR t.kind = 'worker_group' AND t.name = ANY({array('text')}))"""


class Rule(NamedTuple):
    """One throttle as a claim reads it. `hint` counts its live attempts, without its key."""

    kind: str
    name: str
    workspace_id: int | None
    most: int | None
    hint: int
    paused: bool

    @property
    def cap(self) -> str:
        """The name under which it is counted and locked."""
        return cap_name(self.kind, self.workspace_id, self.name)


def cap_name(kind: str, workspace_id: int | None, name: str) -> str:
    """The name under which a cap of a queue, worker group or type is counted and locked."""
    return f"{kind}:{'*' if workspace_id is None else f'w{workspace_id}'}:{name}"


class Rules:
    """The throttles that a claim may meet: by pair, and by type."""

    __slots__ = ("places", "types")

    def __init__(self, found: Iterable[Sequence[Any]] = ()) -> None:
        self.places: list[Rule] = []
        self.types: dict[str, list[Rule]] = {}
        for _, workspace, _, most, hint, said, paused in found:
            kind, _, name = said.partition(":")
            rule = Rule(kind, name, workspace, most, hint or 0, paused)
            if kind == TYPE:
                self.types.setdefault(name, []).append(rule)
            else:
                self.places.append(rule)

    def of_pair(self, pair: tuple[str, str]) -> list[Rule]:
        """Those of this worker group and of this queue."""
        return [r for r in self.places if r.name == pair[0 if r.kind == WORKER_GROUP else 1]]

    def of_type(self, name: str, workspace_id: int) -> list[Rule]:
        """Those of this type which a job of this workspace obeys."""
        return [r for r in self.types.get(name, ()) if r.workspace_id in (None, workspace_id)]


NONE = Rules()

# The head of the line as the claim's index has it; the look is bounded whatever stands there.
_HEADS = f"""SELECT id::text FROM jobs_job WHERE id = ANY(ARRAY(SELECT s.id FROM (
        SELECT job.id, job.type FROM jobs_job job WHERE job.state = 'queued' AND job.gate IS NULL
            AND job.worker_group = %s AND job.queue = %s AND job.tenant_id = %s
        ORDER BY job.priority DESC, job.available_at, job.id LIMIT {ASIDE}) s WHERE s.type = ANY({array('text')})))
    AND NOT id = ANY({array('uuid')}) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"""


def heads(pair: tuple[str, str], tenant_id: int, types: Collection[str], but: Collection[str]) -> list[str]:
    """Jobs of these types among the first of a line, locked, without those that are taken."""
    return [r[0] for r in rows(_HEADS, [*pair, tenant_id, packed(types), packed(but)])]


# -- letting in -------------------------------------------------------------------------------------------

_RULES = f"""SELECT t.workspace_id, t.most, {PAUSED}, CASE WHEN t.most IS NOT NULL THEN {USED} ELSE 0 END
    FROM jobs_throttle t WHERE t.kind = 'type' AND t.name = %s"""
# Tenants with jobs behind the gate, in turn; workspaces without room are stepped over whole.
_TENANTS = f"""WITH RECURSIVE w AS (
    (SELECT workspace_id, tenant_id FROM jobs_job WHERE gate = 'type' AND type = %s
        AND (workspace_id, tenant_id) > (%s, %s) ORDER BY workspace_id, tenant_id LIMIT 1)
    UNION ALL SELECT n.* FROM w CROSS JOIN LATERAL (SELECT j.workspace_id, j.tenant_id FROM jobs_job j
        WHERE j.gate = 'type' AND j.type = %s AND (j.workspace_id, j.tenant_id) > (w.workspace_id,
            CASE WHEN w.workspace_id = ANY({array('bigint')}) THEN 9223372036854775807 ELSE w.tenant_id END)
        ORDER BY j.workspace_id, j.tenant_id LIMIT 1) n)
    SELECT workspace_id, tenant_id FROM w WHERE NOT workspace_id = ANY({array('bigint')}) LIMIT {{limit}}"""
_WAITING = f"""SELECT k.id::text, k.workspace_id, k.worker_group, k.queue, k.tenant_id
    FROM unnest({array('bigint')}, {array('bigint')}) WITH ORDINALITY u(workspace_id, tenant_id, n)
    CROSS JOIN LATERAL (SELECT h.id, h.workspace_id, h.worker_group, h.queue, h.tenant_id FROM jobs_job h
        WHERE h.gate = 'type' AND h.type = %s AND h.workspace_id = u.workspace_id AND h.tenant_id = u.tenant_id
        ORDER BY h.priority DESC, h.available_at, h.id LIMIT {{share}} FOR NO KEY UPDATE SKIP LOCKED) k ORDER BY u.n"""
_OPEN = f"UPDATE jobs_job SET gate = NULL WHERE id = ANY({array('uuid')}) AND gate = 'type'"

# Where this process stands among the tenants of each type: each has its turn, as in the claim.
_turns: dict[str, tuple[int, int]] = {}


class _Rooms(NamedTuple):
    """How many more jobs of a type may begin: in all, and by workspace; a workspace without room is blocked."""

    site: int
    own: dict[int, int]

    @property
    def blocked(self) -> list[int]:
        return [workspace for workspace, room in self.own.items() if room <= 0]


def _rooms(type_: str, limit: int) -> _Rooms:
    site, own = limit, {}
    for workspace, most, paused, used in rows(_RULES, [type_]):
        room = 0 if paused else limit if most is None else most - used
        if workspace is None:
            site = min(site, room)
        else:
            own[workspace] = room
    return _Rooms(site, own)


def let_in(type_: str, limit: int = LET_IN) -> list[Place]:
    """Let as many jobs of a type into the claim's index as there is room for, tenant by tenant; the lines to open.

    The caller holds the keys of the type's caps. What was let in and not claimed yet is not counted: a claim that
    meets too many puts them aside again.
    """
    rooms = _rooms(type_, limit)
    if rooms.site <= 0:
        return []
    tenants = _in_turn(type_, rooms)
    if not tenants:
        return []
    share = max(1, rooms.site // len(tenants))
    found = rows(_WAITING.format(share=share),
                 [packed([w for w, _ in tenants]), packed([t for _, t in tenants]), type_])
    mine = _fitting(found, rooms)
    if mine:
        run(_OPEN, [packed([r[0] for r in mine])])
    return [(r[1], r[2], r[3], r[4]) for r in mine]


def _in_turn(type_: str, rooms: _Rooms) -> list[tuple[int, int]]:
    blocked, sql = packed(rooms.blocked), _TENANTS.format(limit=int(rooms.site))
    after = _turns.get(type_, (0, 0))
    tenants = rows(sql, [type_, *after, type_, blocked, blocked])
    if len(tenants) < rooms.site and after != (0, 0):
        again = rows(sql, [type_, 0, 0, type_, blocked, blocked])
        tenants += [t for t in again if t not in tenants][: rooms.site - len(tenants)]
    if tenants:
        _turns[type_] = (tenants[-1][0], tenants[-1][1])
    return tenants  # type: ignore[return-value]


def _fitting(found: Sequence[tuple[Any, ...]], rooms: _Rooms) -> list[tuple[Any, ...]]:
    own, mine = dict(rooms.own), []
    for row in found[: rooms.site]:
        if row[1] in own:
            if own[row[1]] <= 0:
                continue
            own[row[1]] -= 1
        mine.append(row)
    return mine


_HELD_TYPES = """WITH RECURSIVE w AS (
    (SELECT type FROM jobs_job WHERE gate = 'type' AND type > %s ORDER BY type LIMIT 1)
    UNION ALL SELECT n.type FROM w CROSS JOIN LATERAL (SELECT j.type FROM jobs_job j WHERE j.gate = 'type'
        AND j.type > w.type ORDER BY j.type LIMIT 1) n)
    SELECT w.type, ARRAY(SELECT t.workspace_id FROM jobs_throttle t WHERE t.kind = 'type' AND t.name = w.type
        AND t.most IS NOT NULL) FROM w LIMIT {limit}"""


def held_types(after: str, limit: int) -> list[tuple[str, list[str]]]:
    """Types with jobs behind their gate, in order, and the names of their caps."""
    return [(type_, [cap_name(TYPE, workspace, type_) for workspace in capped])
            for type_, capped in rows(_HELD_TYPES.format(limit=int(limit)), [after])]


# A tenant's own pause, and those of its workspace; the site's queues and worker groups park nobody.
_UNPARK = f"""UPDATE jobs_claim_line SET parked = NULL WHERE id = ANY(ARRAY(SELECT y.id FROM jobs_claim_line y
    WHERE y.parked = 'paused' AND y.id = ANY(ARRAY(
        SELECT x.id FROM (SELECT l.id, l.workspace_id, l.worker_group, l.queue, l.tenant_id FROM jobs_claim_line l
            WHERE l.parked = 'paused' AND l.tenant_id > %s ORDER BY l.tenant_id LIMIT {{limit}}) x
        WHERE NOT EXISTS (SELECT 1 FROM jobs_throttle t WHERE t.tenant_id = x.tenant_id AND {PAUSED})
            AND NOT EXISTS (SELECT 1 FROM jobs_throttle t WHERE t.workspace_id = x.workspace_id AND {PAUSED}
                AND (t.kind = 'queue' AND t.name = x.queue OR t.kind = 'worker_group' AND t.name = x.worker_group))))
    ORDER BY y.id FOR NO KEY UPDATE))"""
_PARKED = """SELECT max(s.tenant_id), count(*) FROM (SELECT tenant_id FROM jobs_claim_line
    WHERE parked = 'paused' AND tenant_id > %s ORDER BY tenant_id LIMIT {limit}) s"""


def unpark(after: int, limit: int) -> tuple[int, int]:
    """Bring back lines that no pause holds any more; how many, and the tenant to go on from (0: done)."""
    last, seen = rows(_PARKED.format(limit=int(limit)), [after])[0]
    if not seen:
        return 0, 0
    # Lines of the last tenant that the limit cut off are met in the next round.
    return run(_UNPARK.format(limit=int(limit)), [after]), last if seen == limit else 0


_PARK = """UPDATE jobs_claim_line SET parked = 'paused' WHERE id IN (SELECT x.id FROM jobs_claim_line x
    WHERE x.tenant_id = %s AND x.parked IS NULL AND x.worker_group <> 'system' FOR NO KEY UPDATE SKIP LOCKED)"""


def park_tenant(tenant_id: int) -> int:
    """Take the lines of a paused tenant out of the rotation; claims do the same with those that they meet."""
    return run(_PARK, [tenant_id])


# -- the rows ---------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """A throttle after it was written."""

    id: int
    kind: str
    name: str
    workspace_id: int | None
    tenant_id: int | None
    most: int | None
    paused_at: datetime | None
    paused_until: datetime | None
    paused_by: str | None
    pause_reason: str | None


_COLUMNS = ", ".join(f"t.{name}" for name in Written._fields)
_PUT = f"""INSERT INTO jobs_throttle AS t (kind, name, workspace_id, tenant_id, {{columns}}, created_at, updated_at)
    VALUES (%s, %s, %s::bigint, %s::bigint, {{values}}, jobs_now(), jobs_now())
    ON CONFLICT (kind, name, workspace_id, tenant_id) DO UPDATE SET {{sets}}, updated_at = jobs_now()
    RETURNING {_COLUMNS}"""
_PAUSE = ("paused_at", "paused_until", "paused_by", "pause_reason")
Spot = tuple[str, str, int | None, int | None]  # kind, name, workspace, tenant


def _put(spot: Spot, values: dict[str, str], params: Sequence[Any]) -> Written:
    sql = _PUT.format(columns=", ".join(values), values=", ".join(values.values()),
                      sets=", ".join(f"{name} = EXCLUDED.{name}" for name in values))
    return Written._make(rows(sql, [*spot, *params])[0])


def pause(spot: Spot, by: str, reason: str, until: datetime | None, for_us: int | None) -> Written:
    """Write the pause, until a moment, for a span from now, or until somebody resumes it. Of two at once one waits."""
    if for_us is not None:
        return _put(spot, dict(zip(_PAUSE, ("jobs_now()", "jobs_now() + %s * interval '1 microsecond'", "%s", "%s"),
                                   strict=True)), [for_us, by, reason])
    return _put(spot, dict(zip(_PAUSE, ("jobs_now()", "%s::timestamptz", "%s", "%s"), strict=True)),
                [until, by, reason])


def cap(spot: Spot, most: int) -> Written:
    """Write the cap."""
    return _put(spot, {"most": "%s"}, [most])


_SPOT = ("t.kind = %s AND t.name = %s AND t.workspace_id IS NOT DISTINCT FROM %s::bigint"
         " AND t.tenant_id IS NOT DISTINCT FROM %s::bigint")
# Waits for another who changes the same one: a person is given an answer. The duty skips.
_CLEAR = f"""WITH mine AS MATERIALIZED (SELECT {_COLUMNS} FROM jobs_throttle t WHERE {{which}}
        FOR NO KEY UPDATE{{skip}}),
    gone AS (DELETE FROM jobs_throttle t USING mine WHERE t.id = mine.id AND {{empty}}),
    kept AS (UPDATE jobs_throttle t SET {{sets}}, updated_at = jobs_now() FROM mine
        WHERE t.id = mine.id AND NOT ({{empty}}))
    SELECT * FROM mine"""
_NO_PAUSE = ", ".join(f"{name} = NULL" for name in _PAUSE)


def _clear(which: str, empty: str, sets: str, params: Sequence[Any], skip: str = "") -> list[Written]:
    sql = _CLEAR.format(which=which, empty=empty, sets=sets, skip=skip)
    return [Written._make(row) for row in rows(sql, params)]


def resume(spot: Spot) -> Written | None:
    """Take the pause away; as it was before, None where there was none."""
    found = _clear(_SPOT + " AND t.paused_at IS NOT NULL", "mine.most IS NULL", _NO_PAUSE, spot)
    return found[0] if found else None


def uncap(spot: Spot) -> Written | None:
    """Take the cap away; as it was before, None where there was none."""
    found = _clear(_SPOT + " AND t.most IS NOT NULL", "mine.paused_at IS NULL", "most = NULL", spot)
    return found[0] if found else None


def end_pauses(limit: int) -> list[Written]:
    """Clear pauses whose end has come, as they were: claims do not obey them any more anyway."""
    which = f"t.id IN (SELECT x.id FROM jobs_throttle x WHERE x.paused_until <= jobs_now() ORDER BY x.id LIMIT {limit})"
    return _clear(which + " AND t.paused_until <= jobs_now()", "mine.most IS NULL", _NO_PAUSE, [], " SKIP LOCKED")


_HOLDERS = """SELECT a.job_id::text, count(*) OVER () FROM jobs_attempt_cap c JOIN jobs_attempt a ON a.id = c.attempt_id
    WHERE c.cap_key = hashtextextended(%s, 0) ORDER BY a.leased_at, a.job_id LIMIT {limit}"""


def holders(name: str, limit: int) -> tuple[int, list[str]]:
    """How many live attempts count under a cap, and the jobs of the oldest of them."""
    found = rows(_HOLDERS.format(limit=int(limit)), [name])
    return (found[0][1] if found else 0), [r[0] for r in found]
