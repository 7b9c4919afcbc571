"""The story of one job: its receipts in people's words, its attempts, and why it does not run now (DESIGN 7.1).

Answers values; who prints them is an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs import clock, sightings
from jobs.models import Attempt, AttemptLog, Job, Receipt
from jobs.services import attempt_logs, blockers, standing, verifying
from jobs.services.blockers import Asked, Blocker
from jobs.services.blockers.held import holder as holder
from jobs.services.telling import Step, facts, step
from jobs.states import HELD, status


@dataclass(frozen=True, slots=True)
class Story:
    """All that there is to tell. `broken` says where the receipts are no unbroken chain that says what the row says."""

    job: Job
    now: datetime
    steps: list[Step]
    attempts: list[Attempt]
    log: AttemptLog | None
    broken: str | None
    blockers: list[Blocker]
    fired: sightings.Fired | None = None

    @property
    def reason(self) -> Blocker | None:
        """The first reason for which a waiting job is not running; None for one that is held or has ended."""
        return None if self.job.ended or self.job.state in HELD else self.blockers[0]


def story(job: Job) -> Story:
    """The story of a job, as of now."""
    now = clock.now()
    # As its row was read: what was written since would look like a chain that does not fit.
    written = list(Receipt.objects.filter(job_id=job.pk, number__lte=job.number).order_by("number"))
    attempts = list(Attempt.objects.filter(job_id=job.pk).select_related("worker", "key").order_by("number"))
    numbers = {str(a.pk): a.number for a in attempts}
    steps = [step(r, facts(r.body), numbers) for r in written]
    return Story(job, now, steps, attempts, attempt_logs.of(job), _broken(job, written),
                 blockers.all_of(Asked(job, now)), sightings.fired(job))


def _broken(job: Job, written: list[Receipt]) -> str | None:
    if found := verifying.fault(job, written):
        return str(found)
    if has_more(job):
        return f"there are receipts after number {job.number} that the job does not know of"
    return None


def has_more(job: Job) -> bool:
    """Whether there are receipts behind the last one of the job, both as of this statement."""
    return Receipt.objects.filter(job_id=job.pk, number__gt=Job.objects.filter(pk=job.pk).values("number")).exists()


def blocker(job: Job, now: datetime) -> Blocker | None:
    """The first reason for which a waiting job is not running; None for one that is held or has ended."""
    return blockers.first(job, now)


def reasons(asked: Asked) -> list[Blocker]:
    """All reasons for which a job does not run, the first one first. Raises TooSlow after a bounded patience."""
    # Where it stands has a patience of its own: what takes too long in a transaction is lost with it.
    _ = asked.stands
    return sightings.patiently(lambda: blockers.all_of(asked))


def why(asked: Asked) -> dict[str, Any]:
    """The same and where it stands, as plain JSON. Raises TooSlow."""
    job = asked.job
    found = reasons(asked)
    return {"id": str(job.pk), "job_id": job.external_id, "status": status(job.state), "state": job.state,
            "asked_at": clock.jsonable(asked.now), "blockers": [one.as_json() for one in found],
            **standing.as_json(asked.stands)}


def as_json(told: Story) -> dict[str, Any]:
    """The story as plain JSON."""
    job = told.job
    return {
        "id": str(job.pk), "job_id": job.external_id, "type": f"{job.type}@{job.version}", "status": status(job.state),
        "state": job.state, "reason": job.reason, "queue": job.queue, "worker_group": job.worker_group,
        "claims": job.claims, "failures": job.failures, "max_attempts": job.max_attempts,
        "timer": None if told.fired is None else {"id": str(told.fired.timer_id), "name": told.fired.name,
                                                  "moment": clock.jsonable(told.fired.moment), "by": told.fired.by},
        "chain_ok": told.broken is None, "chain_error": told.broken,
        "not_running": {"code": told.reason.code, "message": told.reason.said} if told.reason else None,
        "blockers": [blocker.as_json() for blocker in told.blockers],
        "log": {"attempt": told.log.attempt.number, "dropped": told.log.dropped,
                "lines": told.log.lines.split("\n")} if told.log else None,
        "steps": [{"number": s.number, "kind": s.kind, "at": clock.jsonable(s.at), "said": s.said} for s in told.steps],
        "attempts": [{"number": a.number, "holder": holder(a), "outcome": a.outcome, "reason_code": a.reason_code,
                      "message": a.message, "leased_at": clock.jsonable(a.leased_at),
                      "ended_at": clock.jsonable(a.ended_at)} for a in told.attempts],
    }
