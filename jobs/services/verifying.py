"""The audit of the whole history: every chain of receipts holds, and folding it gives the row (A12, A13, E12).

Batch by batch, each under one snapshot: a job that moves meanwhile is no false alarm, and no snapshot grows old. What
was never written by us is reported, whatever it is, and the audit goes on. Answers values; who prints is an edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from jobs import clock
from jobs.comparing import HASHES, MOMENTS, PLAIN, Fault, Row, judge
from jobs.models import Artifact, Job, Receipt
from jobs.receipts import Receipt as Fact
from jobs.states import State
from jobs.store import auditing
from jobs.store.auditing import LAWS, Selection, Stored

__all__ = ["Batch", "Finding", "Selection", "audit", "count", "fault", "faults"]
BATCH: Final = 1_000
LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: with which job (or attempt), in a word, in words, and at which receipt."""

    why: str
    said: str
    job: str | None = None
    attempt: str | None = None
    number: int | None = None


@dataclass(slots=True)
class Batch:
    """What was looked at in one snapshot, and what was found there."""

    jobs: int = 0
    receipts: int = 0
    findings: list[Finding] = field(default_factory=list)


def count(chosen: Selection, most: int | None = None) -> int:
    """How many jobs an audit of these looks at, as of now."""
    return auditing.count(chosen, most)


def audit(chosen: Selection, *, strict: bool = False, most: int | None = None, batch: int = BATCH) -> Iterator[Batch]:
    """Look at these jobs by id, at most so many. Raises DatabaseError where the database cannot be read.

    `strict` asks for what no constraint sees as well: references, payloads, dead letters, gates and lines (A63).
    """
    after, left = auditing.FIRST, most
    # What has no row is nobody's: it is looked for where everything is looked at.
    orphans = strict and chosen.is_all and most is None
    while left is None or left > 0:
        with auditing.snapshot():
            found = auditing.jobs_after(after, chosen, batch if left is None else min(batch, left))
            seen = _judged(found)
            ids = [stored.id for stored in found]
            if strict and ids:
                seen.findings += _laws(ids)
            if orphans:
                seen.findings += _orphans(after, ids[-1] if ids else LAST)
                seen.findings += [] if ids else _attempts()
        yield seen
        if not ids:
            return
        after = ids[-1]
        left = None if left is None else left - len(ids)


def _judged(found: Sequence[Stored]) -> Batch:
    seen = Batch(jobs=len(found))
    histories = groupby(auditing.receipts_of([stored.id for stored in found]) if found else (), lambda r: str(r.job_id))
    job_id, history = next(histories, (None, None))
    for stored in found:
        has_some = job_id == stored.id
        counted = _Counted(history if has_some and history is not None else ())
        if fault := judge(counted, stored.row):
            seen.findings.append(Finding(fault.why, fault.said, stored.id, number=fault.number))
        seen.receipts += counted.count
        if has_some:
            job_id, history = next(histories, (None, None))
    return seen


class _Counted:
    def __init__(self, history: object) -> None:
        self._history = history
        self.count = 0

    def __iter__(self) -> Iterator[Fact]:
        for receipt in self._history:  # type: ignore[attr-defined]
            self.count += 1
            yield receipt


def _laws(ids: Sequence[str]) -> Iterator[Finding]:
    for job_id, codes in auditing.laws_broken(ids):
        yield from (Finding(code, LAWS[code][0], job_id) for code in codes)


def _orphans(after: str, until: str) -> Iterator[Finding]:
    for job_id in auditing.receipts_without_job(after, until):
        yield Finding("job_gone", "there are receipts of a job that is not there", job_id)


def _attempts() -> Iterator[Finding]:
    capped, logged = auditing.attempts_gone()
    for attempt in capped:
        yield Finding("cap_without_attempt", "it counts under a cap and is not alive", attempt=attempt)
    for attempt in logged:
        yield Finding("log_without_attempt", "it has a log and is not there", attempt=attempt)


def faults(ids: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with these jobs, all of which have to be there; batch by batch, as `audit`."""
    for start in range(0, len(ids), BATCH):
        some = list(map(str, ids[start : start + BATCH]))
        with auditing.snapshot():
            found = auditing.jobs_of(some)
            seen = _judged(found)
        there = {stored.id for stored in found}
        yield from (Finding("job_gone", "it is not there", job_id) for job_id in some if job_id not in there)
        yield from seen.findings


def fault(job: Job, written: Sequence[Receipt]) -> Fault | None:
    """What is wrong with a job whose row was read, and with its receipts up to the row's last one."""
    # Written in the transaction that completes the job: before that there is none for the row that was read.
    found = Artifact.objects.filter(job_id=job.pk).values_list("hash", flat=True).first() \
        if job.state == State.COMPLETED else None
    facts = (Fact(r.job_id, r.number, r.kind, clock.micros(r.at) or 0, r.body, bytes(r.hash)) for r in written)
    return judge(facts, _row(job, found))


def _row(job: Job, artifact: Any) -> Row:
    hashes = {**{name: getattr(job, name) for name in HASHES if name != "artifact_hash"}, "artifact_hash": artifact}
    return {
        **{name: getattr(job, name) for name in PLAIN},
        **{name: clock.micros(getattr(job, name)) for name in MOMENTS},
        **{name: None if value is None else bytes(value).hex() for name, value in hashes.items()},
        "attempt": str(job.attempt_id) if job.attempt_id else None, "progress": job.progress, "head": bytes(job.head),
    }
