"""Two versions of one type, with everything said that a catalogue shows."""

from __future__ import annotations

from typing import Any

from jobs import RetryPolicy, job
from jobs.registry import Span


@job("report")
def report_1(run: Any) -> str:
    """As it was written once."""
    return ""


@job("report", version=2, label="Monthly report", origins={"user", "planner"}, queue="chat", max_input_bytes=100,
     max_ai_credits=40, stages={"read": "Reading", "write": "Writing"},
     retry=RetryPolicy(max_attempts=2, base_delay_s=1, max_delay_s=1, retry_on=("no_luck",)),
     lease_s=Span(lambda given: 900.0, cap_s=3_600), timeout_s="lease", max_duration_s=7_200, duration_scope="chain")
def report_2(run: Any, month: int) -> str:
    """Writes it."""
    return f"{month}"
