"""Receipts in people's words: each of them a sentence, whoever shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs import clock
from jobs.models import Receipt
from jobs.receipts import Kind
from jobs.states import State


@dataclass(frozen=True, slots=True)
class Step:
    """One receipt, told. `to` is the state that it moved the job to."""

    number: int
    kind: str
    at: datetime
    said: str
    by: str = ""
    to: str = ""


def facts(body: str) -> dict[str, Any]:
    """What a receipt holds; nothing where somebody has changed it to what is no JSON object."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def step(row: Receipt, body: dict[str, Any], numbers: dict[str, int]) -> Step:
    """One receipt, told; attempts by their numbers."""
    return Step(row.number, row.kind, row.at, tell(row.kind, body, numbers), str(body.get("by") or ""),
                str(body.get("to") or ""))


def tell(kind: str, body: dict[str, Any], numbers: dict[str, int]) -> str:
    """One receipt as a sentence."""
    holder = body.get("attempt")
    number = numbers.get(str(holder))
    attempt = f"attempt {number}" if number is not None else "the attempt"
    words = _TOLD.get(kind)
    return words(body, attempt) if words else f"{kind} {json.dumps(body, sort_keys=True)}"


def _by(body: dict[str, Any]) -> str:
    return f" by {body['by']}" if body.get("by") else ""


def _why(body: dict[str, Any]) -> str:
    return f" ({body['reason']})" if body.get("reason") else ""


def _when(body: dict[str, Any]) -> str:
    if "available_at" in body:
        return f", not before {clock.jsonable(clock.moment(body['available_at']))}"
    return f", not before {span(body['after'] / 1e6)} later" if body.get("after") else ""


def _back(said: str, body: dict[str, Any]) -> str:
    """The end of an attempt and what it meant for the job."""
    match body.get("to"):
        case State.QUEUED:
            return f"{said}; the job waits again{_when(body)}"
        case State.FAILED:
            letter = ", a dead letter was opened" if body.get("dead_letter") else ""
            return f"{said}; the job failed for good ({body.get('reason')}){letter}"
        case State.CANCELLED:
            return f"{said}; an abort was pending, so the job was cancelled ({body.get('reason')})"
        case _:
            return said


def _stage(body: dict[str, Any]) -> str:
    stage = body.get("progress") or {}
    return f"{stage.get('event')} stage {stage.get('stage')!r}"


def _places(body: dict[str, Any]) -> str:
    """Where an input was changed."""
    places = [str(change["at"]) or "its root" for change in body.get("changes", ())]
    more = int(body.get("more", 0)) + max(0, len(places) - 3)
    return ", ".join(places[:3]) + (f" and {more} more places" if more else "")


def _failed(body: dict[str, Any], attempt: str) -> str:
    if body.get("attempt") is None:
        return _back("the job ended while it waited", body)
    return _back(f"{attempt} failed with {body.get('code') or body.get('reason')}", body)


_COMMANDS = {"steer": "a steer", "follow_up": "a follow-up", "abort": "an abort"}


def _count(body: dict[str, Any]) -> str:
    """How many commands were consumed."""
    count = len(body.get("commands", ()))
    return "a command" if count == 1 else f"{count} commands"


_TOLD: dict[str, Callable[[dict[str, Any], str], str]] = {
    Kind.ENQUEUED: lambda b, a: f"enqueued as {b.get('type')}{_by(b)} (origin {b.get('origin')}){_when(b)}",
    Kind.LEASED: lambda b, a: f"{a} claimed{_by(b)}",
    Kind.HEARTBEAT: lambda b, a: f"{a} sent its first heartbeat: running",
    Kind.PROGRESS: lambda b, a: f"{a} {_stage(b)}",
    Kind.CHECKPOINT: lambda b, a: f"{a} kept checkpoint {b.get('checkpoint')}",
    Kind.COMPLETED: lambda b, a: f"{a} completed the job",
    Kind.FAILED: _failed,
    Kind.CANCELLED: lambda b, a: f"cancelled{_by(b)} ({b.get('reason')})",
    Kind.LEASE_EXPIRED: lambda b, a: _back(f"the lease of {a} ran out: its holder was not heard of", b),
    Kind.COMMAND: lambda b, a: f"{_COMMANDS.get(str(b.get('command')), 'a command')} was sent{_by(b)}{_why(b)}",
    Kind.CONSUMED: lambda b, a: f"{a} dealt with {_count(b)}",
    Kind.RELEASED: lambda b, a: _back(f"{a} gave the job back", b),
    Kind.INTERRUPTED: lambda b, a: _back(f"{a} was interrupted ({b.get('code') or b.get('reason')})", b),
    Kind.PAUSED: lambda b, a: f"paused{_by(b)} ({b.get('reason')})",
    Kind.RESUMED: lambda b, a: f"resumed{_by(b)}{_why(b)}{_when(b)}",
    Kind.SUPERSEDED: lambda b, a: f"superseded by generation {b.get('generation')} of its target{_by(b)}",
    Kind.REQUEUED: lambda b, a: f"requeued{_by(b)}: a new chain begins ({b.get('reason')})",
    Kind.CHANGED: lambda b, a: f"its input was changed{_by(b)} at {_places(b)} ({b.get('reason')})",
    Kind.REDACTED: lambda b, a: f"what it said was redacted{_by(b)} ({b.get('reason')})",
    Kind.DISCARDED: lambda b, a: f"its dead letter was discarded{_by(b)} ({b.get('reason')})",
}


def span(seconds: float) -> str:
    """A length of time for people."""
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if abs(seconds) < 7_200 else f"{seconds / 3_600:.1f} h"
