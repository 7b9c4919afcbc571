"""What a job's own row says: paused, late, not due, out of claims."""

from __future__ import annotations

from collections.abc import Iterator

from jobs import clock
from jobs.conf import registry
from jobs.models import Attempt, Receipt
from jobs.receipts import Kind
from jobs.services import owners, telling
from jobs.services.blockers import owning
from jobs.services.blockers.asking import MOMENT, Asked, Blocker
from jobs.services.telling import span
from jobs.states import Gate, State

UNREGISTERED = "unregistered_type"


def paused(asked: Asked) -> Iterator[Blocker]:
    """Whether it was put aside: by whom and why."""
    job = asked.job
    if job.state != State.PAUSED:
        return
    if job.reason == owners.UNAVAILABLE:
        yield from owning.lost(asked)
        return
    if job.reason == UNREGISTERED:
        yield _unregistered(asked)
        return
    told = Receipt.objects.filter(job_id=job.pk, kind=Kind.PAUSED.value).order_by("-number").first()
    by = str(telling.facts(told.body).get("by") or "") if told else ""
    who = f" {by} paused it at {told.at:{MOMENT}}." if told and by else ""
    yield Blocker("paused", f"It is paused ({job.reason}) until somebody resumes it.{who}",
                  {"reason": job.reason, "paused_by": by or None,
                   "paused_at": clock.jsonable(told.at) if told else None})


def _unregistered(asked: Asked) -> Blocker:
    job = asked.job
    name = f"{job.type}@{job.version}"
    facts = {"type": job.type, "version": job.version}
    if registry().find(job.type, job.version) is None:
        return Blocker(UNREGISTERED, f"It is paused until a process registers {name}.", facts, "registered")
    return Blocker("type_back", f"{name} is registered again; it is about to be resumed.", facts, "registered")


def late(asked: Asked) -> Iterator[Blocker]:
    """Whether its deadline has passed."""
    at = asked.job.deadline_at
    if at is not None and at <= asked.now:
        yield Blocker("deadline_passed", f"Its deadline {at:{MOMENT}} has passed; it is about to fail.",
                      {"deadline_at": clock.jsonable(at)}, "deadlines")


def not_due(asked: Asked) -> Iterator[Blocker]:
    """Whether its time has not come: it was asked for later, or waits for a retry."""
    job = asked.job
    if job.state != State.QUEUED:
        return
    left = (job.available_at - asked.now).total_seconds()
    if left <= 0:
        if job.gate == Gate.SCHEDULED:
            yield Blocker("promotion_pending", "It is due; whoever claims next lets it in.",
                          {"available_at": clock.jsonable(job.available_at)})
        return
    facts = {"available_at": clock.jsonable(job.available_at), "in_s": round(left, 3)}
    when = f"before {job.available_at:{MOMENT}}, in {span(left)}"
    last = Attempt.objects.filter(job_id=job.pk, chain=job.chain).order_by("-number").first()
    if last is None or last.outcome not in ("failed", "lapsed"):
        yield Blocker("not_due", f"It is not due {when}.", facts)
        return
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    yield Blocker("waiting_for_retry", f"Attempt {job.attempt_count}{most} ended with {last.reason_code}; the next one"
                  f" does not begin {when}.",
                  {**facts, "attempt_count": job.attempt_count, "max_attempts": job.max_attempts,
                   "failures": job.failures, "lapses": job.lapses, "reason_code": last.reason_code})


def spent(asked: Asked) -> Iterator[Blocker]:
    """Whether it has used all claims of its chain."""
    job = asked.job
    if job.gate == Gate.SPENT:
        yield Blocker("claims_spent", f"It has used its {job.max_claims} claims; it is about to fail.",
                      {"claims": job.chain_claims, "max_claims": job.max_claims}, "deadlines")
