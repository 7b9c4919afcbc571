"""Receipts: the numbered, hash-chained facts about a job, and the fold that turns them into its state (E12).

A body is canonical JSON text of facts and of hashes, never of payloads. `fold` answers what the row must
say; `link` recomputes a receipt's hash. Who writes receipts is `store.moves` alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from jobs.states import TERMINAL, State, Verb

ZERO = bytes(32)


class Kind(StrEnum):
    """What a receipt says happened (A7, E12)."""

    ENQUEUED = "job.enqueued"
    LEASED = "job.leased"
    HEARTBEAT = "job.heartbeat"
    PROGRESS = "job.progress"
    CHECKPOINT = "job.checkpoint"
    COMPLETED = "job.completed"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"
    LEASE_EXPIRED = "job.lease_expired"
    COMMAND = "queue.command"
    CONSUMED = "queue.command.consumed"
    RELEASED = "job.released"
    INTERRUPTED = "job.interrupted"
    PAUSED = "job.paused"
    RESUMED = "job.resumed"
    SUPERSEDED = "job.superseded"
    REQUEUED = "job.requeued"
    DISCARDED = "job.discarded"
    CHANGED = "job.changed"
    REDACTED = "job.redacted"


KIND_OF: dict[Verb, Kind] = {
    Verb.CLAIM: Kind.LEASED,
    Verb.START: Kind.HEARTBEAT,
    Verb.COMPLETE: Kind.COMPLETED,
    Verb.FAIL: Kind.FAILED,
    Verb.SPOIL: Kind.FAILED,
    Verb.EXPIRE: Kind.FAILED,
    Verb.EXHAUST: Kind.FAILED,
    Verb.STOP: Kind.CANCELLED,
    Verb.CANCEL: Kind.CANCELLED,
    Verb.RELEASE: Kind.RELEASED,
    Verb.INTERRUPT: Kind.INTERRUPTED,
    Verb.LAPSE: Kind.LEASE_EXPIRED,
    Verb.PAUSE: Kind.PAUSED,
    Verb.RESUME: Kind.RESUMED,
    Verb.SUPERSEDE: Kind.SUPERSEDED,
    Verb.REQUEUE: Kind.REQUEUED,
}

# The counter of the chain that a kind raises when it ends or voids an attempt.
COUNTER_OF: dict[Kind, str] = {
    Kind.LEASE_EXPIRED: "lapses",
    Kind.RELEASED: "releases",
    Kind.INTERRUPTED: "interruptions",
    Kind.PAUSED: "pauses",
}

# Late news of a job that is not there: these two are ignored, everything else is an error (A11).
IGNORED_WITHOUT_JOB = frozenset({Kind.FAILED, Kind.LEASE_EXPIRED})


class BrokenHistory(Exception):
    """The receipts do not tell one story: a gap, a wrong link or an event of an unknown job.

    `number` is the first receipt that does not fit, where one can be named.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        self.number = number
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One fact: its number in the job's history, kind, moment in microseconds since 1970, body and hash."""

    job_id: uuid.UUID
    number: int
    kind: str
    at_us: int
    body: str
    hash: bytes


@dataclass(slots=True)
class View:
    """What the fold says about a job; the row must say the same (E12). Moments are microseconds since 1970."""

    state: str = State.QUEUED.value
    reason: str | None = None
    revision: int = 0
    available_at: int | None = None
    claims: int = 0
    chain: int = 1
    chain_claims: int = 0
    failures: int = 0
    lapses: int = 0
    releases: int = 0
    interruptions: int = 0
    pauses: int = 0
    attempt: str | None = None
    generation: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    cancelled_at: int | None = None
    progress: dict[str, Any] | None = None
    checkpoint_number: int = 0
    checkpoint_hash: str | None = None
    input_hash: str | None = None
    artifact_hash: str | None = None
    number: int = field(default=0)


def body_text(**facts: Any) -> str:
    """The body of a receipt: canonical JSON of the facts that are not None: str, int, bool or flat objects."""
    return json.dumps({k: v for k, v in facts.items() if v is not None}, sort_keys=True, separators=(",", ":"),
                      ensure_ascii=False, allow_nan=False)


