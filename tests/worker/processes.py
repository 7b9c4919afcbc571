"""Workers as real processes on the test database, with their events, and waiting with a bound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import pytest
from django.db import connection

from tests import warm

T = TypeVar("T")
REPOSITORY = Path(__file__).resolve().parents[2]
DEFINITIONS = "jobsite.definitions,tests.definitions,tests.worker.definitions"
# With handlers that run in children; only where those are meant, since each worker then keeps one ready.
ISOLATED = f"{DEFINITIONS},tests.worker.isolated_definitions"
# Short, so that a lapse is seen soon: lease 3 s (heartbeat 1 s), recovery each second.
FAST = {"JOBS_LEASE_S": "3", "JOBS_RECOVERY_GRACE_S": "1", "JOBS_POLL_S": "0.2", "JOBS_DRAIN_GRACE_S": "1"}


def until(look: Callable[[], T], seconds: float = 15) -> T:
    """What `look` answers once that is true; fails after so many seconds. Looks as often as a twentieth of the wait."""
    begun = time.monotonic()
    while True:
        if found := look():
            return found
        waited = time.monotonic() - begun
        assert waited < seconds, f"not within {seconds} s"
        time.sleep(min(0.1, max(0.01, waited / 20)))


def database_url() -> str:
    """The URL of the test database, over TCP or a unix socket."""
    at = connection.settings_dict
    user = quote(at["USER"], safe="") + (":" + quote(at["PASSWORD"], safe="") if at["PASSWORD"] else "")
    host = {"host": at["HOST"]} if at["HOST"] else {}
    port = {"port": at["PORT"]} if at["PORT"] else {}
    return f"postgres://{user}@/{at['NAME']}?{urlencode({**host, **port})}"


class Process:
    """A `manage.py runworker` (or another command). Its events are in `lines`, what it logs in `errors`."""

    def __init__(self, arguments: list[str], env: dict[str, str], command: str = "runworker") -> None:
        self.lines: list[dict[str, Any]] = []
        self.plain: list[str] = []
        self.errors: list[str] = []
        self._process = warm.start(["manage.py", command, *arguments], env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._hear)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))
            else:
                self.plain.append(line)

    def _hear(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(self._process.stderr)

    @property
    def pid(self) -> int:
        return self._process.pid

    def events(self, name: str, **facts: Any) -> list[dict[str, Any]]:
        """Its events of this name with these facts."""
        return [x for x in list(self.lines) if x["event"] == f"worker.{name}" and facts.items() <= x.items()]

    def wait_for(self, name: str, seconds: float = 15, **facts: Any) -> dict[str, Any]:
        """The first event of this name with these facts."""
        return until(lambda: self.events(name, **facts) or self._ended_early(), seconds)[0]

    def _ended_early(self) -> list[dict[str, Any]]:
        assert self._process.poll() is None, f"ended with {self._process.returncode}: {''.join(self.errors)[-2000:]}"
        return []

    def wait_ready(self) -> Process:
        """Once it claims."""
        self.wait_for("ready", 30)
        return self

    @property
    def worker_id(self) -> str:
        """The id of its row."""
        return str(self.wait_for("ready")["worker"])

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self.wait()

    def wait(self, seconds: float = 20) -> int:
        """The exit code."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end: {self.lines[-5:]} {self.log[-2000:]}")
        for reader in self._readers:
            reader.join(5)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return code

    @property
    def log(self) -> str:
        """All that it wrote to stderr."""
        return "".join(self.errors)


def environment(**more: str) -> dict[str, str]:
    """The environment of a process on the test database."""
    env = {**os.environ, "DATABASE_URL": database_url(), "JOBS_DEFINITIONS": DEFINITIONS, **FAST, **more}
    if "JOBS_DRAIN_GRACE_S" in more and "JOBS_LEASE_S" not in more:
        # A drain must be shorter than the lease (B22); jobs of these tests have leases of their own anyway.
        env["JOBS_LEASE_S"] = str(max(3.0, 2 * float(more["JOBS_DRAIN_GRACE_S"]) + 3))
    return env


def start_worker(*flags: str, slots: int = 4, env: dict[str, str] | None = None, **options: Any) -> Process:
    """A worker on the test database; options are runworker's, `listen=False` and the like as they read."""
    arguments = ["--skip-checks", "--slots", str(slots), *flags]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    return Process(arguments, environment(**(env or {})))
