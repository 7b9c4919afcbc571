"""Workers under fire (case-B01, RELIABILITY 5.6): killed, frozen, drained and cut off at random while they work.

All that chance decides comes from one seed, which is printed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from tests import warm
from tests.crash.checker import check
from tests.crash.recorder import recorded
from tests.crash.run import FAST, until

WORKERS = 3
GROUP = "storm"
# How a job of each mode must end, whatever happens to its workers.
END_OF = {"ok": "completed", "flaky": "completed", "slow": "completed", "terminal": "failed"}
FAULTS = {"kill": 10, "freeze": 3, "drain": 3, "terminate": 4}
# Around the lease of five seconds, so that some are fenced when they wake.
FROZEN_S = (0.5, 8.0)


class Storm:
    """Some jobs, three workers, and so many faults."""

    def __init__(self, url: str, dsn: str, folder: Path, *, jobs: int, faults: int, seed: int,
                 types: tuple[str, ...] = ("storm", "storm-thread", "storm-apart")) -> None:
        self.dsn, self.folder, self.count, self.left, self.types = dsn, folder, jobs, faults, types
        self.path = str(folder / "executions.jsonl")
        self.chance = random.Random(seed)
        self.env = {**os.environ, **FAST, "DATABASE_URL": url}
        self.workers: list[warm.Process] = []
        self.frozen: dict[int, float] = {}
        self.done: Counter[str] = Counter()
        self.modes: dict[str, str] = {}

    def run(self) -> list[str]:
        """The violations."""
        self._enqueue()
        try:
            self.workers = [self._worker() for _ in range(WORKERS)]
            while self.left > 0:
                self._fault()
                time.sleep(self.chance.uniform(0.3, 1.2))
            self._thaw(all_=True)
            for n, worker in enumerate(self.workers):
                if worker.poll() is not None:
                    self.workers[n] = self._worker()
            until(lambda: not self._rows("SELECT 1 FROM jobs_job WHERE ended_at IS NULL LIMIT 1"), "all jobs' ends",
                  180)
        finally:
            self._end()
        return self._judge()

    def _enqueue(self) -> None:
        from jobs.services import intake
        from jobs.services.intake import Request

        modes = self.chance.choices(list(END_OF), [70, 15, 10, 5], k=self.count)
        requests = [Request(self.chance.choice(self.types), {
            "path": self.path, "mode": mode,
            "seconds": self.chance.uniform(3.5, 5) if mode == "slow" else self.chance.uniform(0.01, 0.3)})
            for mode in modes]
        self.modes = {a.id: mode for a, mode in zip(intake.enqueue_many(requests), modes, strict=True)}

    def _worker(self) -> warm.Process:
        with (self.folder / "workers.log").open("ab") as log:
            return warm.start(["manage.py", "runworker", "--skip-checks", "--groups", GROUP, "--slots", "8"], self.env,
                              stdout=log, stderr=log)

    def _fault(self) -> None:
        self._thaw()
        n = self.chance.randrange(WORKERS)
        worker = self.workers[n]
        if worker.poll() is not None:
            self.workers[n] = self._worker()
            return
        if n in self.frozen:
            return
        fault = self.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.done[fault] += 1
        self.left -= 1
        match fault:
            case "kill":
                worker.kill()
                worker.wait()
                self.workers[n] = self._worker()
            case "drain":
                worker.send_signal(signal.SIGTERM)
            case "freeze":
                worker.send_signal(signal.SIGSTOP)
                self.frozen[n] = time.monotonic() + self.chance.uniform(*FROZEN_S)
            case "terminate":
                self._terminate()

    def _terminate(self) -> None:
        pids = [r[0] for r in self._rows("SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                                         " AND pid <> pg_backend_pid() ORDER BY pid")]
        for pid in self.chance.sample(pids, min(len(pids), 3)):
            self._rows("SELECT pg_terminate_backend(%s)", pid)

    def _thaw(self, *, all_: bool = False) -> None:
        for n, until_ in list(self.frozen.items()):
            if all_ or time.monotonic() >= until_:
                self.workers[n].send_signal(signal.SIGCONT)
                del self.frozen[n]

    def _end(self) -> None:
        self._thaw(all_=True)
        # One that is only just starting would die of it: its handlers are there once its row is.
        until(lambda: all(w.poll() is not None or self._is_there(w.pid) for w in self.workers), "the workers' rows", 60)
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def _is_there(self, pid: int) -> bool:
        return bool(self._rows("SELECT 1 FROM jobs_worker WHERE pid = %s", pid))

    def _judge(self) -> list[str]:
        found = check(self.dsn, list(self.modes), recorded(self.path))
        states = dict(self._rows("SELECT id::text, state FROM jobs_job"))
        found += [f"a job that is {mode} ended {states.get(id_)} ({id_})" for id_, mode in self.modes.items()
                  if states.get(id_) != END_OF[mode]]
        for worker in self.workers:
            if worker.returncode != 0:
                found.append(f"a drained worker ended with {worker.returncode}")
        return found

    def _rows(self, sql: str, *params: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(sql, params or None).fetchall()  # type: ignore[arg-type]
