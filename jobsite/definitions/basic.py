"""Definitions that every site has a use for."""

from __future__ import annotations

from typing import Any

from jobs import job


@job("noop", isolated=False, description="Does nothing, as fast as it can: for benchmarks and for trying a worker out.")
async def noop(run: Any) -> None:
    """Nothing."""
