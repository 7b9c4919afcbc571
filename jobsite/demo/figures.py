"""What happened to the jobs of a demo, read from their rows."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min

from jobs.models import Attempt, DeadLetter, Job
from jobs.outcomes import End
from jobs.states import TERMINAL, State

Id = str | uuid.UUID


def states(ids: Sequence[Id]) -> Counter[str]:
    """How many of these jobs are in which state."""
    found = Job.objects.filter(pk__in=ids).values_list("state").annotate(Count("pk"))
    return Counter(dict(found.order_by()))


def ended(ids: Sequence[Id]) -> int:
    """How many of these jobs have ended, however."""
    counted = states(ids)
    return sum(counted[state.value] for state in TERMINAL)


def subjects(ids: Sequence[Id]) -> list[str]:
    """What these jobs are about."""
    found = Job.objects.filter(pk__in=ids).order_by("pk").values_list("subject", flat=True)
    return [subject or "?" for subject in found]


def waiting(ids: Sequence[Id]) -> str:
    """One of these jobs that has not ended."""
    return str(Job.objects.filter(pk__in=ids, ended_at=None).values_list("pk", flat=True).first())


@dataclass(frozen=True)
class Figures:
    """The sums of a demo. `each_s` is the rate of the jobs that nothing happened to."""

    jobs: int
    completed: int
    attempts: int
    retries: int
    lapses: int
    letters: int
    requeued: int
    seconds: float
    each_s: float


def of(ids: Sequence[Id]) -> Figures:
    """The sums over these jobs."""
    attempts = Attempt.objects.filter(job_id__in=ids)
    letters = DeadLetter.objects.filter(job_id__in=ids)
    span = Job.objects.filter(pk__in=ids).aggregate(first=Min("created_at"), last=Max("ended_at"))
    return Figures(
        jobs=len(ids), completed=states(ids)[State.COMPLETED.value], attempts=attempts.count(),
        retries=_retries(ids), lapses=attempts.filter(outcome=End.LAPSED.value).count(),
        letters=letters.count(), requeued=letters.filter(resolution="requeued").count(),
        seconds=_seconds(span["first"], span["last"]), each_s=_rate(ids))


def _retries(ids: Sequence[Id]) -> int:
    """Attempts that the retry policy gave after a reported failure: later ones of the same chain."""
    failed = Attempt.objects.filter(job_id__in=ids, outcome=End.FAILED.value).values_list("job_id", "chain", "number")
    later = set(Attempt.objects.filter(job_id__in=ids).values_list("job_id", "chain", "number"))
    return sum((job, chain, number + 1) in later for job, chain, number in failed)


def _rate(ids: Sequence[Id]) -> float:
    """Jobs a second from the first claim to the last end, of those that were claimed once."""
    once = Job.objects.filter(pk__in=ids, claims=1, state=State.COMPLETED.value)
    found = once.aggregate(count=Count("pk"), first=Min("started_at"), last=Max("ended_at"))
    seconds = _seconds(found["first"], found["last"])
    return found["count"] / seconds if seconds else 0.0


def _seconds(first: datetime | None, last: datetime | None) -> float:
    # Moments of different statements: never below 0.
    return max(0.0, (last - first).total_seconds()) if first and last else 0.0
