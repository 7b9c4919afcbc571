"""A job that runs: in whose hands, since when, until when it is believed; and which duty does not do its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from jobs import clock, leases
from jobs.conf import conf
from jobs.leases import Bounds
from jobs.models import Attempt, Job, Leader
from jobs.services.blockers.asking import MOMENT, Asked, Blocker
from jobs.services.telling import span

RECOVERY = "recovery"


def told(asked: Asked) -> Iterator[Blocker]:
    """That it is held; before that what is wrong with it: no word of its holder, or over its time."""
    job = asked.job
    attempt = Attempt.objects.select_related("worker", "key").filter(job_id=job.pk, ended_at=None).first()
    if attempt is None:
        yield Blocker("held", "It runs.", {})
        return
    facts = _facts(asked, attempt)
    late = (asked.now - attempt.lease_until).total_seconds() - (0 if job.strict_lease else conf().RECOVERY_GRACE_S)
    if late > 0:
        yield Blocker("lease_expired", f"Its holder has not been heard of, and its lease ended at"
                      f" {attempt.lease_until:{MOMENT}}; it is about to be taken back.", facts, RECOVERY)
    over = _bounds(job, attempt).over(asked.now)
    if over is not None:
        yield Blocker(over, f"{leases.told(over)} It is about to be ended.", facts)
    if job.abort_reason is not None:
        yield Blocker("abort_pending", f"Its holder was asked to stop ({job.abort_reason}).",
                      {**facts, "reason": job.abort_reason})
    ran = span(max(0.0, (asked.now - attempt.leased_at).total_seconds()))
    yield Blocker("held", f"It is held by {facts['holder']} since {attempt.leased_at:{MOMENT}}, for {ran}, as attempt"
                  f" {attempt.number}; its lease runs until {attempt.lease_until:{MOMENT}}.", facts)


def _facts(asked: Asked, attempt: Attempt) -> dict[str, Any]:
    beat = attempt.lease_until - timedelta(milliseconds=asked.job.lease_ms) if attempt.started_at else None
    over = _bounds(asked.job, attempt).over(asked.now)
    return {"holder": holder(attempt) if asked.everything else "a worker" if attempt.key_id is None else "a runner",
            "attempt": attempt.number, "since": clock.jsonable(attempt.leased_at),
            "started_at": clock.jsonable(attempt.started_at), "lease_until": clock.jsonable(attempt.lease_until),
            "last_heartbeat_at": clock.jsonable(beat), "overtime": over}


def _bounds(job: Job, attempt: Attempt) -> Bounds:
    return Bounds(attempt.leased_at, job.chain_started_at or attempt.leased_at, job.timeout_ms, job.max_duration_ms,
                  job.duration_scope)


def holder(attempt: Attempt) -> str:
    """Who held an attempt, which was read with both: a worker by name, or a runner by its key."""
    if attempt.worker_id is not None:
        return f"worker {attempt.worker.name if attempt.worker else attempt.worker_id}"
    return f"runner {attempt.key.name} ({attempt.key.prefix})" if attempt.key else "somebody"


def silent(duty: str, asked: Asked) -> Blocker | None:
    """Whether nobody does this duty now, so that what it should end does not; None where somebody does."""
    row = Leader.objects.filter(duty=duty).first()
    ticked = row.ticked_at if row else None
    if duty == RECOVERY and row is not None and row.hold_until is not None and row.hold_until > asked.now:
        return Blocker("recovery_stands_still", "Nobody looked after lost jobs for a while, so that their holders have"
                       f" until {row.hold_until:{MOMENT}} to be heard of again.",
                       {"duty": duty, "until": clock.jsonable(row.hold_until)})
    # Its rounds are each process's own where jobs are claimed: it has no leader.
    if duty == "registered" or (row is not None and row.until is not None and row.until > asked.now):
        return None
    when = f" since {ticked:{MOMENT}}" if ticked else ""
    return Blocker("duty_silent", f"No process does the duty {duty!r}{when}: a worker or `runpump` would end this.",
                   {"duty": duty, "ticked_at": clock.jsonable(ticked)})
