"""Definitions whose attempts are bounded by a duration, and that say how it goes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from jobs import JobError, RetryPolicy, job

QUICK = RetryPolicy(max_attempts=9, base_delay_s=0.05, max_delay_s=0.05)
LONG: dict[str, Any] = {"isolated": False, "max_duration_s": 0.5, "timeout_s": 60, "retry": QUICK}


@job("lasts", **LONG)
def lasts(run: Any) -> None:
    """Goes on in a thread until it is told to stop."""
    run.checkpoint({"page": 7})
    run.wait(30)


@job("lasts-on-loop", **LONG)
async def lasts_on_loop(run: Any) -> None:
    """The same on the loop."""
    await asyncio.sleep(30)


@job("lasts-by-attempts", isolated=False, max_duration_s=1, duration_scope="chain", retry=QUICK)
def lasts_by_attempts(run: Any) -> None:
    """Each attempt is short; together they are not."""
    time.sleep(0.1)
    raise JobError("no_luck")


@job("tells", isolated=False, retry=None)
def tells(run: Any, fields: dict[str, int | str | bool], fails: bool = True) -> None:
    """Says how it goes, and fails."""
    run.diagnostic(pages=1)
    run.diagnostic(**fields)
    if fails:
        raise JobError("no_luck")


@job("tells-late", isolated=False, timeout_s=0.3, retry=None)
def tells_late(run: Any) -> None:
    """Says something in time, and something when its attempt has been settled without it."""
    run.diagnostic(pages=1)
    while not run.over:
        time.sleep(0.01)
    run.diagnostic(pages=2)


@job("tells-apart", timeout_s=1, retry=None)
def tells_apart(run: Any) -> None:
    """Says how it goes in a child, and hangs until that is killed."""
    run.diagnostic(pages=41, phase="hanging")
    while True:
        time.sleep(1)


@job("chatters", isolated=False, retry=None, stages={"read": "Reading", "write": "Writing"})
def chatters(run: Any, times: int) -> None:
    """Reports a stage for each item of its work."""
    for n in range(times):
        run.progress(("read", "write")[n % 2])
        run.progress(("read", "write")[n % 2])


@job("checkpoints-at-once", isolated=False, retry=None)
def checkpoints_at_once(run: Any, threads: int) -> list[int]:
    """Keeps a checkpoint from several threads of one handler at once."""
    numbers: list[int] = []
    start = threading.Barrier(threads)

    def keep(n: int) -> None:
        from django.db import connection

        start.wait(10)
        numbers.append(run.checkpoint({"n": n}))
        connection.close()

    all_ = [threading.Thread(target=keep, args=[n]) for n in range(threads)]
    for thread in all_:
        thread.start()
    for thread in all_:
        thread.join()
    return sorted(numbers)
