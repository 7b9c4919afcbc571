"""What people may do to a job: cancel, pause, resume, requeue, discard; in their own transaction if they have one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from jobs import clock
from jobs.errors import JobsError
from jobs.models import AttemptCap, DeadLetter, Job
from jobs.outcomes import Released
from jobs.services import cancellation, dead_letters
from jobs.states import ACTIVE, TERMINAL, State
from jobs.store.moves import Moved
from tests import database as db
from tests.driver import Driver, check, refused, story
from tests.making import archive, in_state, limit


def forget_version(job_id: str) -> None:
    """As if the deploy had dropped the job's version."""
    db.rows("UPDATE jobs_job SET version = 99 WHERE id = %s RETURNING 1", job_id)


def refusal_of(verb: Callable[..., Any], *args: Any, **more: Any) -> JobsError:
    with pytest.raises(JobsError) as refusal:
        verb(*args, **more)
    return refusal.value


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_a_cancel_is_at_once_and_voids_the_claim(driver: Driver, state: State) -> None:
    """C30, E5, E14.12: never retried, dead-lettered or claimed; cancelled_at is set once."""
    made = in_state(driver, state)
    assert driver.cancel(made.id, reason="not needed").state == "cancelled"
    job = driver.job(made.id)
    assert (job.reason, job.attempt_id) == ("not needed", None)
    before = db.row_hash(made.id)
    again = driver.cancel(made.id, reason="again")
    assert (again.repeated, again.state) == (True, "cancelled")
    assert db.row_hash(made.id) == before
    assert driver.claim() == []
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("state", sorted(TERMINAL - {State.CANCELLED}))
def test_a_job_that_has_ended_otherwise_cannot_be_cancelled(driver: Driver, state: State) -> None:
    """E5, A54: 409 job_ended with the state."""
    made = in_state(driver, state)
    before = db.row_hash(made.id)
    error = refusal_of(driver.cancel, made.id)
    assert (error.reason_code, error.facts["status"]) == ("job_ended", state)
    assert db.row_hash(made.id) == before


def test_many_are_cancelled_each_for_itself(driver: Driver) -> None:
    """E5: a refusal stands in its place."""
    ended = in_state(driver, State.COMPLETED).id
    fresh, gone = driver.enqueue(), str(uuid.uuid4())
    answers = cancellation.cancel_many([ended, fresh, gone, fresh], by="user:test")
    refused(answers[0], "job_ended")
    refused(answers[2], "job_not_found")
    assert isinstance(answers[1], Moved)
    assert isinstance(answers[3], Moved)
    assert (answers[1].repeated, answers[3].repeated) == (False, True)


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
def test_a_revision_that_was_read_earlier_is_refused(driver: Driver, verb: str) -> None:
    """B28, E12: If-Match."""
    made = in_state(driver, State.PAUSED if verb == "resume" else State.LEASED)
    revision, before = driver.job(made.id).revision, db.row_hash(made.id)
    act = getattr(driver, verb)
    assert refusal_of(act, made.id, revision=revision - 1).reason_code == "revision_mismatch"
    assert db.row_hash(made.id) == before
    assert act(made.id, revision=revision).revision == revision + 1


@pytest.mark.parametrize("reason", ["", "x" * 513, "a\nb", "a\x00", 5])
@pytest.mark.parametrize("verb", ["cancel", "pause", "requeue", "discard"])
def test_a_reason_is_one_printable_line(driver: Driver, verb: str, reason: Any) -> None:
    """B12, E2."""
    made = in_state(driver, State.FAILED if verb in ("requeue", "discard") else State.QUEUED)
    before = db.row_hash(made.id)
    if verb in ("requeue", "discard"):
        error = refusal_of(getattr(dead_letters, verb), DeadLetter.objects.get(), by="x", reason=reason)
    else:
        error = refusal_of(getattr(cancellation, verb), made.id, by="x", reason=reason)
    assert (error.reason_code, error.field) == ("invalid_reason", "reason")
    assert db.row_hash(made.id) == before


def test_a_pause_puts_aside_and_a_resume_lets_wait_again(driver: Driver) -> None:
    """B19, B28, E2: a voided claim counts as a pause and not as an attempt."""
    driver.enqueue()
    job = driver.claim_one()
    driver.pause(job.id, reason="maintenance")
    refused(driver.complete(job), "stale_claim")
    assert driver.claim() == []
    row = driver.job(job.id)
    assert (row.state, row.reason, row.pauses, row.attempt_count) == ("paused", "maintenance", 1, 0)
    driver.resume(job.id)
    assert driver.claim_one().claims == 2


def test_a_resume_may_say_when(driver: Driver) -> None:
    """B28: a new availability."""
    made = in_state(driver, State.PAUSED)
    at = clock.now() + timedelta(seconds=60)
    driver.resume(made.id, available_at=at)
    assert (driver.job(made.id).available_at, driver.job(made.id).gate) == (at, "scheduled")
    driver.pass_time(61)
    assert driver.claim_one().id == made.id


def test_the_last_moments_are_kept_to_the_microsecond(driver: Driver) -> None:
    """E14.19: of a resume and of both kinds of a release; beyond 2255 the database would round them."""
    last = datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    paused = in_state(driver, State.PAUSED)
    driver.resume(paused.id, available_at=last)
    assert driver.job(paused.id).available_at == last
    longest = 366 * 86_400_000_000
    for delay in (Released(at_us=clock.micros(last)), Released(1), Released(longest - 1), Released(longest)):
        driver.enqueue()
        job = driver.claim_one()
        assert isinstance(driver.settle(job, delay), Moved)
        check(job.id)
        assert delay.at_us is None or driver.job(job.id).available_at == last
        driver.cancel(job.id)


