"""Inside an isolated child: jobs come over the wire, run one at a time, and their ends go back.

The main thread runs handlers, `def` and `async def` alike, by the same executor as in a worker; another one hears
what the worker says meanwhile, and ends the process when nobody is there any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from socket import socket
from typing import Any

from asgiref.sync import sync_to_async

from jobs.conf import registry
from jobs.diagnostics import Snapshot
from jobs.redaction import masked, redacted
from jobs.registry import Definition
from jobs.services import traffic
from jobs.services.assignments import Claimed
from jobs.worker import tenants, wire
from jobs.worker.connection import close_all
from jobs.worker.context import Run
from jobs.worker.executor import Result, run_async, run_sync
from jobs.worker.lines import LONGEST
from jobs.worker.refusals import UNKNOWN
from jobs.worker.surroundings import Surroundings, memory_mb
from jobs.worker.wire import Frames, Message, Speaker

CHUNK = 64 * 1024
TASKS_END_S = 0.2


class Near(Run):
    """The run that a handler gets in a child: its log lines and its hook's commit are told to the worker."""

    __slots__ = ("_is_settled", "_speaker")

    def __init__(self, job: Claimed, definition: Definition, by: str, speaker: Speaker) -> None:
        self._speaker, self._is_settled = speaker, False
        super().__init__(job, definition, by)

    def log(self, line: str) -> str:
        """Keep a log line beside the attempt, unless the definition says no."""
        line = masked(line, self.masks)
        if self.definition.logs:
            # A process that the handler has forked has no wire.
            with suppress(OSError):
                self._speaker.send({"log": line[:LONGEST]})
        return line

    @property
    def settled(self) -> bool:  # type: ignore[override]
        """Whether the attempt is settled already; said to the worker at once, lest it takes the claim for lost."""
        return self._is_settled

    @settled.setter
    def settled(self, value: bool) -> None:
        told, self._is_settled = self._is_settled, value
        if value and not told:
            # Whatever has become of the worker, it is so.
            with suppress(OSError):
                self._speaker.send({"settled": True})

    def note(self, said: Snapshot) -> None:
        """Tell the worker the latest diagnostic, so that it outlives this process (B32)."""
        with suppress(OSError):
            self._speaker.send({"diagnostic": said})

    def hold(self, credential: Any, masks: tuple[str, ...]) -> None:
        """The worker keeps what this process prints and says: it learns what to leave out before the handler begins."""
        super().hold(credential, masks)
        with suppress(OSError):
            self._speaker.send({"masks": list(masks)})

    def begin_publishing(self, seconds: float) -> None:
        """From now on the attempt ends with its hook's time: the worker is the one who looks at the clock (B33)."""
        super().begin_publishing(seconds)
        with suppress(OSError):
            self._speaker.send({"publishing": seconds})


class Told:
    """What takes a child's log records where the site has no handler of its own: the worker writes them (A64)."""

    def __init__(self, speaker: Speaker, level: int) -> None:
        self._speaker, self.level = speaker, level

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Send one."""
        with suppress(OSError):
            shown = {name: redacted(value, name) for name, value in facts.items()}
            self._speaker.send({"said": json.loads(json.dumps(shown, default=str))})


class Work:
    """One job to run, and how to cancel it."""

    def __init__(self, job: Claimed, definition: Definition | None, run: Run | None, by: str) -> None:
        self.job, self.definition, self.run, self.by = job, definition, run, by
        self.cancelled = False
        self.over = False
        self.task: asyncio.Task[Result] | None = None

    def cancel(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Cancel its coroutine, now or as soon as there is one."""
        self.cancelled = True
        if self.task is not None and loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self.task.cancel)


