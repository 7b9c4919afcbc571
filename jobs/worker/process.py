"""One isolated child as its worker sees it: spawn it, speak with it, hear it, kill its group, and say how it ended.

Everything here is for the one thread of the pool (`children`), which waits for the descriptors.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from contextlib import ExitStack, suppress
from enum import Enum
from typing import TYPE_CHECKING

from django.conf import settings

from jobs import clock
from jobs.conf import conf
from jobs.outcomes import Failed, Interrupted, Outcome
from jobs.worker.wire import Frames, Message, encoded

if TYPE_CHECKING:
    from jobs.worker.slots import Live

CHUNK = 64 * 1024
# Of one child at a time: another's end must not wait behind a flood.
MOST_AT_ONCE = 1024 * 1024
LONGEST_LINE = 2_000
TAIL_LINES = 20
TAIL_CHARACTERS = 2_000
AGAIN_US = 5_000_000


class Stage(Enum):
    """Where a child stands."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    LEAVING = "leaving"
    KILLED = "killed"


class Child:
    """One child process, leader of its own session and group. Raises OSError where none can be started."""

    def __init__(self, console: int | None, level: int) -> None:
        self.stage = Stage.STARTING
        self.live: Live | None = None
        self.asked_to_leave = False
        # Whether it has read its job; whether the guard may have killed it because the worker stood still.
        self.begun = self.given_up = False
        # Its end of the wire is closed.
        self.mute = False
        # Lines that it has printed, until it is known what to leave out of them.
        self.kept_back: list[str] = []
        self.jobs = 0
        self.born = self.since = clock.monotonic()
        self._frames = Frames()
        self._unsent = bytearray()
        self._line = bytearray()
        # What it printed during its job, for whoever asks why it died.
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        with ExitStack() as undo:
            self._spawn(undo, console, level)
            undo.pop_all()

    def _spawn(self, undo: ExitStack, console: int | None, level: int) -> None:
        self.wire, theirs = socket.socketpair()
        undo.callback(self.wire.close)
        self.out, printed = os.pipe()
        undo.callback(os.close, self.out)
        try:
            passed = [theirs.fileno(), *([] if console is None else [console])]
            words = [str(theirs.fileno()), str(os.getpid()), str(console or 2)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jobs.worker.child", *words], stdin=subprocess.DEVNULL, stdout=printed,
                stderr=printed, pass_fds=passed, start_new_session=True, env=_environment())
        finally:
            theirs.close()
            os.close(printed)
        self.pid = self._process.pid
        self.wire.setblocking(False)
        os.set_blocking(self.out, False)
        self.pidfd: int | None = None
        # Where there is none, the end of the wire tells its death, which a process that it has forked may delay.
        with suppress(AttributeError, OSError):
            self.pidfd = os.pidfd_open(self.pid)
        self.send({"hello": {"path": [entry or os.getcwd() for entry in sys.path], "level": level,
                             "pythonpath": os.environ.get("PYTHONPATH")}})

    # -- speaking and hearing ----------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send when it can take it."""
        self._unsent += encoded(message)
        self.flush()

    def flush(self) -> bool:
        """Send what it takes now; whether something is left. A dead child's words are nobody's."""
        while self._unsent:
            try:
                del self._unsent[: self.wire.send(self._unsent[:CHUNK])]
            except BlockingIOError:
                return True
            except OSError:
                self._unsent.clear()
        return False

    def hear(self, most: int = MOST_AT_ONCE) -> tuple[list[Message], bool]:
        """Its messages so far, and whether it can send no more. Raises Garbled."""
        messages: list[Message] = []
        while most > 0:
            try:
                data = self.wire.recv(CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                return messages, True
            most -= len(data)
            messages += self._frames.feed(data)
        return messages, False

    def printed(self, most: int = CHUNK) -> tuple[list[str], bool]:
        """The lines that it has printed, and whether there will be no more."""
        lines: list[str] = []
        over = False
        for _ in range(max(1, most // CHUNK)):
            try:
                data = os.read(self.out, CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                over = True
                break
            *whole, rest = (self._line + data).split(b"\n")
            lines += map(_shown, whole)
            self._line = bytearray(rest)
            if len(self._line) > LONGEST_LINE:
                lines.append(self._rest())
        self._tail.extend(lines)
        return lines, over

    def _rest(self) -> str:
        line, self._line = _shown(self._line), bytearray()
        return line

    def all_printed(self) -> list[str]:
        """What it has printed up to now, an unfinished line too."""
        lines, _ = self.printed(MOST_AT_ONCE)
        if self._line:
            lines.append(self._rest())
            self._tail.append(lines[-1])
        return lines

    # -- its jobs and its end ----------------------------------------------------------------------------

    def begin(self, live: Live, words: Message) -> None:
        """Give it a job: its time runs from here on."""
        self.stage, self.live, self.since = Stage.BUSY, live, clock.monotonic()
        self.begun = self.given_up = False
        self.jobs += 1
        self._tail.clear()
        self.send(words)

    def rest(self) -> None:
        """Its job has ended."""
        self.stage, self.live, self.since = Stage.IDLE, None, clock.monotonic()

    def leave(self) -> None:
        """It may end by itself; whoever asked it to kills it if it does not."""
        self.asked_to_leave = True
        self.stage, self.since = Stage.LEAVING, clock.monotonic()
        with suppress(OSError):
            self.wire.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """SIGKILL for its whole group."""
        if self.stage is not Stage.KILLED:
            self.stage, self.since = Stage.KILLED, clock.monotonic()
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    def is_dead(self) -> bool:
        """Whether the process has ended; it is not reaped by this, so that its number stays its own."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except (AttributeError, OSError):
            return self._process.poll() is not None

    def reap(self) -> None:
        """Take its exit status and close everything; its group has been killed."""
        self._process.wait()
        self.wire.close()
        os.close(self.out)
        if self.pidfd is not None:
            os.close(self.pidfd)

    def how(self) -> str:
        """How a reaped child ended, in words."""
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit status {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def last_words(self) -> str:
        """The last of what it printed."""
        return "\n".join(self._tail)[-TAIL_CHARACTERS:]


def _shown(line: bytes | bytearray) -> str:
    return bytes(line[:LONGEST_LINE]).decode("utf-8", "backslashreplace").rstrip("\r")


def _environment() -> dict[str, str]:
    """Ours, and how to find the modules that we have found; the child takes that out again."""
    path = [entry or os.getcwd() for entry in sys.path]
    module = os.environ.get("DJANGO_SETTINGS_MODULE") or getattr(settings, "SETTINGS_MODULE", None)
    more = {"DJANGO_SETTINGS_MODULE": module} if module else {}
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(path)}


def worn(child: Child, mb: float = 0) -> str:
    """Why a child that rests should be replaced; empty while it should not."""
    site = conf()
    if child.jobs >= site.CHILD_MAX_JOBS:
        return "jobs"
    if mb > site.CHILD_MAX_MEMORY_MB:
        return "memory"
    return "age" if clock.monotonic() - child.born > site.CHILD_MAX_AGE_S else ""


def reap_orphans(group: int) -> bool:
    """Reap what a killed group has left to us, if we are where orphans go (process 1); whether some still die."""
    try:
        while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG) is not None:
            continue
    except (AttributeError, OSError):
        return False
    return True


def meaning(child: Child, how: str) -> Outcome:
    """What its death means: its job's failure, unless it never read that, or the worker had been given up (E1)."""
    if child.given_up:
        return Interrupted("worker_frozen")
    if not child.begun:
        return Interrupted("no_child", AGAIN_US)
    return Failed("process_died", f"The isolated process {how}.\n{child.last_words()}".rstrip())
