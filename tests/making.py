"""Jobs in any state, moves with what they need, limits, and captured statements: what several test modules share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connection

from jobs.models import Attempt, Limits, Tenant, Workspace
from jobs.outcomes import Failed, Interrupted, Released, Stopped
from jobs.services import tenancy
from jobs.states import State, Verb
from jobs.store.verbs import Move
from tests.driver import Driver, done

CODES: dict[Verb, Any] = {
    Verb.COMPLETE: done(), Verb.FAIL: Failed("attempt_error", "it broke"), Verb.STOP: Stopped(),
    Verb.RELEASE: Released(), Verb.INTERRUPT: Interrupted(),
}


class Made(NamedTuple):
    """A job in a state, with its live attempt if it has one."""

    id: str
    fence: str | None


def in_state(driver: Driver, state: State, type_: str = "echo", **options: Any) -> Made:
    """A job that came into `state` by legal verbs; no other job is queued before."""
    options.setdefault("target", "thing")
    job_id = driver.enqueue(type_, **options)
    if state is State.QUEUED:
        return Made(job_id, None)
    if state is State.PAUSED:
        driver.pause(job_id)
        return Made(job_id, None)
    if state is State.SUPERSEDED:
        driver.cancel(driver.enqueue(type_, **options))
        assert driver.state(job_id) == state
        return Made(job_id, None)
    job = driver.claim_one()
    assert job.id == job_id
    match state:
        case State.RUNNING:
            driver.start(job)
        case State.COMPLETED:
            driver.complete(job)
        case State.FAILED:
            driver.fail(job, retryable=False)
        case State.CANCELLED:
            driver.cancel(job_id)
    assert driver.state(job_id) == state
    return Made(job_id, job.fence if state in (State.LEASED, State.RUNNING) else None)


def move_of(verb: Verb, made: Made, **more: Any) -> Move:
    """A move with the outcome that its verb reports, and the job's live attempt (else an unknown one) as its fence."""
    if verb in (Verb.START, *CODES, Verb.LAPSE):
        more.setdefault("fence", made.fence or str(uuid.uuid4()))
    return Move(made.id, verb, by="test", outcome=CODES.get(verb), **more)


def default_workspace() -> Workspace:
    """The workspace of in-process enqueues."""
    return tenancy.workspace()


def limit(**fields: Any) -> Limits:
    """Limits of the default workspace, or of the tenant whose subject is given as `tenant`."""
    place = default_workspace()
    subject = fields.pop("tenant", None)
    tenant = tenancy.tenant(place, subject, make=True) if subject else None
    found, _ = Limits.objects.update_or_create(workspace=place, tenant=tenant, defaults=fields)
    return found


def tenant_id(subject: str | None = None) -> int:
    """The id of a tenant of the default workspace, made if missing."""
    return int(tenancy.tenant(default_workspace(), subject, make=True).pk)


def archive(subject: str | None = None) -> None:
    """No new jobs for this tenant."""
    from jobs.clock import Now

    Tenant.objects.filter(pk=tenant_id(subject)).update(archived_at=Now())


def attempt(fence: str) -> Attempt:
    """The row of an attempt."""
    return Attempt.objects.get(pk=fence)


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """The statements of this thread's connection with their parameters; transactions begin and end unseen."""
    found: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield found
