"""Timers that come due: locked, fired once, moved on. A timer's row is locked before anything else of its firing.

That there is one firing of each moment is a constraint; the lock only keeps two from working at the same one in vain.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import QuerySet

from jobs.clock import Now
from jobs.models import Timer
from jobs.store.sql import array, packed, rows, run

# What is later than this is missed, where nothing is made up.
LATE = timedelta(minutes=1)
# By the order of their indexes: whatever the statistics say, no other timer is read.
_LOOK = """SELECT coalesce((SELECT true FROM jobs_timer WHERE paused_at IS NULL AND next_at <= jobs_now()
        ORDER BY next_at LIMIT 1), false),
    coalesce((SELECT true FROM jobs_timer WHERE paused_until <= jobs_now() ORDER BY paused_until LIMIT 1), false)"""


def look() -> tuple[bool, bool]:
    """Whether a timer is due, and whether a pause is over."""
    found = rows(_LOOK)[0]
    return found[0], found[1]


def be_brief(wait_ms: int, frozen_s: int) -> None:
    """In this transaction no lock is waited for longer; who stands still for so long between statements is undone."""
    run("SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)",
        [str(wait_ms), f"{frozen_s}s"])


def due(limit: int, ids: Collection[uuid.UUID] | None = None,
        workspaces: Collection[int] | None = None) -> list[Timer]:
    """Timers whose moment has come, those of these where any are named: locked, but for what others hold; as of `now`.

    The longest due first; but who is late comes behind who is not, and a quarter of the batch is theirs in any case: a
    thousand that make up an outage let nobody else be late.
    """
    return [row for some in _slices(_locked(), limit, ids, workspaces) for row in some]


def due_ids(limit: int, ids: Collection[uuid.UUID] | None = None,
            workspaces: Collection[int] | None = None) -> list[uuid.UUID]:
    """The same, neither locked nor read."""
    return [row.pk for some in _slices(Timer.objects.only("pk"), limit, ids, workspaces) for row in some]


def _slices(known: QuerySet[Timer], limit: int, ids: Collection[uuid.UUID] | None,
            workspaces: Collection[int] | None) -> Iterator[list[Timer]]:
    found = _due(known, ids, workspaces)
    prompt = list(found.filter(next_at__gt=Now() - LATE)[:limit])
    yield prompt
    yield list(found.filter(next_at__lte=Now() - LATE)[:max(limit - len(prompt), limit // 4)])


def _due(known: QuerySet[Timer], ids: Collection[uuid.UUID] | None,
         workspaces: Collection[int] | None) -> QuerySet[Timer]:
    found = known.filter(paused_at=None, next_at__lte=Now()).order_by("next_at", "pk")
    found = found if workspaces is None else found.filter(workspace_id__in=workspaces)
    return found if ids is None else found.filter(pk__in=ids)


# From the end of its pause on: whatever of that is no moment of its schedule fires nothing.
_END_PAUSES = """UPDATE jobs_timer SET next_at = paused_until, paused_at = NULL, paused_by = NULL, paused_reason = NULL,
        paused_until = NULL, revision = revision + 1, updated_at = jobs_now()
    WHERE id = ANY(ARRAY(SELECT id FROM jobs_timer WHERE paused_until <= jobs_now() ORDER BY paused_until
        LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED)) RETURNING id"""


def end_pauses(limit: int) -> list[uuid.UUID]:
    """Let timers fire again whose pause has ended by itself, but for what others hold; which."""
    return [r[0] for r in rows(_END_PAUSES.format(limit=int(limit)))]


def put_off(timer_id: uuid.UUID, span: timedelta) -> None:
    """Not before so long from now."""
    run("UPDATE jobs_timer SET next_at = jobs_now() + %s WHERE id = %s", [span, timer_id])


def _locked() -> QuerySet[Timer]:
    return (Timer.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
            .select_related("workspace", "tenant").annotate(now=Now()))


_ACTIVE = f"SELECT id::text FROM jobs_job WHERE id = ANY({array('uuid')}) AND ended_at IS NULL"


def active(job_ids: Collection[uuid.UUID]) -> set[str]:
    """Those of these jobs that have not ended."""
    return {r[0] for r in rows(_ACTIVE, [packed(job_ids)])} if job_ids else set()


def one_at_a_time() -> None:
    """Wait until nobody else syncs the timers of the settings: the rest of the transaction is alone with it."""
    run("SELECT pg_advisory_xact_lock(hashtextextended('jobs.timers.declared', 0))")


class New(NamedTuple):
    """A firing that is to be. `missed`: it stands for so many moments that nobody was there for."""

    timer_id: uuid.UUID
    tenant_id: int
    moment: datetime
    missed: int | None = None
    by: str | None = None


_INSERT = f"""INSERT INTO jobs_firing (timer_id, tenant_id, moment, made_at, outcome, missed, manual, by)
    SELECT u.timer_id, u.tenant_id, u.moment, jobs_now(), CASE WHEN u.missed IS NULL THEN 'enqueued' ELSE 'missed' END,
        u.missed, u.by IS NOT NULL, u.by
    FROM unnest({array('uuid')}, {array('bigint')}, {array('timestamptz')}, {array('int')}, %s::text[])
        u(timer_id, tenant_id, moment, missed, by)
    ON CONFLICT (timer_id, moment) DO NOTHING RETURNING id, timer_id, moment"""


def insert(new: Sequence[New]) -> dict[tuple[uuid.UUID, datetime], int]:
    """Write these firings; the ids of those that were none yet, by timer and moment."""
    if not new:
        return {}
    ids, tenants, moments, missed, by = zip(*new, strict=True)
    found = rows(_INSERT, [packed(ids), packed(tenants), packed(moments), packed(missed), list(by)])
    return {(timer_id, moment): id_ for id_, timer_id, moment in found}


class Became(NamedTuple):
    """What became of a firing."""

    firing: int
    outcome: str
    code: str | None = None
    detail: str | None = None
    job_id: str | None = None


_BECAME = f"""UPDATE jobs_firing f SET outcome = u.outcome, code = u.code, detail = u.detail, job_id = u.job_id
    FROM unnest({array('bigint')}, {array('text')}, {array('text')}, %s::text[], {array('uuid')})
        u(id, outcome, code, detail, job_id) WHERE f.id = u.id"""


def became(found: Sequence[Became]) -> None:
    """Note what became of these."""
    if found:
        ids, outcomes, codes, details, jobs = zip(*found, strict=True)
        run(_BECAME, [packed(ids), packed(outcomes), packed(codes), list(details), packed(jobs)])


class Step(NamedTuple):
    """A timer that moves on from a moment to the next; the job that it made, if any."""

    timer_id: uuid.UUID
    was: datetime
    next_at: datetime | None
    last_at: datetime | None = None
    last_job_id: str | None = None


_ADVANCE = f"""UPDATE jobs_timer t SET next_at = u.next_at, last_at = coalesce(u.last_at, t.last_at),
        last_job_id = coalesce(u.last_job_id, t.last_job_id)
    FROM unnest({array('uuid')}, {array('timestamptz')}, {array('timestamptz')}, {array('timestamptz')},
        {array('uuid')}) u(id, was, next_at, last_at, last_job_id)
    WHERE t.id = u.id AND t.next_at = u.was AND t.paused_at IS NULL"""
_NOTE = "UPDATE jobs_timer SET last_at = %s, last_job_id = %s::uuid WHERE id = %s"


def advance(steps: Sequence[Step]) -> int:
    """Move these on, as far as they still stand where they stood; how many."""
    return run(_ADVANCE, [packed(column) for column in zip(*steps, strict=True)]) if steps else 0


def note(timer_id: uuid.UUID, moment: datetime, job_id: str) -> None:
    """A firing beside the schedule has made a job."""
    run(_NOTE, [moment, job_id, timer_id])


# By the primary key, which follows the time at which they were made: young ones in front cost nothing.
_FORGET = """DELETE FROM jobs_firing WHERE id = ANY(ARRAY(SELECT x.id FROM (
        SELECT id, made_at FROM jobs_firing ORDER BY id LIMIT {limit}) x
    WHERE x.made_at < jobs_now() - %s::bigint * interval '1 ms'))"""


def forget(ms: int, limit: int) -> int:
    """Delete firings that are older than this, of the oldest so many; how many."""
    return run(_FORGET.format(limit=int(limit)), [ms])
