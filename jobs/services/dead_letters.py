"""A person's two answers to a dead letter: requeue or discard (C22 to C29). They join the caller's transaction."""

from __future__ import annotations

from jobs import failpoints
from jobs.conf import registry
from jobs.errors import Conflict, IllegalMove, Invalid, Refused
from jobs.models import DeadLetter
from jobs.receipts import Kind
from jobs.services.cancellation import answered, check_reason
from jobs.states import Verb
from jobs.store import letters, lookup
from jobs.store.moves import Fact, Moved, apply, record
from jobs.store.sql import joining
from jobs.store.verbs import Move


class TargetSuperseded(Conflict):
    """A newer request for the same target has taken this job's place."""

    code = "target_superseded"


class NotDeadLettered(IllegalMove):
    """The job has no open dead letter."""

    code = "not_dead_lettered"


def requeue(letter: DeadLetter, *, by: str, reason: str = "requeued") -> Moved:
    """Start a new chain of the job, its last checkpoint kept (C27, E4).

    Raises NotDeadLettered, TargetSuperseded, Refused (archived tenant) and Invalid (version no longer registered).
    """
    check_reason(reason)
    with joining(savepoint=True):
        job = letters.lock_job(letter.pk)
        if job is None:
            raise NotDeadLettered()
        _check_still_wanted(job)
        moved = answered(apply([Move(job.id, Verb.REQUEUE, by=by, reason=reason)])[0])
        failpoints.at("requeue.written")
        return moved


def _check_still_wanted(job: letters.LockedJob) -> None:
    if job.archived:
        raise Refused("This tenant is archived and takes no new work.", code="tenant_archived")
    if registry().find(job.type, job.version) is None:
        raise Invalid(f"{job.type}@{job.version} is not registered any more.", field="type",
                      code="unregistered_version")
    if job.target_id is not None and lookup.current_generation(job.target_id) != job.generation:
        raise TargetSuperseded()


def discard(letter: DeadLetter, *, by: str, reason: str = "discarded") -> Moved:
    """Close the letter; the job stays failed (C29). Raises NotDeadLettered."""
    check_reason(reason)
    with joining(savepoint=True):
        job = letters.lock_job(letter.pk)
        if job is None or not letters.resolve(letter.pk, "discarded", by, reason):
            raise NotDeadLettered()
        return answered(record([Fact(job.id, Kind.DISCARDED, {"by": by, "reason": reason})])[0])
