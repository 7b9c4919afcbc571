"""Log lines of every process: one JSON object a line, or words for a terminal; secrets by name left out (A64).

`Lines` and `Stderr` are the formatter and the handler that a site's LOGGING names; `runworker` writes its events by the
same functions.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from jobs.redaction import LIMIT, redacted, without_queries

Form = Literal["json", "text", "auto"]
FORMS: tuple[Form, ...] = ("json", "text", "auto")
# What Python gives to records, and what others put into them that says nothing or too much: a request's repr has its
# query, and color_message is its message again.
_OWN = frozenset([*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event", "request",
                  "color_message", "server_time"])
# What the message says already.
_IN_MESSAGE = {"request": ("method", "path", "status"), "log": ("status_code",)}


def facts_of(record: logging.LogRecord, form: logging.Formatter, but: frozenset[str] = _OWN) -> dict[str, Any]:
    """What a record says: level, logger, message, exception, and what was added by `extra`."""
    told: dict[str, Any] = {"level": record.levelname, "logger": record.name,
                            "message": without_queries(record.getMessage())}
    # The text alone is left where a secret was taken out of it.
    if exception := form.formatException(record.exc_info) if record.exc_info else record.exc_text:
        told["exception"] = _ends(without_queries(exception))
    added = {name: value for name, value in record.__dict__.items() if name not in but and value is not None}
    return {**added, **told}


def _ends(text: str) -> str:
    """Head and tail of a long text: a traceback says most at its end, which would be cut off else."""
    if len(text) <= LIMIT:
        return text
    head, gap = LIMIT // 4, "\n...\n"
    return text[:head] + gap + text[head + len(gap) - LIMIT:]


def line_of(at: datetime, event: str, facts: dict[str, Any], *, as_json: bool) -> str:
    """One line of the log, without its end."""
    shown = {name: redacted(value, name) for name, value in facts.items()}
    return _json(at, event, shown) if as_json else _words(at, event, shown)


def _json(at: datetime, event: str, facts: dict[str, Any]) -> str:
    moment = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # What a log record brings may not take the place of these.
    own = {"at": moment, "event": event}
    return json.dumps(own | facts | own, ensure_ascii=True, default=str)


def _words(at: datetime, event: str, facts: dict[str, Any]) -> str:
    words = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
    return f"{at.astimezone().strftime('%H:%M:%S')}  {event.removeprefix('worker.').replace('_', ' '):<12} {words}"


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


class Lines(logging.Formatter):
    """Records as lines. `form` is `json`, `text`, or `auto`: words on a terminal, JSON elsewhere.

    The event of a record is what `extra={"event": ...}` says, else `log`.
    """

    def __init__(self, form: Form = "auto") -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        """The line, or for people the lines."""
        as_json = self.form == "json" or (self.form == "auto" and not is_terminal(sys.stderr))
        facts, at = facts_of(record, self), datetime.fromtimestamp(record.created, UTC)
        event = str(getattr(record, "event", "log"))
        return line_of(at, event, facts, as_json=True) if as_json else _sentence(at, event, facts)


def _sentence(at: datetime, event: str, facts: dict[str, Any]) -> str:
    """A record for people: level, where from, message, and what else there is; an exception on lines of its own."""
    shown = {name: redacted(value, name) for name, value in facts.items() if name not in _IN_MESSAGE.get(event, ())}
    level, logger, message, exception = (shown.pop(name, "") for name in ("level", "logger", "message", "exception"))
    more = "".join(f" {name}={_word(value)}" for name, value in shown.items())
    line = f"{at.astimezone().strftime('%H:%M:%S')}  {level:<8} {logger}: {_word(message)}{more}"
    # Its message may be anybody's text, which is nothing to command a terminal by.
    return "\n".join([line, *map(_word, exception.split("\n"))]) if exception else line


def asks_json() -> bool | None:
    """Whether the site's LOGGING asks for JSON, or for words; None where it leaves that to the stream."""
    forms = [handler.formatter.form for handler in logging.getLogger().handlers if isinstance(handler.formatter, Lines)]
    return {"json": True, "text": False}.get(forms[0]) if forms else None


class Stderr(logging.StreamHandler):
    """Writes to whatever is standard error at the moment. Where it `gives_way`, `runworker` writes records itself."""

    def __init__(self, gives_way: bool = False) -> None:
        logging.Handler.__init__(self)
        self.gives_way = gives_way
        self._given: TextIO | None = None

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Where it goes; one that was set, as in a child whose own standard error is caught, is kept."""
        return self._given or sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        self._given = stream


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody reads this stream on a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # it has been closed
