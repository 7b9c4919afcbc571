"""What a running attempt reports: declared stages for people, checkpoints for its successor. Durable verbs."""

from __future__ import annotations

import json
from typing import Any

from jobs import codecs
from jobs.errors import Invalid, JobsError
from jobs.receipts import Kind
from jobs.registry import Definition
from jobs.services import words
from jobs.store.moves import Fact, Moved, record
from jobs.store.sql import durable, rows

EVENTS = ("started", "completed")
CHECKPOINT_BYTES = 64 * 1024


def stage(definition: Definition, job_id: str, fence: str, name: str, event: str, by: str) -> Moved:
    """Record a declared stage (B30). Raises Invalid for an undeclared one, StaleFence when the claim is gone."""
    if name not in (definition.stages or {}):
        raise Invalid(f"{definition.name} declares no stage {name!r}.", field="stage", code="undeclared_stage")
    if event not in EVENTS:
        raise Invalid(f"an event is one of {', '.join(EVENTS)}", field="event", code="invalid_progress")
    now = {"event": event, "stage": name}
    return _answer(Fact(words.job_id(job_id), Kind.PROGRESS, {"by": by, "progress": now}, words.fence(fence),
                        progress=codecs.canonical(now)))


def checkpoint(job_id: str, fence: str, number: int, value: Any, by: str) -> Moved:
    """Keep resume data under a number above the last one (C33). Raises Invalid and StaleFence."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**31:
        raise Invalid("must be a whole number above the last checkpoint's", field="seq", code="invalid_checkpoint")
    text = codecs.canonical(value, max_bytes=CHECKPOINT_BYTES)
    hash_ = codecs.digest(text)
    return _answer(Fact(words.job_id(job_id), Kind.CHECKPOINT, {"by": by, "checkpoint": number, "hash": hash_.hex()},
                        words.fence(fence), checkpoint=(text, number, hash_)))


def next_checkpoint(job_id: str, fence: str, value: Any, by: str) -> int:
    """Keep resume data under the next number; the number."""
    found = rows("SELECT checkpoint_number FROM jobs_job WHERE id = %s", [words.job_id(job_id)])
    number = (found[0][0] if found else 0) + 1
    checkpoint(job_id, fence, number, value, by)
    return number


def read(text: str | None) -> Any:
    """A stored checkpoint as a value."""
    return None if text is None else json.loads(text)


def _answer(fact: Fact) -> Moved:
    answer = durable(lambda: record([fact]))[0]
    if isinstance(answer, JobsError):
        raise answer
    return answer
