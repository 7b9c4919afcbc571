"""`python -m jobs.worker.child`: an isolated child from its first instruction to its first job; see `inside`.

Started by a worker (`process`), never by hand. Nothing of Django is imported before the worker has said from where.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OOM_SCORE = "500"


def main() -> None:
    """Serve the worker at the other end of the wire."""
    number, parent, console = map(int, sys.argv[1:4])
    # What is imported stays: looking through it for garbage, again and again and at the exit, is a third of a start.
    gc.disable()
    for passed in {number, console} - {2}:
        os.set_inheritable(passed, False)
    faulthandler.enable(2, all_threads=False)
    _end_with(parent)
    _ignore_signals()
    wire = socket.socket(fileno=number)
    hello = _hello(wire)
    _find_modules(hello)
    _start_django()
    gc.freeze()
    gc.enable()
    if console != 2:
        _log_to(console)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]

    from jobs.worker.inside import Inside, Told
    from jobs.worker.wire import Speaker

    speaker = Speaker(wire)
    os.register_at_fork(after_in_child=lambda: _as_a_fork(speaker))
    from jobs.worker.logs import logging_to

    with logging_to(Told(speaker, hello["level"])):
        Inside(wire, speaker).run()


def _end_with(parent: int) -> None:
    """Die when the worker does, be the first to go when memory is short, and stay the parent of all descendants."""
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # What handlers leave behind is then seen after their jobs, however often it has forked.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        sys.exit(1)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(OOM_SCORE)


def _ignore_signals() -> None:
    """A service manager signals every process of a service; the worker decides what becomes of its jobs.

    By handlers of our own: an ignored signal would stay ignored in the programs that a job starts.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


def _as_a_fork(speaker: Any) -> None:
    """A process that a handler has forked without another program: it has no part in our conversation."""
    speaker.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _hello(wire: socket.socket) -> dict[str, Any]:
    said = b""
    while not said.endswith(b"\n"):
        if not (data := wire.recv(65536)):
            sys.exit(0)
        said += data
    hello: dict[str, Any] = json.loads(said)["hello"]
    return hello


def _find_modules(hello: dict[str, Any]) -> None:
    """Where the worker finds them, and the environment as it has it: ours was for finding this module."""
    sys.path[:] = hello["path"]
    if hello["pythonpath"] is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = hello["pythonpath"]


def _start_django() -> None:
    """Django and the definitions, with connections of this process's own: a pool for one would only cost."""
    import django

    django.setup()
    from django.db import connections

    from jobs.conf import registry

    for given in connections.settings.values():
        if "postgresql" in given.get("ENGINE", ""):
            given["OPTIONS"].pop("pool", None)
            given["OPTIONS"].setdefault("application_name", "jobs child")
    registry()


def _log_to(console: int) -> None:
    """Log records go where the worker's go; what is printed is caught, and kept as lines of the attempt.

    Those are told of log records by the logging of the run itself, and would have each of them twice.
    """
    stream = os.fdopen(console, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    for logger in loggers:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout):
                handler.setStream(stream)


if __name__ == "__main__":
    main()
