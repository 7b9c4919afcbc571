"""Stopping jobs: cancel now, pause and resume. These verbs join the caller's transaction (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs import clock, failpoints
from jobs.errors import Invalid, JobEnded, JobNotFound, JobsError
from jobs.services import words
from jobs.services.words import JobId
from jobs.states import State, Verb
from jobs.store.moves import Answer, Moved, apply
from jobs.store.sql import joining
from jobs.store.verbs import Move

REASON_LIMIT = 512


def cancel(job_id: JobId, *, by: str, reason: str = "cancelled", revision: int | None = None) -> Moved:
    """Cancel a job at once; its holder can commit nothing any more (C30, E5).

    Cancelling a cancelled job is a quiet yes; raises JobEnded for another end, JobNotFound, RevisionMismatch.
    """
    return answered(cancel_many([job_id], by=by, reason=reason, revision=revision)[0])


def cancel_many(job_ids: Sequence[JobId], *, by: str, reason: str = "cancelled",
                revision: int | None = None) -> list[Answer]:
    """Cancel each; a refusal stands in its place."""
    check_reason(reason)
    known = [_known(id_) for id_ in job_ids]
    moves = [Move(id_, Verb.CANCEL, by=by, reason=reason, revision=revision) for id_ in known if isinstance(id_, str)]
    with joining():
        answers = iter(apply(moves, release=False))
        failpoints.at("cancel.written")
    return [_quiet(next(answers), id_) if isinstance(id_, str) else id_ for id_ in known]


def _known(job_id: JobId) -> str | JobNotFound:
    try:
        return words.job_id(job_id)
    except JobNotFound as error:
        return error


def _quiet(answer: Answer, job_id: str) -> Answer:
    if isinstance(answer, JobEnded) and answer.facts.get("status") == State.CANCELLED:
        return Moved(job_id, State.CANCELLED, repeated=True)
    return answer


def pause(job_id: JobId, *, by: str, reason: str = "paused", revision: int | None = None) -> Moved:
    """Put a job aside; a live claim is void at once (B19, B28)."""
    check_reason(reason)
    id_ = words.job_id(job_id)
    with joining():
        return answered(apply([Move(id_, Verb.PAUSE, by=by, reason=reason, revision=revision)], release=False)[0])


def resume(job_id: JobId, *, by: str, revision: int | None = None, available_at: datetime | None = None) -> Moved:
    """Let a paused job wait again, from `available_at` on; one past its deadline fails instead (B19, E1).

    Raises Invalid when its version is not registered any more (B28).
    """
    id_ = words.job_id(job_id)
    words.check_registered(id_)
    at_us = clock.micros(words.moment(available_at, "available_at"))
    with joining():
        return answered(apply([Move(id_, Verb.RESUME, by=by, revision=revision, at_us=at_us)])[0])


def check_reason(reason: str) -> None:
    """A reason is 1 to 512 characters without control characters; raises Invalid."""
    if not isinstance(reason, str) or not 0 < len(reason) <= REASON_LIMIT or not reason.isprintable():
        raise Invalid(f"must be 1 to {REASON_LIMIT} printable characters", field="reason", code="invalid_reason")


def answered(answer: Answer) -> Moved:
    """The move, or its refusal raised."""
    if isinstance(answer, JobsError):
        raise answer
    return answer
