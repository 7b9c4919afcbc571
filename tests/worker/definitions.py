"""Handlers that misbehave, wait to be told, or look at what they were given."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from jobs import JobError, RetryPolicy, job
from jobs.errors import JobsError
from tests.definitions import trace

ONCE = {"isolated": False, "retry": None}


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def deep(n: int = 0) -> int:
    return deep(n + 1) + 1


def misbehave(kind: str) -> Any:
    """Ends as `kind` says."""
    match kind:
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "recursion":
            deep()
        case "unshowable":
            raise Unshowable
        case "large":
            raise ValueError("x" * 20_000_000)
        case "group":
            raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("inner", [KeyError("two")])])
        case "text":
            raise ValueError("nul \x00 and surrogate \ud800 end")
        case "code":
            raise JobError("source_changed", "as told", retryable=False)
        case "forged":
            error = JobError("fine")
            error.message, error.reason_code, error.retryable = 5, None, "x"  # type: ignore[assignment]
            raise error
        case "generator":
            raise GeneratorExit
        case "stop_iteration":
            raise StopIteration
    raise AssertionError(kind)


@job("misbehaves", **ONCE)
def misbehaves(run: Any, kind: str) -> None:
    """In a thread."""
    misbehave(kind)


@job("misbehaves-async", **ONCE)
async def misbehaves_async(run: Any, kind: str) -> None:
    """On the loop."""
    await asyncio.sleep(0)
    misbehave(kind)


@job("exits-beside", **ONCE)
async def exits_beside(run: Any, kind: str) -> None:
    """In a task of its own, from where SystemExit leaves through the loop."""
    await asyncio.gather(asyncio.create_task(misbehaves_async(run, kind)))


def value(kind: str) -> Any:
    if kind == "nested":
        found: list = []
        for _ in range(100_000):
            found = [found]
        return found
    return {"object": object(), "large": "x" * 300_000, "surrogate": "\ud800", "number": 5, "nan": float("nan")}[kind]


@job("returns", isolated=False)
def returns(run: Any, kind: str) -> str:
    """What no artifact can be."""
    return value(kind)  # type: ignore[no-any-return]


@job("returns-async", isolated=False)
async def returns_async(run: Any, kind: str) -> str:
    """The same on the loop."""
    return value(kind)  # type: ignore[no-any-return]


@job("gated", isolated=False, lease_s=3)
async def gated(run: Any, path: str, gate: str) -> str:
    """Ends once the file `gate` is there."""
    trace(path, f"start {run.claims} {os.getpid()}")
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    trace(path, f"end {run.claims} {os.getpid()}")
    return "done"


@job("gated-thread", isolated=False, lease_s=3)
def gated_thread(run: Any, path: str, gate: str) -> str:
    """The same in a thread, deaf to its stop."""
    trace(path, f"start {run.claims} {os.getpid()}")
    while not Path(gate).exists():
        time.sleep(0.02)
    trace(path, f"end {run.claims} {os.getpid()}")
    return "done"


@job("deaf", timeout_s=0.4, **ONCE)
async def deaf(run: Any, path: str, gate: str) -> str:
    """Swallows its cancellation."""
    trace(path, "start")
    while not Path(gate).exists():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            trace(path, "cancelled")
    trace(path, "end")
    return "late"


@job("deaf-thread", timeout_s=0.4, **ONCE)
def deaf_thread(run: Any, path: str, gate: str) -> str:
    """Ignores its timeout."""
    trace(path, "start")
    while not Path(gate).exists():
        time.sleep(0.02)
    trace(path, "end")
    return "late"


@job("checks-late", timeout_s=0.4, **ONCE)
async def checks_late(run: Any) -> None:
    """Swallows its cancellation and stops by asking."""
    while True:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            run.check()


@job("attentive", isolated=False, lease_s=3)
async def attentive(run: Any, path: str) -> None:
    """Tells when its cancellation came."""
    trace(path, "start")
    try:
        await asyncio.sleep(60)
    finally:
        trace(path, f"stopped {run.stop_reason} {time.time()}")


@job("attentive-thread", isolated=False, lease_s=3)
def attentive_thread(run: Any, path: str) -> None:
    """The same in a thread."""
    trace(path, "start")
    run.wait(60)
    trace(path, f"stopped {run.stop_reason} {time.time()}")
    run.check()


@job("blocks", isolated=False, lease_s=3)
async def blocks(run: Any, seconds: float, path: str = "") -> str:
    """Blocks the loop."""
    trace(path, f"start {run.claims}")
    time.sleep(seconds)
    return "done"


@job("stamps", isolated=False)
async def stamps(run: Any) -> float:
    """When it ran."""
    return time.time()


@job("leaves", **ONCE)
def leaves(run: Any, what: str) -> str:
    """Leaves its database connection in some state."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    match what:
        case "open":
            transaction.atomic().__enter__()
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE left_behind ()")
        case "manual":
            transaction.set_autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE left_behind ()")
        case "closed":
            connection.close()
        case "broken":
            connection.connection.close()
        case "aborted":
            transaction.atomic().__enter__()
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
    return what


