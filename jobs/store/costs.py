"""What attempts have cost, written with what their jobs have: the job's row first, as everybody locks them (C12)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from jobs.store.owning import BELIEVED
from jobs.store.sql import array, packed, rows, run


class Cost(NamedTuple):
    """What a job has cost over all its attempts, and the most that it may; None: anything."""

    cost: Decimal
    most: Decimal | None

    @property
    def over(self) -> bool:
        """Whether that is too much."""
        return self.most is not None and self.cost > self.most

    @property
    def left(self) -> Decimal | None:
        """What it may still cost."""
        return None if self.most is None else max(Decimal(0), self.most - self.cost)


# What the columns hold: sums of nonsense stay there.
_LARGEST = Decimal("99999999999.999999999")
_LOCK = f"""SELECT job.cost_usd, job.max_cost_usd FROM jobs_job job WHERE job.id = %s::uuid
    AND job.attempt_id = %s::uuid AND {BELIEVED.format(fence='job.attempt_id')} FOR NO KEY UPDATE OF job"""
_SAID = "SELECT coalesce(cost_usd, 0) FROM jobs_attempt WHERE id = %s::uuid FOR NO KEY UPDATE"
_ATTEMPT = "UPDATE jobs_attempt SET cost_usd = %s WHERE id = %s::uuid AND ended_at IS NULL"
_JOB = "UPDATE jobs_job SET cost_usd = coalesce(cost_usd, 0) + %s WHERE id = %s::uuid AND attempt_id = %s::uuid"
_LEFT = f"""SELECT id::text, greatest(0, max_cost_usd - coalesce(cost_usd, 0)) FROM jobs_job
    WHERE id = ANY({array('uuid')}) AND max_cost_usd IS NOT NULL"""


def report(job_id: str, fence: str, total: Decimal) -> Cost | None:
    """Note the total of a live attempt, as far as it is more than before; what the job has cost. None: not live."""
    found = rows(_LOCK, [job_id, fence])
    if not found:
        return None
    cost, most = found[0]
    total = min(total, _LARGEST)
    more = total - rows(_SAID, [fence])[0][0]
    if more > 0 or cost is None:
        more = max(Decimal(0), min(more, _LARGEST - (cost or 0)))
        run(_ATTEMPT, [total, fence])
        run(_JOB, [more, job_id, fence])
        cost = (cost or 0) + more
    return Cost(cost, most)


def left(job_ids: Sequence[str]) -> dict[str, Decimal]:
    """What these jobs may still cost, of those that have a maximum."""
    return dict(rows(_LEFT, [packed(job_ids)]))  # type: ignore[arg-type]
