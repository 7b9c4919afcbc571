"""What jobs cost: what their holders report, added up over all attempts, against the most that a request allows (C12).

A holder says what its attempt has cost so far, never a difference: what is said twice, for an answer that was lost,
counts once. Costs are facts beside the receipts: their kinds are closed (E12), so that no fold knows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from jobs import selectors
from jobs.errors import Conflict, StaleFence
from jobs.models import Key
from jobs.money import amount, shown
from jobs.outcomes import Failed
from jobs.services import runners
from jobs.store import costs as store
from jobs.store.costs import Cost
from jobs.store.sql import durable

__all__ = ["BudgetExhausted", "Cost", "check", "failing", "left", "outcome", "report", "reported"]

class BudgetExhausted(Conflict):
    """The job has cost more than it may, and has ended with that."""

    code = "budget_exhausted"


def outcome(cost: Cost) -> Failed:
    """The end of an attempt whose job has cost too much: never retried (C17)."""
    told = f"The job has cost {shown(cost.cost)} US dollars and may cost {shown(cost.most)}."
    return Failed(BudgetExhausted.code, told, retryable=False)


def report(job_id: str, fence: str, total: Decimal) -> Cost:
    """Keep what this attempt has cost so far, and what its job has with it. Durable.

    A smaller number than was said before changes nothing. Raises StaleFence.
    """
    found = durable(lambda: store.report(job_id, fence, total))
    if found is None:
        raise StaleFence()
    return found


def check(value: Any) -> None:
    """Whether this may be a cost; null and absent may. Raises Invalid invalid_cost_usd."""
    if value is not None:
        amount(value, "cost_usd", code="invalid_cost_usd")


def reported(key: Key, name: str, value: Any, *, last: bool = False) -> None:
    """A runner's word on what its assignment has cost so far; null and absent say nothing. Durable.

    Beyond what the job may cost the attempt ends with that, but for the `last` word: a completion is taken, since it is
    paid for. Raises NotFound, StaleFence, BudgetExhausted, and Invalid invalid_cost_usd.
    """
    if value is None:
        return
    total, held = amount(value, "cost_usd", code="invalid_cost_usd"), selectors.assignment(key.pk, name)
    try:
        cost = report(held.job_id, held.id, total)
    except StaleFence:
        # What follows the last word tells its repeat from one that came too late.
        if last:
            return
        raise _refusal(key, name) from None
    if cost.over and not last:
        runners.settle(key, held, outcome(cost))
        raise BudgetExhausted(outcome(cost).message)


def failing(key: Key, name: str, value: Any, said: Failed) -> Failed:
    """What a runner's failure is once its cost counts: of a job that has cost too much there is no retry (C17).

    Raises NotFound, and Invalid invalid_cost_usd.
    """
    if value is None:
        return said
    total, held = amount(value, "cost_usd", code="invalid_cost_usd"), selectors.assignment(key.pk, name)
    spent = Failed(BudgetExhausted.code, said.message, retryable=False)
    try:
        return spent if report(held.job_id, held.id, total).over else said
    except StaleFence:
        # A repeat says what ended the attempt the first time.
        return spent if held.reason_code == BudgetExhausted.code else said


def _refusal(key: Key, name: str) -> Conflict:
    now = selectors.assignment(key.pk, name)
    return BudgetExhausted(status=now.state) if now.reason_code == BudgetExhausted.code else StaleFence(
        status=now.state)


def left(job_ids: Sequence[str]) -> dict[str, Decimal]:
    """What is left of each of these jobs' maximum; those without one are left out."""
    return store.left(job_ids) if job_ids else {}
