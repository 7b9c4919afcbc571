"""Workers that are always ended, the definitions of these tests, and looking at jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.models import Attempt, Job
from jobs.services import intake
from jobs.services.intake import Request
from tests.driver import check
from tests.worker.processes import DEFINITIONS, ISOLATED, Process, start_worker, until


@pytest.fixture(autouse=True)
def _definitions(settings: Any) -> None:
    # Jobs get their spans when they are enqueued, so the enqueuing side has the workers' settings.
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": DEFINITIONS.split(","), "LEASE_S": 3.0, "RECOVERY_GRACE_S": 1.0,
                     "DRAIN_GRACE_S": 1.0}


@pytest.fixture
def workers(database: None) -> Iterator[Callable[..., Process]]:
    """Starts workers; each is ready when it is given, and dead when the test ends. What they moved is checked."""
    started: list[Process] = []

    def start(*flags: str, ready: bool = True, **options: Any) -> Process:
        started.append(start_worker(*flags, **options))
        return started[-1].wait_ready() if ready else started[-1]

    yield start
    for process in started:
        if process._process.poll() is None:
            process.signal(signal.SIGCONT)
        process.kill()
    for job_id, in Job.objects.values_list("id")[:50]:
        check(job_id)


@pytest.fixture
def isolating(workers: Callable[..., Process], settings: Any) -> Callable[..., Process]:
    """Starts workers that have isolated definitions, and so children."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ISOLATED.split(",")}

    def start(*flags: str, env: dict[str, str] | None = None, **options: Any) -> Process:
        return workers(*flags, env={"JOBS_DEFINITIONS": ISOLATED, **(env or {})}, **options)

    return start


class Jobs:
    """Enqueues and looks."""

    def add(self, type_: str, **input_: Any) -> str:
        return intake.enqueue(type_, input_).id

    def add_many(self, type_: str, count: int, **input_: Any) -> list[str]:
        return [a.id for a in intake.enqueue_many([Request(type_, input_) for _ in range(count)])]

    def get(self, job_id: str) -> Job:
        return Job.objects.get(pk=job_id)

    def state(self, job_id: str) -> str:
        return Job.objects.values_list("state", flat=True).get(pk=job_id)

    def wait(self, job_id: str, *states: str, seconds: float = 15) -> Job:
        until(lambda: self.state(job_id) in states, seconds)
        return self.get(job_id)

    def wait_all(self, state: str, count: int, seconds: float = 30) -> None:
        until(lambda: Job.objects.filter(state=state).count() == count, seconds)

    def attempts(self, job_id: str) -> list[Attempt]:
        return list(Attempt.objects.filter(job_id=job_id).order_by("number"))

    def outcomes(self, job_id: str) -> list[str | None]:
        return [a.outcome for a in self.attempts(job_id)]


@pytest.fixture
def jobs(database: None) -> Jobs:
    return Jobs()
