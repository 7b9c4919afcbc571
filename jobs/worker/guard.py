"""Kills what a dead or frozen worker leaves behind: a script of its own that knows process groups and nothing else.

A handler may hold the GIL, and grandchildren hear of no parent's death; this process can always act (E14.21).
On stdin: `+GROUP`, `-GROUP`, `!SECONDS` for which the worker is believed to be alive; its end is the worker's end.
"""

import os
import select
import signal
import time


def main() -> None:
    """Watch until the worker is gone."""
    # A service manager signals every process of a service; this one ends when its worker has ended.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    groups: set[int] = set()
    until = None
    rest = b""
    while True:
        wait = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([0], [], [], wait)[0]:
            # Frozen: its jobs are about to be given to others. Should it wake, it finds its children dead.
            kill(groups)
            until = None
            continue
        if not (data := os.read(0, 65536)):
            kill(groups)
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line[:1] == b"!":
                until = time.monotonic() + float(line[1:])
            elif line[:1] == b"+":
                groups.add(int(line[1:]))
            else:
                groups.discard(int(line[1:]))


def kill(groups: set[int]) -> None:
    """SIGKILL for every process of these groups, which are forgotten."""
    while groups:
        try:
            os.killpg(groups.pop(), signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    main()
