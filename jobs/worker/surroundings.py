"""What a handler may change around it in an isolated child, put back after its job; what cannot be, named."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
from contextlib import suppress

from jobs import clock

# For threads that are ending by themselves, such as those of an executor that has been shut down.
ENDING_S = 0.1
# Ours, for good, whichever job was the first that they were needed for.
OWN = frozenset({"jobs-wake", "jobs-news", "jobs-traffic"})
_NUMBERS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Surroundings:
    """The present state of the process, to come back to."""

    def __init__(self) -> None:
        self._folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._environment = dict(os.environ)
        self._handlers = {number: signal.getsignal(number) for number in _NUMBERS}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._limits = _limits()
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._input, self._output = os.dup(0), os.dup(1)
        self._threads: frozenset[threading.Thread] = frozenset()

    def mark(self) -> None:
        """A job begins: threads that are there now are not its own."""
        self._threads = frozenset(threading.enumerate())

    def restore(self) -> list[str]:
        """Put back what can be; words for what cannot: a process with that should not serve another job."""
        self._streams_back()
        self._signals_back()
        os.umask(self._umask)
        left = [word for word, is_left in (
            ("folder", not self._folder_back()), ("limits", _limits() != self._limits),
            ("threads", self._has_threads()), ("processes", has_processes())) if is_left]
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        return left

    def _streams_back(self) -> None:
        for stream in (sys.stdout, sys.stderr, *self._streams[1:]):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = self._streams
        os.dup2(self._input, 0)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        if not faulthandler.is_enabled():
            faulthandler.enable(2, all_threads=False)

    def _signals_back(self) -> None:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _folder_back(self) -> bool:
        with suppress(OSError):
            os.chdir(self._folder)
            return True
        return False

    def _has_threads(self) -> bool:
        until = clock.monotonic() + ENDING_S
        for thread in threading.enumerate():
            if thread not in self._threads and thread.name not in OWN:
                thread.join(max(0.0, until - clock.monotonic()))
                if thread.is_alive():
                    return True
        return False


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]


def has_processes() -> bool:
    """Whether this process has children, running or not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):
        return False
    return True


def memory_mb() -> float:
    """The memory of this process; where that is not told, the most that it ever was."""
    try:
        with open("/proc/self/statm", "rb") as told:
            return int(told.read().split()[1]) * _PAGE / 2**20
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 2**20 if sys.platform == "darwin" else most / 2**10