@job("looks", isolated=False, retry=None)
def looks(run: Any) -> bool:
    """Whether a handler finds its connection as new."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_class WHERE relname = 'left_behind'")
        return cursor.fetchone() is None


@job("asks-async", isolated=False, retry=RetryPolicy(max_attempts=3, base_delay_s=1, max_delay_s=1))
async def asks_async(run: Any) -> int:
    """Reads the database as async code does."""
    from jobs.models import Job

    return await Job.objects.acount()


def _hook(run: Any, artifact: str, commit: Any) -> None:
    mode, path = run.input["mode"], run.input["path"]
    if mode == "late":
        # Outlives its timeout, and tries all the same.
        while not run.stopping:
            time.sleep(0.01)
    if mode == "waits":
        trace(path, "waits")
        while not Path(f"{path}.go").exists():
            time.sleep(0.01)
    if mode == "after":
        _kept.append(commit)
        return
    if mode != "never":
        commit()
        trace(path, "committed")
    if mode == "hangs":
        run.wait(3)
        trace(path, f"stopping {run.stopping}")
    if mode == "twice":
        try:
            commit()
        except JobsError as error:
            trace(path, error.reason_code)
            raise
    if mode == "throws":
        raise ValueError("after the commit")


_kept: list[Any] = []


@job("published", publish=_hook, timeout_s=5, **ONCE)
async def published(run: Any, mode: str, path: str = "") -> str:
    """Settled by its hook, from the loop."""
    return mode


@job("published-thread", publish=_hook, timeout_s=1, **ONCE)
def published_thread(run: Any, mode: str, path: str = "") -> str:
    """Settled by its hook, in a thread."""
    return mode


@job("hands-on", isolated=False)
async def hands_on(run: Any) -> None:
    """Leaves a thread that nobody can end."""
    await asyncio.to_thread(time.sleep, 60)


@job("typed", isolated=False)
async def typed(run: Any, count: int) -> int:
    """Takes a number."""
    return count


@job("odd-group", isolated=False, worker_group="chat")
async def odd_group(run: Any) -> None:
    """Of another group."""


@job("queries", **ONCE)
def queries(run: Any, breaks: bool) -> int:
    """Opens a cursor, and perhaps raises with a transaction open."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        if breaks:
            raise JobError("as_told", "as told", retryable=False)
        return int(cursor.fetchone()[0])


@job("patient", isolated=False)
def patient(run: Any, seconds: float) -> bool:
    """Waits, with the site's lease."""
    return bool(run.wait(seconds))


@job("obeys", **ONCE)
async def obeys(run: Any, path: str, count: int = 1) -> list[str]:
    """Waits on the loop to be told something so often: what, and when it heard of it."""
    trace(path, f"start {run.claims}")
    read: list[str] = []
    while len(read) < count:
        for command in await run.acommands(30):
            read.append(f"{command.kind} {command.payload['n']} {time.time()}")
            await sync_to_async(run.consume)(command)
        run.check()
    return read


def obey(run: Any, path: str, count: int) -> list[str]:
    """The same where it may block."""
    trace(path, f"start {run.claims}")
    read: list[str] = []
    while len(read) < count:
        for command in run.commands(30):
            read.append(f"{command.kind} {command.payload['n']} {time.time()}")
            run.consume(command)
        run.check()
    return read


@job("obeys-thread", **ONCE)
def obeys_thread(run: Any, path: str, count: int = 1) -> list[str]:
    """In a thread."""
    return obey(run, path, count)
