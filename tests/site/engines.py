"""Engines for tests of the example runner: they leave traces, and wait for files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from jobsite.examples.engines import ENGINES as SHIPPED
from jobsite.examples.holding import Work

FOLDER = Path(os.environ.get("RUNNER_TRACES", "/nonexistent"))


def halves(work: Work) -> dict[str, Any]:
    """Does half, keeps that, and ends once it is let; a successor goes on from there."""
    if work.last_checkpoint is None:
        work.checkpoint({"step_id": "half"})
        (FOLDER / "half").touch()
        while not (FOLDER / "go").exists():
            work.check()
            time.sleep(0.02)
        return {"summary": "in one go"}
    return {"summary": f"resumed after {work.last_checkpoint['step_id']} by attempt {work.attempt}"}


ENGINES = {**SHIPPED, "factory.task.run": halves}
