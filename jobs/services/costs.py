"""What jobs cost: what their holders report, added up over all attempts, against the most that a request allows (C12).

A holder says what its attempt has cost so far, never a difference: what is said twice, for an answer that was lost,
counts once. Costs are facts beside the receipts: their kinds are closed (E12), so that no fold knows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from jobs import selectors
from jobs.errors import Conflict, StaleFence
from jobs.models import Key
from jobs.money import amount, shown
from jobs.outcomes import Failed
from jobs.selectors import Assignment
from jobs.services import runners
from jobs.store import costs as store
from jobs.store.costs import Cost
from jobs.store.sql import durable

__all__ = ["BudgetExhausted", "Cost", "end", "failing", "keep", "last_word", "left", "outcome", "read", "refusal",
           "report"]


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
    return durable(lambda: keep(job_id, fence, total))


def keep(job_id: str, fence: str, total: Decimal) -> Cost:
    """The same in the present transaction. Raises StaleFence."""
    found = store.report(job_id, fence, total)
    if found is None:
        raise StaleFence()
    return found


def read(value: Any) -> Decimal | None:
    """A cost as a runner says it; null and absent say nothing. Raises Invalid invalid_cost_usd."""
    return None if value is None else amount(value, "cost_usd", code="invalid_cost_usd")


def last_word(key: Key, name: str, total: Decimal | None) -> None:
    """What an assignment has cost once it is complete, which is taken, since it is paid for. Durable. Raises NotFound.

    What follows tells its repeat from one that came too late.
    """
    if total is not None:
        held = selectors.assignment(key.pk, name)
        with suppress(StaleFence):
            report(held.job_id, held.id, total)


def end(key: Key, held: Assignment, cost: Cost) -> None:
    """Beyond what its job may cost an attempt ends with that. Raises BudgetExhausted, if so."""
    if cost.over:
        runners.settle(key, held, outcome(cost))
        raise BudgetExhausted(outcome(cost).message)


def failing(key: Key, name: str, value: Any, said: Failed) -> Failed:
    """What a runner's failure is once its cost counts: of a job that has cost too much there is no retry (C17).

    Raises NotFound, and Invalid invalid_cost_usd.
    """
    if (total := read(value)) is None:
        return said
    held = selectors.assignment(key.pk, name)
    spent = Failed(BudgetExhausted.code, said.message, retryable=False)
    try:
        return spent if report(held.job_id, held.id, total).over else said
    except StaleFence:
        # A repeat says what ended the attempt the first time.
        return spent if held.reason_code == BudgetExhausted.code else said


def refusal(ended: Assignment) -> BudgetExhausted | None:
    """What the holder of an attempt that has ended by its cost is told; None: it has not."""
    return BudgetExhausted(status=ended.state) if ended.reason_code == BudgetExhausted.code else None


def left(job_ids: Sequence[str]) -> dict[str, Decimal]:
    """What is left of each of these jobs' maximum; those without one are left out."""
    return store.left(job_ids) if job_ids else {}