class Inside:
    """The life of a child between its first job and its last."""

    def __init__(self, to_worker: socket, speaker: Speaker) -> None:
        self._wire, self._speaker = to_worker, speaker
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._latest: Work | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._surroundings = Surroundings()
        self._pid = os.getpid()

    def run(self) -> None:
        """Run what comes, until the worker has no more."""
        threading.Thread(target=self._hear, name="jobs-wire", daemon=True).start()
        self._speaker.send({"ready": True})
        while (work := self._queue.get()) is not None:
            self._speaker.send(self._end_of(work))
            del work
        # Before the worker stops waiting for this process.
        traffic.flusher.end()

    # -- what the worker says ----------------------------------------------------------------------------

    def _hear(self) -> None:
        frames = Frames()
        with suppress(OSError):
            while data := self._wire.recv(CHUNK):
                for message in frames.feed(data):
                    self._heard(message)
        if self._latest is not None and not self._latest.over:
            # The job belongs to nobody here: it ends now, with all that it has started.
            os.killpg(0, signal.SIGKILL)
        self._queue.put(None)

    def _heard(self, message: Message) -> None:
        if "run" in message:
            self._speaker.send({"begun": True})
            job, by = wire.claimed(message["run"]), message["by"]
            if "tenant" in message:
                tenants.know(job.tenant_id, message["tenant"])
            definition = registry().find(job.type, job.version)
            run = None if definition is None else Near(job, definition, by, self._speaker)
            self._latest = Work(job, definition, run, by)
            self._queue.put(self._latest)
        elif self._latest is not None and "cancel" in message:
            self._latest.cancel(self._loop)
        elif self._latest is not None and self._latest.run is not None and "stop" in message:
            self._latest.run.stop(message["stop"])
        elif self._latest is not None and self._latest.run is not None and "heard" in message:
            self._latest.run.heard()

    # -- running -----------------------------------------------------------------------------------------

    def _end_of(self, work: Work) -> Message:
        """Run it, and tidy up before its end is told."""
        left: list[str] = []
        result = self._result(work, left)
        if os.getpid() != self._pid:
            # The handler has forked and forgot to end the other one.
            os._exit(1)
        left += self._surroundings.restore()
        work.over = True
        if work.run is not None:
            work.run.over = True
        end: dict[str, Any] = {"is": "Cancelled"} if result is None else wire.result_words(result)
        return {"end": end, "mb": round(memory_mb(), 1), "left": left}

    def _result(self, work: Work, left: list[str]) -> Result | None:
        """What became of it; None when it was cancelled."""
        self._surroundings.mark()
        if work.definition is None or work.run is None:
            # Started from older or newer code than the worker's: another one knows it.
            left.append("definitions")
            return UNKNOWN
        if asyncio.iscoroutinefunction(work.definition.handler):
            return self._on_loop(work, work.definition, work.run, left)
        return run_sync(work.definition, work.job, work.run, work.by)

    def _on_loop(self, work: Work, definition: Definition, run: Run, left: list[str]) -> Result | None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            # The one thread in which Django serves async code stays.
            self._loop.run_until_complete(sync_to_async(int)())
            self._surroundings.mark()
        loop = self._loop
        threads = ThreadPoolExecutor(thread_name_prefix="job")
        loop.set_default_executor(threads)
        work.task = task = loop.create_task(run_async(definition, work.job, run, work.by))
        if work.cancelled:
            task.cancel()
        while not task.done():
            # Raised in a task that the handler made, the first two leave through the loop.
            with suppress(SystemExit, KeyboardInterrupt, asyncio.CancelledError):
                loop.run_until_complete(task)
        _leave(loop, left)
        threads.shutdown(wait=False, cancel_futures=True)
        return None if task.cancelled() else task.result()


def _leave(loop: asyncio.AbstractEventLoop, left: list[str]) -> None:
    """Nothing of one job may run on into the next: its tasks end, its database connections are given back."""
    if tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(tasks, timeout=TASKS_END_S))
        if not all(task.done() for task in tasks):
            left.append("tasks")
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(sync_to_async(close_all)())
    close_all()
