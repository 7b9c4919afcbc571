"""Owners in the claim: who stands for which tenant's jobs, how many of them may run, which wait behind a full one.

An owner at its capacity is a cap like a tenant's. Its jobs that wait leave the claim's index behind the gate of
exclusive groups: to run under one credential is to be in one group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from jobs.clock import Now
from jobs.conf import conf
from jobs.models import Owner
from jobs.store.sql import ALIAS, array, packed, rows, run

OWNER = "owner"
# What one look of a claim moves out of its way at most.
ASIDE = 100
LET_IN = 100
GROUPS = 20
AWAY = "coalesce(o.away_until > jobs_now(), false)"
LIVE = "o.revoked_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > jobs_now())"
# The guard of a holder's writes: its strict lease has not run out, and its job's owner stands (B23, B35).
BELIEVED = ("(NOT job.strict_lease AND job.credential = 'none' OR EXISTS (SELECT 1 FROM jobs_attempt x"
            " WHERE x.id = {fence} AND (NOT job.strict_lease OR x.lease_until > jobs_now())"
            " AND (job.credential = 'none' OR EXISTS (SELECT 1 FROM jobs_owner o"
            f" WHERE o.tenant_id = job.tenant_id AND {LIVE}))))")


def owner_key(tenant_id: int) -> str:
    """The name under which an owner's concurrency is counted and locked; a tenant has one owner."""
    return f"owner:{tenant_id}"


@dataclass(slots=True)
class Standing:
    """An owner as the claim finds it. `key` is its cap's, `room` how many more jobs may run: none while its secret is
    not to be had.
    """

    tenant_id: int
    id: int
    generation: int
    key: int
    room: int

    @property
    def binding(self) -> str:
        """What the attempt keeps of it: no reference, no secret (B35)."""
        return f'{{"generation":{self.generation},"owner":{self.id}}}'


# Locked for the rest of the claim's transaction: who revokes waits for us and sees the attempts that we make. An owner
# that somebody changes at this moment is left alone.
_STANDING = f"""WITH mine AS MATERIALIZED (SELECT o.id, o.generation, o.concurrency, {LIVE} AS live, {AWAY} AS away
        FROM jobs_owner o
        WHERE o.tenant_id = ANY({array('bigint')}) FOR SHARE OF o SKIP LOCKED)
    SELECT o.tenant_id, mine.id, mine.generation, mine.concurrency, mine.live, mine.away, (SELECT count(*)
        FROM jobs_attempt_cap c WHERE c.cap_key = hashtextextended('owner:' || o.tenant_id, 0))
    FROM jobs_owner o LEFT JOIN mine ON mine.id = o.id WHERE o.tenant_id = ANY({array('bigint')})"""


def standing(keys: dict[int, int]) -> dict[int, Standing | None]:
    """The owners of these tenants, whose cap keys are locked; None where there is none that is live.

    One that is being changed is missing in the answer. The count is exact, since the keys were taken before.
    """
    asked = packed(keys)
    found: dict[int, Standing | None] = dict.fromkeys(keys)
    for tenant, id_, generation, most, live, away, used in rows(_STANDING, [asked, asked]):
        if id_ is None:
            del found[tenant]
        elif live:
            room = 0 if away else (conf().OWNER_CONCURRENCY if most is None else most) - used
            found[tenant] = Standing(tenant, id_, generation, keys[tenant], room)
    return found


# The head of the line as the claim's index has it; the look is bounded whatever stands there.
_HEAD = f"""SELECT id::text FROM jobs_job WHERE id = ANY(ARRAY(SELECT s.id FROM (
        SELECT job.id, job.credential FROM jobs_job job WHERE job.state = 'queued' AND job.gate IS NULL
            AND job.worker_group = %s AND job.queue = %s AND job.tenant_id = %s
        ORDER BY job.priority DESC, job.available_at, job.id LIMIT {{limit}}) s WHERE s.credential = 'owner'))
    AND NOT id = ANY({array('uuid')}) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"""


def heads(pair: tuple[str, str], tenant_id: int, but: Collection[str]) -> list[str]:
    """The owner's jobs among the first of a line, locked, without those that are taken."""
    return [r[0] for r in rows(_HEAD.format(limit=ASIDE), [*pair, tenant_id, packed(but)])]


_ROOM = f"""SELECT u.tenant_id, CASE WHEN o.id IS NULL THEN {LET_IN} WHEN {AWAY} THEN 0
        ELSE coalesce(o.concurrency, %s::bigint) - (SELECT count(*) FROM jobs_attempt_cap c
            WHERE c.cap_key = hashtextextended('owner:' || u.tenant_id, 0)) END
    FROM unnest({array('bigint')}) u(tenant_id) LEFT JOIN jobs_owner o ON o.tenant_id = u.tenant_id AND {LIVE}"""
_WAITING = f"""SELECT k.id::text, k.workspace_id, k.worker_group, k.queue, k.tenant_id,
        row_number() OVER (PARTITION BY g.tenant_id ORDER BY k.priority DESC, k.available_at, k.id)
    FROM unnest({array('bigint')}) g(tenant_id) CROSS JOIN LATERAL (SELECT h.* FROM jobs_job h
        WHERE h.gate = 'exclusive' AND h.tenant_id = g.tenant_id AND h.exclusive_group IS NULL
        -- All alike, but so the index brings them in order.
        ORDER BY h.exclusive_group, h.priority DESC, h.available_at, h.id
        LIMIT {{limit}} FOR NO KEY UPDATE SKIP LOCKED) k"""


