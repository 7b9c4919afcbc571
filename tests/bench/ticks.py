"""A shared file in which handlers stamp their start: slot i is job i's. Needs no query while a drain runs."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path

HEAD = 4096  # 0: processes that have a job; 8: processes awaited; 16: the moment at which all had one
SLOT = 8
ENV = "JOBS_BENCH_TICKS"

_map: mmap.mmap | None = None
_arrived = 0


def create(path: Path, slots: int, processes: int) -> mmap.mmap:
    """A new file for so many jobs and worker processes."""
    with path.open("wb") as file:
        file.truncate(HEAD + slots * SLOT)
    opened = attach(path)
    struct.pack_into("q", opened, 8, processes)
    return opened


def attach(path: Path) -> mmap.mmap:
    """The file of this run."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def tick(i: int) -> None:
    """Stamp job i's start; the first of a process waits until every process has one, so that boots are not measured."""
    global _map, _arrived
    if _map is None:
        _map = attach(Path(os.environ[ENV]))
    if _arrived != os.getpid():
        _arrive(_map)
        _arrived = os.getpid()
    struct.pack_into("d", _map, HEAD + i * SLOT, time.time())


def _arrive(shared: mmap.mmap) -> None:
    with Path(os.environ[ENV] + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        here = struct.unpack_from("q", shared, 0)[0] + 1
        struct.pack_into("q", shared, 0, here)
        if here == struct.unpack_from("q", shared, 8)[0]:
            struct.pack_into("d", shared, 16, time.time())
    until = time.monotonic() + 20
    while not struct.unpack_from("d", shared, 16)[0] and time.monotonic() < until:
        time.sleep(0.0005)


def starts(shared: mmap.mmap, n: int) -> list[float]:
    """The stamps of jobs 0 to n - 1; 0.0 where none has started."""
    return list(struct.unpack_from(f"{n}d", shared, HEAD))


def opened(shared: mmap.mmap) -> float:
    """When every worker process had its first job."""
    return float(struct.unpack_from("d", shared, 16)[0])
