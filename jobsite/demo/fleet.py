"""The worker processes of the demo: started, caught in the middle of their work, killed, drained.

They are real processes of `runworker`, each in a process group of its own: Ctrl-C reaches the demo alone, which drains
them before the database goes. None outlives the demo, see `jobsite.up.attended`.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from django.db.models import QuerySet

from jobs import clock
from jobs.conf import conf
from jobs.models import Attempt, Worker
from jobsite.demo import DemoFailed
from jobsite.up.child import Child

START_S: Final = 60.0
LOG_TAIL: Final = 12
_LOOK_S: Final = 0.002


class Process(Child):
    """One worker process and, once it is ready, the id of its row."""

    def __init__(self, name: str, log: Path, slots: int) -> None:
        self.name, self.log = name, log
        self.id: uuid.UUID | None = None
        with log.open("wb") as output:
            super().__init__(["runworker", "--name", name, "--slots", str(slots), "-v", "2"], output=output.fileno())

    def holds(self) -> list[str]:
        """The jobs whose live attempts are its."""
        live = self.attempts().filter(ended_at=None).order_by("job_id")
        return [str(job_id) for job_id in live.values_list("job_id", flat=True)]

    def attempts(self) -> QuerySet[Attempt]:
        """All attempts that it ever had."""
        return Attempt.objects.none() if self.id is None else Attempt.objects.filter(worker_id=self.id)

    def tail(self) -> str:
        """The end of what it said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL:])


class Fleet:
    """The workers of one demo. Leaving it drains them; a second Ctrl-C meanwhile kills them."""

    def __init__(self, run: str, folder: Path, slots: int) -> None:
        self._run, self._folder, self._slots = run, folder, slots
        self.processes: list[Process] = []
        self._started = 0

    def start(self, count: int = 1) -> list[Process]:
        """Start so many workers, not waiting until they are ready."""
        new = []
        for _ in range(count):
            self._started += 1
            name = f"{self._run}-{self._started}"
            new.append(Process(name, self._folder / f"{name}.log", self._slots))
            # At once: whatever happens while the next one is started, this one is drained.
            self.processes.append(new[-1])
        return new

    def ready(self, processes: list[Process]) -> None:
        """Wait until these workers have registered. Raises DemoFailed with the log of one that ended instead."""
        until = clock.monotonic() + START_S
        while waiting := [p for p in processes if p.id is None]:
            self.check()
            rows = dict(Worker.objects.filter(name__in=[p.name for p in waiting]).values_list("name", "id"))
            for process in waiting:
                process.id = rows.get(process.name)
            if clock.monotonic() > until:
                raise DemoFailed(f"{waiting[0].name} was not ready within {START_S:g} s:\n{waiting[0].tail()}")
            clock.sleep(0.02)

    def check(self, *, but: Process | None = None) -> None:
        """Raise DemoFailed if a worker ended that was not told to."""
        for process in self.processes:
            if process is not but and not process.runs:
                raise DemoFailed(f"{process.name} ended by itself:\n{process.tail()}")

    def catch(self, is_over: Callable[[], bool]) -> tuple[Process, list[str]] | None:
        """Kill -9 a worker that holds jobs: it, and what it still held. None when the work was over before.

        Documents take milliseconds. A worker that is seen with jobs is stopped first, so that it still has them when
        it is killed; nothing in the worker or the handler knows of it.
        """
        while not is_over():
            for process in self.processes:
                if process.holds() and (held := self._kill_holding(process)):
                    return process, held
            clock.sleep(_LOOK_S)
        return None

    def _kill_holding(self, process: Process) -> list[str]:
        process.send(signal.SIGSTOP)
        if not process.holds():
            process.send(signal.SIGCONT)
            return []
        process.send(signal.SIGKILL)
        process.wait()
        self.processes.remove(process)
        # Read again: what it had sent before the signal came may have been committed since.
        return process.holds()

    def drain(self) -> None:
        """Ask all to end, wait for the grace that they have and a little, and kill what is left then."""
        until = clock.monotonic() + conf().DRAIN_GRACE_S + 5
        for process in self.processes:
            process.end()
        for process in self.processes:
            try:
                process.wait(max(0.1, until - clock.monotonic()))
            except subprocess.TimeoutExpired:
                process.send(signal.SIGKILL)
                process.wait()
        self.processes.clear()

    def _hurry(self, number: int, frame: FrameType | None) -> None:
        for process in self.processes:
            process.send(signal.SIGKILL)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if threading.current_thread() is threading.main_thread():
            # For good: behind this there is only the way out.
            signal.signal(signal.SIGINT, self._hurry)
        self.drain()
