"""Attempts in the hands of runners, read by the key that holds or held them (C35)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jobs import ids
from jobs.clock import Now
from jobs.errors import NotFound
from jobs.leases import Bounds, Overtime
from jobs.models import Attempt, Receipt
from jobs.receipts import Kind


class Assignment(NamedTuple):
    """An attempt in the hands of a runner, live or ended, with what its calls need to know of the job."""

    id: str
    job_id: str
    type: str
    version: int
    lease_ms: int
    state: str
    workspace_id: int
    tenant_id: int
    checkpoint_number: int
    checkpoint_hash: bytes | None
    lease_until: datetime
    ended_at: datetime | None
    reason_code: str | None
    message: str | None
    retryable: bool | None
    number: int
    outcome: str | None
    now: datetime
    bounds: Bounds

    @property
    def live(self) -> bool:
        """Whether no move has ended the attempt yet."""
        return self.ended_at is None

    @property
    def over(self) -> Overtime | None:
        """Which bound of a live attempt had passed when it was read (E8)."""
        return self.bounds.over(self.now) if self.live else None


_ASSIGNMENT = ("id", "job_id", "job__type", "job__version", "job__lease_ms", "job__state", "job__workspace_id",
               "job__tenant_id", "job__checkpoint_number", "job__checkpoint_hash", "lease_until", "ended_at",
               "reason_code", "message", "retryable", "number", "outcome", "now",
               "leased_at", "job__chain_started_at", "job__timeout_ms", "job__max_duration_ms", "job__duration_scope")


def assignment(key_id: int, name: str) -> Assignment:
    """The attempt of this id that this key holds or held; foreign, unknown and malformed ids alike NotFound (C35)."""
    row = None
    if ids.shaped(name):
        mine = Attempt.objects.filter(pk=uuid.UUID(name), key_id=key_id).annotate(now=Now())
        row = mine.values_list(*_ASSIGNMENT).first()
    if row is None:
        raise NotFound("There is no such assignment, or it is not yours.", code="assignment_not_found")
    return _assignment(row)


def assignments(key_id: int, names: Sequence[str]) -> dict[str, Assignment]:
    """Those of these attempts that this key holds or held, by the name that was said (C35)."""
    known = {uuid.UUID(name): name for name in names if ids.shaped(name)}
    mine = Attempt.objects.filter(pk__in=list(known), key_id=key_id).annotate(now=Now())
    return {known[row[0]]: _assignment(row) for row in mine.values_list(*_ASSIGNMENT)}


def _assignment(row: Any) -> Assignment:
    return Assignment._make((str(row[0]), str(row[1]), *row[2:-5], Bounds._make(row[-5:])))


def release_body(held: Assignment) -> str | None:
    """The body of the receipt with which this attempt was given back."""
    told = Receipt.objects.filter(job_id=held.job_id, kind=Kind.RELEASED.value, body__contains=f'"attempt":"{held.id}"')
    return told.values_list("body", flat=True).first()
