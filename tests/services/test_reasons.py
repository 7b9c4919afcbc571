"""The reasons for which an attempt ends, or a job waits: code-owned words, whoever finds them (B27, B31)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jobs.models import Attempt, Receipt
from jobs.outcomes import Failed, Interrupted
from jobs.services import overtime, settlement
from jobs.store.claim import Claimed
from jobs.worker.results import NOT_STORED, SHUTDOWN, failure
from tests.driver import Driver

# The reasons of the seed, by the words that we say for them.
OURS = {
    "unregistered-type": "unregistered_type", "invalid-persisted-input": "invalid_persisted_input",
    "attempt-timeout": "attempt_timeout", "attempt-error": "attempt_error", "heartbeat-lost": "lease_expired",
    "claim-reclaimed": "lease_expired", "claim-lost": "claim_lost", "storage-unavailable": "not_stored",
    "runner-shutdown": "runner_shutdown"}

HOW: dict[str, Callable[[Driver, Claimed], object]] = {
    "unregistered-type": lambda d, job: settlement.settle(
        [settlement.Report(job.id, job.fence, Interrupted("unregistered_type"), "echo@9")], d.claimer.by),
    "invalid-persisted-input": lambda d, job: settlement.spoil(job.id, job.fence, "no text", d.claimer.by),
    "attempt-timeout": lambda d, job: d.settle(job, overtime.outcome("attempt_timeout")),
    "attempt-error": lambda d, job: d.settle(job, failure(ValueError("no"))),  # type: ignore[arg-type]
    "heartbeat-lost": lambda d, job: (d.pass_time(60), d.recover()),
    "claim-reclaimed": lambda d, job: (d.pass_time(60), d.recover()),
    "claim-lost": lambda d, job: d.settle(job, Interrupted("claim_lost")),
    "storage-unavailable": lambda d, job: d.settle(job, NOT_STORED),
    "runner-shutdown": lambda d, job: d.settle(job, Interrupted(SHUTDOWN)),
}
# These use no budget: they are nobody's failure (E1).
NOBODYS = {"unregistered-type", "claim-lost", "storage-unavailable", "runner-shutdown"}


@pytest.mark.parametrize("seed", HOW)
def test_each_reason_of_the_seed_has_a_word_of_ours_on_attempt_and_receipt(driver: Driver, seed: str) -> None:
    """B27, B31: the same stable token wherever it is shown; none of them carries free text."""
    job = driver.claim_one() if driver.enqueue() else None
    assert job is not None
    HOW[seed](driver, job)
    body = json.loads(Receipt.objects.filter(job_id=job.id).latest("number").body)
    assert OURS[seed] in (body.get("code"), body.get("reason"))
    assert Attempt.objects.get().reason_code == OURS[seed]
    assert driver.job(job.id).failures == (seed not in NOBODYS)


def test_a_failure_of_a_handler_has_a_safe_word_whatever_was_raised(driver: Driver) -> None:
    """B25, B27: what is no JobError is `attempt_error`; its text is kept apart from the word."""
    for raised in (ValueError("sk-live-12345"), KeyError("x" * 10_000), SystemExit(3), BaseException()):
        outcome = failure(raised)
        assert isinstance(outcome, Failed)
        assert (outcome.code, outcome.retryable) == ("attempt_error", True)
