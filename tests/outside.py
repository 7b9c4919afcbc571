"""Definitions that runners over HTTP execute, with bounds, stages, codecs and a publication hook."""

from __future__ import annotations

import time
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from jobs import JobError, RetryPolicy
from jobs.errors import JobsError
from jobs.registry import external
from jobs.schemas import Opaque

OPEN: dict[str, Any] = {"worker_group": "runners", "input": Opaque(), "artifact": Opaque()}
AGAIN = RetryPolicy(max_attempts=9, base_delay_s=1, max_delay_s=1)
# What the hook saw, newest last.
seen: list[Any] = []


def publish(run: Any, artifact: str, commit: Any) -> None:
    """Does what the input asks for."""
    seen.append((run.job_id, run.input, artifact))
    how = run.input["how"]
    if how == "throws":
        raise JobError("not_fresh", "it is old news")
    if how == "hangs":
        while not run.stopping:
            time.sleep(0.01)
    if how not in ("never",):
        try:
            commit()
        except JobsError as error:
            seen.append(error.reason_code)
            raise
    if how == "twice":
        commit()
    if how == "throws_after":
        raise ValueError("after the commit")
    if how == "hangs_after":
        # Until it is given up, so that its connection does not outlive the test that waits for it no longer.
        while not run.stopping:
            time.sleep(0.01)
    connections[DEFAULT_DB_ALIAS].close()


timed = external("outside-timed", timeout_s=60, stages={"read": "Reading", "write": "Writing"}, retry=AGAIN, **OPEN)
lasting = external("outside-lasting", max_duration_s=100, retry=AGAIN, **OPEN)
chained = external("outside-chained", max_duration_s=100, duration_scope="chain", retry=AGAIN, **OPEN)
exact = external("outside-exact", worker_group="runners", input=dict[str, int], artifact=Opaque())
published = external("outside-published", publish=publish, retry=AGAIN, **OPEN)
stopped = external("outside-stopped", runs=False, **OPEN)
DEFINITIONS = [timed, lasting, chained, exact, published, stopped]
