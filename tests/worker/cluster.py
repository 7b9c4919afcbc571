"""A PostgreSQL server of a test's own, that can be stopped and started without hurting anybody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections

from jobsite import postgres
from tests import database as db
from tests.worker.conftest import Jobs
from tests.worker.processes import REPOSITORY, Process, environment, until
from tests.worker.proxy import Proxy

NAME = "test_trouble"
LONG = bool(os.environ.get("JOBSITE_LONG"))


class Cluster(Jobs):
    """The server, its workers, and jobs on it (within `here`)."""

    def __init__(self, root: Path) -> None:
        self._project, self._root = root / "project", root / "files"
        self._project.mkdir()
        self._processes: list[Process] = []
        self._proxies: list[Proxy] = []
        self.start()
        self.admin(f"CREATE DATABASE {NAME} OWNER jobs")
        done = subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=REPOSITORY, env=self.env(),
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.server = postgres.start(self._project, root=self._root)
        until(self.answers, 60)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: fast, SIGQUIT: immediate, SIGKILL: a crash; until nobody answers."""
        os.kill(self.server.pid, how)
        until(lambda: not self.server.is_up() and not self.answers(), 60)

    def restart(self, how: signal.Signals) -> None:
        """Stop and start; connections of the test are opened anew."""
        self.stop(how)
        self.start()
        connections["default"].close()

    def answers(self) -> bool:
        """Whether a statement can be run."""
        try:
            self.admin("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def admin(self, sql: str) -> list[Any]:
        """A statement of the superuser, on a connection of its own."""
        at = self.server.address
        with psycopg.connect(host=at.host, port=at.port, user="postgres", dbname="postgres", autocommit=True) as raw:
            cursor = raw.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def end_backends(self, where: str = "true") -> int:
        """End the workers' connections, but not the test's."""
        [(ended,)] = self.admin(f"""SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {where}
            AND datname = '{NAME}' AND application_name IN ('worker under test', 'jobs listener')""")
        return int(ended)

    def env(self, proxy: Proxy | None = None, **more: str) -> dict[str, str]:
        """The environment of a process on this server, or behind a proxy before it."""
        at = self.server.address
        host, port = (at.host, at.port) if proxy is None else ("127.0.0.1", proxy.port)
        url = f"postgres://jobs@/{NAME}?host={host.replace('/', '%2F')}&port={port}"
        return environment(**more) | {"DATABASE_URL": url, "PGAPPNAME": "worker under test"}

    def worker(self, *flags: str, slots: int = 4, proxy: Proxy | None = None, **env: str) -> Process:
        """A worker, ready, with leases that no test outlives."""
        arguments = ["--skip-checks", "--slots", str(slots), *flags]
        self._processes.append(Process(arguments, self.env(proxy, **{"JOBS_LEASE_S": "60", **env})))
        return self._processes[-1].wait_ready()

    def proxy(self) -> Proxy:
        """A proxy before this server."""
        at = self.server.address
        self._proxies.append(Proxy(f"{at.host}/.s.PGSQL.{at.port}"))
        return self._proxies[-1]

    @contextmanager
    def here(self) -> Iterator[None]:
        """Within, this thread's connection is one to this server, whose tables are empty."""
        plain = connections["default"]
        own = plain.copy()
        at = self.server.address
        own.settings_dict.update(NAME=NAME, HOST=at.host, PORT=str(at.port), USER="jobs", PASSWORD="")
        own.settings_dict["OPTIONS"].pop("pool", None)
        connections["default"] = own
        try:
            db.empty()
            yield
        finally:
            for proxy in self._proxies:
                proxy.close()
            for process in self._processes:
                process.kill()
            self._processes, self._proxies = [], []
            own.close()
            connections["default"] = plain


@contextmanager
def new() -> Iterator[Cluster]:
    """A server for one module of tests."""
    with tempfile.TemporaryDirectory(prefix="jobs-", dir="/var/tmp") as root:
        # The server runs as another user when we are root.
        os.chmod(root, 0o711)
        made = Cluster(Path(root))
        try:
            yield made
        finally:
            made.server.close()


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
