"""Retries of whole jobs: waits that hold nobody up, and deadlines (C13 to C21, E4)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import clock
from jobs.errors import Invalid
from jobs.models import DeadLetter
from jobs.retry import RetryPolicy
from jobs.services import intake, limits, recovery, tenancy
from tests.driver import Driver


def test_a_job_that_waits_for_its_retry_blocks_no_ready_job_of_its_group(driver: Driver) -> None:
    """case-F04, C11: a group of one, the first job in backoff for an hour; the second one runs now."""
    limits.set_limits(tenancy.workspace(), exclusive_group_max=1)
    first = driver.enqueue(exclusive_group="g", retry=RetryPolicy(base_delay_s=3600, max_delay_s=3600))
    second = driver.enqueue(exclusive_group="g")
    assert driver.job(second).gate == "exclusive"
    driver.fail(driver.claim_one())
    assert driver.job(first).gate == "scheduled"
    held = driver.claim_one()
    assert held.id == second
    driver.complete(held)
    driver.pass_time(3601)
    assert driver.claim_one().id == first


def test_an_attempt_that_runs_at_the_deadline_may_finish(driver: Driver) -> None:
    """C21: the deadline ends what would begin, not what has begun."""
    job = driver.enqueue(retry=RetryPolicy(deadline_s=60))
    held = driver.claim_one()
    driver.pass_time(3600)
    recovery.deadlines()
    assert driver.state(job) == "leased"
    driver.complete(held)
    assert driver.state(job) == "completed"


@pytest.mark.parametrize("how", ["fails", "lapses"])
def test_whatever_attempts_are_left_nothing_begins_after_the_deadline(driver: Driver, how: str) -> None:
    """C15, C21: counted from the first start; the backoff of 40 s and more would pass it; a lapse is a failure."""
    job = driver.enqueue(retry=RetryPolicy(max_attempts=9, base_delay_s=80, max_delay_s=80, deadline_s=60))
    driver.pass_time(30)
    held = driver.claim_one()
    if how == "fails":
        driver.pass_time(30)
        driver.fail(held, "flaky")
    else:
        driver.pass_time(100)
        recovery.Recovery().run()
    assert driver.state(job) == "failed"
    letter = DeadLetter.objects.get()
    assert letter.reason == "deadline_exceeded"
    assert driver.job(job).failures == 1


def test_a_deadline_that_stands_twice_is_refused(driver: Driver) -> None:
    """C13: deadline_at XOR deadline_s, in the policy and beside it."""
    soon = clock.now() + timedelta(seconds=60)
    with pytest.raises(Invalid) as caught:
        RetryPolicy(deadline_s=60, deadline_at=soon)
    assert (caught.value.reason_code, caught.value.faults[0]["field"]) == ("invalid_retry_policy", "deadline_at")
    with pytest.raises(Invalid) as caught:
        intake.enqueue("echo", {}, retry=RetryPolicy(deadline_s=60), deadline_at=soon)
    assert caught.value.reason_code == "invalid_deadline"
    assert driver.job(driver.enqueue(retry=RetryPolicy(deadline_at=soon))).deadline_at == soon


def test_a_policy_of_a_type_may_have_a_deadline_which_a_request_replaces(driver: Driver) -> None:
    """C15, E4: the request's, else the definition's, else the site's."""
    from jobs.conf import registry

    definition = registry().current("echo")
    before = definition.retry
    object.__setattr__(definition, "retry", RetryPolicy(deadline_s=60))
    try:
        assert driver.job(driver.enqueue()).deadline_ms == 60_000
        assert driver.job(driver.enqueue(deadline_s=5)).deadline_ms == 5_000
        assert driver.job(driver.enqueue(retry=None)).deadline_ms is None
    finally:
        object.__setattr__(definition, "retry", before)
