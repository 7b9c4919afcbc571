"""A worker's side of its guard (`guard.py`): tells it the process groups of the children, and that we live."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import clock
from jobs.conf import conf
from jobs.leases import heartbeat_s
from jobs.worker.connection import sentence

if TYPE_CHECKING:
    from jobs.worker.process import Child

log = logging.getLogger("jobs.worker")
SCRIPT = Path(__file__).with_name("guard.py")
PING_S = 0.5
CLOSE_S = 1.0


def believed_s(lease_s: float) -> float:
    """For how long a worker is believed to be alive: to the first moment at which others may take its job.

    Its last heartbeat may be as old as their distance, and its last ping as old as theirs.
    """
    return max(1.5, lease_s - heartbeat_s(lease_s) + conf().RECOVERY_GRACE_S - PING_S)


class Guard:
    """The guard of one worker; a dead one is replaced at the next ping. For one thread."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._believed_s, self._pinged = 0.0, clock.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = clock.Every(30.0)

    @property
    def pid(self) -> int | None:
        """The guard's process, if there is one."""
        return None if self._process is None else self._process.pid

    def add(self, group: int) -> None:
        """Kill this group too when we are gone."""
        if not self._groups:
            # Before the first there was nobody to give up.
            self._pinged = clock.monotonic()
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def drop(self, group: int) -> None:
        """This group has been killed; to be said before its leader is reaped, whose number is then free again."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def ping(self, believed_s: float) -> None:
        """We live, and are to be believed for so long."""
        if self._process is not None and self._process.poll() is not None:
            log.warning("the guard of the isolated children has died; starting another")
            self._let_go()
        if self._process is None:
            self._start()
        self._tell(f"!{believed_s:.3f}\n")
        self._believed_s, self._pinged = believed_s, clock.monotonic()

    def mark(self, children: Iterable[Child]) -> None:
        """These it has given up for our silence, if we stood still for longer than it believes in us."""
        if self._believed_s and clock.monotonic() - self._pinged >= self._believed_s:
            for child in children:
                child.given_up = True

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0)
        except OSError as error:
            if self._lines.due():
                log.warning("no guard for the isolated children: %s", sentence(error))
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._tell("".join(f"+{group}\n" for group in self._groups))

    def _tell(self, words: str) -> None:
        if self._process is None or self._process.stdin is None or not words:
            return
        try:
            os.write(self._process.stdin.fileno(), words.encode())
        except OSError:
            # Dead, or deaf with a full pipe: the next ping starts another.
            self._let_go()

    def _let_go(self) -> None:
        """It does not listen: kill it, so that the next one is the only one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()

    def close(self) -> None:
        """End the guard, which kills what is left."""
        if self._process is None:
            return
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self._let_go()
