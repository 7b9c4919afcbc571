"""A file that says that the claim loop of a worker goes round: for orchestrators that look at its age.

The loop touches it at most once a second, and at least every few seconds, however long its jobs run and however long
the database is away. One that is older than a minute belongs to a process that is wedged or gone.
"""

from __future__ import annotations

from pathlib import Path

from jobs import clock

EVERY_S = 1.0


class Liveness:
    """The file of one worker. Raises OSError where it cannot be made."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._every = clock.Every(EVERY_S, EVERY_S)
        self._path.touch()

    def touch(self) -> None:
        """The loop has come round."""
        if self._every.due():
            try:
                self._path.touch()
            except OSError:
                # A full or lost disk is no reason to stop working; whoever looks will see it age.
                self._every.after(10 * EVERY_S)

    def end(self) -> None:
        """It ended in order: nobody is to take the file for a wedged worker's."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            self._every.after(10 * EVERY_S)
