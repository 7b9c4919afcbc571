"""How an attempt ended, and what a holder reports when it settles.

An `Outcome` is a value that the executor or a runner makes; what it means for the job (a retry, a dead
letter) is decided by `retry`, and written by `store.moves`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobs.states import TERMINAL, State, Verb


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


class ResultStatus(StrEnum):
    """Why an attempt did not complete, in the words of A39; ours are `reason_code` and `outcome`."""

    SETTLEMENT_CONFLICT = "settlement_conflict"
    STALE_ATTEMPT = "stale_attempt"
    LEASE_LOST = "lease_lost"
    TERMINAL_STATE = "terminal_state"
    CANCELED = "canceled"
    EXECUTION_TIMEOUT = "execution_timeout"
    FAILED = "failed"


_HANDED_BACK = frozenset({End.RELEASED, End.INTERRUPTED, End.PAUSED})


def result_status(end: str | None, reason_code: str | None = None) -> ResultStatus | None:
    """The word for an attempt that ended so; None where it completed, was handed back or lives on (A39, E5)."""
    if end is None or end == End.COMPLETED or end in _HANDED_BACK:
        return None
    return _status(end in (End.CANCELLED, End.SUPERSEDED), reason_code)


def final_status(state: str, reason_code: str | None = None) -> ResultStatus | None:
    """The word for a job that ended so; None before its end and where it completed (A39, E5).

    Only an end is told: what is retried keeps its error and runs again.
    """
    if state not in TERMINAL or state == State.COMPLETED:
        return None
    return _status(state in (State.CANCELLED, State.SUPERSEDED), reason_code)


def _status(stopped: bool, reason_code: str | None) -> ResultStatus:
    if stopped:
        return ResultStatus.CANCELED
    return ResultStatus.EXECUTION_TIMEOUT if reason_code == "attempt_timeout" else ResultStatus.FAILED


def refused_status(code: str, state: object = None) -> ResultStatus | None:
    """The word for a holder whose call was refused with this code, its job being in this state (A39, E5).

    Whoever knows more says it instead: a refused first heartbeat is `lease_lost`, and a settlement that lost a race
    `settlement_conflict`.
    """
    if code == "job_ended" or (code == "stale_claim" and state in TERMINAL):
        return ResultStatus.TERMINAL_STATE
    return {"stale_claim": ResultStatus.STALE_ATTEMPT, "settlement_refused": ResultStatus.SETTLEMENT_CONFLICT,
            }.get(code)


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
