"""What a worker says: lines for people on a terminal, one JSON object a line elsewhere (A64)."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from datetime import UTC
from typing import Any, TextIO

from jobs import clock

LIMIT = 2_000
SECRETS = ("authorization", "cookie", "password", "secret", "token", "session", "api_key", "access_key")


def clipped(name: str, value: Any) -> Any:
    """A value as a log may show it: secrets by name left out, text cut, control characters escaped."""
    if any(word in name.lower() for word in SECRETS):
        return "[redacted]"
    if isinstance(value, dict):
        return {str(key): clipped(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [clipped(name, inner) for inner in value]
    return value[:LIMIT] if isinstance(value, str) else value


class Silent:
    """Says nothing."""

    level = 0

    def __call__(self, event: str, level: int = 1, **facts: Any) -> None:
        """Say nothing."""

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Write nothing."""


class Output:
    """Writes events; `level` 0 only trouble, 1 the usual, 2 every job."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool | None = None, level: int = 1) -> None:
        self.stream = stream or sys.stdout
        self.as_json = not self.stream.isatty() if as_json is None else as_json
        self.level = level
        # Again by its own thread: what the collector ends in the middle of a line may have something to log.
        self._lock = threading.RLock()

    def __call__(self, event: str, level: int = 1, **facts: Any) -> None:
        """Write one event with a stable name."""
        if level <= self.level:
            self.write(event, {name: value for name, value in facts.items() if value is not None})

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Write one event, whatever its level."""
        shown = {name: clipped(name, value) for name, value in facts.items()}
        line = self._json(event, shown) if self.as_json else self._plain(event, shown)
        with self._lock:
            self._write(line + "\n")

    def _write(self, line: str) -> None:
        try:
            self.stream.write(line)
            self.stream.flush()
        except UnicodeEncodeError:
            self._write(line.encode("ascii", "backslashreplace").decode())
        except OSError:
            self._to_nowhere()
        except ValueError:
            pass  # it has been closed

    def _to_nowhere(self) -> None:
        """Nobody reads us any more; that is no reason to stop working, nor to end with a failure."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    @staticmethod
    def _json(event: str, facts: dict[str, Any]) -> str:
        at = clock.wall().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # What a log record brings may not take the place of these.
        own = {"at": at, "event": event}
        return json.dumps(own | facts | own, ensure_ascii=True, default=str)

    @staticmethod
    def _plain(event: str, facts: dict[str, Any]) -> str:
        at = clock.wall().astimezone(UTC).astimezone().strftime("%H:%M:%S")
        words = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
        return f"{at}  {event.removeprefix('worker.').replace('_', ' '):<12} {words}"


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
