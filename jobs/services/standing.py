"""Where a waiting job stands: its place in its tenant's queue, the jobs before it, and when it may begin (C5, C6).

It is told beside a job and must never be what makes reading one slow or fail: what takes too long is not known.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connections

from jobs import clock
from jobs.models import ClaimLine, Job
from jobs.states import State
from jobs.store import position, traffic
from jobs.store.sql import ALIAS, joining, run

log = logging.getLogger("jobs.standing")
# Of each statement.
PATIENCE_MS = 250
# The pace is that of so many minutes, or of as many as anything began in.
PACE_MINUTES = 5
# Fewer claims, or a shorter while, are no pace.
LEAST, LEAST_S = 5, 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """`position` 1 = next of its tenant, None beyond 1,000; `ahead` in the pool, at most so many, and at least 1,000
    where `ahead_capped`. `eta_s` at the pace of the last minutes, None where nothing began of late or it is unknown.
    """

    position: int | None
    ahead: int
    ahead_capped: bool
    eta_s: float | None
    starts_at: datetime | None

    @property
    def said(self) -> str:
        """In words."""
        place = "beyond number 1,000" if self.position is None else \
            "next" if self.position == 1 else f"number {self.position:,}"
        if self.ahead == 0:
            return f"It is {place} in its tenant's queue; nobody goes before it"
        before = "1,000 or more jobs" if self.ahead_capped else \
            "at most 1 job" if self.ahead == 1 else f"at most {self.ahead:,} jobs"
        goes = "goes" if self.ahead == 1 else "go"
        return f"It is {place} in its tenant's queue; {before} of everybody's {goes} before it"


def of(job: Job, now: datetime | None = None) -> Standing | None:
    """Where it stands at `now`; None for a job that could not be claimed, and where it cannot be found out in time."""
    if job.state != State.QUEUED or job.gate is not None:
        return None
    theirs = connections[ALIAS].in_atomic_block
    try:
        with joining():
            if not theirs:
                run(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
            stands = position.of(str(job.pk))
            return None if stands is None else _standing(job, stands, now)
    except OperationalError as error:
        if theirs:
            # Their transaction is lost with it.
            raise
        log.debug("a position could not be found out: %s", error)
        return None


def _standing(job: Job, stands: position.Position, now: datetime | None) -> Standing:
    eta_s = None if stands.ahead_capped else _eta_s(job, stands.ahead)
    at = None if eta_s is None else (now or clock.now()) + timedelta(seconds=eta_s)
    return Standing(None if stands.own_capped else stands.own, stands.ahead, stands.ahead_capped, eta_s, at)


def _eta_s(job: Job, ahead: int) -> float | None:
    """Seconds until those before it have begun, and it with them; None while its tenant's line is put aside."""
    mine = ClaimLine.objects.filter(worker_group=job.worker_group, queue=job.queue, tenant_id=job.tenant_id)
    if mine.exclude(parked=None).exists():
        return None
    claimed, seconds = traffic.pace(job.worker_group, job.queue, PACE_MINUTES)
    if claimed < LEAST or seconds < LEAST_S:
        return None
    return (ahead + 1) * seconds / claimed


def as_json(stands: Standing | None) -> dict[str, Any]:
    """As single reads of a job show it; nulls where there is nothing to say (C5, C6)."""
    if stands is None:
        return {"queue_position": None, "queue_position_capped": False, "jobs_ahead": None,
                "jobs_ahead_capped": False, "eta_s": None, "estimated_start_at": None}
    return {"queue_position": stands.position, "queue_position_capped": stands.position is None,
            "jobs_ahead": stands.ahead, "jobs_ahead_capped": stands.ahead_capped,
            "eta_s": None if stands.eta_s is None else round(stands.eta_s, 1),
            "estimated_start_at": clock.jsonable(stands.starts_at)}