def let_in(tenant_ids: Collection[int]) -> list[tuple[int, str, str, int]]:
    """Let as many waiting jobs into the claim's index as these owners have room for; the lines to open for them.

    The caller holds the owners' keys. Where no owner is live any more a batch comes in whole, to be put aside.
    """
    found = rows(_ROOM, [conf().OWNER_CONCURRENCY, packed(tenant_ids)])
    rooms = {tenant: min(room, LET_IN) for tenant, room in found if room > 0}
    if not rooms:
        return []
    waiting = rows(_WAITING.format(limit=max(rooms.values())), [packed(rooms)])
    mine = [r for r in waiting if r[5] <= rooms[r[4]]]
    if mine:
        run(f"UPDATE jobs_job SET gate = NULL WHERE id = ANY({array('uuid')}) AND gate = 'exclusive'",
            [packed([r[0] for r in mine])])
    return [(r[1], r[2], r[3], r[4]) for r in mine]


_GROUPS = f"""SELECT g.workspace_id, g.tenant_id, g.exclusive_group FROM unnest({array('bigint')}) u(tenant_id)
    CROSS JOIN LATERAL (WITH RECURSIVE w AS (
        (SELECT tenant_id, exclusive_group, workspace_id FROM jobs_job WHERE gate = 'exclusive'
            AND tenant_id = u.tenant_id AND exclusive_group IS NOT NULL ORDER BY exclusive_group LIMIT 1)
        UNION ALL SELECT n.* FROM w CROSS JOIN LATERAL (
            SELECT j.tenant_id, j.exclusive_group, j.workspace_id FROM jobs_job j WHERE j.gate = 'exclusive'
            AND j.tenant_id = w.tenant_id AND j.exclusive_group > w.exclusive_group
            ORDER BY j.exclusive_group LIMIT 1) n) SELECT * FROM w LIMIT {GROUPS}) g"""


def groups_waiting(tenant_ids: Collection[int]) -> list[tuple[int, int, str]]:
    """Groups of these tenants with held jobs, which may wait for the owner as well: the first of them."""
    return [(r[0], r[1], r[2]) for r in rows(_GROUPS, [packed(tenant_ids)])]


_TENANTS = """WITH RECURSIVE w AS (
    (SELECT tenant_id FROM jobs_job WHERE gate = 'exclusive' AND tenant_id > %s ORDER BY tenant_id LIMIT 1)
    UNION ALL SELECT n.tenant_id FROM w CROSS JOIN LATERAL (SELECT j.tenant_id FROM jobs_job j
        WHERE j.gate = 'exclusive' AND j.tenant_id > w.tenant_id ORDER BY j.tenant_id LIMIT 1) n)
    SELECT s.tenant_id, EXISTS (SELECT 1 FROM jobs_job k WHERE k.gate = 'exclusive' AND k.tenant_id = s.tenant_id
        AND k.exclusive_group IS NULL) FROM (SELECT tenant_id FROM w LIMIT {limit}) s ORDER BY s.tenant_id"""


def waiting(after: int, limit: int) -> tuple[list[int], int]:
    """Tenants with jobs that wait behind their owner, and the tenant to go on from (0: done)."""
    found = rows(_TENANTS.format(limit=int(limit)), [after])
    return [tenant for tenant, waits in found if waits], found[-1][0] if len(found) == limit else 0


# --- the rows of owners --------------------------------------------------------------------------------------------


def sees_others() -> bool:
    """Whether the present transaction sees the attempts of claims that committed while it waited for the owner.

    Claims share the row and do not write it: above READ COMMITTED nothing else would say that they were there.
    """
    return bool(rows("SELECT current_setting('transaction_isolation') = 'read committed'")[0][0])


def locked(tenant_id: int) -> Owner | None:
    """The owner of a tenant as of `now`, locked until our commit."""
    # No skip_locked: it waits for another who changes it, and for claims that have just looked at it.
    found = Owner.objects.using(ALIAS).select_for_update(of=("self",), no_key=True).annotate(now=Now())
    return found.filter(tenant_id=tenant_id).first()


def put_off(owner_id: int, seconds: float) -> None:
    """Let no job begin under this owner for so long: its secret is not to be had (B24)."""
    run("UPDATE jobs_owner SET away_until = jobs_now() + %s * interval '1 second' WHERE id = %s", [seconds, owner_id])


def made(workspace_id: int, tenant_id: int) -> Owner:
    """The owner of a tenant, locked; of generation 0 and revoked where there was none. Of two at once one waits."""
    run("INSERT INTO jobs_owner (workspace_id, tenant_id, reference, label, generation, revision, revoked_at)"
        " VALUES (%s, %s, '', '', 0, 0, jobs_now()) ON CONFLICT (tenant_id) DO NOTHING", [workspace_id, tenant_id])
    found = locked(tenant_id)
    assert found is not None
    return found
