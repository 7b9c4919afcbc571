"""What a question about a job is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Func, Value

from jobs.models import Attempt, AttemptCap, ClaimLine, Job
from jobs.services import standing
from jobs.services.standing import Standing

# As people read it, as wherever the console is exact.
MOMENT = "%Y-%m-%d %H:%M:%S UTC"
# So many of those who hold a place are named in data, so many in a sentence.
NAMED, SAID = 10, 3


@dataclass(frozen=True, slots=True)
class Blocker:
    """A reason, by a stable code, in words, and by its numbers as plain JSON values.

    `duty` is the periodic duty that ends this state of things by itself.
    """

    code: str
    said: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    duty: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The numbers beside code and message."""
        return {"code": self.code, "message": self.said, **self.facts}


@dataclass(frozen=True)
class Asked:
    """The job as it was read, the moment, and who asks: someone of this tenant alone, or (None) an operator.

    A tenant is told nothing that another one owns: no ids, no counts, no names of the house's machines.
    """

    job: Job
    now: datetime
    tenant_id: int | None = None

    @property
    def everything(self) -> bool:
        """Whether who asks may see the whole site."""
        return self.tenant_id is None

    @cached_property
    def stands(self) -> Standing | None:
        """Where it stands, looked up once."""
        return standing.of(self.job, self.now)

    @cached_property
    def lines(self) -> list[str | None]:
        """What its tenant's line in its queue is put aside for, looked up once; empty where there is no line."""
        mine = ClaimLine.objects.filter(worker_group=self.job.worker_group, queue=self.job.queue,
                                        tenant_id=self.job.tenant_id)
        return list(mine.values_list("parked", flat=True))


class Holding(NamedTuple):
    """How many hold a place under a cap, and the first NAMED of their jobs with their tenants, the oldest first."""

    used: int
    jobs: list[tuple[str, int]]

    def ids(self, asked: Asked) -> list[str]:
        """The jobs that who asks may know of."""
        return [id_ for id_, tenant in self.jobs if asked.everything or tenant == asked.tenant_id]


def holding(cap_name: str) -> Holding:
    """Who counts under a cap, as the claim counts: live attempts by the cap's key."""
    counted = AttemptCap.objects.filter(cap_key=Func(Value(cap_name), Value(0), function="hashtextextended"))
    oldest = Attempt.objects.filter(pk__in=counted.values("attempt_id"), ended_at=None).order_by("leased_at")
    found = list(oldest.values_list("job_id", "job__tenant_id")[:NAMED])
    return Holding(counted.count(), [(str(id_), tenant) for id_, tenant in found])


def before_it(ids: list[str]) -> str:
    """The first few of those who hold what a job waits for."""
    more = len(ids) - SAID
    return ", ".join(ids[:SAID]) + (f" and {more} more" if more > 0 else "")
