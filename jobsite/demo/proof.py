"""That nothing was lost and nothing is made up: every chain of receipts holds, and folding it gives the row (E12)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from jobs.models import Job
from jobs.services import verifying
from jobs.states import State


def faults(ids: Sequence[str | uuid.UUID]) -> list[str]:
    """A sentence for each of these jobs that is missing, told otherwise by its receipts, or not completed."""
    found = {f.job: f"job {f.job}: {f.said}" for f in verifying.faults([str(id_) for id_ in ids])}
    for job_id, state in Job.objects.filter(pk__in=ids).exclude(state=State.COMPLETED).values_list("pk", "state"):
        found.setdefault(str(job_id), f"job {job_id}: it is {state}, not completed")
    return list(found.values())
