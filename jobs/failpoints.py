"""Named places at which a test makes this process die, stumble or lose its database; off unless armed.

The places stand in the code where a crash would hurt most. Unarmed, one costs a look at an empty dictionary.
"""

from __future__ import annotations

import difflib
import os
import signal
from collections.abc import Callable, Mapping

POINTS = frozenset({
    "enqueue.ready", "enqueue.written", "api.enqueued", "wake.asked", "wake.sending",
    "claim.found", "claim.written", "claim.committed", "worker.begin", "start.committed", "api.claimed",
    "settle.ready", "settle.written", "settle.committed", "api.settled",
    "publish.committing", "publish.committed", "atomic.written", "ended.written",
    "recovery.found", "recovery.written", "promote.written",
    "cancel.written", "command.written", "command.consumed", "requeue.written", "bulk.written", "bulk.committed",
    "bulk.gathered", "redact.written", "erase.written", "window.spent", "delivery.sent",
    "timer.fired", "timer.committed",
    "test.handler",
})
_armed: dict[str, Callable[[], None]] = {}


class FailPoint(Exception):
    """What an armed place raises."""


def at(name: str) -> None:
    """One of the places. Armed, it fires once."""
    if _armed and (fault := _armed.pop(name, None)) is not None:
        os.write(2, f"failpoint {name}\n".encode())
        fault()


def arm(spec: str, faults: Mapping[str, Callable[[], None]]) -> None:
    """Arm the places that `spec` names: `claim.written=kill,settle.ready=raise`; `faults` beside kill and raise.

    Raises ValueError for a place or a fault that there is not, naming the nearest.
    """
    known = {"kill": _kill, "raise": _raise, **faults}
    for word in spec.split(",") if spec else ():
        name, _, fault = word.strip().partition("=")
        _armed[_known("place", name, POINTS)] = known[_known("fault", fault, known)]


def disarm() -> None:
    """Forget every place."""
    _armed.clear()


def _known(what: str, word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    if word not in known:
        near = difflib.get_close_matches(word, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}."
        raise ValueError(f"FAILPOINTS: there is no {what} {word!r}; {hint}")
    return word


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise FailPoint("an armed failpoint")
