"""One process of ours that does not outlive us: started, signalled, asked to end, waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class Child:
    """A command in a process and a process group of its own: Ctrl-C reaches us alone, and we end it in order."""

    def __init__(self, arguments: Sequence[str], *, output: int, keeps: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobsite.up.attended", *arguments], stdin=subprocess.PIPE, stdout=output,
            stderr=output, env=environment(), process_group=0, pass_fds=keeps)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended, below 0 by that signal; None while it runs."""
        return self._process.poll()

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.code is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Ask it to end, by the same word that it hears if we die. To say it twice is to say it once."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        self._process.wait(seconds)
        self.end()


def environment() -> dict[str, str]:
    """Ours, and the checkout that we lie in: if it was never installed, it is on no path of a child's."""
    here = Path(__file__).resolve().parents[2]
    if not (here / "manage.py").exists():
        return dict(os.environ)
    paths = [str(here), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
