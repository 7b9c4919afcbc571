"""Stopping jobs: cancel now, pause and resume. These verbs join the caller's transaction (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jobs import clock, failpoints
from jobs.errors import Invalid, JobEnded, JobNotFound, JobsError, Refused
from jobs.services import words
from jobs.services.words import JobId
from jobs.states import State, Verb
from jobs.store import lookup
from jobs.store.moves import Answer, Moved, apply
from jobs.store.sql import joining
from jobs.store.verbs import Move

REASON_LIMIT = 512


def cancel(job_id: JobId, *, by: str, reason: str = "cancelled", revision: int | None = None,
           allow_archived: bool = False) -> Moved:
    """Cancel a job at once; its holder can commit nothing any more (C30, E5).

    Cancelling a cancelled job is a quiet yes; raises JobEnded for another end, JobNotFound, RevisionMismatch, and
    Refused `tenant_archived` unless `allow_archived`, as the site's own people may (B37).
    """
    return answered(cancel_many([job_id], by=by, reason=reason, revision=revision, allow_archived=allow_archived)[0])


def cancel_many(job_ids: Sequence[JobId], *, by: str, reason: str = "cancelled", revision: int | None = None,
                allow_archived: bool = False, bulk: int | None = None) -> list[Answer]:
    """Cancel each; a refusal stands in its place. `bulk` names a bulk operation."""
    check_reason(reason)
    refused: dict[str, JobsError] = {}
    if not allow_archived:
        refused = dict(of_archived([id_ for id_ in map(_known, job_ids) if isinstance(id_, str)]))
    answers = _each(job_ids, lambda id_: Move(id_, Verb.CANCEL, by=by, reason=reason, revision=revision,
                                                facts=_of(bulk)),
                    refused=refused)
    return [_quiet(answer, id_) for answer, id_ in zip(answers, job_ids, strict=True)]


def of_archived(job_ids: Sequence[str]) -> dict[str, Refused]:
    """Those of these jobs that callers may not end, and why (B37)."""
    return dict.fromkeys(lookup.of_archived(job_ids), Refused("The tenant is archived; its jobs end by themselves.",
                                                              code="tenant_archived"))


def _each(job_ids: Sequence[JobId], move: Callable[[str], Move], *, release: bool = False,
          refused: Mapping[str, JobsError] | None = None) -> list[Answer]:
    """One move for each job, locked in order whatever the caller's; a refusal stands in its place."""
    ids = [_known(id_) for id_ in job_ids]
    known = [(refused or {}).get(id_, id_) if isinstance(id_, str) else id_ for id_ in ids]
    with joining():
        answers = iter(apply([move(id_) for id_ in known if isinstance(id_, str)], release=release))
        failpoints.at("cancel.written")
    return [next(answers) if isinstance(id_, str) else id_ for id_ in known]


def _known(job_id: JobId) -> str | JobsError:
    try:
        return words.job_id(job_id)
    except JobNotFound as error:
        return error


def _quiet(answer: Answer, job_id: JobId) -> Answer:
    if isinstance(answer, JobEnded) and answer.facts.get("status") == State.CANCELLED:
        return Moved(words.job_id(job_id), State.CANCELLED, repeated=True)
    return answer


def pause(job_id: JobId, *, by: str, reason: str = "paused", revision: int | None = None) -> Moved:
    """Put a job aside; a live claim is void at once (B19, B28)."""
    return answered(pause_many([job_id], by=by, reason=reason, revision=revision)[0])


def pause_many(job_ids: Sequence[JobId], *, by: str, reason: str = "paused", revision: int | None = None,
               revisions: Mapping[str, int] | None = None, bulk: int | None = None) -> list[Answer]:
    """Put each aside, of `revisions` only as it was read (B28); a refusal stands in its place."""
    check_reason(reason)
    read = revisions or {}
    return _each(job_ids, lambda id_: Move(id_, Verb.PAUSE, by=by, reason=reason, revision=read.get(id_, revision),
                                             facts=_of(bulk)))


def resume(job_id: JobId, *, by: str, revision: int | None = None, available_at: datetime | None = None,
           delay_s: float | None = None, reason: str | None = None) -> Moved:
    """Let a paused job wait again, from `available_at` or after `delay_s`; past its deadline it fails (B19, E1).

    Raises Invalid when its version is not registered any more (B28).
    """
    return answered(resume_many([job_id], by=by, revision=revision, available_at=available_at, delay_s=delay_s,
                                reason=reason)[0])


def resume_many(job_ids: Sequence[JobId], *, by: str, revision: int | None = None,
                available_at: datetime | None = None, delay_s: float | None = None, reason: str | None = None,
                revisions: Mapping[str, int] | None = None, bulk: int | None = None) -> list[Answer]:
    """Let each wait again, of `revisions` only as it was read (B28); a refusal stands in its place."""
    if reason is not None:
        check_reason(reason)
    if delay_s is not None and available_at is not None:
        raise Invalid("Say delay_s or available_at, not both.", field="delay_s", code="invalid_availability")
    after_us = words.delay_us(delay_s)
    at_us = clock.micros(words.moment(available_at, "available_at"))
    refused = words.unregistered([id_ for id_ in map(_known, job_ids) if isinstance(id_, str)])
    read = revisions or {}
    return _each(job_ids, lambda id_: Move(id_, Verb.RESUME, by=by, reason=reason, revision=read.get(id_, revision),
                                           at_us=at_us, after_us=after_us, facts=_of(bulk)), release=True,
                 refused=refused)


def _of(bulk: int | None) -> dict[str, Any]:
    return {} if bulk is None else {"bulk": bulk}


def check_reason(reason: str) -> None:
    """A reason is 1 to 512 characters without control characters; raises Invalid."""
    if not isinstance(reason, str) or not 0 < len(reason) <= REASON_LIMIT or not reason.isprintable():
        raise Invalid(f"must be 1 to {REASON_LIMIT} printable characters", field="reason", code="invalid_reason")


def answered(answer: Answer) -> Moved:
    """The move, or its refusal raised."""
    if isinstance(answer, JobsError):
        raise answer
    return answer
