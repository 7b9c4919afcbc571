"""Locks between processes: an flock on a file or a directory of ours.

The kernel ties them to the open descriptor, so that a killed process gives them back. A descriptor is handed to a
child on purpose only (the postmaster's), and a fork that goes on as Python closes its copies.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

POLL_SECONDS = 0.05
EXCLUSIVE = fcntl.LOCK_EX
SHARED = fcntl.LOCK_SH


class Lock:
    """An open file or directory that can be locked. The lock ends when the last process closes the descriptor."""

    def __init__(self, path: Path) -> None:
        kind = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
        self.path = path
        self.fd = os.open(path, kind | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _open.add(self)

    @property
    def is_open(self) -> bool:
        """Whether this process still has the descriptor."""
        return self.fd >= 0

    def try_take(self, mode: int) -> bool:
        """Take the lock, or change its mode, if that is possible at once. A change that fails loses the lock."""
        try:
            fcntl.flock(self.fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self, mode: int, seconds: float) -> bool:
        """Take the lock, waiting for others this long at most."""
        deadline = time.monotonic() + seconds
        while not self.try_take(mode):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def release(self) -> None:
        """Give the lock up for every process that has the descriptor: one being forked just now has a copy."""
        if self.is_open:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close our descriptor; a child that it was handed to keeps the lock. A second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


_open: WeakSet[Lock] = WeakSet()


def _close_copies() -> None:
    for lock in list(_open):
        lock.close()


os.register_at_fork(after_in_child=_close_copies)
