"""What jobs cost, over all their attempts, against the most that a request allows (C12, C17)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from jobs.conf import registry
from jobs.errors import JobError, StaleFence
from jobs.models import Attempt, DeadLetter, Job
from jobs.retry import RetryPolicy
from jobs.services import costs, dead_letters
from jobs.worker.context import Run
from tests.driver import Driver, check

MANY = RetryPolicy(max_attempts=9, base_delay_s=1, max_delay_s=1)


def run_of(driver: Driver, job: object) -> Run:
    return Run(job, registry().current("echo"), driver.claimer.by)  # type: ignore[arg-type]


def test_costs_add_up_over_attempts_and_chains(driver: Driver) -> None:
    """C12: what a handler says is more, what is said twice of one attempt counts once."""
    job = driver.enqueue(retry=MANY, max_cost_usd="2")
    held = driver.claim_one()
    run = run_of(driver, held)
    assert run.cost("0.25") == Decimal("1.75")
    assert run.cost(0.5) == Decimal("1.25")
    costs.report(held.id, held.fence, Decimal("0.75"))
    costs.report(held.id, held.fence, Decimal("0.10"))
    assert Job.objects.get().cost_usd == Decimal("0.75")
    driver.fail(held)
    driver.pass_time(5)
    second = driver.claim_one()
    assert costs.left([job]) == {job: Decimal("1.25")}
    assert run_of(driver, second).cost("1") == Decimal("0.25")
    driver.fail(second, "tool_refused")
    dead_letters.requeue(DeadLetter.objects.get(), by="user:test")
    assert costs.left([job]) == {job: Decimal("0.25")}
    assert list(Attempt.objects.order_by("number").values_list("cost_usd", flat=True)) == [
        Decimal("0.75"), Decimal("1")]
    check(job)


def test_beyond_the_maximum_a_handler_ends_as_budget_exhausted_and_is_never_retried(driver: Driver) -> None:
    """C12, C17: exactly the maximum is none beyond it."""
    job = driver.enqueue(retry=MANY, max_cost_usd=1)
    held = driver.claim_one()
    run = run_of(driver, held)
    assert run.cost("1.00") == 0
    with pytest.raises(JobError) as caught:
        run.cost("0.000000001")
    assert (caught.value.reason_code, caught.value.retryable) == ("budget_exhausted", False)
    driver.fail(held, caught.value.reason_code, retryable=False)
    assert driver.state(job) == "failed"
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.reason_code) == ("terminal_error", "budget_exhausted")


def test_without_a_maximum_costs_are_kept_and_bound_nothing(driver: Driver) -> None:
    """C12."""
    job = driver.enqueue()
    held = driver.claim_one()
    assert run_of(driver, held).cost("123456.789") is None
    assert costs.left([job]) == {}
    driver.complete(held)
    assert Job.objects.get().cost_usd == Decimal("123456.789")


def test_sums_of_nonsense_stay_at_what_a_column_holds(driver: Driver) -> None:
    """C12: over the words of one attempt, and over attempts; nobody gets an error of the database's."""
    driver.enqueue(retry=MANY)
    held = driver.claim_one()
    run = run_of(driver, held)
    for _ in range(2):
        assert run.cost("60000000000") is None
    driver.release(held)
    again = driver.claim_one()
    assert run_of(driver, again).cost("99999999999") is None
    driver.complete(again)
    assert Job.objects.get().cost_usd == Decimal("99999999999.999999999")


def test_an_attempt_that_has_ended_reports_nothing_any_more(driver: Driver) -> None:
    """E14.2: the guard is in the lock of the job's row."""
    driver.enqueue(max_cost_usd=1)
    held = driver.claim_one()
    run = run_of(driver, held)
    driver.release(held)
    with pytest.raises(StaleFence):
        run.cost(1)
    assert Job.objects.get().cost_usd is None
