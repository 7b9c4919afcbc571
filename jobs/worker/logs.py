"""Log records of a worker: each says within which attempt it was made, and the attempt keeps its last lines (A64).

The present attempt is a contextvar that the executor sets: tasks and `asyncio.to_thread` of a handler inherit it,
threads of its own do not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from jobs.logs import facts_of
from jobs.redaction import masked, masked_facts
from jobs.services import continuing

if TYPE_CHECKING:
    from jobs.worker.context import Run


class Writer(Protocol):
    """What takes records: a worker's output, or the wire of an isolated child."""

    level: int

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Write one."""


present: ContextVar[Run | None] = ContextVar("jobs_run", default=None)
continuing.asking(lambda: None if (run := present.get()) is None else run.tenant_id)
# runworker's --verbosity: only trouble, the usual, the usual, everything.
LEVELS = (logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
_NOBODY = {"job": None, "attempt": None, "type": None, "tenant": None}
LONGEST = 64 * 1024


class AttemptFilter(logging.Filter):
    """Gives records `job`, `attempt`, `type` and `tenant`, None outside of an attempt; lets every record through.

    A site's own handlers have it in `runworker`; where a format names these words in other processes too, LOGGING
    lists it as a filter. What the caller said by `extra` stays. The credential of the attempt is taken out here: before
    any formatter cuts the text, so that no part of it is left (E10).
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record."""
        run = present.get()
        if run is not None and run.masks:
            _mask(record, run.masks)
        for name, value in (_NOBODY if run is None else run.facts).items():
            record.__dict__.setdefault(name, value)
        return True


_OWN = frozenset(vars(logging.makeLogRecord({})))


def _mask(record: logging.LogRecord, masks: tuple[str, ...]) -> None:
    """Take these secrets out of all that a record says; of an exception its text stays, whose frames hold them."""
    try:
        record.msg = masked(record.getMessage(), masks)
        if record.exc_info:
            record.exc_text = masked(logging.Formatter().formatException(record.exc_info), masks)
        added = {name: masked_facts(value, masks) for name, value in vars(record).items() if name not in _OWN}
        vars(record).update(added)
    except Exception as error:
        # What cannot be read cannot be looked through.
        for name in vars(record).keys() - _OWN:
            del record.__dict__[name]
        record.msg, record.exc_text = f"a log record that cannot be read: {type(error).__name__}", None
    record.args, record.exc_info = None, None
    record.stack_info = record.stack_info and masked(record.stack_info, masks)


class Keeping(logging.Handler):
    """Keeps what is logged within an attempt beside it, INFO and above."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        form.converter = time.gmtime
        self.setFormatter(form)
        self.addFilter(AttemptFilter())

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, a line each."""
        run = present.get()
        if run is None:
            return
        try:
            for line in self.format(record)[:LONGEST].splitlines():
                run.log(line)
        except Exception:
            self.handleError(record)


class Writing(logging.Handler):
    """Writes records as the worker's events are written: one JSON object a line off a terminal."""

    def __init__(self, output: Writer) -> None:
        super().__init__(LEVELS[min(output.level, len(LEVELS) - 1)])
        self._output = output
        self._form = logging.Formatter()
        self.addFilter(AttemptFilter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, with what the caller added."""
        try:
            told = facts_of(record, self._form)
            whose = {name: told.pop(name, None) for name in _NOBODY}
            self._output.write("log", told | (whose if whose["job"] is not None else {}))
        except Exception:
            self.handleError(record)


@contextmanager
def logging_to(output: Writer) -> Iterator[None]:
    """Within, lines are kept beside attempts, every handler knows the attempt, and there is one: the site's or ours.

    Ours takes the place of `jobs.logs.Stderr`, the handler of a site that asked for nothing of its own.
    """
    root = logging.getLogger()
    away = [handler for handler in root.handlers if getattr(handler, "gives_way", False)]
    for handler in away:
        root.removeHandler(handler)
    level, added = root.level, [Keeping(), *([] if root.handlers else [Writing(output)])]
    if not root.handlers:
        root.setLevel(added[-1].level)
    complete = AttemptFilter()
    theirs = [handler for handler in _handlers() if isinstance(handler, logging.Handler)]
    for handler in theirs:
        handler.addFilter(complete)
    for handler in added:
        root.addHandler(handler)
    # Each try of each thread would be a line, beside the worker's own word about the database.
    pool = logging.getLogger("psycopg.pool")
    loud = pool.level
    pool.setLevel(logging.ERROR)
    try:
        yield
    finally:
        pool.setLevel(loud)
        for handler in added:
            root.removeHandler(handler)
        # Where they stood: before those that came later.
        root.handlers[:0] = away
        for handler in theirs:
            handler.removeFilter(complete)
        root.setLevel(level)


def _handlers() -> set[logging.Handler]:
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    return {handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers}
