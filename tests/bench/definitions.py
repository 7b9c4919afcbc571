"""The definition that stamps its start."""

from __future__ import annotations

from typing import Any

from jobs import job
from tests.bench.ticks import tick as stamp


@job("tick", isolated=False, description="Stamps its start into the bench's file.")
async def tick(run: Any, i: int) -> None:
    """Stamp."""
    stamp(i)
