"""Why a job does not run now: every blocker of the claim, asked for one job, in the order of the claim (DESIGN 7.1).

Each question is a function of `Asked` that yields what it finds, in a module of its concern and a line of `WAITING`.
None reads a backlog: they look at one row, by a key, or at as many rows as a cap lets run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from jobs.models import Job
from jobs.services.blockers import ended, held, own, owning, serving, sharing, throttled, turns
from jobs.services.blockers.asking import Asked as Asked
from jobs.services.blockers.asking import Blocker as Blocker
from jobs.states import HELD

# The first that answers is the first reason. What nobody serves is said last: it may be served in a moment.
WAITING: tuple[Callable[[Asked], Iterable[Blocker]], ...] = (
    own.paused, own.late, own.not_due, own.spent, throttled.told,
    owning.missing, sharing.group_full, owning.full, sharing.tenant,
    serving.switched_off, serving.unrouted, serving.nobody, turns.line,
)


def first(job: Job, now: datetime) -> Blocker | None:
    """The first reason for which a waiting job is not running; None for one that is held or has ended."""
    if job.ended or job.state in HELD:
        return None
    return next(_waiting(Asked(job, now)))


def all_of(asked: Asked) -> list[Blocker]:
    """All that there is to say of why a job does not run, the first reason first: also of one that runs or has ended.

    Never empty. Behind them stands which duty is silent, where one should have ended the state of things by now.
    """
    found = list(_all(asked))
    silent = [held.silent(duty, asked) for duty in dict.fromkeys(b.duty for b in found if b.duty)]
    return found + [b for b in silent if b is not None]


def _all(asked: Asked) -> Iterator[Blocker]:
    if asked.job.ended:
        return ended.told(asked)
    return held.told(asked) if asked.job.state in HELD else _waiting(asked)


def _waiting(asked: Asked) -> Iterator[Blocker]:
    blocked = False
    for ask in WAITING:
        for found in ask(asked):
            blocked = True
            yield found
    yield from turns.turn(asked, blocked=blocked)
