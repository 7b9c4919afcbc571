"""What operators hold back: a queue, worker group, type or tenant that is paused or at its cap (C9, C11)."""

from __future__ import annotations

from collections.abc import Iterator

from jobs import clock
from jobs.services import throttles
from jobs.services.blockers.asking import Asked, Blocker
from jobs.states import Gate, State


def told(asked: Asked) -> Iterator[Blocker]:
    """Each throttle that holds a waiting job; whoever sees one tenant is not told who and what is behind it."""
    found = throttles.blockers_of(asked.job, asked.now) if asked.job.state == State.QUEUED else []
    for one in found:
        facts = {"kind": one.kind, "name": one.name, "most": one.most, "until": clock.jsonable(one.until)}
        if asked.everything:
            facts |= {"scope": one.scope, "used": one.used, "paused_by": one.paused_by, "reason": one.reason,
                      "holders": list(one.holders)}
        hidden = f"Its {one.kind.replace('_', ' ')} is {'paused' if one.paused else 'at its cap'}."
        yield Blocker(one.code, one.said if asked.everything else hidden, facts)
    if not found and asked.job.gate == Gate.TYPE:
        yield Blocker("type_let_in", "Its type has room again; it is about to be let in.", {}, "repair")
