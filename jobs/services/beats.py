"""The heartbeat of a runner over HTTP: it renews the lease, brings what the attempt reports, and takes back what it
should know (C33, E8).

The same verbs as a worker's (`assignments`, `progress`), bound to the key that claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs import codecs, selectors
from jobs.errors import Conflict, IllegalMove, Invalid, JobsError, StaleFence
from jobs.leases import heartbeat_s
from jobs.models import Key
from jobs.outcomes import ResultStatus
from jobs.selectors import Assignment
from jobs.services import assignments, progress, runners
from jobs.states import State

START_MS = 500


class StaleCheckpoint(Conflict):
    """A checkpoint with this number or a later one is already kept."""

    code = "stale_checkpoint"


@dataclass(frozen=True, slots=True)
class Extended:
    """What a runner learns from a heartbeat: until when it is believed, when to beat again, whether to stop."""

    lease_until: datetime
    heartbeat_after_s: float
    abort: str | None
    checkpoint_number: int


def extend(key: Key, name: str, *, checkpoint: dict[str, Any] | None = None) -> Extended:
    """Renew a lease; the first time the job becomes running (A9, C33). Keeps a checkpoint `{seq, ...}` if given.

    Raises NotFound, StaleFence, StaleCheckpoint and Invalid invalid_checkpoint. Durable.
    """
    held = selectors.assignment(key.pk, name)
    if checkpoint is not None:
        _check(checkpoint)
    beat = assignments.extend([held.id]).get(held.id)
    if beat is None:
        raise StaleFence(status=selectors.assignment(key.pk, name).state)
    if beat.state == State.LEASED:
        _start(key, held)
    if checkpoint is not None:
        _checkpoint(key, held, checkpoint)
    held = selectors.assignment(key.pk, name)
    return Extended(held.lease_until, heartbeat_s(held.lease_ms / 1_000), beat.abort, held.checkpoint_number)


def _start(key: Key, held: Assignment) -> None:
    try:
        answer = assignments.start([(held.job_id, held.id)], runners.actor(key), patience_ms=START_MS)[0]
    except assignments.Locked:
        # The lease is renewed; the next heartbeat says it again.
        return
    # Two first heartbeats at once: the other one has said it.
    if isinstance(answer, JobsError) and not isinstance(answer, IllegalMove):
        answer.facts["result_status"] = ResultStatus.LEASE_LOST
        raise answer


def _check(checkpoint: dict[str, Any]) -> None:
    """Refuse what cannot be kept before anything is written."""
    number = checkpoint.get("seq")
    if type(number) is not int or not 0 < number < 2**31:
        raise Invalid("must be a whole number from 1", field="checkpoint.seq", code="invalid_checkpoint")
    codecs.canonical(checkpoint, max_bytes=progress.CHECKPOINT_BYTES)


def _checkpoint(key: Key, held: Assignment, value: dict[str, Any]) -> None:
    number = value["seq"]
    try:
        progress.checkpoint(held.job_id, held.id, number, value, runners.actor(key))
    except StaleFence:
        now = selectors.assignment(key.pk, held.id)
        if not now.live:
            raise StaleFence(status=now.state) from None
        kept = (now.checkpoint_number, bytes(now.checkpoint_hash or b""))
        if kept == (number, codecs.digest(codecs.canonical(value))):
            return
        raise StaleCheckpoint(f"The last checkpoint is {now.checkpoint_number}.", field="checkpoint",
                              last=now.checkpoint_number) from None
