"""Whether the receipts of a job are one unbroken story, and whether its row says what they say (A12, E12).

The one comparison of view and row: for `verify`, `explain`, the demo and the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from jobs.receipts import ZERO, BrokenHistory, Receipt, View, fold, link

# What a row keeps as the view has it, as moments, and as hashes; the rest is in `differences`.
PLAIN: Final = ("state", "reason", "revision", "claims", "chain", "chain_claims", "failures", "lapses", "releases",
                "interruptions", "pauses", "generation", "checkpoint_number", "number")
MOMENTS: Final = ("available_at", "started_at", "ended_at", "cancelled_at")
HASHES: Final = ("input_hash", "checkpoint_hash", "artifact_hash")
# What a row says: these by name, moments as microseconds since 1970, hashes in hex, `attempt`, `progress` as text, and
# `head` as bytes.
Row = Mapping[str, Any]


class Why(StrEnum):
    """What is wrong with a job's receipts, in the words of A12."""

    BROKEN_PREV = "broken prev"
    HASH_MISMATCH = "hash mismatch"
    UNREADABLE = "unreadable"
    FOLD_DIFFERS = "fold differs"


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong with a job: at which receipt, where one can be named, and what exactly."""

    why: Why
    said: str
    number: int | None = None

    def __str__(self) -> str:
        return self.said


def judge(history: Iterable[Receipt], row: Row) -> Fault | None:
    """The first fault of a job's receipts and row. Reads the history once, and never raises for what stands in it."""
    chain = _Chain(history)
    try:
        view = fold(chain)
    except BrokenHistory as error:
        # Whatever the fold says of a receipt, the chain has let it pass.
        return chain.fault or Fault(Why.UNREADABLE, str(error), error.number)
    if view is None:
        return Fault(Why.BROKEN_PREV, "there are no receipts that make a job", chain.number or None)
    differing = [f"{name}: the receipts say {_shown(told)}, the row says {_shown(kept)}"
                 for name, told, kept in _differences(view, chain.head, row)]
    if not differing:
        return None
    return Fault(Why.FOLD_DIFFERS, "fold differs in " + "; in ".join(differing), chain.number)


class _Chain:
    """Receipts as they come, as long as each fits the one before it."""

    def __init__(self, history: Iterable[Receipt]) -> None:
        self._history = history
        self.head, self.number = ZERO, 0
        self.fault: Fault | None = None

    def __iter__(self) -> Iterator[Receipt]:
        for receipt in self._history:
            if self.fault is None and (fault := self._fault(receipt)):
                self.fault = fault
                raise BrokenHistory(fault.said, fault.number)
            self.head, self.number = receipt.hash, receipt.number
            yield receipt

    def _fault(self, receipt: Receipt) -> Fault | None:
        expected = self.number + 1
        if receipt.number != expected:
            return Fault(Why.BROKEN_PREV, f"receipt {expected}: broken prev, the next one is number {receipt.number}",
                         expected)
        content = (receipt.job_id, receipt.number, receipt.at_us, receipt.kind, receipt.body)
        if link(self.head, *content) != receipt.hash:
            return Fault(Why.HASH_MISMATCH, f"receipt {receipt.number}: hash mismatch", receipt.number)
        return None


def _differences(view: View, head: bytes, row: Row) -> Iterator[tuple[str, Any, Any]]:
    """Each field that differs, with both values."""
    for name in (*PLAIN, *MOMENTS, *HASHES, "attempt"):
        if (told := getattr(view, name)) != row[name]:
            yield name, told, row[name]
    if view.progress != (kept := _parsed(row["progress"])):
        yield "progress", view.progress, kept
    if head != row["head"]:
        yield "head", head.hex(), row["head"].hex()


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    # Of receipts only facts come here; what somebody has put in by hand is not to fill the screen.
    said = repr(value)
    return said if len(said) <= 100 else f"{said[:100]}..."
