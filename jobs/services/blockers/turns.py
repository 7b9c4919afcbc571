"""What stands between a claimable job and its claim: its line in the rotation, and its turn (C4 to C6)."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.services import standing
from jobs.services.blockers.asking import Asked, Blocker
from jobs.services.telling import span
from jobs.states import State


def line(asked: Asked) -> Iterator[Blocker]:
    """Whether its tenant has no line, so that no claim would ever look for it: nothing of ours leaves that behind."""
    job = asked.job
    if job.state != State.QUEUED or job.gate is not None:
        return
    if not asked.lines:
        yield Blocker("line_missing", "Its tenant has no line in the rotation, so that no claim looks for it: any new"
                      " job of its tenant in this queue opens one, and so does pausing and resuming this one.",
                      {"worker_group": job.worker_group, "queue": job.queue})


def turn(asked: Asked, *, blocked: bool) -> Iterator[Blocker]:
    """Where it stands in its queue; or that nothing is before it, if nothing else is."""
    job = asked.job
    if job.state != State.QUEUED or job.gate is not None or job.available_at > asked.now:
        if not blocked:
            yield Blocker("waiting_for_turn", "It is claimable and waits for its turn.")
        return
    stands = asked.stands
    if stands is None:
        if not blocked:
            yield Blocker("waiting_for_turn", "It is claimable and waits for its turn.")
        return
    facts = standing.as_json(stands)
    if stands.position == 1 and stands.ahead == 0:
        if not blocked:
            yield Blocker("claimable_now", "It is claimable now: the next claim takes it.", facts)
        return
    when = ""
    if stands.eta_s is not None and not blocked:
        when = f" At the pace of the last minutes it begins in about {span(stands.eta_s)}."
    yield Blocker("waiting_for_turn", f"It waits for its turn. {stands.said}.{when}", facts)
