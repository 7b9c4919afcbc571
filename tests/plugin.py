"""Starts the embedded PostgreSQL for a test run that names no database: once, in the xdist controller."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

# Hundreds of processes are started: they need not compile the same source again and again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("JOBS_DEFINITIONS", "jobsite.definitions,tests.definitions")
os.environ.setdefault("DATABASE_POOL_MAX", "40")
# Its job each minute would stand among those of a test that lasts so long.
os.environ.setdefault("LANES_WATCHDOG", "off")

_server = None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    global _server
    is_worker = hasattr(config, "workerinput")
    if not is_worker and not config.option.collectonly and not os.environ.get("DATABASE_URL"):
        from jobsite import postgres

        _server = postgres.start(Path(__file__).resolve().parents[1])


def pytest_sessionstart(session: pytest.Session) -> None:
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    # Thousands of tests and all modules: nothing of that is garbage, and looking through it costs a tenth of the run.
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server is not None:
        _server.close()


def skip(reason: str) -> None:
    """Skip for want of a tool of the machine; a failure where JOBSITE_NO_SKIPS says that all tools are there."""
    if os.environ.get("JOBSITE_NO_SKIPS"):
        pytest.fail(f"may not be skipped here: {reason}")
    pytest.skip(reason)
