"""The slots of a worker: starting attempts on the loop, in threads or in children, stopping them, collecting ends.

A handler of ours that does not stop keeps its slot, but not its attempt: that is settled without it, and what it
brings later is dropped. An isolated one is killed, and its attempt ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from jobs import clock
from jobs.callbacks import DELIVERY_TYPE
from jobs.outcomes import Failed, Interrupted
from jobs.registry import Definition
from jobs.services.assignments import Claimed
from jobs.worker.away import Away
from jobs.worker.children import Children
from jobs.worker.context import Run
from jobs.worker.executor import Published, Result, run_async, run_sync
from jobs.worker.process import Child
from jobs.worker.threads import Threads

log = logging.getLogger("jobs.worker")
FIRST_AFTER_S = 1.0
# Deliveries wait for strangers, so they run beside the slots: from so many on no more are claimed.
SENDING = 8
NO_THREAD = Interrupted("no_thread", 1_000_000)


class Live:
    """One attempt that is running here."""

    __slots__ = ("begun", "child", "ended", "first_at", "isolated", "job", "refused", "run", "task", "threaded", "told",
                 "verdict", "verdict_at")

    def __init__(self, job: Claimed, run: Run, threaded: bool, isolated: bool = False) -> None:
        self.job = job
        self.run = run
        self.threaded = threaded
        self.isolated = isolated
        # Where it runs, once an isolated one does; the pool's own.
        self.child: Child | None = None
        self.begun = clock.monotonic()
        # When its first heartbeat is due (E1); never again once it is recorded.
        self.first_at = self.begun + FIRST_AFTER_S
        # Whether that first one was refused (A35, A39).
        self.refused = False
        self.task: asyncio.Task[None] | None = None
        # What a stop means, should the handler honour it: decided by who asked for the stop.
        self.verdict: Result | None = None
        self.verdict_at = math.inf
        self.ended = False
        self.told = False

    def meant(self, result: Result) -> Result:
        """What an end means after a stop: output after a timeout is nothing (B26), else work that was done counts."""
        if self.verdict is None or isinstance(result, Published):
            return result
        return self.verdict if isinstance(self.verdict, Failed) or isinstance(result, Interrupted) else result


class Slots:
    """Runs attempts; `ended` collects (live, result) pairs, and `on_end` is called when there are some."""

    def __init__(self, size: int, by: str, on_end: Callable[[], None]) -> None:
        self.size = size
        self.by = by
        self.live: dict[str, Live] = {}
        # Of these and the stuck ones the deliveries, which take nobody's slot.
        self._sending: set[str] = set()
        self.ended: deque[tuple[Live, Result]] = deque()
        # Attempts that were settled without their handlers, which still run.
        self.stuck: dict[str, Live] = {}
        self.loop_seen = clock.monotonic()
        self._on_end = on_end
        self._guard = threading.Lock()
        # The claim that takes the last delivery may bring one a free slot.
        self._threads = Threads(2 * size + SENDING, "job")
        self.children = Children(size, by, self._end)
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._run_loop, name="jobs-loop", daemon=True)
        self._loop_thread.start()

    @property
    def free(self) -> int:
        """Slots that can take a job; a handler that ignores its end keeps its slot."""
        return self.size - len(self.live) - len(self.stuck) + len(self._sending)

    @property
    def sends(self) -> bool:
        """Whether more deliveries may be taken."""
        return len(self._sending) < SENDING

    def begin(self, jobs: Iterable[tuple[Claimed, Definition]]) -> None:
        """Start these attempts."""
        on_loop: list[tuple[Live, Definition]] = []
        for job, definition in jobs:
            if definition.executor == "isolated":
                self._in_a_child(job, definition)
                continue
            live = Live(job, Run(job, definition, self.by), definition.executor != "async")
            self.live[job.fence] = live
            if job.type == DELIVERY_TYPE:
                self._sending.add(job.fence)
            if live.threaded:
                self._in_a_thread(live, definition)
            else:
                on_loop.append((live, definition))
        if on_loop:
            self._loop.call_soon_threadsafe(self._on_loop, on_loop)

    def _in_a_child(self, job: Claimed, definition: Definition) -> None:
        run = Away(job, definition, self.by)
        live = self.live[job.fence] = Live(job, run, threaded=False, isolated=True)
        self.children.submit(live, run)

    def _in_a_thread(self, live: Live, definition: Definition) -> None:
        try:
            self._threads.submit(self._as_thread, live, definition)
        except RuntimeError as error:
            log.warning("no thread for job %s: %s", live.job.id, error)
            self._end(live, NO_THREAD)

    def _as_thread(self, live: Live, definition: Definition) -> None:
        self._end(live, run_sync(definition, live.job, live.run, self.by))

    def _on_loop(self, batch: list[tuple[Live, Definition]]) -> None:
        for live, definition in batch:
            live.task = self._loop.create_task(self._as_task(live, definition))

    async def _as_task(self, live: Live, definition: Definition) -> None:
        result: Result
        try:
            # Whoever asked for a stop before the first step found no task to cancel.
            result = live.verdict or await run_async(definition, live.job, live.run, self.by)
        except asyncio.CancelledError:
            result = live.verdict or Failed("attempt_error", "The handler cancelled itself.")
        self._end(live, result)

    def _end(self, live: Live, result: Result) -> None:
        with self._guard:
            if live.ended:
                # Settled without it: this is late output, and its slot is free again.
                self.stuck.pop(live.job.fence, None)
                self._sending.discard(live.job.fence)
            else:
                live.ended = live.run.over = True
                self.ended.append((live, live.meant(result)))
        self._on_end()

    def collect(self) -> list[tuple[Live, Result]]:
        """Take the ends so far out of the slots."""
        taken = []
        while self.ended:
            live, result = self.ended.popleft()
            self.live.pop(live.job.fence, None)
            if self._sending and live.job.fence not in self.stuck:
                self._sending.discard(live.job.fence)
            taken.append((live, result))
        return taken

    def stop(self, live: Live, reason: str, verdict: Result) -> None:
        """Ask one attempt to stop; `verdict` is its outcome if it does. The first to ask decides."""
        with self._guard:
            if live.verdict is not None or live.ended:
                return
            live.verdict, live.verdict_at = verdict, clock.monotonic()
        live.run.stop(reason)
        if live.isolated:
            self.children.cancel(live)
        if live.task is not None:
            with suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(live.task.cancel)

    def abandon(self, live: Live, result: Result) -> None:
        """Take an attempt's end from its handler: it did not stop in time, and its late output is fenced off.

        An isolated one is killed, and ends so when it is dead: its successor never runs beside it (case-A05).
        """
        with self._guard:
            if live.ended:
                return
            if live.isolated:
                live.verdict = live.verdict or result
                self.children.kill(live)
                return
            live.ended = live.run.over = True
            self.stuck[live.job.fence] = live
            self.ended.append((live, result))
        self._on_end()

    def call_loop(self) -> None:
        """Ask the loop for a sign of life: `loop_seen` moves when it gives one."""
        self._loop.call_soon_threadsafe(self._seen)

    def _seen(self) -> None:
        self.loop_seen = clock.monotonic()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised in a task that a handler made, these leave through the loop; the other handlers need it.
                log.warning("a handler's task stopped the loop by %s; it goes on", type(error).__name__)
        self._leave_loop()

    def _leave_loop(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=0.2))
            self._loop.close()
        except (RuntimeError, SystemExit, KeyboardInterrupt):
            log.debug("the loop did not close", exc_info=True)

    def close(self) -> None:
        """End the children, the loop and the idle threads; stuck threads are left to the end of the process."""
        self.children.close()
        self._threads.close()
        self._closing = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join(timeout=2)


def facts(job: Claimed) -> dict[str, Any]:
    """What a log line says about an attempt."""
    return {"job": job.id, "type": f"{job.type}@{job.version}", "attempt": job.claims}
