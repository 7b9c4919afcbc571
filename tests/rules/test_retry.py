"""The arithmetic of retries, and the order in which reasons for a last failure are tried (E4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import retry
from jobs.errors import Invalid
from jobs.retry import Again, Budget, Over, RetryPolicy, TooManyReleases

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
S = retry.SECOND
FRESH = Budget(
    max_attempts=5,
    base_delay_us=5 * S,
    max_delay_us=300 * S,
    retry_on=None,
    failures=0,
    lapses=0,
    releases=0,
    interruptions=0,
    lapse_counts=True,
    max_lapses=10,
    deadline_at=None,
)


def budget(**changes: Any) -> Budget:
    return replace(FRESH, **changes)


def failed(b: Budget, code: str = "attempt_error", retryable: bool = True, jitter: float = 1.0) -> retry.Decision:
    return retry.after_failure(b, code, retryable, NOW, jitter)


delays = st.tuples(st.integers(1, 10**12), st.integers(1, 10**12)).map(sorted)
counts = st.integers(1, 10_000)


@given(counts, delays, st.floats(0, 1))
def test_a_wait_lies_between_half_and_the_whole_of_the_doubled_delay(n: int, delay: list[int], jitter: float) -> None:
    """C16: min(max, base x 2^(n-1)), jittered to [half, whole], for n from 1 to 10,000."""
    base, most = delay
    whole = min(most, base * 2 ** (n - 1))
    wait = retry.backoff_us(n, base, most, jitter)
    assert whole <= 2 * wait
    assert wait <= whole


@given(counts, delays)
def test_the_jitter_reaches_both_ends_and_is_clamped(n: int, delay: list[int]) -> None:
    """C16: 0 is half, 1 is the whole, and what lies outside counts as the end."""
    base, most = delay
    whole = min(most, base * 2 ** (n - 1))
    assert retry.backoff_us(n, base, most, 1.0) == retry.backoff_us(n, base, most, 7.0) == whole
    assert retry.backoff_us(n, base, most, 0.0) == retry.backoff_us(n, base, most, -3.0) == whole - whole // 2


@given(st.integers(1, 9_999), delays, st.floats(0, 1))
def test_waits_never_fall_with_the_failures_and_never_pass_the_maximum(n: int, delay: list[int], jitter: float) -> None:
    """C16: monotone in n at the same jitter."""
    assert retry.backoff_us(n, *delay, jitter) <= retry.backoff_us(n + 1, *delay, jitter) <= delay[1]


def test_a_wait_of_the_ten_thousandth_failure_is_made_without_huge_numbers() -> None:
    """E4: integers with an early clamp; 2^9999 is never built."""
    assert retry.backoff_us(10_000, 1, 300 * S, 1.0) == 300 * S
    assert retry.backoff_us(0, 7, 300 * S, 1.0) == 7


@pytest.mark.parametrize(("n", "whole_s"), [(1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (50, 300)])
def test_the_default_policy_waits_as_the_requirement_says(n: int, whole_s: int) -> None:
    """C13: five seconds, doubling, at most five minutes."""
    assert retry.backoff_us(n, 5 * S, 300 * S, 1.0) == whole_s * S


@pytest.mark.parametrize(
    "code", ["budget_exhausted", "secret_in_diff", "duration_exceeded", "tool_refused", "_refused"]
)
def test_some_codes_are_never_retried(code: str) -> None:
    """C17, E14.11."""
    assert retry.is_terminal(code)
    assert failed(budget(), code) == Over("terminal_error")


@pytest.mark.parametrize("code", ["attempt_error", "refused", "refused_by_host", "attempt_timeout"])
def test_other_codes_are_retried(code: str) -> None:
    """C17: the suffix counts, not the word."""
    assert not retry.is_terminal(code)
    assert failed(budget(), code) == Again(5 * S, failure=True)


# Each budget is exhausted in every later way too: the first reason of E4's order must win.
LATE = NOW + timedelta(seconds=1)


@pytest.mark.parametrize(("b", "code", "retryable", "reason"), [
    (budget(max_attempts=None, deadline_at=LATE), "attempt_error", False, "terminal_error"),
    (budget(max_attempts=1, retry_on=(), deadline_at=LATE), "x_refused", True, "terminal_error"),
    (budget(max_attempts=None, deadline_at=LATE), "attempt_error", True, "retry_not_allowed"),
    (budget(max_attempts=1, retry_on=("other",), deadline_at=LATE), "attempt_error", True, "retry_not_allowed"),
    (budget(max_attempts=1, deadline_at=LATE), "attempt_error", True, "attempts_exhausted"),
    (budget(max_attempts=5, failures=4, retry_on=("attempt_error",)), "attempt_error", True, "attempts_exhausted"),
    (budget(deadline_at=LATE), "attempt_error", True, "deadline_exceeded"),
])
def test_the_reason_of_a_last_failure_is_the_first_in_order(b: Budget, code: str, retryable: bool, reason: str) -> None:
    """E4, C14, C19, C21, C24: terminal_error, retry_not_allowed, (quarantined,) attempts_exhausted, deadline."""
    assert failed(b, code, retryable) == Over(reason)


@pytest.mark.parametrize(("b", "reason", "failure"), [
    (budget(lapses=9, max_attempts=1, deadline_at=LATE), "quarantined", True),
    (budget(lapses=9, lapse_counts=False), "quarantined", False),
    (budget(lapses=0, max_lapses=1, max_attempts=None), "quarantined", False),
    (budget(lapses=1, failures=4, deadline_at=LATE), "attempts_exhausted", True),
    (budget(max_attempts=1), "attempts_exhausted", True),
    (budget(lapses=1, deadline_at=LATE), "deadline_exceeded", True),
    (budget(lapses=0, deadline_at=NOW), "deadline_exceeded", True),
])
def test_the_reason_of_a_last_lapse_is_the_first_in_order(b: Budget, reason: str, failure: bool) -> None:
    """E4, C21, C35: quarantined comes before attempts_exhausted; a lapse at the deadline counts as failing."""
    assert retry.after_lapse(b, NOW, 1.0) == Over(reason, failure)


@pytest.mark.parametrize(("b", "after_s", "failure"), [
    (budget(), 0, True),
    (budget(lapses=1, failures=1), 10, True),
    (budget(lapses=1, failures=3), 40, True),
    (budget(lapses=2, failures=2), 20, True),
    (budget(lapses=1, failures=3, lapse_counts=False), 20, False),
    (budget(lapses=1, lapse_counts=False), 5, False),
    (budget(lapses=3, lapse_counts=False), 20, False),
    (budget(lapses=0, max_attempts=None), 0, False),
    (budget(lapses=8, retry_on=("other",), max_attempts=99), 300, True),
])
def test_the_first_lapse_is_free_of_waiting_and_the_others_back_off(b: Budget, after_s: int, failure: bool) -> None:
    """E1, E4, B23: backoff counts failures; `retry_on` is not asked, lapse_counts=False or no policy use no budget."""
    assert retry.after_lapse(b, NOW, 1.0) == Again(after_s * S, failure)


@given(st.integers(1, 400), st.floats(0, 1))
def test_a_wait_that_would_reach_the_deadline_ends_the_job_instead(left_s: int, jitter: float) -> None:
    """C21: at the deadline is too late; a moment before it is not."""
    b = budget(failures=3, max_attempts=99, deadline_at=NOW + timedelta(seconds=left_s))
    wait = retry.backoff_us(4, 5 * S, 300 * S, jitter)
    decision = failed(b, jitter=jitter)
    assert decision == (Again(wait, True) if wait < left_s * S else Over("deadline_exceeded"))


def test_a_release_costs_nothing_until_there_were_too_many() -> None:
    """C32, E4, E14.13: a hundred a chain, the next is refused and never a dead letter."""
    assert retry.after_release(budget(releases=99), 7, NOW) == Again(7, failure=False)
    with pytest.raises(TooManyReleases) as refusal:
        retry.after_release(budget(releases=100), 0, NOW)
    assert refusal.value.reason_code == "too_many_releases"
    assert refusal.value.facts["retry_after_s"] > 0


def test_a_release_may_not_wait_until_the_deadline() -> None:
    """C32: before the deadline, else invalid_release."""
    b = budget(deadline_at=NOW + timedelta(seconds=10))
    assert retry.after_release(b, 10 * S - 1, NOW) == Again(10 * S - 1)
    with pytest.raises(Invalid) as refusal:
        retry.after_release(b, 10 * S, NOW)
    assert refusal.value.reason_code == "invalid_release"


def test_interruptions_are_free_up_to_a_hundred_and_then_a_failure() -> None:
    """E4, B24: the hundred-and-first uses budget."""
    assert retry.after_interruption(budget(interruptions=99), 3, NOW, 1.0) == Again(3, failure=False)
    assert retry.after_interruption(budget(interruptions=100), 3, NOW, 1.0) == Again(5 * S, failure=True)
    assert retry.after_interruption(budget(interruptions=100, max_attempts=1), 3, NOW, 1.0) == Over(
        "attempts_exhausted"
    )


def test_a_failure_that_nobody_reported_is_not_filtered() -> None:
    """E4: `retry_on` filters reported failures only, so one interruption too many does not end such a job."""
    b = budget(interruptions=100, retry_on=("rate_limited",))
    assert retry.after_interruption(b, 0, NOW, 1.0) == Again(5 * S, failure=True)


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": 2**31}, "max_attempts"),
        ({"max_attempts": None}, "max_attempts"),
        ({"base_delay_s": 0}, "base_delay_s"),
        ({"base_delay_s": -1}, "base_delay_s"),
        ({"base_delay_s": 0.0004}, "base_delay_s"),
        ({"base_delay_s": 0.000999, "max_delay_s": 1}, "base_delay_s"),
        ({"base_delay_s": float("nan")}, "base_delay_s"),
        ({"base_delay_s": "5"}, "base_delay_s"),
        ({"base_delay_s": float("inf"), "max_delay_s": float("inf")}, "base_delay_s"),
        ({"base_delay_s": 10, "max_delay_s": 9}, "max_delay_s"),
        ({"max_delay_s": 1e300}, "max_delay_s"),
        ({"max_delay_s": float("nan")}, "max_delay_s"),
        ({"retry_on": "rate_limited"}, "retry_on"),
        ({"retry_on": ('say "x"',)}, "retry_on"),
        ({"retry_on": (5,)}, "retry_on"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_and_names_its_field(given_: dict[str, Any], field: str) -> None:
    """C18: invalid_retry_policy, also for what no column could hold."""
    with pytest.raises(Invalid) as refusal:
        RetryPolicy(**given_)
    assert refusal.value.reason_code == "invalid_retry_policy"
    assert field in {fault["field"] for fault in refusal.value.faults}


def test_a_policy_names_all_its_faults_at_once() -> None:
    """C18."""
    with pytest.raises(Invalid) as refusal:
        RetryPolicy(max_attempts=0, base_delay_s=0, retry_on=("A B",))
    assert {f["field"] for f in refusal.value.faults} == {"max_attempts", "base_delay_s", "retry_on"}


def test_a_list_of_codes_is_kept_as_a_tuple() -> None:
    """C14: a setting is written with a list."""
    assert RetryPolicy(retry_on=["rate_limited"]).retry_on == ("rate_limited",)  # type: ignore[arg-type]
