"""Jobs of the crash grid: each cell has a worker group of its own, so that its armed worker takes its job alone."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from django.contrib.auth.models import Group

from jobs import JobError, RetryPolicy, failpoints, job
from jobs.registry import external
from jobs.schemas import Opaque
from tests.crash.grid import GROUPS
from tests.crash.recorder import record

SOON = RetryPolicy(max_attempts=5, base_delay_s=0.05, max_delay_s=0.05)
# Longer than a second, so that the first heartbeat comes within.
LONG_S = 1.6


def _note(run: Any, path: str, what: str) -> None:
    record(path, what=what, job=run.job_id, claims=run.claims)


def _hook(run: Any, artifact: str, commit: Any) -> None:
    _note(run, run.input["path"], "publish")
    commit()
    _note(run, run.input["path"], "published")


def _told(end: Any) -> None:
    record(end.input["path"], what="told", job=end.job_id, claims=0)


def _group(n: int) -> list[Any]:
    options: dict[str, Any] = {"worker_group": f"crash{n}", "isolated": False, "retry": SOON}

    @job(f"quick-{n}", **options)
    async def quick(run: Any, path: str) -> str:
        """On the loop."""
        _note(run, path, "start")
        await asyncio.sleep(0)
        _note(run, path, "end")
        return "done"

    @job(f"slow-{n}", **options)
    def slow(run: Any, path: str) -> str:
        """In a thread, long enough for a heartbeat."""
        _note(run, path, "start")
        failpoints.at("test.handler")
        time.sleep(LONG_S)
        _note(run, path, "end")
        return "done"

    @job(f"publishing-{n}", publish=_hook, **options)
    def publishing(run: Any, path: str) -> str:
        """Settled by its publication hook."""
        _note(run, path, "start")
        _note(run, path, "end")
        return "done"

    @job(f"atomic-{n}", atomic=True, **options)
    def atomic(run: Any, path: str) -> str:
        """Its row of the domain commits with its end."""
        _note(run, path, "start")
        Group.objects.create(name=run.job_id)
        _note(run, path, "end")
        return "done"

    @job(f"told-{n}", on_ended=_told, **options)
    async def told(run: Any, path: str) -> str:
        """Its definition is told of its end."""
        _note(run, path, "start")
        _note(run, path, "end")
        return "done"

    @job(f"obeying-{n}", **options)
    def obeying(run: Any, path: str) -> str:
        """Deals with what it is told; a command whose consumption was not committed is there again."""
        from jobs.services import commands

        _note(run, path, "start")
        run.consume(*run.commands())
        assert not commands.unread([run.job_id])
        _note(run, path, "end")
        return "done"

    @job(f"spending-{n}", **options)
    def spending(run: Any, path: str) -> str:
        """Fails once, and has one retry."""
        _note(run, path, "start")
        if run.claims < 2:
            raise ValueError("the first time it fails")
        _note(run, path, "end")
        return "done"

    @job(f"apart-{n}", worker_group=f"apart{n}", retry=SOON)
    def apart(run: Any, path: str) -> str:
        """In an isolated child."""
        _note(run, path, "start")
        failpoints.at("test.handler")
        _note(run, path, "end")
        return "done"

    outside = external(f"outside-{n}", worker_group=f"outside{n}", input=Opaque(), artifact=Opaque(), retry=SOON)
    return [quick, slow, publishing, atomic, told, obeying, spending, apart, outside]


STORM: dict[str, Any] = {
    "worker_group": "storm", "isolated": False, "retry": RetryPolicy(max_attempts=50, base_delay_s=0.05,
                                                                    max_delay_s=0.2), "max_lapses": 100}


def _fate(run: Any, mode: str) -> None:
    if mode == "flaky" and run.claims < 2:
        raise ValueError("the first time it fails")
    if mode == "terminal":
        raise JobError("payment_refused", "for good", retryable=False)


@job("storm", **STORM)
async def storm(run: Any, path: str, mode: str, seconds: float) -> str:
    """On the loop."""
    _note(run, path, "start")
    await asyncio.sleep(seconds)
    _fate(run, mode)
    _note(run, path, "end")
    return mode


@job("storm-thread", **STORM)
def storm_thread(run: Any, path: str, mode: str, seconds: float) -> str:
    """In a thread."""
    _note(run, path, "start")
    run.wait(seconds)
    run.check()
    _fate(run, mode)
    _note(run, path, "end")
    return mode


@job("storm-apart", **{**STORM, "isolated": True})
def storm_apart(run: Any, path: str, mode: str, seconds: float) -> str:
    """In an isolated child, which may die."""
    _note(run, path, "start")
    if mode == "flaky" and run.claims < 2:
        os._exit(9)
    run.wait(seconds)
    run.check()
    _fate(run, mode)
    _note(run, path, "end")
    return mode


DEFINITIONS = [definition for n in range(GROUPS) for definition in _group(n)]
DEFINITIONS += [storm, storm_thread, storm_apart]
