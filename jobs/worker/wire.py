"""The words between a worker and its isolated children: one JSON object a line, bounded, never pickle.

To the child: `hello`, `run`, `stop`, `cancel`, `heard` (commands are unread). From it: `ready`, `begun`, `log` (a line
to keep), `said` (a record to write), `diagnostic`, `publishing`, `settled`, `masks` (what to leave out), `end`.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from datetime import datetime
from socket import socket
from typing import Any

from jobs.codecs import MAX_PAYLOAD_BYTES
from jobs.outcomes import Completed, Failed, Interrupted, Released, Stopped
from jobs.services.assignments import Claimed
from jobs.worker.executor import PUBLISHED, Published, Result, Spoilt

# The largest payload, with every character of it escaped.
MOST_BYTES = 8 * MAX_PAYLOAD_BYTES
_OUTCOMES: dict[str, type] = {kind.__name__: kind for kind in (Completed, Failed, Stopped, Released, Interrupted)}
Message = dict[str, Any]


class Garbled(Exception):
    """What came is no message: too long, or not JSON."""


def encoded(message: Message) -> bytes:
    """A message as it is sent."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


class Frames:
    """Puts what arrives in pieces together again."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._pieces = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises Garbled."""
        seen = len(self._pieces)
        self._pieces += data
        messages = []
        while (end := self._pieces.find(b"\n", seen)) >= 0:
            messages.append(_message(bytes(self._pieces[:end])))
            del self._pieces[: end + 1]
            seen = 0
        if len(self._pieces) > self._most:
            raise Garbled(f"a message of more than {self._most} bytes")
        return messages


def _message(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Garbled(str(error)) from None
    if not isinstance(message, dict):
        raise Garbled("not an object")
    return message


class Speaker:
    """Sends whole messages from any thread of a child."""

    def __init__(self, to: socket) -> None:
        self._to = to
        self._guard = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one; waits while its reader is busy. Raises OSError once nobody reads any more."""
        said = encoded(message)
        with self._guard:
            self._to.sendall(said)

    def close(self) -> None:
        """Close this process's end."""
        self._to.close()


def claimed_words(job: Claimed) -> Message:
    """A claimed job as it is sent."""
    words = job._asdict()
    words["deadline_at"] = None if job.deadline_at is None else job.deadline_at.isoformat()
    return words


def claimed(words: Message) -> Claimed:
    """The claimed job of its words."""
    at = words["deadline_at"]
    return Claimed(**{**words, "deadline_at": None if at is None else datetime.fromisoformat(at)})


def result_words(result: Result) -> Message:
    """How an attempt ended, as it is sent."""
    if isinstance(result, (Published, Spoilt)):
        return {"is": type(result).__name__, "text": str(result) if isinstance(result, Spoilt) else ""}
    words = asdict(result)
    if isinstance(result, Completed):
        words["digest"] = result.digest.hex()
    return {"is": type(result).__name__, **words}


def result(words: Message) -> Result:
    """How an attempt ended. Raises Garbled."""
    said = dict(words)
    kind = said.pop("is", None)
    try:
        if kind == Published.__name__:
            return PUBLISHED
        if kind == Spoilt.__name__:
            return Spoilt(said["text"])
        if "digest" in said:
            said["digest"] = bytes.fromhex(said["digest"])
        return _OUTCOMES[str(kind)](**said)  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError) as error:
        raise Garbled(f"no outcome: {error}") from None
