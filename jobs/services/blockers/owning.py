"""What a job waits for that runs under its tenant's owner (B35, B36)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs import clock
from jobs.models import Owner
from jobs.services import owners
from jobs.services.blockers.asking import NAMED, Asked, Blocker, before_it
from jobs.states import State


def lost(asked: Asked) -> Iterator[Blocker]:
    """Why it was paused for want of its tenant's owner."""
    found = list(_missing(asked))
    yield from found or [Blocker("owner_back", "Its tenant's owner is back; it is about to be resumed.", {}, "owners")]


def missing(asked: Asked) -> Iterator[Blocker]:
    """Whether it needs its tenant's owner, and there is none."""
    if asked.job.state != State.PAUSED or asked.job.reason != owners.UNAVAILABLE:
        yield from _missing(asked)


def _missing(asked: Asked) -> Iterator[Blocker]:
    owner = _owner(asked)
    if asked.job.credential != owners.OWNER or (owner is not None and owner.stands(asked.now)):
        return
    state = None if owner is None else owners.state(owner, asked.now)
    why = "and there is none" if owner is None else f"which is {state}"
    yield Blocker("owner_unavailable", f"It needs its tenant's owner, {why}; it goes on when one is put.",
                  {"owner": state})


def full(asked: Asked) -> Iterator[Blocker]:
    """Whether its owner's secret could not be had of late, or runs as many jobs as it may, and which."""
    owner = _owner(asked)
    if owner is None or not owner.stands(asked.now):
        return
    if owner.away_until is not None and owner.away_until > asked.now:
        when: Any = clock.jsonable(owner.away_until)
        yield Blocker("owner_away", f"The secret of its tenant's owner could not be had; no job begins before {when}.",
                      {"until": when})
        return
    most, running = owners.most(owner), owners.running(owner)
    if len(running) >= most:
        yield Blocker("owner_at_capacity", f"Its tenant's owner runs {most} at once; before it: {before_it(running)}.",
                      {"most": most, "used": len(running), "holders": running[:NAMED]})


def _owner(asked: Asked) -> Owner | None:
    if asked.job.credential != owners.OWNER:
        return None
    return Owner.objects.filter(tenant_id=asked.job.tenant_id).first()
