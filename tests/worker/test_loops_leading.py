"""Three real processes that want to lead: frozen, killed and cut off, never do two of them believe it at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import connection

from tests import warm
from tests.worker.processes import environment, until

LEASE_S = 2.0
Start = Callable[..., warm.Process]


@pytest.fixture
def start(database: None, tmp_path: Path) -> Iterator[Start]:
    """Starts candidates, which are dead when the test ends."""
    started: list[warm.Process] = []

    def start_(**env: str) -> warm.Process:
        argv = ["-m", "tests.worker.candidate", str(tmp_path / "beliefs"), str(LEASE_S)]
        started.append(warm.start(argv, environment(**env), stdout=subprocess.DEVNULL, stderr=2))
        return started[-1]

    yield start_
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def beliefs(path: Path) -> list[tuple[float, int]]:
    """(moment, process) of every belief so far, in the order of their moments."""
    lines = (path.read_text() if path.exists() else "").splitlines()
    return sorted((float(at), int(pid)) for pid, _, at in (line.partition(" ") for line in lines))


def terms(path: Path) -> list[int]:
    """Who led, in turn: a process that stands twice next to others had a rival in between."""
    found: list[int] = []
    for _, pid in beliefs(path):
        if not found or found[-1] != pid:
            found.append(pid)
    return found


def other_than(path: Path, pid: int | None) -> int | None:
    """The process of the latest belief, if it is another."""
    latest = beliefs(path)[-1:]
    return latest[0][1] if latest and latest[0][1] != pid else None


def test_frozen_and_thawed_leaders_never_lead_by_two(start: Start, tmp_path: Path) -> None:
    """case-E04, case-E05: SIGSTOP the leader beyond its lease, SIGCONT when another leads; six times."""
    path = tmp_path / "beliefs"
    for _ in range(3):
        start()
    led: list[int] = []
    for _ in range(6):
        leader = until(lambda: other_than(path, led[-1] if led else None), 30)
        led.append(leader)
        os.kill(leader, signal.SIGSTOP)
        until(lambda leader=leader: other_than(path, leader), 30)
        os.kill(leader, signal.SIGCONT)
    assert terms(path)[:6] == led


def test_a_killed_leader_is_followed_within_its_lease(start: Start, tmp_path: Path) -> None:
    """case-F06: SIGKILL, and one of the others leads after lease and one renewal."""
    path = tmp_path / "beliefs"
    processes = {p.pid: p for p in (start() for _ in range(3))}
    for left in (2, 1):
        leader = until(lambda: other_than(path, None), 30)
        processes.pop(leader).kill()
        assert len(processes) == left
        last = max(at for at, pid in beliefs(path) if pid == leader)
        until(lambda leader=leader: other_than(path, leader), 30)
        first = min(at for at, pid in beliefs(path) if at > last and pid != leader)
        assert first - last < LEASE_S + 10
    assert len(terms(path)) == 3


class Proxy:
    """Carries connections to the database's server until it is cut; then it refuses."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._pipes: list[socket.socket] = []
        self._cut = False
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        at = connection.settings_dict
        return f"postgres://{at['USER']}:{at['PASSWORD']}@127.0.0.1:{self._server.getsockname()[1]}/{at['NAME']}"

    def cut(self) -> None:
        """End every connection; refuse new ones."""
        self._cut = True
        self._server.close()
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near = self._server.accept()[0]
                if self._cut:
                    # The accept that was waiting when the door was closed.
                    return near.close()
                far = self._reach()
                self._pipes += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    @staticmethod
    def _reach() -> socket.socket:
        at = connection.settings_dict
        host, port = str(at["HOST"] or "/var/run/postgresql"), int(at["PORT"] or 5432)
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{host}/.s.PGSQL.{port}")
        return far

    @staticmethod
    def _carry(a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(65_536):
                b.sendall(data)
        with suppress(OSError):
            b.shutdown(socket.SHUT_RDWR)


def test_a_leader_that_is_cut_off_stands_down(start: Start, tmp_path: Path) -> None:
    """case-E05: its renewals fail for good while another takes over; it stands down within its lease, and stays so."""
    path, proxy = tmp_path / "beliefs", Proxy()
    try:
        first = start(DATABASE_URL=proxy.url)
        until(lambda: other_than(path, None), 30)
        second = start()
        began = time.monotonic()
    finally:
        proxy.cut()
    until(lambda: other_than(path, first.pid) == second.pid, 30)
    # Another two leases long nobody but the second believes.
    until(lambda: beliefs(path)[-1][0] > began + 3 * LEASE_S, 30)
    assert terms(path) == [first.pid, second.pid]
    assert max(at for at, pid in beliefs(path) if pid == first.pid) - began <= LEASE_S
