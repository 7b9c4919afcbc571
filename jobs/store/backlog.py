"""What waits, runs and stands still, for people and for /metrics: probes that end, whatever lies in the tables.

Nothing here counts a backlog: a count stops at its cap, and the oldest is found by the heads of the lines. Each is in
the order of an index, or the planner would like to read the table until it has met enough rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from jobs.meters import Pair
from jobs.store.sql import array, packed, rows

# One more is looked at than is counted, so that a full count is told from a cut one.
CAP = 1_000
LETTERS_CAP = 10_000
LINES = 1_000
# Lines that are looked through for those that were opened first.
LINES_SEEN = 10_000
LIVE = 10_000
PAIRS = 200
REASONS = 20

# From pair to pair on the index of all lines, however many tenants stand in one.
_PAIRS = f"""WITH RECURSIVE p(worker_group, queue) AS (
        (SELECT worker_group, queue FROM jobs_claim_line ORDER BY worker_group, queue LIMIT 1)
        UNION ALL
        SELECT n.worker_group, n.queue FROM p CROSS JOIN LATERAL (SELECT x.worker_group, x.queue
            FROM jobs_claim_line x WHERE (x.worker_group, x.queue) > (p.worker_group, p.queue)
            ORDER BY x.worker_group, x.queue LIMIT 1) n)
    SELECT worker_group, queue FROM p LIMIT {PAIRS}"""
_CLAIMABLE = "j.state = 'queued' AND j.gate IS NULL AND j.worker_group = p.worker_group AND j.queue = p.queue"
_HEAD = f"""SELECT j.priority, j.available_at FROM jobs_job j WHERE {_CLAIMABLE} AND j.tenant_id = line.tenant_id
    {{lower}} ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1"""
# The oldest of each priority in a line is the head of that priority: from one to the next on the claim's index.
_WAITING = f"""SELECT p.n, (SELECT count(*) FROM (SELECT 1 FROM jobs_job j WHERE {_CLAIMABLE}
            ORDER BY j.tenant_id LIMIT {CAP + 1}) w),
        o.at, o.lines
    FROM unnest({array('text')}, {array('text')}) WITH ORDINALITY p(worker_group, queue, n)
    CROSS JOIN LATERAL (SELECT min(h.at) AS at, count(*) AS lines FROM (SELECT x.tenant_id FROM (
                SELECT id, tenant_id FROM jobs_claim_line WHERE worker_group = p.worker_group AND queue = p.queue
                    AND parked IS NULL ORDER BY tenant_id LIMIT {LINES_SEEN}) x ORDER BY x.id LIMIT {LINES + 1}) line
        CROSS JOIN LATERAL (WITH RECURSIVE head AS (({_HEAD.format(lower='')}) UNION ALL
            SELECT n.priority, n.available_at FROM head CROSS JOIN LATERAL (
                {_HEAD.format(lower='AND j.priority < head.priority')}) n)
            SELECT min(available_at) AS at FROM head) h) o ORDER BY p.n"""


class Waiting(NamedTuple):
    """What is claimable in one pair: how many, at most CAP + 1; since when the oldest; whether all lines were seen."""

    number: int
    oldest: datetime | None
    all_seen: bool


def pairs() -> list[Pair]:
    """The pairs that have lines."""
    return [(group, queue) for group, queue in rows(_PAIRS)]


def waiting(of: Sequence[Pair]) -> dict[Pair, Waiting]:
    """What is claimable in these pairs."""
    found = rows(_WAITING, [packed([g for g, _ in of]), packed([q for _, q in of])]) if of else []
    return {of[n - 1]: Waiting(count, oldest, lines <= LINES) for n, count, oldest, lines in found}


_RUNNING = f"""SELECT j.worker_group, j.queue, count(*) FROM (SELECT job_id FROM jobs_attempt WHERE ended_at IS NULL
    ORDER BY job_id LIMIT {LIVE}) a JOIN jobs_job j ON j.id = a.job_id GROUP BY 1, 2"""
_GATED = f"""SELECT worker_group, queue, count(*) FROM (SELECT worker_group, queue FROM jobs_job WHERE gate = '{{gate}}'
    ORDER BY {{order}} LIMIT {CAP + 1}) j GROUP BY 1, 2"""


# Of the index of each gate.
_ORDER = {"scheduled": "available_at, id", "exclusive": "tenant_id, exclusive_group",
          "type": "type, workspace_id, tenant_id"}


def running() -> dict[Pair, int]:
    """Live attempts by pair; as many as the fleet has slots."""
    return {(group, queue): count for group, queue, count in rows(_RUNNING)}


def gated(gate: str) -> tuple[dict[Pair, int], bool]:
    """Jobs behind `scheduled`, `exclusive` or `type` by pair, and whether these are all: CAP are looked at in all."""
    found = {(group, queue): count for group, queue, count in rows(_GATED.format(gate=gate, order=_ORDER[gate]))}
    return found, sum(found.values()) <= CAP


def held_back() -> tuple[dict[Pair, int], bool]:
    """Jobs behind full groups and full or paused types by pair, and whether these are all."""
    (groups, all_groups), (types, all_types) = gated("exclusive"), gated("type")
    return {p: groups.get(p, 0) + types.get(p, 0) for p in {*groups, *types}}, all_groups and all_types


_HELD = f"""SELECT worker_id, key_id, id, type, version, worker_group, queue, leased_at, held FROM (
        SELECT a.worker_id, a.key_id, j.id, j.type, j.version, j.worker_group, j.queue, a.leased_at,
            row_number() OVER own AS n, count(*) OVER (PARTITION BY a.worker_id, a.key_id) AS held
        FROM (SELECT job_id, worker_id, key_id, leased_at FROM jobs_attempt WHERE ended_at IS NULL
            ORDER BY job_id LIMIT {LIVE}) a
        JOIN jobs_job j ON j.id = a.job_id
        WINDOW own AS (PARTITION BY a.worker_id, a.key_id ORDER BY a.leased_at, j.id)) x
    WHERE n <= {{limit}} ORDER BY n"""


class Held(NamedTuple):
    """A live attempt in the hands of a worker or of a runner's key, and how many its holder has in all."""

    worker_id: UUID | None
    key_id: int | None
    job_id: UUID
    type: str
    version: int
    worker_group: str
    queue: str
    leased_at: datetime
    held: int


