"""The credential of an attempt: asked for before its handler runs, and left out of all that is kept of it (E10)."""

from __future__ import annotations

from dataclasses import replace

from jobs.outcomes import Completed, Failed, Interrupted
from jobs.redaction import masked, secrets_of
from jobs.registry import Definition
from jobs.services import owners
from jobs.services.assignments import Claimed
from jobs.worker.connection import close_all
from jobs.worker.context import Run
from jobs.worker.results import Result


def take(definition: Definition, job: Claimed, run: Run) -> Interrupted | None:
    """Give the run its owner's credential, if it needs one; the end of the attempt where that cannot be had (B24)."""
    if definition.credential != owners.OWNER:
        return None
    try:
        credential = owners.resolve(job.fence, job.id)
    except owners.Unavailable:
        return owners.unavailable(job.claims)
    run.hold(credential, secrets_of(credential))
    return None


def take_aside(definition: Definition, job: Claimed, run: Run) -> Interrupted | None:
    """The same in a thread that is nobody's, whose connection is given back."""
    try:
        return take(definition, job, run)
    finally:
        close_all()


def kept(done: Completed, masks: tuple[str, ...]) -> Completed | Failed:
    """A completion, if its artifact does not hold the credential: what is stored is read by many."""
    if any(secret in done.artifact for secret in masks):
        return Failed("secret_in_artifact", "The artifact holds the owner's credential.", retryable=False)
    return done


def masked_result(result: Result, masks: tuple[str, ...]) -> Result:
    """An end without the secret in its words."""
    if not isinstance(result, Failed):
        return result
    return replace(result, code=masked(result.code, masks), message=masked(result.message, masks))
