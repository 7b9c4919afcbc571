"""case-B01: workers that are killed, frozen, drained and cut off at random lose nothing. The short form;
`python -m tests.crash --storm` is the long one.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.crash.database import dsn
from tests.crash.run import FAST
from tests.crash.storm import Storm
from tests.worker.processes import database_url

# Dozens of processes at once: one batch after the other, or leases run out for want of a processor.
pytestmark = pytest.mark.xdist_group("crash")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_under_fire_lose_nothing_and_do_nothing_twice(database: None, settings: Any, tmp_path: Path) -> None:
    """I1 to I8, E14.21: every job ends as it should, whatever happens to three workers."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [FAST["JOBS_DEFINITIONS"]], "LEASE_S": float(FAST["JOBS_LEASE_S"])}
    seed = random.randrange(10**6)
    storm = Storm(database_url(), dsn(), tmp_path, jobs=200, faults=10, seed=seed)
    found = storm.run()
    assert found == [], f"seed {seed}, {dict(storm.done)}"
