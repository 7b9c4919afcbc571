"""Definitions with hooks of every kind, and middleware; each leaves a trace that a test can read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.utils import DatabaseError

from jobs import Ended, JobError, RetryPolicy, job
from jobs.errors import JobsError
from tests.definitions import trace

ONCE = {"isolated": False, "retry": None}
log = logging.getLogger("myshop")


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.005)


# --- atomic ----------------------------------------------------------------------------------------------------------


def write(job_id: str, parent: int | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger (job_id, parent) VALUES (%s, %s)", [job_id, parent])


def misuse(mode: str) -> None:
    """What no handler should do to its transaction."""
    match mode:
        case "raises":
            raise JobError("out_of_stock", "as told")
        case "exits":
            raise SystemExit(3)
        case "leaves_open":
            transaction.atomic().__enter__()
        case "closes":
            connection.close()
        case "aborts":
            with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        case "breaks":
            with contextlib.suppress(ValueError), transaction.atomic(savepoint=False):
                raise ValueError
        case "commits":
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
        case "autocommit":
            transaction.set_autocommit(True)


def fail() -> None:
    raise ZeroDivisionError("in a hook of the commit")


@job("books", timeout_s=60, lease_s=3, atomic=True, **ONCE)
def books(run: Any, mode: str = "", path: str = "", gate: str = "") -> str:
    """Writes to the ledger, then does as it is told."""
    if mode == "parentless":
        write(run.job_id, parent=99)
        return mode
    write(run.job_id)
    misuse(mode)
    trace(path, "written")
    if mode == "on_commit":
        transaction.on_commit(fail)
        transaction.on_commit(lambda: trace(path, f"committed {run.settled}"))
    if mode == "exits_on_commit":
        transaction.on_commit(sys.exit)
    if mode == "hangs_on_commit":
        transaction.on_commit(lambda: (trace(path, "committed"), wait_for(gate)))
    elif gate:
        wait_for(gate)
    return 5 if mode == "artifact" else mode  # type: ignore[return-value]


def _book_hook(run: Any, artifact: str, commit: Any) -> None:
    mode = run.input["mode"]
    if mode != "never":
        commit()
    if mode == "twice":
        commit()
    if mode == "throws":
        raise ValueError("after the commit")
    if mode == "breaks":
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT 1/0")


@job("published-books", atomic=True, publish=_book_hook, **ONCE)
def published_books(run: Any, mode: str = "") -> str:
    """The hook's commit settles in the transaction of the handler."""
    write(run.job_id)
    return mode


# --- publication -----------------------------------------------------------------------------------------------------


def _slow_hook(run: Any, artifact: str, commit: Any) -> None:
    path, gate, before = run.input["path"], run.input["gate"], run.input["before"]
    if before:
        commit()
    trace(path, "in the hook")
    wait_for(gate)
    try:
        commit()
    except JobsError as error:
        trace(path, error.reason_code)


@job("slow-hook", publish=_slow_hook, **ONCE)
async def slow_hook(run: Any, path: str, gate: str, before: bool = False) -> str:
    """On the loop."""
    return "x"


@job("slow-hook-thread", publish=_slow_hook, **ONCE)
def slow_hook_thread(run: Any, path: str, gate: str, before: bool = False) -> str:
    """In a thread."""
    return "x"


# --- on_ended --------------------------------------------------------------------------------------------------------


def told(ended: Ended) -> None:
    """Notes what it was told; may fail the first time, or hang in the middle."""
    path, how = ended.input["path"], ended.input["how"]
    trace(path, f"told {ended.job_id} {ended.state.value} {ended.reason} {ended.chain} {ended.artifact} {ended.tenant}")
    if how == "fails_first" and Path(path).read_text().count("told") == 1:
        raise ValueError("not yet")
    if how == "hangs":
        wait_for(f"{path}.go")
    if how == "follows":
        from jobs import enqueue

        enqueue("echo", {"value": str(ended.artifact)}, idempotency_key=f"answer:{ended.job_id}:{ended.chain}")


