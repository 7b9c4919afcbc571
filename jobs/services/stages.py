"""How far a job has come, as people are shown it: the stages its attempts reported, and which were cut off (B30)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from jobs import codecs
from jobs.models import Attempt, Job, Receipt
from jobs.outcomes import End
from jobs.receipts import Kind
from jobs.selectors import Assignment
from jobs.services import progress
from jobs.states import HELD, State

KEPT: Final = 32
INTERRUPTED: Final = "interrupted"


class Entry(NamedTuple):
    """One event of a stage: `started`, `completed` or `interrupted`, in which attempt, and when."""

    stage: str
    event: str
    attempt: int | None
    at: datetime | None


def latest(job: Job) -> dict[str, Any] | None:
    """The latest stage by the row alone; interrupted where its attempt ended before it did."""
    told = _told(job.progress)
    if not told:
        return None
    own = told.get("attempt", job.claims) == job.claims
    goes_on = own and (job.state in HELD or job.state == State.COMPLETED)
    return {**told, "event": INTERRUPTED} if told.get("event") == "started" and not goes_on else told


def reported(held: Assignment, stage: str, event: str) -> bool:
    """Whether this is what the attempt has said last. Raises TooMuchProgress once it may say no more."""
    kept = Job.objects.filter(pk=held.job_id).values_list("progress", flat=True).first()
    told = _told(kept)
    if (told.get("attempt"), told.get("stage"), told.get("event")) == (held.number, stage, event):
        return True
    own = Receipt.objects.filter(job_id=held.job_id, kind=Kind.PROGRESS.value, body__contains=f'"attempt":"{held.id}"')
    if own[: progress.MOST].count() >= progress.MOST:
        raise progress.TooMuchProgress()
    return False


def entries(job: Job) -> list[Entry]:
    """The last 32 events of the job's stages, in order; a stage that its attempt left open ends with its attempt."""
    if not job.progress:
        return []
    found = Receipt.objects.filter(job_id=job.pk, kind=Kind.PROGRESS.value).order_by("-number")[:KEPT]
    said = [_entry(row) for row in reversed(found)]
    left = _open(said)
    if not left:
        return said
    ends = Attempt.objects.filter(job_id=job.pk, number__in={attempt for attempt, _ in left}).exclude(
        outcome=None).exclude(outcome=End.COMPLETED.value).values_list("number", "ended_at")
    return _closed(said, left, dict(ends))[-KEPT:]


def _told(text: str | None) -> dict[str, Any]:
    told = codecs.stored(text)
    return told if type(told) is dict else {}


def _entry(row: Receipt) -> Entry:
    told = _told(row.body).get("progress") or {}
    return Entry(str(told.get("stage")), str(told.get("event")), told.get("attempt"), row.at)


def _open(said: Sequence[Entry]) -> dict[tuple[int, str], int]:
    """Where the stages stand that their attempts have started and not completed."""
    left: dict[tuple[int, str], int] = {}
    for place, entry in enumerate(said):
        if entry.attempt is None:
            continue
        if entry.event == "started":
            left[entry.attempt, entry.stage] = place
        else:
            left.pop((entry.attempt, entry.stage), None)
    return left


def _closed(said: Sequence[Entry], left: dict[tuple[int, str], int], ends: dict[int, datetime | None]) -> list[Entry]:
    told: list[Entry] = []
    for place, entry in enumerate(said):
        told.append(entry)
        following = said[place + 1].attempt if place + 1 < len(said) else None
        if entry.attempt is not None and entry.attempt in ends and following != entry.attempt:
            told += [Entry(stage, INTERRUPTED, attempt, ends[attempt])
                     for attempt, stage in left if attempt == entry.attempt]
    return told