def link(prev: bytes, job_id: uuid.UUID, number: int, at_us: int, kind: str, body: str) -> bytes:
    """The hash of a receipt over its predecessor's and its content, as the moving statement makes it (A12, E12)."""
    word = kind.encode()
    return sha256(b"".join((
        prev, job_id.bytes, number.to_bytes(8, "big", signed=True), at_us.to_bytes(8, "big", signed=True),
        len(word).to_bytes(4, "big", signed=True), word, body.encode(),
    ))).digest()


def check_chain(receipts: Iterable[Receipt], prev: bytes = ZERO, first: int = 1) -> bytes:
    """The head of an unbroken chain; raises BrokenHistory naming the first bad receipt and why (A12).

    `prev` is the hash before the receipt with number `first`.
    """
    expected = first
    for r in receipts:
        if r.number != expected:
            raise BrokenHistory(f"receipt {expected}: broken prev", expected)
        if link(prev, r.job_id, r.number, r.at_us, r.kind, r.body) != r.hash:
            raise BrokenHistory(f"receipt {r.number}: hash mismatch", r.number)
        prev, expected = r.hash, expected + 1
    return prev


def fold(receipts: Iterable[Receipt]) -> View | None:
    """Replay a job's receipts in order. None for no job (A7 to A11).

    Raises BrokenHistory for an event of an unknown job (E14.4) and for what no writer of receipts writes.
    """
    view: View | None = None
    for r in receipts:
        try:
            view = _folded(view, r)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise BrokenHistory(f"receipt {r.number}: nothing that we write ({error})", r.number) from error
    return view


def _folded(view: View | None, r: Receipt) -> View | None:
    kind, body = Kind(r.kind), json.loads(r.body)
    if view is not None:
        _note(view, r, kind, body)
    elif kind is Kind.ENQUEUED:
        view = _born(r, body)
    elif kind not in IGNORED_WITHOUT_JOB:
        raise BrokenHistory(f"Invariant: no job for {r.job_id}", r.number)
    return view


def _born(r: Receipt, body: dict[str, Any]) -> View:
    view = View(generation=body.get("generation"), input_hash=body["input"])
    _move(view, r, body)
    view.number = r.number
    return view


def _note(view: View, r: Receipt, kind: Kind, body: dict[str, Any]) -> None:
    view.number = r.number
    holder = body.get("attempt")
    if kind is Kind.LEASED:
        # A second lease of a job that is not waiting changes nothing (A8).
        if view.state != State.QUEUED:
            return
    elif holder is not None and holder != view.attempt:
        # Late news from a holder that lost its lease is inert (A9, A10).
        return
    if kind is Kind.PROGRESS:
        view.progress = body["progress"]
    elif kind is Kind.CHECKPOINT:
        view.checkpoint_number, view.checkpoint_hash = body["checkpoint"], body["hash"]
    elif kind is Kind.CHANGED and "input" in body:
        view.input_hash = body["input"]
    if "to" in body:
        _count(view, r, kind, body)
        _move(view, r, body)


def _count(view: View, r: Receipt, kind: Kind, body: dict[str, Any]) -> None:
    if kind is Kind.LEASED:
        view.claims += 1
        view.chain_claims += 1
        view.started_at = view.started_at if view.started_at is not None else r.at_us
    if body.get("failure"):
        view.failures += 1
    # One interruption too many is a failure instead (E4).
    told = kind is not Kind.INTERRUPTED or not body.get("failure")
    if told and body.get("attempt") is not None and (counter := COUNTER_OF.get(kind)):
        setattr(view, counter, getattr(view, counter) + 1)
    if kind is Kind.REQUEUED:
        view.chain += 1
        view.chain_claims = view.failures = view.lapses = view.releases = view.interruptions = view.pauses = 0
    if kind is Kind.COMPLETED:
        view.artifact_hash = body["artifact"]


def _move(view: View, r: Receipt, body: dict[str, Any]) -> None:
    state = State(body["to"])
    view.state, view.reason = state.value, body.get("reason")
    view.revision += 1
    if state is State.QUEUED:
        view.available_at = body["available_at"] if "available_at" in body else r.at_us + body.get("after", 0)
    view.attempt = body["attempt"] if state in (State.LEASED, State.RUNNING) else None
    view.ended_at = r.at_us if state in TERMINAL else None
    if state is State.CANCELLED:
        view.cancelled_at = r.at_us
