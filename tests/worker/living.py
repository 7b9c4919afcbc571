"""Who is alive on this machine: processes, their parents and groups, as /proc tells."""

from __future__ import annotations

import os
from pathlib import Path


def stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and group of a process."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return told[0], int(told[1]), int(told[2])


def is_alive(pid: int) -> bool:
    """Whether it runs; one that is dead and not reaped does not."""
    told = stat(pid)
    return told is not None and told[0] not in "ZX"


def processes() -> dict[int, tuple[str, int, int]]:
    """All there are."""
    return {int(name): told for name in os.listdir("/proc") if name.isdigit() and (told := stat(int(name)))}


def words(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def children(worker: int, word: str = "jobs.worker.child") -> list[int]:
    """The living children of a process with this word in their command lines."""
    return [pid for pid, (state, parent, _) in processes().items()
            if parent == worker and state not in "ZX" and word in words(pid)]


def guard(worker: int) -> int | None:
    """Its guard."""
    return next(iter(children(worker, "guard.py")), None)


def zombies(worker: int) -> list[int]:
    """Its dead children that nobody has reaped."""
    return [pid for pid, (state, parent, _) in processes().items() if parent == worker and state == "Z"]


def in_group(group: int) -> list[int]:
    """The living processes of a group."""
    return [pid for pid, (state, _, of) in processes().items() if of == group and state not in "ZX"]


def descriptors(pid: int) -> int:
    """How many it has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """How many it has."""
    return len(os.listdir(f"/proc/{pid}/task"))