@pytest.mark.parametrize("at", ["later", datetime(2030, 1, 1), datetime(2200, 1, 1, tzinfo=UTC)])
def test_a_resume_at_no_moment_is_refused(driver: Driver, at: Any) -> None:
    """B28."""
    made = in_state(driver, State.PAUSED)
    assert refusal_of(driver.resume, made.id, available_at=at).field == "available_at"
    assert driver.state(made.id) == "paused"


def test_a_version_that_is_gone_is_neither_resumed_nor_requeued(driver: Driver) -> None:
    """B28, E4, E7: unregistered_version, and the row as it was; cancel and discard still work."""
    paused, failed = in_state(driver, State.PAUSED, target="a").id, in_state(driver, State.FAILED, target="b").id
    for job_id, verb in ((paused, driver.resume), (failed, driver.requeue)):
        forget_version(job_id)
        before = db.row_hash(job_id)
        error = refusal_of(verb, job_id)
        assert (error.reason_code, error.field) == ("unregistered_version", "type")
        assert db.row_hash(job_id) == before
    assert driver.cancel(paused).state == "cancelled"
    assert driver.discard(failed).state == "failed"


def test_a_requeue_of_an_archived_tenants_job_is_refused(driver: Driver) -> None:
    """E4, B37: discard is not."""
    made = in_state(driver, State.FAILED, tenant="old")
    archive("old")
    before = db.row_hash(made.id)
    assert refusal_of(driver.requeue, made.id).reason_code == "tenant_archived"
    assert db.row_hash(made.id) == before
    assert driver.discard(made.id).state == "failed"


def test_a_requeue_of_an_older_generation_is_refused(driver: Driver) -> None:
    """E4, E14.6: 409 target_superseded."""
    made = in_state(driver, State.FAILED, target="doc")
    driver.enqueue(target="doc")
    before = db.row_hash(made.id)
    assert refusal_of(driver.requeue, made.id).reason_code == "target_superseded"
    assert db.row_hash(made.id) == before


@pytest.mark.parametrize("state", sorted(set(State) - {State.FAILED}))
def test_only_a_dead_letter_can_be_answered(driver: Driver, state: State) -> None:
    """C28: there is none to answer in any other state."""
    made = in_state(driver, state)
    assert not DeadLetter.objects.filter(job_id=made.id).exists()
    ghost = DeadLetter(pk=4711, job_id=made.id)
    for verb in (dead_letters.requeue, dead_letters.discard):
        assert refusal_of(verb, ghost, by="x").reason_code == "not_dead_lettered"


def test_a_long_name_of_a_person_is_kept_as_far_as_it_fits(driver: Driver) -> None:
    """C28: the receipt has all of it."""
    for verb in (dead_letters.requeue, dead_letters.discard):
        made = in_state(driver, State.FAILED, target=verb.__name__)
        name = "user:" + "x" * 300
        verb(DeadLetter.objects.get(job_id=made.id), by=name)
        assert DeadLetter.objects.get(job_id=made.id).resolved_by == name[:200]
        assert name in story(made.id)[-1].body
        driver.cancel(made.id) if verb is dead_letters.requeue else None


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "requeue", "discard"])
def test_a_persons_verb_joins_the_persons_transaction(driver: Driver, verb: str) -> None:
    """DESIGN 4: undone with it, and a refusal leaves it usable."""
    state = {"resume": State.PAUSED, "requeue": State.FAILED, "discard": State.FAILED}.get(verb, State.LEASED)
    made = in_state(driver, state)
    before = db.row_hash(made.id)

    def act() -> object:
        if state is State.FAILED:
            return getattr(dead_letters, verb)(DeadLetter.objects.get(job_id=made.id), by="user:x")
        return getattr(cancellation, verb)(made.id, by="user:x")

    def undone() -> None:
        with transaction.atomic():
            act()
            raise LookupError

    with pytest.raises(LookupError):
        undone()
    assert db.row_hash(made.id) == before
    with transaction.atomic():
        act()
        if verb != "cancel":
            refusal_of(act)
        assert Job.objects.filter(pk=made.id).exists()
    assert db.row_hash(made.id) != before
    check(made.id)


@pytest.mark.parametrize("verb", ["cancel", "pause", "supersede"])
def test_what_a_voided_claim_held_is_released_after_the_commit(driver: Driver, verb: str) -> None:
    """DESIGN 4, C9: a joining verb takes no cap key and touches no line; the duty after the commit does."""
    limit(tenant_concurrency=1)
    first = driver.enqueue(target="doc")
    waiting = driver.enqueue(priority=-1)
    assert driver.claim_one().id == first
    assert driver.claim() == []
    with transaction.atomic():
        if verb == "supersede":
            from jobs.services import intake

            intake.enqueue("echo", {}, target="doc", priority=-9)
        else:
            getattr(cancellation, verb)(first, by="user:x")
        assert db.rows("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
                       " AND pid = pg_backend_pid()")[0][0] == 0
        assert db.rows("SELECT parked FROM jobs_claim_line") == [("cap",)]
    assert AttemptCap.objects.count() == 0
    assert driver.claim_one().id == waiting
