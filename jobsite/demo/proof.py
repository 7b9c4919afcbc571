"""That nothing was lost and nothing is made up: every chain of receipts holds, and folding it gives the row (E12)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from jobs import clock, receipts
from jobs.models import Artifact, Job, Receipt
from jobs.receipts import BrokenHistory, View
from jobs.states import State

_SAME: Final = ("state", "reason", "revision", "claims", "chain", "chain_claims", "failures", "lapses", "releases",
                "interruptions", "pauses", "generation", "checkpoint_number", "number")
_MOMENTS: Final = ("available_at", "started_at", "ended_at", "cancelled_at")
_HASHES: Final = ("input_hash", "checkpoint_hash")


def faults(ids: Sequence[str | uuid.UUID]) -> list[str]:
    """A sentence for each of these jobs that is missing, not completed, or told otherwise by its receipts."""
    rows = {job.pk: job for job in Job.objects.filter(pk__in=ids)}
    histories = _histories(ids)
    artifacts = dict(Artifact.objects.filter(job_id__in=ids).values_list("job_id", "hash"))
    found = []
    for key in map(uuid.UUID, map(str, ids)):
        job = rows.get(key)
        if job is None:
            found.append(f"job {key} is not there")
        elif fault := _fault(job, histories.get(key, []), artifacts.get(key)):
            found.append(f"job {key}: {fault}")
    return found


def _histories(ids: Sequence[str | uuid.UUID]) -> dict[uuid.UUID, list[receipts.Receipt]]:
    written: Iterable[Receipt] = Receipt.objects.filter(job_id__in=ids).order_by("job_id", "number")
    facts = (receipts.Receipt(r.job_id, r.number, r.kind, clock.micros(r.at) or 0, r.body, bytes(r.hash))
             for r in written)
    return {job_id: list(history) for job_id, history in groupby(facts, key=lambda r: r.job_id)}


def _fault(job: Job, history: list[receipts.Receipt], artifact: Any) -> str | None:
    try:
        if receipts.check_chain(history) != bytes(job.head):
            return "its last receipt is not the one that the row names"
        view = receipts.fold(history)
    except BrokenHistory as error:
        return str(error)
    if view is None:
        return "it has no receipts"
    differing = list(_differences(job, view, artifact))
    if differing:
        return f"receipts and row differ in {', '.join(differing)}"
    return None if job.state == State.COMPLETED else f"it is {job.state}, not completed"


def _differences(job: Job, view: View, artifact: Any) -> Iterator[str]:
    yield from (name for name in _SAME if getattr(view, name) != getattr(job, name))
    yield from (name for name in _MOMENTS if getattr(view, name) != clock.micros(getattr(job, name)))
    yield from (name for name in _HASHES if getattr(view, name) != _hex(getattr(job, name)))
    if view.attempt != (str(job.attempt_id) if job.attempt_id else None):
        yield "attempt"
    if view.progress != (json.loads(job.progress) if job.progress else None):
        yield "progress"
    if view.artifact_hash != _hex(artifact):
        yield "artifact"


def _hex(hash_: Any) -> str | None:
    return None if hash_ is None else bytes(hash_).hex()