@job("watched", isolated=False, on_ended=told, retry=RetryPolicy(max_attempts=1, base_delay_s=1, max_delay_s=1))
async def watched(run: Any, path: str = "", how: str = "", fails: bool = False) -> str:
    """Its ends are told."""
    if fails:
        raise JobError("as_told", retryable=False)
    return "evidence"


async def told_async(ended: Ended) -> None:
    """The same on a loop."""
    from jobs.models import Job

    await asyncio.sleep(0)
    found = await Job.objects.aget(pk=ended.job_id)
    trace(ended.input["path"], f"told {ended.job_id} {found.state}")


@job("watched-async", isolated=False, on_ended=told_async)
def watched_async(run: Any, path: str) -> None:
    """Its ends are told to a coroutine function."""


# --- middleware ------------------------------------------------------------------------------------------------------

depth: ContextVar[tuple[str, ...]] = ContextVar("depth", default=())


@contextlib.contextmanager
def span(run: Any) -> Iterator[None]:
    """The outer one: sets a contextvar and reports what goes through it."""
    token = depth.set((*depth.get(), "span"))
    path = run.input.get("path", "")
    trace(path, "enter span")
    try:
        yield
    except BaseException as error:
        trace(path, f"span saw {type(error).__name__}")
        raise
    finally:
        trace(path, "leave span")
        depth.reset(token)


@contextlib.contextmanager
def inner(run: Any) -> Iterator[None]:
    """The inner one: swallows or raises where the job's input says so."""
    depth.set((*depth.get(), "inner"))
    how = run.input.get("how", "")
    if how == "refused":
        raise JobError("not_today", "said a middleware", retryable=False)
    if how == "swallowed":
        with contextlib.suppress(ValueError):
            yield
        return
    if how == "swallowed_all":
        with contextlib.suppress(BaseException):
            yield
        return
    yield
    if how == "spoilt":
        raise JobError("spoilt_at_the_end", retryable=False)


def _within(path: str, how: str) -> str:
    trace(path, "run " + ",".join(depth.get()))
    if how.startswith("swallowed"):
        raise ValueError("boom")
    return how


@job("spanned", **ONCE)
async def spanned(run: Any, path: str = "", how: str = "") -> str:
    """On the loop."""
    return _within(path, how)


@job("spanned-thread", **ONCE)
def spanned_thread(run: Any, path: str = "", how: str = "") -> str:
    """In a thread."""
    return _within(path, how)


@job("spanned-books", atomic=True, **ONCE)
def spanned_books(run: Any, path: str = "", how: str = "") -> str:
    """In a transaction."""
    write(run.job_id)
    return _within(path, how)


# --- logs ------------------------------------------------------------------------------------------------------------


def chatter(how: str) -> None:
    log.debug("too fine to keep")
    log.info("looking at %s", "the shelf", extra={"shelf": 4, "api_key": "hunter2", "deep": {"password": "hunter2"}})
    log.warning("nul \x00 surrogate \ud800 bell \x07")
    if how == "many":
        for n in range(300):
            log.info("line %d", n)
    if how == "extra":
        log.info("own words", extra={"job": "mine", "type": "mine", "event": "mine", "level": "mine"})
    try:
        raise ValueError("inside")
    except ValueError:
        log.exception("went wrong")


@job("chats", timeout_s=0.6, **ONCE)
async def chats(run: Any, how: str = "") -> None:
    """On the loop, and in a thread that it asks for."""
    chatter(how)
    await asyncio.to_thread(log.info, "from a thread of %s", run.claims)
    if how == "hangs":
        await asyncio.sleep(60)
    if how == "fails":
        raise ValueError("failed")


@job("chats-thread", **ONCE)
def chats_thread(run: Any, how: str = "") -> None:
    """In a thread."""
    chatter(how)


@job("silent", logs=False, **ONCE)
def silent(run: Any) -> None:
    """Keeps nothing."""
    log.info("only on the stream")
