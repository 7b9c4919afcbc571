"""A job that has ended: how, why and by whom, and what its dead letter waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs import clock
from jobs.models import DeadLetter, Receipt
from jobs.receipts import Kind
from jobs.services import telling
from jobs.services.blockers.asking import MOMENT, Asked, Blocker
from jobs.states import State

# A settle, a lapse or an interruption may have ended it.
_ENDS = [kind.value for kind in (Kind.COMPLETED, Kind.FAILED, Kind.CANCELLED, Kind.SUPERSEDED, Kind.LEASE_EXPIRED,
                                 Kind.INTERRUPTED, Kind.RELEASED, Kind.PAUSED, Kind.RESUMED)]


def told(asked: Asked) -> Iterator[Blocker]:
    """How it ended; of a failed job first whether its letter is open."""
    job = asked.job
    last = Receipt.objects.filter(job_id=job.pk, kind__in=_ENDS).order_by("-number").first()
    body = telling.facts(last.body) if last else {}
    by = str(body.get("by") or "") or None
    facts: dict[str, Any] = {"reason": job.reason, "by": by, "ended_at": clock.jsonable(job.ended_at)}
    when = f" at {job.ended_at:{MOMENT}}" if job.ended_at else ""
    who = f" by {by}" if by else ""
    match job.state:
        case State.FAILED:
            yield from _failed(asked, facts, when)
        case State.SUPERSEDED:
            yield Blocker("superseded", f"A newer job is about the same; this one was superseded{who}{when}.",
                          {**facts, "superseded_by_generation": body.get("generation")})
        case State.CANCELLED:
            yield Blocker("cancelled", f"It was cancelled{who}{when} ({job.reason}).", facts)
        case _:
            yield Blocker("completed", f"It completed{when}.", facts)


def _failed(asked: Asked, facts: dict[str, Any], when: str) -> Iterator[Blocker]:
    job = asked.job
    counts = {"failures": job.failures, "lapses": job.lapses, "attempt_count": job.attempt_count,
              "max_attempts": job.max_attempts}
    of = f" of {job.max_attempts}" if job.max_attempts is not None else ""
    tries = f"after attempt {job.attempt_count}{of}" if job.attempt_count else "without an attempt"
    letter = DeadLetter.objects.filter(job_id=job.pk, resolved_at=None).first()
    if letter is None:
        yield Blocker("failed", f"It failed for good{when}, {tries} ({job.reason}).", {**facts, **counts})
        return
    code = f", {letter.reason_code}" if letter.reason_code not in (None, letter.reason) else ""
    yield Blocker("dead_lettered", f"It failed for good{when}, {tries} ({letter.reason}{code}); dead letter {letter.pk}"
                  " waits for somebody to requeue or discard it.",
                  {**facts, **counts, "letter": letter.pk, "letter_reason": letter.reason,
                   "reason_code": letter.reason_code, "opened_at": clock.jsonable(letter.opened_at)})
    if job.tenant.archived_at is not None:
        yield Blocker("tenant_archived", f"Its tenant was archived at {job.tenant.archived_at:{MOMENT}}: it cannot be"
                      " requeued before that is taken back.", {"archived_at": clock.jsonable(job.tenant.archived_at)})
