"""RELIABILITY 5.5: a crash at every named place leaves nothing lost, doubled or stuck. The short form of the grid,
three in eight of its cells; `python -m tests.crash --repeats 5` is the long one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import failpoints
from tests.crash import prepare
from tests.crash.database import dsn
from tests.crash.grid import CELLS, FAULTS, SHORT
from tests.crash.run import FAST, Batch
from tests.sinks import Sink
from tests.worker.processes import database_url

# Dozens of processes at once: one batch after the other, or leases run out for want of a processor.
pytestmark = pytest.mark.xdist_group("crash")


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as made:
        yield made


@pytest.fixture(autouse=True)
def _site(settings: Any, sink: Sink) -> None:
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [FAST["JOBS_DEFINITIONS"]], "LEASE_S": float(FAST["JOBS_LEASE_S"]),
                     "CALLBACKS": True, "CALLBACK_HTTP": True, "CALLBACK_ALLOW": [f"127.0.0.1:{sink.port}"]}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", SHORT)
def test_a_crash_at_every_named_place_loses_nothing(database: None, tmp_path: Path, sink: Sink, form: str) -> None:
    """I1 to I8, A2, A3, A36, E8, E14.21, case-A18: each cell ends as it was written down beforehand."""
    assert Batch(database_url(), dsn(), tmp_path, SHORT[form], prepare.api_key(), sink).run() == []


def test_every_place_of_the_source_is_in_the_grid() -> None:
    """A place that no cell visits proves nothing."""
    assert {cell.point for cell in CELLS} == failpoints.POINTS
    for point in failpoints.POINTS:
        assert {cell.fault for cell in CELLS if cell.point == point} == set(FAULTS), point


@pytest.mark.parametrize(("spec", "said"), [
    ("claim.writen=kill", "did you mean 'claim.written'"), ("claim.written=kil", "did you mean 'kill'"),
    ("claim.written", "there is no fault")])
def test_a_misspelt_failpoint_is_refused(spec: str, said: str) -> None:
    """Never silently unarmed."""
    with pytest.raises(ValueError, match=said):
        failpoints.arm(spec, {})
    failpoints.disarm()


def test_an_armed_place_fires_once_and_only_there() -> None:
    """Off unless armed."""
    failpoints.at("claim.written")
    failpoints.arm("claim.written=raise", {})
    failpoints.at("claim.found")
    with pytest.raises(failpoints.FailPoint):
        failpoints.at("claim.written")
    failpoints.at("claim.written")
