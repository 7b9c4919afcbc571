"""The states of a job, the verbs that move it, and the one table of moves (REQUIREMENTS E1).

Every other place asks this table; nothing else knows which move is legal. What a caller of the API
reads is the `status`; what the row and the receipts hold is the `state`.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job stands; the last four are terminal."""

    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


class Verb(StrEnum):
    """What may be done to a job. Enqueue makes one and claim takes one; the store does both in bulk."""

    CLAIM = "claim"
    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    STOP = "stop"
    RELEASE = "release"
    INTERRUPT = "interrupt"
    LAPSE = "lapse"
    SPOIL = "spoil"
    EXPIRE = "expire"
    EXHAUST = "exhaust"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"
    REQUEUE = "requeue"


class Gate(StrEnum):
    """Why a queued job is not in the claim index; derived, never folded."""

    SCHEDULED = "scheduled"
    EXCLUSIVE = "exclusive"
    SPENT = "spent"
    TYPE = "type"


class SingletonMode(StrEnum):
    """What enqueue does where jobs of the same session key are active (A14)."""

    ALLOW = "allow"
    CANCEL = "cancel"
    STEER = "steer"


class CommandKind(StrEnum):
    """What may be said to an active job (A6)."""

    STEER = "steer"
    FOLLOW_UP = "follow_up"
    ABORT = "abort"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.SUPERSEDED})
HELD = frozenset({State.LEASED, State.RUNNING})
ACTIVE = frozenset(State) - TERMINAL

_HELD_ENDS = frozenset({State.QUEUED, State.FAILED, State.CANCELLED})

MOVES: dict[tuple[State, Verb], frozenset[State]] = {
    (State.QUEUED, Verb.CLAIM): frozenset({State.LEASED}),
    (State.LEASED, Verb.START): frozenset({State.RUNNING}),
    (State.QUEUED, Verb.SPOIL): frozenset({State.FAILED}),
    (State.LEASED, Verb.SPOIL): frozenset({State.FAILED}),
    (State.QUEUED, Verb.EXPIRE): frozenset({State.FAILED}),
    (State.QUEUED, Verb.EXHAUST): frozenset({State.FAILED}),
    (State.QUEUED, Verb.PAUSE): frozenset({State.PAUSED}),
    (State.PAUSED, Verb.RESUME): frozenset({State.QUEUED, State.FAILED}),
    (State.FAILED, Verb.REQUEUE): frozenset({State.QUEUED}),
    **{(held, Verb.COMPLETE): frozenset({State.COMPLETED}) for held in (State.LEASED, State.RUNNING)},
    **{(held, Verb.FAIL): _HELD_ENDS for held in (State.LEASED, State.RUNNING)},
    **{(held, Verb.STOP): frozenset({State.CANCELLED}) for held in (State.LEASED, State.RUNNING)},
    **{(held, Verb.RELEASE): frozenset({State.QUEUED, State.CANCELLED}) for held in (State.LEASED, State.RUNNING)},
    **{(held, Verb.INTERRUPT): _HELD_ENDS for held in (State.LEASED, State.RUNNING)},
    **{(held, Verb.LAPSE): _HELD_ENDS for held in (State.LEASED, State.RUNNING)},
    **{(held, Verb.PAUSE): frozenset({State.PAUSED, State.CANCELLED}) for held in (State.LEASED, State.RUNNING)},
    **{(active, Verb.CANCEL): frozenset({State.CANCELLED}) for active in sorted(ACTIVE)},
    **{(active, Verb.SUPERSEDE): frozenset({State.SUPERSEDED}) for active in sorted(ACTIVE)},
}

# Verbs of the holder name the live attempt; every other verb may also find none.
FENCED = frozenset({Verb.START, Verb.COMPLETE, Verb.FAIL, Verb.STOP, Verb.RELEASE, Verb.INTERRUPT, Verb.LAPSE})

STATUS: dict[State, str] = {
    State.QUEUED: "queued",
    State.LEASED: "leased",
    State.RUNNING: "running",
    State.PAUSED: "queued",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.SUPERSEDED: "cancelled",
}


def status(state: str) -> str:
    """The caller's word for a state (C1, E1)."""
    return STATUS[State(state)]


def states_of(word: str) -> tuple[str, ...]:
    """The states that a filter word means: a state, a status, or `canceled` (E1). Empty for an unknown word."""
    word = "cancelled" if word == "canceled" else word
    return tuple(s.value for s in State if word in (s.value, STATUS[s]))
