"""Deliveries run in this very process, as a worker runs them."""

from __future__ import annotations

from typing import Any

from jobs.conf import registry
from jobs.models import Delivery
from jobs.outcomes import Outcome
from jobs.routing import SYSTEM
from jobs.store.claim import Claimed
from jobs.worker.context import Run
from jobs.worker.executor import run_sync
from tests.driver import Driver, claimer
from tests.sinks import Sink

HOUSE = claimer(SYSTEM)


def allowing(settings: Any, *sinks: Sink, **more: Any) -> None:
    """A site whose callbacks may go to these over http."""
    settings.JOBS = {**settings.JOBS, "CALLBACKS": True, "CALLBACK_HTTP": True,
                     "CALLBACK_ALLOW": [f"127.0.0.1:{sink.port}" for sink in sinks], **more}


def url(sink: Sink, path: str = "/hook", scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{sink.port}{path}"


def claim(driver: Driver, slots: int = 10) -> list[Claimed]:
    return driver.claim(slots, HOUSE)


def run(job: Claimed) -> Outcome:
    """Send one; its outcome, not settled yet."""
    definition = registry().find(job.type, job.version)
    return run_sync(definition, job, Run(job, definition, "test"), "test")  # type: ignore[arg-type,return-value]


def send(driver: Driver, rounds: int = 20) -> int:
    """Send all that is due; how many were sent."""
    sent = 0
    for _ in range(rounds):
        jobs = claim(driver)
        for job in jobs:
            driver.settle(job, run(job))
        sent += len(jobs)
        if not jobs:
            return sent
    return sent


def rows_of(job_id: str) -> list[Delivery]:
    return list(Delivery.objects.filter(job_id=job_id).order_by("pk"))


def states(job_id: str) -> list[tuple[str, str]]:
    return [(row.event, row.state) for row in rows_of(job_id)]
