"""What the kernel says of processes: who listens on a socket, what a process runs, which children have ended."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Those that this process started to outlive it, and so has to wait for when they do not.
children: set[int] = set()
os.register_at_fork(after_in_child=children.clear)


def listener(path: Path) -> int | None:
    """The process that listens on a Unix socket, if one does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            connection.connect(str(path))
        except OSError:
            return None
        if hasattr(socket, "SO_PEERCRED"):
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        else:
            # macOS: LOCAL_PEERPID of SOL_LOCAL, for which Python has no names.
            credentials = connection.getsockopt(0, 2, struct.calcsize("i"))
        (pid,) = struct.unpack_from("i", credentials)
        # Zero is a process of another container: to kill it would be to kill our own group.
        return pid or None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put signals that end us off until the block is over: what it starts must be known before anything is raised."""
    if threading.current_thread() is not threading.main_thread():
        # Signals are the main thread's.
        yield
        return
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in before.items() if handler is not None]
    for number in ours:
        signal.signal(number, lambda got, _: caught.append(got))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        for got in caught:
            signal.raise_signal(got)


def is_postmaster(pid: int, data: Path) -> bool:
    """Whether a process is a postmaster on these data, and not another one that was given its number."""
    words = _command(pid)
    return bool(words) and Path(words[0]).name == "postgres" and f"-D {data}" in " ".join(words)


def reap() -> None:
    """Wait for the children that have ended: until then their numbers are taken and look alive."""
    for pid in list(children):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            children.discard(pid)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        if os.path.exists("/proc/self/cmdline"):
            return []
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
