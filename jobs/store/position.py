"""Where a waiting job stands: its position in its tenant's queue, and how many of the pool go before it (C5, C6).

Counted on the claim's index and never beyond a cap, so that a look costs the same behind any backlog. It locks
nothing and promises nothing: turns go on while it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connections

from jobs.store.sql import ALIAS, array, joining, packed, rows, run

CAP = 1_000


class Position(NamedTuple):
    """`own` is the place in the tenant's own queue, 1 = next; `ahead` counts the whole pool, at the most.

    One claimer that gives each tenant its turn takes no more than `ahead` before it, and no less than that without one
    job of every other tenant: where its cursor stands, nobody else knows.
    """

    own: int
    ahead: int

    @property
    def own_capped(self) -> bool:
        """Whether the place lies beyond what was counted."""
        return self.own > CAP

    @property
    def ahead_capped(self) -> bool:
        """Whether there are more than were counted."""
        return self.ahead >= CAP


class Place(NamedTuple):
    """Where a claimable job stands in its tenant's queue: so many go `before` it, CAP where there are more."""

    id: str
    worker_group: str
    queue: str
    tenant_id: int
    before: int


_MINE = ("job.state = 'queued' AND job.gate IS NULL AND job.worker_group = me.worker_group AND job.queue = me.queue"
         " AND job.tenant_id = {tenant}")
# In the order of the claim's index, and without leave to sort: where statistics are of a small table or none, bringing
# all that a tenant ever had and sorting it looks as cheap. Not so in the claim: its other statements sort, and a server
# that compiles by cost would compile each of them.
UNSORTED = "SELECT set_config('enable_sort', 'off', true)"
_IN_ORDER = "ORDER BY job.priority DESC, job.available_at, job.id"
# Two ranges of the index, since a condition with OR would read the tenant's whole backlog.
_OWN = f"""SELECT me.id::text, me.worker_group, me.queue, me.tenant_id,
        least({CAP}, (SELECT count(*) FROM (SELECT 1 FROM jobs_job job WHERE {_MINE.format(tenant='me.tenant_id')}
            AND job.priority > me.priority {_IN_ORDER} LIMIT {CAP}) higher)
        + (SELECT count(*) FROM (SELECT 1 FROM jobs_job job WHERE {_MINE.format(tenant='me.tenant_id')}
            AND job.priority = me.priority AND (job.available_at, job.id) < (me.available_at, me.id)
            {_IN_ORDER} LIMIT {CAP}) earlier))
    FROM (SELECT id, worker_group, queue, tenant_id, priority, available_at, state, gate FROM jobs_job
        WHERE id = ANY({array('uuid')}) OFFSET 0) me WHERE me.state = 'queued' AND me.gate IS NULL"""
# Every tenant in the rotation has as many turns before a tenant's n-th job as that has itself: n at the most.
_AHEAD = f"""SELECT own.n, least({CAP}, own.before + (SELECT count(*) FROM (SELECT 1 FROM (
        SELECT DISTINCT line.tenant_id, line.worker_group, line.queue FROM (
            SELECT x.tenant_id, x.worker_group, x.queue FROM jobs_claim_line x
            WHERE x.worker_group = own.worker_group AND x.queue = own.queue AND x.parked IS NULL
                AND x.tenant_id <> own.tenant_id ORDER BY x.tenant_id LIMIT {CAP}) line) me
    CROSS JOIN LATERAL (SELECT 1 FROM jobs_job job WHERE {_MINE.format(tenant='me.tenant_id')}
        {_IN_ORDER} LIMIT own.before + 1) turns LIMIT {CAP}) x))
    FROM unnest({array('text')}, {array('text')}, {array('bigint')}, {array('bigint')})
        WITH ORDINALITY own(worker_group, queue, tenant_id, before, n)"""


def places(job_ids: Collection[str]) -> list[Place]:
    """The places of those that are claimable, in one look for all of them."""
    with _unsorted():
        return _places(job_ids)


def of(job_id: str, patience_ms: int = 0) -> Position | None:
    """The position of a job; None for one that is not claimable.

    No statement takes longer than the patience, unless in a caller's transaction, whose patience it is; 0 is for ever.
    """
    return positions([job_id], patience_ms).get(job_id)


def positions(job_ids: Collection[str], patience_ms: int = 0) -> dict[str, Position]:
    """The positions of those that are claimable, by id, in two looks for all of them; patience as above."""
    with _unsorted(patience_ms):
        found = _places(job_ids)
        ahead = _ahead([place for place in found if place.before < CAP])
    return {place.id: Position(place.before + 1, ahead.get(place.id, CAP)) for place in found}


def _places(job_ids: Collection[str]) -> list[Place]:
    return [Place._make(row) for row in rows(_OWN, [packed(job_ids)])]


def _ahead(found: Sequence[Place]) -> dict[str, int]:
    if not found:
        return {}
    columns = ([getattr(place, name) for place in found] for name in ("worker_group", "queue", "tenant_id", "before"))
    return {found[n - 1].id: count for n, count in rows(_AHEAD, [packed(column) for column in columns])}


@contextmanager
def _unsorted(patience_ms: int = 0) -> Iterator[None]:
    """What is set for the looks inside, it goes with a transaction of our own and is put back in a caller's."""
    theirs = connections[ALIAS].in_atomic_block
    with joining():
        rows(UNSORTED if theirs else f"{UNSORTED}, set_config('statement_timeout', '{patience_ms:d}', true)")
        yield
        if theirs:
            run("SET LOCAL enable_sort TO DEFAULT")
