"""What a running attempt reports: declared stages for people, checkpoints for its successor. Durable verbs.

How far a job has come, as it is shown, is `stages`'.
"""

from __future__ import annotations

from typing import Any, Final

from jobs import codecs
from jobs.errors import Invalid, JobsError, Refused, StaleFence
from jobs.receipts import Kind
from jobs.registry import Definition, nearest
from jobs.services import words
from jobs.store.moves import Fact, Moved, record
from jobs.store.sql import durable, rows

EVENTS = ("started", "completed")
CHECKPOINT_BYTES = 64 * 1024
# Of one attempt: stages are for people, and each is a receipt for ever.
MOST: Final = 1_000


class TooMuchProgress(Refused):
    """This attempt has reported its stages too often: they are for people, not for each item of the work."""

    code = "too_much_progress"


def check_stage(definition: Definition, name: object, event: object, *, beneath: str = "") -> None:
    """Raises Invalid for a stage that the definition does not declare, and for an event that is none (B30)."""
    if not isinstance(name, str) or name not in definition.stages:
        shown = codecs.printable(name if isinstance(name, str) else type(name).__name__, 64)
        raise Invalid(f"{definition.name} declares no stage {shown!r}{nearest(shown, definition.stages)}",
                      field=f"{beneath}stage", code="undeclared_stage")
    if event not in EVENTS:
        raise Invalid(f"an event is one of {', '.join(EVENTS)}", field=f"{beneath}event", code="invalid_progress")


def stage_fact(definition: Definition, job_id: str, fence: str, name: str, event: str, by: str, *,
               attempt: int | None = None) -> Fact:
    """A declared stage, and by which attempt (its number), to be recorded (B30). Raises Invalid."""
    check_stage(definition, name, event)
    now = {"event": event, "stage": name, **({} if attempt is None else {"attempt": attempt})}
    return Fact(words.job_id(job_id), Kind.PROGRESS, {"by": by, "progress": now}, words.fence(fence),
                progress=codecs.canonical(now))


def stage(definition: Definition, job_id: str, fence: str, name: str, event: str, by: str, *,
          attempt: int | None = None) -> Moved:
    """Record a declared stage, and by which attempt (its number) (B30). Raises Invalid and StaleFence."""
    return durable(lambda: keep(stage_fact(definition, job_id, fence, name, event, by, attempt=attempt)))


def checkpoint_fact(job_id: str, fence: str, number: int, value: Any, by: str) -> Fact:
    """Resume data under a number above the last one, to be recorded (C33). Raises Invalid."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**31:
        raise Invalid("must be a whole number above the last checkpoint's", field="seq", code="invalid_checkpoint")
    text = codecs.canonical(value, max_bytes=CHECKPOINT_BYTES)
    hash_ = codecs.digest(text)
    return Fact(words.job_id(job_id), Kind.CHECKPOINT, {"by": by, "checkpoint": number, "hash": hash_.hex()},
                words.fence(fence), checkpoint=(text, number, hash_))


def checkpoint(job_id: str, fence: str, number: int, value: Any, by: str) -> Moved:
    """Keep resume data under a number above the last one (C33). Raises Invalid and StaleFence."""
    return durable(lambda: keep(checkpoint_fact(job_id, fence, number, value, by)))


def keep(fact: Fact) -> Moved:
    """Record it in the present transaction. Raises StaleFence."""
    answer = record([fact])[0]
    if isinstance(answer, JobsError):
        raise answer
    return answer


def next_checkpoint(job_id: str, fence: str, value: Any, by: str) -> int:
    """Keep resume data under the next number; the number. Of several at once each gets its own."""
    while True:
        number = _last(job_id) + 1
        try:
            checkpoint(job_id, fence, number, value, by)
        except StaleFence:
            # Another thread of this attempt took the number meanwhile; else the claim is gone.
            if _last(job_id) < number:
                raise
        else:
            return number


def _last(job_id: str) -> int:
    found = rows("SELECT checkpoint_number FROM jobs_job WHERE id = %s", [words.job_id(job_id)])
    return int(found[0][0]) if found else 0


def read(text: str | None) -> Any:
    """A stored checkpoint as a value; None where there is none, or it cannot be read any more."""
    return codecs.stored(text)
