"""Definitions for tests, registered beside the site's own. Each leaves a trace that a test can read."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from jobs import JobError, RetryPolicy, job
from jobs.registry import external
from jobs.schemas import Opaque


def trace(path: str, word: str) -> None:
    """Append one line that survives the process: the only evidence the database cannot tidy away."""
    if path:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(fd, f"{word}\n".encode())
        os.fsync(fd)
        os.close(fd)


@job("echo", isolated=False)
async def echo(run: Any, value: str = "", path: str = "") -> str:
    """Answers what it was given."""
    trace(path, f"{run.job_id} {run.claims} {os.getpid()}")
    return value


@job("echo-thread", isolated=False)
def echo_thread(run: Any, value: str = "", path: str = "") -> str:
    """Answers from a thread."""
    trace(path, f"{run.job_id} {run.claims} {os.getpid()}")
    return value


@job("sleepy", isolated=False, lease_s=3)
async def sleepy(run: Any, seconds: float, path: str = "") -> float:
    """Sleeps without blocking; a line at the start and one at the end."""
    trace(path, f"start {run.job_id} {run.claims} {os.getpid()}")
    await asyncio.sleep(seconds)
    trace(path, f"end {run.job_id} {run.claims} {os.getpid()}")
    return seconds


@job("sleepy-thread", isolated=False, lease_s=3)
def sleepy_thread(run: Any, seconds: float, path: str = "") -> bool:
    """Waits in a thread until told to stop."""
    trace(path, f"start {run.job_id} {run.claims} {os.getpid()}")
    stopped: bool = run.wait(seconds)
    run.check()
    trace(path, f"end {run.job_id} {run.claims} {os.getpid()}")
    return stopped


@job("breaks", isolated=False, retry=RetryPolicy(max_attempts=2, base_delay_s=0.05, max_delay_s=0.05))
def breaks(run: Any, code: str = "", retryable: bool = True) -> None:
    """Fails as it is told."""
    if code:
        raise JobError(code, "as told", retryable=retryable)
    raise ValueError("no \x00 good \ud800")


@job("never-retried", isolated=False, retry=None)
def never_retried(run: Any) -> None:
    """Fails, and its policy is none."""
    raise ValueError("once")


@job("slow", isolated=False, timeout_s=0.3, retry=None, dead_letter=True)
async def slow(run: Any) -> None:
    """Runs into its timeout."""
    await asyncio.sleep(60)


@job("slow-thread", isolated=False, timeout_s=0.3, retry=None, dead_letter=True)
def slow_thread(run: Any) -> None:
    """Runs into its timeout in a thread."""
    run.wait(60)


@job("strict", isolated=False, strict_lease=True)
def strict(run: Any) -> None:
    """Believed within its lease only."""


@job("bounded", isolated=False, max_claims=3)
def bounded(run: Any) -> None:
    """At most three claims a chain."""


@job("staged", isolated=False, stages={"read": "Reading", "write": "Writing"})
def staged(run: Any) -> int:
    """Reports declared stages and keeps a checkpoint."""
    run.progress("read")
    run.progress("read", "completed")
    seen = run.last_checkpoint or {"runs": 0}
    run.checkpoint({"runs": seen["runs"] + 1})
    run.progress("write")
    return int(seen["runs"]) + 1


@job("touches", isolated=False)
def touches(run: Any, path: str) -> None:
    """Makes a file."""
    Path(path).touch()


outside = external("outside", worker_group="runners", input=Opaque(), artifact=Opaque())
secretive = external("secretive", worker_group="vault", input=Opaque(), artifact=Opaque(), retry=None)
disabled = external("disabled", worker_group="runners", input=Opaque(), artifact=Opaque(), enabled=False)
scheduled_only = external("scheduled-only", worker_group="runners", input=Opaque(), artifact=Opaque(),
                          origins={"scheduler"})
