"""The history of a job for a page that is read again and again: a bounded part of its receipts, told and checked.

The chain of what is shown is checked, and folded where that is all; `manage.py explain` reads and checks everything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from jobs import clock
from jobs.models import Attempt, Job, Receipt, Worker
from jobs.receipts import ZERO, BrokenHistory, check_chain
from jobs.receipts import Receipt as Fact
from jobs.services import explain, telling, verifying
from jobs.services.telling import Step

FIRST, LAST, MORE = 50, 200, 200


@dataclass(frozen=True, slots=True)
class Part:
    """Receipts without a gap between them. `broken` is the number of the first that does not fit, `why` in words."""

    steps: list[Step]
    broken: int | None = None
    why: str = ""

    @property
    def numbers(self) -> tuple[int, int]:
        """The first and the last number."""
        return self.steps[0].number, self.steps[-1].number


@dataclass(frozen=True, slots=True)
class Timeline:
    """Parts of a history of `total` receipts, in order."""

    total: int
    parts: list[Part]

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return sum(len(part.steps) for part in self.parts) == self.total

    @property
    def left_out(self) -> tuple[int, int] | None:
        """The first and the last number between two parts."""
        if len(self.parts) < 2 or not all(part.steps for part in self.parts):
            return None
        return self.parts[0].numbers[1] + 1, self.parts[1].numbers[0] - 1

    @property
    def earlier(self) -> int | None:
        """Where the receipts before a single part begin; None where there are none."""
        first = self.parts[0].numbers[0] if len(self.parts) == 1 and self.parts[0].steps else 1
        return max(1, first - MORE) if first > 1 else None

    @property
    def later(self) -> int | None:
        """Where the receipts after a single part begin; None where there are none."""
        last = self.parts[0].numbers[1] if len(self.parts) == 1 and self.parts[0].steps else self.total
        return last + 1 if last < self.total else None

    @property
    def broken(self) -> Part | None:
        """The first part that does not hold."""
        return next((part for part in self.parts if part.why), None)


def timeline(job: Job, begin: int | None = None) -> Timeline:
    """The history of a job as its row was read: its beginning and its end, or MORE receipts from `begin` on.

    What was written since is of the next look: row and receipts are read one after the other.
    """
    total = job.number
    if begin is not None:
        spans = [(begin, min(total, begin + MORE - 1))]
    elif total <= FIRST + LAST:
        spans = [(1, total)]
    else:
        spans = [(1, FIRST), (total - LAST + 1, total)]
    return Timeline(total, [part for span in spans if (part := _part(job, *span)) is not None])


def _part(job: Job, first: int, last: int) -> Part | None:
    # With the one before, whose hash the first is linked to.
    rows = list(Receipt.objects.filter(job_id=job.pk, number__gte=first - 1, number__lte=last).order_by("number"))
    prev, rows = (bytes(rows[0].hash), rows[1:]) if first > 1 and rows else (ZERO, rows)
    if not rows:
        return Part([], first, f"receipt {first} is not there") if first <= job.number else None
    part = Part(_told(job, rows))
    try:
        _check(job, rows, prev, first, last)
    except BrokenHistory as error:
        return replace(part, broken=error.number, why=str(error))
    return part


def _check(job: Job, rows: list[Receipt], prev: bytes, first: int, last: int) -> None:
    facts = [Fact(r.job_id, r.number, r.kind, clock.micros(r.at) or 0, r.body, bytes(r.hash)) for r in rows]
    head = check_chain(facts, prev, first)
    if facts[-1].number != last:
        raise BrokenHistory(f"receipt {facts[-1].number + 1} is not there", facts[-1].number + 1)
    if last == job.number and head != bytes(job.head):
        raise BrokenHistory("the last receipt is not the one that the job names", last)
    if last == job.number and explain.has_more(job):
        raise BrokenHistory(f"there are receipts after number {last} that the job does not know of", last + 1)
    if first == 1 and last == job.number and (found := verifying.fault(job, rows)):
        raise BrokenHistory(found.said, found.number or last)


def _told(job: Job, rows: list[Receipt]) -> list[Step]:
    bodies = [telling.facts(row.body) for row in rows]
    named = {body["attempt"] for body in bodies if isinstance(body.get("attempt"), str)}
    numbers = {str(pk): number for pk, number in
               Attempt.objects.filter(job_id=job.pk, pk__in=_ids(named)).values_list("pk", "number")}
    workers = _workers(bodies)
    # Who did it is said beside the sentence, a worker by its name.
    told = [telling.step(row, {**body, "by": None}, numbers) for row, body in zip(rows, bodies, strict=True)]
    return [replace(step, by=workers.get(by, by)) for step, by in zip(told, map(_by, bodies), strict=True)]


def _by(body: dict[str, Any]) -> str:
    return str(body.get("by") or "")


def _workers(bodies: list[dict[str, Any]]) -> dict[str, str]:
    """The workers that these receipts name, as far as they are still known."""
    named = {by.removeprefix("worker:") for body in bodies if (by := _by(body)).startswith("worker:")}
    return {f"worker:{pk}": f"worker {name}" for pk, name in
            Worker.objects.filter(pk__in=_ids(named)).values_list("pk", "name")}


def _ids(named: set[str]) -> list[UUID]:
    """Those that can be ids at all: a body that somebody has changed may say anything."""
    found = []
    for name in named:
        with suppress(ValueError):
            found.append(UUID(name))
    return found
