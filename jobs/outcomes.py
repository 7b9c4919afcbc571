"""How an attempt ended, and what a holder reports when it settles.

An `Outcome` is a value that the executor or a runner makes; what it means for the job (a retry, a dead
letter) is decided by `retry`, and written by `store.moves`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobs.states import Verb


class End(StrEnum):
    """The end of an attempt, as its row keeps it."""

    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    LAPSED = "lapsed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"


END_OF: dict[Verb, End] = {
    Verb.COMPLETE: End.COMPLETED,
    Verb.FAIL: End.FAILED,
    Verb.SPOIL: End.FAILED,
    Verb.STOP: End.CANCELLED,
    Verb.RELEASE: End.RELEASED,
    Verb.INTERRUPT: End.INTERRUPTED,
    Verb.LAPSE: End.LAPSED,
    Verb.PAUSE: End.PAUSED,
    Verb.CANCEL: End.CANCELLED,
    Verb.SUPERSEDE: End.SUPERSEDED,
}


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned; `artifact` is canonical JSON and `digest` its sha256."""

    artifact: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed with a stable `code`; `message` is free text, made storable and cut by the store."""

    code: str
    message: str = ""
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class Stopped:
    """The holder honoured an abort (E5)."""

    reason: str = "abort_requested"


@dataclass(frozen=True, slots=True)
class Released:
    """Given back by choice, claimable again after `after_us` microseconds or at `at_us` since 1970 (C32)."""

    after_us: int = 0
    at_us: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Given back because the holder could not go on; never a failure (E1)."""

    reason: str = "runner_shutdown"
    after_us: int = 0


Outcome = Completed | Failed | Stopped | Released | Interrupted

VERB_OF: dict[type, Verb] = {
    Completed: Verb.COMPLETE,
    Failed: Verb.FAIL,
    Stopped: Verb.STOP,
    Released: Verb.RELEASE,
    Interrupted: Verb.INTERRUPT,
}

MESSAGE_LIMIT = 8 * 1024


def storable(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Text that PostgreSQL can always keep: NUL and lone surrogates out, head and tail within `limit` bytes."""
    raw = text.replace("\x00", "").encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    mark = b"\n[...]\n"
    half = (limit - len(mark)) // 2
    return (raw[:half] + mark + raw[-half:]).decode("utf-8", "ignore")
