"""`runworker --autoreload`, for development: a parent that starts the worker again whenever its source has changed.

Of Django's reloader the list of files is used. Its own loop would cut a worker off in the middle of its jobs, and
overlook a change that comes before its first look; here the worker keeps the main thread, where signals arrive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.utils import autoreload

from jobs import clock

# Django's code for "start me again".
CHANGED = 3
# How long running jobs may go on after a change, before they are handed back.
GRACE_S = 1.0
LOOK_EVERY_S = 1.0


def is_child() -> bool:
    """Whether this process was started by `supervise`."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


def supervise(say: Callable[..., None]) -> int:
    """Run this command again in a child, and again after each change; its exit code when it ends by itself.

    A child that a change has broken is not the end: the next change may mend it.
    """
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    child: subprocess.Popen[bytes] | None = None
    asked = []

    def pass_on(number: int, _: Any) -> None:
        asked.append(number)
        # On a terminal Ctrl-C has reached the child already: twice would mean at once.
        if child is not None and (number == signal.SIGTERM or not sys.stdin.isatty()):
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    changed = False
    try:
        while True:
            seen = _moments()
            child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)
            code = child.wait()
            if asked or (code != CHANGED and not changed):
                return code
            if code not in (0, CHANGED):
                say("worker.waiting_for_change", level=0, exit_code=code)
                while not asked and _moments() == seen:
                    clock.sleep(LOOK_EVERY_S)
            elif code == 0:
                return code
            if asked:
                return code
            changed = True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _moments() -> dict[Path, float]:
    return dict(autoreload.StatReloader().snapshot_files())


class Reloading(threading.Thread):
    """In the child: asks the worker to stop once a source file has changed."""

    def __init__(self, ask_stop: Callable[[], None], say: Callable[..., None]) -> None:
        super().__init__(name="jobs-reload", daemon=True)
        self._ask_stop, self._say = ask_stop, say
        self.changed = False
        # Here and not in the thread: a change that comes while we start is one.
        self._seen = _moments()

    def run(self) -> None:
        """Look each second; after a change give what runs a second, then have it handed back."""
        while (path := self._change()) is None:
            clock.sleep(LOOK_EVERY_S)
        self.changed = True
        self._say("worker.source_changed", path=str(path))
        self._ask_stop()
        clock.sleep(GRACE_S)
        self._ask_stop()

    def _change(self) -> Path | None:
        now = _moments()
        before, self._seen = self._seen, now
        return next((path for path, moment in now.items() if before.get(path, moment) != moment), None)
