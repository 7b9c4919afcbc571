"""The site's middleware around a handler: `JOBS["MIDDLEWARE"]` names callables `(run) -> context manager`.

The first is the outermost. They are entered and left in the thread, task or process where the handler runs, by plain
calls, for `def` and `async def` alike: what they set in a contextvar the handler sees, what it raises they see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from jobs import conf
from jobs.worker.context import Run, Stopped


class Swallowed(Exception):
    """A middleware swallowed what was raised inside it: a job that raised has not succeeded."""

    def __init__(self, thrown: BaseException) -> None:
        super().__init__(f"A middleware swallowed {type(thrown).__name__}: a job that raised has not succeeded.")
        self.thrown = thrown


@contextmanager
def around(run: Run) -> Iterator[None]:
    """Within, all of them are entered. Raises what the handler or one of them raised, Swallowed where one hid it.

    A cancellation, an exit or an asked-for stop cannot be hidden: it is raised again.
    """
    thrown: BaseException | None = None
    with ExitStack() as entered:
        try:
            for middleware in conf.middleware():
                entered.enter_context(middleware(run))
            yield
        except BaseException as error:
            thrown = error
            raise
    if thrown is None:
        return
    if isinstance(thrown, Exception) and not isinstance(thrown, Stopped):
        raise Swallowed(thrown)
    raise thrown