def held(limit: int) -> list[Held]:
    """The live attempts, the oldest so many of each holder."""
    return [Held._make(row) for row in rows(_HELD.format(limit=int(limit)))]


_LETTERS = f"""SELECT count(*) FROM (SELECT 1 FROM jobs_dead_letter WHERE resolved_at IS NULL
    ORDER BY tenant_id LIMIT {LETTERS_CAP + 1}) d"""
_PARKED = f"""SELECT parked, count(*) FROM (SELECT parked FROM jobs_claim_line WHERE parked IS NOT NULL
    ORDER BY tenant_id LIMIT {CAP + 1}) l GROUP BY parked"""
_PAUSED = f"""WITH RECURSIVE r(reason) AS (
        (SELECT reason FROM jobs_job WHERE state = 'paused' ORDER BY reason LIMIT 1)
        UNION ALL
        SELECT n.reason FROM r CROSS JOIN LATERAL (SELECT j.reason FROM jobs_job j
            WHERE j.state = 'paused' AND j.reason > r.reason ORDER BY j.reason LIMIT 1) n),
    top AS (SELECT reason FROM r LIMIT {REASONS})
    SELECT top.reason, (SELECT count(*) FROM (SELECT 1 FROM jobs_job j WHERE j.state = 'paused'
            AND j.reason = top.reason ORDER BY j.id LIMIT {CAP + 1}) c), latest.id, told.at, told.by
    FROM top CROSS JOIN LATERAL (SELECT j.id FROM jobs_job j WHERE j.state = 'paused' AND j.reason = top.reason
        ORDER BY j.id DESC LIMIT 1) latest
    LEFT JOIN LATERAL (SELECT x.at, (x.body::json)->>'by' AS by FROM jobs_receipt x
        WHERE x.job_id = latest.id AND x.kind = 'job.paused' ORDER BY x.number DESC LIMIT 1) told ON true
    WHERE top.reason IS NOT NULL ORDER BY told.at DESC NULLS LAST"""


class Paused(NamedTuple):
    """Jobs that are paused for one reason: how many, at most CAP + 1; the newest of them, when and by whom."""

    reason: str
    number: int
    latest: str
    at: datetime | None
    by: str | None


def open_letters() -> int:
    """Open dead letters, at most LETTERS_CAP + 1."""
    return int(rows(_LETTERS)[0][0])


def parked() -> dict[str, int]:
    """Lines that are put aside by the word for it, at most CAP + 1 in all."""
    return dict(rows(_PARKED))  # type: ignore[arg-type]


def paused() -> list[Paused]:
    """Paused jobs by reason, the first REASONS of them."""
    return [Paused._make(row) for row in rows(_PAUSED)]
