"""Budgets of a chain on real rows: retries, lapses, releases, claims, deadlines, and what a last failure leaves."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from jobs import RetryPolicy, clock, receipts
from jobs.errors import JobsError
from jobs.models import Attempt, DeadLetter, Job
from jobs.outcomes import Interrupted, Released
from jobs.services import progress, recovery, settlement
from jobs.store.moves import Moved
from tests import database as db
from tests.driver import Driver, quiet_recovery, refused, story
from tests.making import attempt, limit

QUICK = RetryPolicy(max_attempts=3, base_delay_s=1, max_delay_s=1)


def letter(job_id: str) -> DeadLetter:
    return DeadLetter.objects.get(job_id=job_id, resolved_at=None)


def set_row(job_id: str, **fields: int) -> None:
    """Counters as after a long history; the receipts do not say so, hence no check afterwards."""
    db.rows(f"UPDATE jobs_job SET {', '.join(f'{k} = {int(v)}' for k, v in fields.items())} WHERE id = %s RETURNING 1",
            job_id)


@pytest.mark.parametrize("most", [1, 2, 8])
def test_a_job_starts_exactly_as_often_as_its_policy_says(driver: Driver, most: int) -> None:
    """C16, C22, case-B11: then the letter, with the count of the chain and the last reason code."""
    job_id = driver.enqueue(retry=RetryPolicy(max_attempts=most, base_delay_s=1, max_delay_s=1))
    starts = 0
    while jobs := driver.claim():
        starts += 1
        driver.fail(jobs[0], "rate_limited")
        driver.pass_time(2)
    assert starts == most == Attempt.objects.filter(job_id=job_id).count()
    assert driver.state(job_id) == "failed"
    found = letter(job_id)
    assert (found.reason, found.reason_code, found.attempt_count, found.chain) == (
        "attempts_exhausted", "rate_limited", most, 1)


def test_a_retry_waits_half_to_the_whole_of_its_backoff(driver: Driver) -> None:
    """C16, E14.10: never claimed before available_at; the receipt carries the wait."""
    job_id = driver.enqueue(retry=RetryPolicy(max_attempts=9, base_delay_s=10, max_delay_s=15))
    for whole in (10, 15, 15):
        driver.fail(driver.claim_one())
        job = driver.job(job_id)
        wait = json.loads(story(job_id)[-1].body)["after"] / 1_000_000
        assert whole / 2 <= wait <= whole
        assert job.gate == "scheduled"
        driver.pass_time(wait - 0.5)
        assert driver.claim() == []
        driver.pass_time(1)


@pytest.mark.parametrize(("options", "fails", "reason"), [
    ({}, {"retryable": False}, "terminal_error"), ({}, {"code": "secret_in_diff"}, "terminal_error"),
    ({"retry": RetryPolicy(retry_on=("rate_limited",))}, {"code": "attempt_error"}, "retry_not_allowed"),
    ({"retry": RetryPolicy(max_attempts=1)}, {}, "attempts_exhausted"), ({"deadline_s": 1}, {}, "deadline_exceeded"),
])
def test_a_last_failure_opens_a_letter_with_its_reason(driver: Driver, options: dict, fails: dict, reason: str) -> None:
    """C14, C17, C21, C24, E4."""
    job_id = driver.enqueue(**options)
    answer = driver.fail(driver.claim_one(), **fails)
    assert isinstance(answer, Moved)
    assert (answer.state, answer.letter) == ("failed", reason)
    assert (driver.job(job_id).reason, letter(job_id).reason) == (reason, reason)


def test_a_code_that_the_policy_lists_is_retried(driver: Driver) -> None:
    """C14: `retry_on` is kept on the row."""
    driver.enqueue(retry=RetryPolicy(retry_on=("rate_limited", "busy")))
    assert driver.fail(driver.claim_one(), "busy").state == "queued"


def test_without_a_policy_a_failure_ends_the_job_and_leaves_no_letter(driver: Driver) -> None:
    """C19, E4: a lapse is still handed out again."""
    job_id = driver.enqueue("never-retried")
    driver.claim_one()
    driver.pass_time(60)
    assert driver.recover() == 1
    assert driver.fail(driver.claim_one()).state == "failed"
    assert driver.job(job_id).reason == "retry_not_allowed"
    assert not DeadLetter.objects.exists()


def test_a_definition_may_ask_for_a_letter_all_the_same(driver: Driver) -> None:
    """E4: `dead_letter=` overrides."""
    job_id = driver.enqueue("slow")
    driver.fail(driver.claim_one(), "attempt_timeout")
    assert letter(job_id).reason == "retry_not_allowed"


def test_the_first_lapse_is_available_at_once_and_the_next_backs_off(driver: Driver) -> None:
    """C35, E4, case-A13: and a recovered job stands before what came later."""
    job_id = driver.enqueue(retry=RetryPolicy(max_attempts=9, base_delay_s=20, max_delay_s=20))
    driver.claim_one()
    driver.enqueue()
    driver.pass_time(60)
    assert driver.recover() == 1
    assert driver.job(job_id).gate is None
    assert driver.claim_one().id != job_id or driver.job(job_id).claims == 2
    while driver.job(job_id).claims < 2:
        driver.claim_one()
    driver.pass_time(60)
    driver.recover()
    assert driver.job(job_id).gate == "scheduled"
    assert (driver.job(job_id).lapses, driver.job(job_id).failures) == (2, 2)


@pytest.mark.parametrize("counts", [True, False])
def test_a_job_that_kills_its_worker_is_quarantined(driver: Driver, counts: bool) -> None:
    """B23, E4, case-B02: `max_lapses` always ends it as a letter, also where lapses use no budget."""
    job_id = driver.enqueue("never-retried" if not counts else "echo", **(
        {"retry": RetryPolicy(max_attempts=99)} if counts else {}))
    lapses = 0
    while driver.claim():
        driver.pass_time(60)
        lapses += driver.recover()
        driver.pass_time(400)
    job = driver.job(job_id)
    assert (lapses, job.lapses, job.failures) == (10, 10, 10 if counts else 0)
    assert (job.state, letter(job_id).reason) == ("failed", "quarantined")


def test_lapses_that_do_not_count_use_no_budget(driver: Driver) -> None:
    """B24, E15: five claims with one failure and a budget of two still retry."""
    job_id = driver.enqueue(retry=RetryPolicy(max_attempts=2, base_delay_s=1, max_delay_s=1))
    db.rows("UPDATE jobs_job SET lapse_counts = false WHERE id = %s RETURNING 1", job_id)
    for _ in range(4):
        driver.claim_one()
        driver.pass_time(60)
        driver.recover()
        driver.pass_time(5)
    assert driver.fail(driver.claim_one()).state == "queued"
    assert (driver.job(job_id).claims, driver.job(job_id).failures) == (5, 1)


def test_a_release_uses_no_budget_and_waits_as_asked(driver: Driver) -> None:
    """C32, E14.13: by a delay and by a moment; the checkpoint stays."""
    job_id = driver.enqueue("staged", retry=RetryPolicy(max_attempts=1))
    job = driver.claim_one()
    progress.checkpoint(job.id, job.fence, 1, {"a": 1}, "test")
    driver.release(job, 30)
    assert driver.claim() == []
    driver.pass_time(31)
    job = driver.claim_one()
    at = clock.now() + timedelta(seconds=50)
    assert driver.settle(job, Released(at_us=clock.micros(at))).state == "queued"
    assert driver.job(job_id).available_at == at
    driver.pass_time(49)
    assert driver.claim() == []
    driver.pass_time(2)
    assert driver.claim_one().checkpoint == '{"a":1}'
    job_ = driver.job(job_id)
    assert (job_.releases, job_.failures, job_.attempt_count) == (2, 0, 1)


def test_the_hundred_and_first_release_is_refused_and_the_claim_stays(driver: Driver) -> None:
    """E4, E14.13: too_many_releases, never a letter; a requeue starts the count again."""
    driver.enqueue()
    job = driver.claim_one()
    set_row(job.id, releases=100, chain_claims=101, claims=101)
    before = db.row_hash(job.id)
    refused(settlement.settle([settlement.Report(job.id, job.fence, Released())], "test")[0], "too_many_releases")
    assert db.row_hash(job.id) == before


def test_the_hundred_and_first_interruption_is_a_failure(driver: Driver) -> None:
    """E4: interrupted_too_often, here with no budget left."""
    driver.enqueue(retry=RetryPolicy(max_attempts=1))
    job = driver.claim_one()
    set_row(job.id, interruptions=100, chain_claims=101, claims=101)
    settlement.settle([settlement.Report(job.id, job.fence, Interrupted())], "test")
    found = letter(job.id)
    assert (found.reason, found.reason_code) == ("attempts_exhausted", "interrupted_too_often")
    found = driver.job(job.id)
    # It is counted once: among the failures, and so among the attempts that `attempt_count` has.
    assert (found.failures, found.interruptions, found.attempt_count) == (1, 100, 1)
    end = attempt(job.fence)
    assert (end.outcome, end.reason_code, end.message) == ("failed", "interrupted_too_often", "runner_shutdown")
    view = receipts.fold(story(job.id))
    assert view is not None
    assert (view.failures, view.interruptions) == (1, 0)


def test_a_chain_has_no_more_claims_than_its_definition_allows(driver: Driver) -> None:
    """A33, D3, E4: whatever their end; the gate keeps it from the claim and the duty fails it."""
    job_id = driver.enqueue("bounded")
    for _ in range(3):
        driver.release(driver.claim_one())
    assert driver.job(job_id).gate == "spent"
    assert driver.claim() == []
    recovery.deadlines()
    assert (driver.state(job_id), letter(job_id).reason) == ("failed", "attempts_exhausted")
    driver.requeue(job_id)
    assert driver.claim_one().claims == 4


def test_a_relative_deadline_counts_from_the_first_claim_of_each_chain(driver: Driver) -> None:
    """C15, E4: it becomes absolute there, and starts again with a requeue."""
    job_id = driver.enqueue(deadline_s=100)
    driver.pass_time(1_000)
    assert driver.job(job_id).deadline_at is None
    driver.fail(driver.claim_one(), retryable=False)
    first = driver.job(job_id).deadline_at
    assert first is not None
    driver.pass_time(500)
    driver.requeue(job_id)
    assert driver.job(job_id).deadline_at is None
    again = driver.claim_one().deadline_at
    assert again is not None
    assert timedelta(seconds=99) < again - clock.now() <= timedelta(seconds=100)
    assert again > first


def test_a_claim_never_starts_a_job_after_its_deadline(driver: Driver) -> None:
    """C15, C21: a loop moves such jobs to failed; a running one may finish."""
    running = driver.enqueue(deadline_s=10)
    held = driver.claim_one()
    late = driver.enqueue(deadline_at=clock.now() + timedelta(seconds=10))
    driver.pass_time(11)
    assert driver.claim() == []
    assert recovery.deadlines()
    assert (driver.state(late), letter(late).reason, letter(late).attempt_count) == ("failed", "deadline_exceeded", 0)
    assert driver.state(running) == "leased"
    assert driver.complete(held).state == "completed"
    assert not recovery.deadlines()


def test_a_paused_job_past_its_deadline_fails_when_it_is_resumed(driver: Driver) -> None:
    """E1: and not before."""
    job_id = driver.enqueue(deadline_at=clock.now() + timedelta(seconds=10))
    driver.pause(job_id)
    driver.pass_time(11)
    recovery.deadlines()
    assert driver.state(job_id) == "paused"
    assert driver.resume(job_id).state == "failed"
    assert letter(job_id).reason == "deadline_exceeded"


def test_a_requeue_starts_a_new_chain_with_everything_that_lasts(driver: Driver) -> None:
    """C7, C27, E14.22: checkpoint and first start stay, claims go on, counters start again, the letter is answered."""
    job_id = driver.enqueue("staged", retry=QUICK)
    job = driver.claim_one()
    progress.checkpoint(job.id, job.fence, 1, {"page": 7}, "test")
    driver.fail(job, retryable=False)
    before = driver.job(job_id)
    driver.pass_time(100)
    driver.requeue(job_id)
    after = driver.job(job_id)
    assert (after.chain, after.chain_claims, after.failures, after.claims) == (2, 0, 0, 1)
    assert (after.started_at, after.chain_started_at, after.ended_at) == (before.started_at, None, None)
    assert (after.max_attempts, after.checkpoint) == (3, '{"page":7}')
    answered = DeadLetter.objects.get(job_id=job_id)
    assert (answered.resolution, answered.resolved_by, answered.resolve_reason) == ("requeued", "user:test", "requeued")
    again = driver.claim_one()
    assert (again.claims, again.chain, again.checkpoint) == (2, 2, '{"page":7}')
    driver.fail(again, retryable=False)
    assert letter(job_id).chain == 2


def test_a_discarded_job_stays_failed_and_cannot_be_requeued(driver: Driver) -> None:
    """C29: one receipt, no move; a second answer finds no letter."""
    job_id = driver.enqueue()
    driver.fail(driver.claim_one(), retryable=False)
    revision = driver.job(job_id).revision
    driver.discard(job_id)
    assert (driver.state(job_id), driver.job(job_id).revision) == ("failed", revision)
    assert story(job_id)[-1].kind == "job.discarded"
    before = db.row_hash(job_id)
    for answer in (driver.requeue, driver.discard):
        with pytest.raises(JobsError) as refusal:
            answer(job_id)
        assert refusal.value.reason_code == "not_dead_lettered"
    assert db.row_hash(job_id) == before


def test_the_database_keeps_one_letter_a_chain_and_one_open(driver: Driver) -> None:
    """E4: unique per (job, chain), one open per job."""
    job_id = driver.enqueue()
    driver.fail(driver.claim_one(), retryable=False)
    found = letter(job_id)
    for chain, constraint in ((found.chain, "dead_letter_chain_once"), (found.chain + 1, "dead_letter_one_open")):
        found.pk, found.chain = None, chain
        with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
            found.save(force_insert=True)


def test_a_crashed_last_attempt_frees_its_exclusive_group(driver: Driver) -> None:
    """case-A16, C11: exhausted and crashed is a letter, and the next job of the group starts."""
    limit(exclusive_group_max=1)
    job_id = driver.enqueue(exclusive_group="account", retry=RetryPolicy(max_attempts=1))
    driver.claim_one()
    next_ = driver.enqueue(exclusive_group="account")
    assert Job.objects.get(pk=next_).gate == "exclusive"
    driver.pass_time(60)
    assert quiet_recovery().run() == 1
    assert (driver.state(job_id), letter(job_id).reason) == ("failed", "attempts_exhausted")
    assert driver.claim_one().id == next_
