"""Keeps the processes of a site going: one web process, some workers. What dies is started again, with pauses.

Ended in order: the door closes first, workers drain within their grace, and the database, which is not ours, is the
last to go.
"""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final
from urllib.parse import urlsplit

from jobs import clock
from jobs.conf import conf
from jobsite import serving
from jobsite.up.child import Child

START_S: Final = 60.0
# An end before this is a failure, whatever its code; one that lived for longer has a clean record again.
BRIEF_S, STEADY_S = 1.0, 30.0
MOST_FAILURES: Final = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0
USAGE: Final = 2
LOOK_S: Final = 0.1
DATABASE_S: Final = 2.0
# More than a worker needs to hand back what it holds, and a web process for its last requests.
SPARE_S: Final = 15.0


class Ended(Exception):
    """The site cannot go on; the message says why."""


class Kept:
    """One place of the site: the process in it, and how often one of them has ended too soon."""

    def __init__(self, name: str, start: Callable[[], Child], say: Callable[[str], None]) -> None:
        self.name = name
        self.child: Child | None = None
        self._start, self._say = start, say
        self._failures, self._since, self._due = 0, 0.0, 0.0

    def look(self) -> None:
        """Start it, or another one for one that has ended. Raises Ended when that is hopeless."""
        now = clock.monotonic()
        if self.child is None:
            if now >= self._due:
                self.child, self._since = self._start(), now
        elif (code := self.child.code) is not None:
            self._replace(code, now - self._since)

    def _replace(self, code: int, lived_s: float) -> None:
        assert self.child is not None
        how = f"{self.name} (process {self.child.pid}) ended {_how(code)}"
        self.child.end()
        self.child = None
        if lived_s >= STEADY_S:
            self._failures = 0
        if code == 0 and lived_s >= BRIEF_S:
            return
        self._failures += 1
        if code == USAGE or self._failures >= MOST_FAILURES:
            raise Ended(f"{how}, {self._failures} times in a row; see its last lines above.")
        self._due = clock.monotonic() + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self._failures)
        self._say(f"{how}; another one takes its place.")


class Site:
    """Web and workers on one listening socket. `run` goes on until told to stop."""

    def __init__(self, listening: socket.socket, workers: int, *, say: Callable[[str], None], output: int,
                 keep_database: Callable[[], None], worker_options: Sequence[str] = ()) -> None:
        self._listening, self._say, self._keep_database = listening, say, keep_database
        self._database = clock.Every(DATABASE_S, DATABASE_S)
        self.web = Kept("web", lambda: web(listening, output), say)
        self.workers = [
            Kept("worker" if workers == 1 else f"worker {number}",
                 lambda: Child(["runworker", *worker_options], output=output), say) for number in range(1, workers + 1)]
        self._stops = 0

    def run(self, is_up: Callable[[], None]) -> None:
        """Start everything, say so, and keep it going until a signal. Raises Ended; nothing runs any more then."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            if self._awaits_web():
                is_up()
            while not self._stops:
                self._look()
                clock.sleep(LOOK_S)
        finally:
            self._drain()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1

    @property
    def _all(self) -> list[Kept]:
        return [self.web, *self.workers]

    def _look(self) -> None:
        for kept in self._all:
            kept.look()
        if self._database.due():
            self._keep_database()

    def _awaits_web(self) -> bool:
        """Whether it answers; False when told to stop meanwhile."""
        until = clock.monotonic() + START_S
        while not self._stops:
            self._look()
            if answers(self._listening):
                return True
            if clock.monotonic() > until:
                raise Ended(f"web did not answer within {START_S:g} s; see its last lines above.")
            clock.sleep(LOOK_S)
        return False

    def _drain(self) -> None:
        """Ask all to end; hurry them when a signal comes again; kill what is left when its time is over."""
        asked = self._stops
        until = clock.monotonic() + conf().DRAIN_GRACE_S + SPARE_S
        self._listening.close()
        children = [kept.child for kept in self._all if kept.child is not None]
        for child in children:
            child.end()
        while running := [child for child in children if child.runs]:
            if self._stops > asked:
                # The second is heard as a second one; the third is the last.
                number = signal.SIGTERM if self._stops < 3 else signal.SIGKILL
                asked = self._stops
                for child in running:
                    child.send(number)
            if clock.monotonic() > until:
                for child in running:
                    child.send(signal.SIGKILL)
                    child.wait()
            clock.sleep(LOOK_S / 2)


def web(listening: socket.socket, output: int) -> Child:
    """A web process on this socket."""
    return Child(["serve", "--fd", str(listening.fileno())], output=output, keeps=[listening.fileno()])


def answers(listening: socket.socket, seconds: float = 1.0) -> bool:
    """Whether a web process answers on this socket."""
    at = urlsplit(serving.url_of(listening))
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=seconds)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _how(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    return f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by signal {-code}"


def ended(child: Child, seconds: float) -> None:
    """Ask one child to end, and see to it."""
    child.end()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.send(signal.SIGKILL)
        child.wait()
