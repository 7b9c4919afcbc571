"""Telling definitions that a job of theirs has ended: `on_ended`, at least once and never before the commit (B34).

The very transaction that ends a job enqueues a job that tells, so that no death of a process loses it. It is the
house's own: of the workspace's untenanted tenant, under no cap, and served by every worker.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync

from jobs import failpoints
from jobs.codecs import digest
from jobs.conf import registry
from jobs.definition import ENDED_TYPE
from jobs.errors import Invalid, JobError
from jobs.models import Artifact, Job
from jobs.publish import News
from jobs.registry import Definition, Ended, define
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM
from jobs.schemas import Codec
from jobs.services import continuing
from jobs.services.draft import Door, Request, row_of
from jobs.services.words import Place
from jobs.states import TERMINAL, State
from jobs.store import enqueue, erase, lookup
from jobs.store.lookup import End

log = logging.getLogger("jobs.reconciling")
TYPE = ENDED_TYPE
BATCH = 500
KEPT_S = 86_400.0
_DOOR = Door("system", "scheduler", "system:ended")


def definition(queues: Sequence[str], told: Iterable[Definition]) -> Definition:
    """The job that tells these, in one of the site's queues, isolated where one of them is.

    It has no `on_ended` itself: nothing is told of telling. Nobody else can ask for it: its origin is the house's.
    """
    own = "collect" if "collect" in queues or not queues else queues[0]
    isolated = any(d.isolated for d in told)
    return define(TYPE, job_ended, {
        "label": "Job ended", "worker_group": SYSTEM, "queue": own, "isolated": isolated, "timeout_s": 300.0,
        "retry": RetryPolicy(), "dead_letter": True, "origins": frozenset({_DOOR.origin}), "retention": KEPT_S})


def told() -> frozenset[str]:
    """The types whose ends somebody wants to be told of."""
    return registry().told


def note_ends(news: Sequence[News]) -> None:
    """For each of these that ended and whose type wants to be told: enqueue the job that tells, once a chain.

    Inside the moving transaction (a `publish.in_transaction` hook). Nothing in it can be refused: no option is a
    caller's, and a key that is taken already is left alone.
    """
    wanted = told()
    if not wanted:
        return
    ended = [id_ for id_, _, state in news if state in TERMINAL]
    for begin in range(0, len(ended), BATCH):
        if found := lookup.ended(ended[begin : begin + BATCH], wanted):
            enqueue.insert([_row(end) for end in found])
            failpoints.at("ended.written")


def _row(end: End) -> dict[str, Any]:
    key = erase.TELLING.format(job=end.job_id, chain=end.chain)
    input_ = {"job_id": end.job_id, "chain": end.chain, "state": end.state, "reason": end.reason}
    row = row_of(Request(TYPE, input_), Place(end.workspace_id, end.tenant_id, False), _DOOR, digest(key))
    return {**row, "idempotency_key": key}


def job_ended(run: Any, job_id: UUID, chain: int, state: State, reason: str | None = None) -> None:
    """Tells a definition that a job of its type has ended."""
    job = Job.objects.select_related("tenant").filter(pk=job_id).first()
    if job is None:
        log.info("job %s is erased; nobody is told of its end", job_id)
        return
    if job.chain < chain or (job.chain == chain and job.ended_at is None):
        # Never before the end: what this says did not happen.
        log.warning("job %s has not ended in chain %d; nobody is told", job_id, chain)
        return
    known = registry().find(job.type, job.version)
    if known is None:
        raise JobError("unregistered_version", f"{job.type}@{job.version} is not registered here.")
    if known.on_ended is None:
        return
    text = Artifact.objects.filter(job_id=job_id).values_list("value", flat=True).first()
    made = _read(known.artifact, text) if state == State.COMPLETED else None
    told = Ended(str(job_id), job.type, job.version, state, reason, chain, _read(known.input, job.input), made,
                 job.tenant.subject)
    with continuing.telling(job.tenant_id):
        answer = known.on_ended(told)
        if inspect.isawaitable(answer):
            async_to_sync(_awaited)(answer)


async def _awaited(answer: Any) -> None:
    await answer


def _read(codec: Codec[Any], text: str | None) -> Any:
    """The typed value of a stored text; None where it was redacted or does not decode any more."""
    try:
        return codec.decode(text) if text else None
    except Invalid:
        return None
