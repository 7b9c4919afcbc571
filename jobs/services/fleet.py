"""Who is there to run jobs: workers, runners by their keys, and who leads which periodic duty (E7, E2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError, transaction

from jobs import clock
from jobs.models import Key, Leader, Worker
from jobs.selectors import QUERY_CANCELED, TooSlow
from jobs.services.keys import Permission
from jobs.store import backlog
from jobs.store.backlog import Held
from jobs.store.sql import ALIAS, run, sqlstate

PATIENCE_MS = 3_000
SHOWN_WORKERS, SHOWN_STOPPED, SHOWN_KEYS, SHOWN_JOBS = 200, 10, 50, 20
# A worker says every 10 s that it is there, and is taken for dead after 60.
LATE = timedelta(seconds=30)
STOPPED_FOR = timedelta(days=1)
USED_FOR = timedelta(days=1)
# Retention rests for long after a long pass.
RESTS = {"retention"}
TICKS_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Working:
    """A worker that has not said that it ended. `late`: it has not been heard of for longer than it should."""

    worker: Worker
    held: Sequence[Held]
    busy: int
    late: bool

    @property
    def cut(self) -> bool:
        """Whether it runs more than is shown."""
        return self.busy > len(self.held)

    @property
    def types(self) -> int:
        """How many types it can run."""
        return len(self.worker.types)


@dataclass(frozen=True, slots=True)
class Running:
    """A key of the API that may claim and was used of late."""

    key: Key
    held: Sequence[Held]
    busy: int

    @property
    def cut(self) -> bool:
        """Whether it holds more than is shown."""
        return self.busy > len(self.held)


@dataclass(frozen=True, slots=True)
class Leading:
    """A periodic duty. `led`: somebody holds its lease; `late`: it has not ticked for longer than it should."""

    leader: Leader
    holder: str | None
    led: bool
    late: bool


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everybody, and how many workers there are beside those that are shown."""

    now: datetime
    workers: Sequence[Working]
    more: bool
    stopped: Sequence[Worker]
    runners: Sequence[Running]
    duties: Sequence[Leading]

    @property
    def count(self) -> int:
        """How many workers are shown."""
        return len(self.workers)


def look() -> Fleet:
    """The fleet as it is now. Raises TooSlow."""
    try:
        with transaction.atomic(using=ALIAS):
            run(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
            return _fleet()
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            raise TooSlow() from error
        raise


def duties() -> list[Leading]:
    """Every periodic duty and who leads it."""
    return _duties(clock.now(), {})


def _fleet() -> Fleet:
    now = clock.now()
    held: dict[object, list[Held]] = defaultdict(list)
    for one in backlog.held(SHOWN_JOBS):
        held[one.worker_id or one.key_id].append(one)
    live = list(Worker.objects.filter(stopped_at=None).order_by("name", "started_at")[: SHOWN_WORKERS + 1])
    stopped = Worker.objects.filter(stopped_at__gt=now - STOPPED_FOR).order_by("-stopped_at")[:SHOWN_STOPPED]
    keys = (Key.objects.filter(revoked_at=None, last_used_at__gt=now - USED_FOR,
                               permissions__contains=[Permission.CLAIM.value])
            .select_related("workspace", "tenant").order_by("-last_used_at")[:SHOWN_KEYS])
    return Fleet(
        now=now, workers=[_working(w, held[w.pk], now) for w in live[:SHOWN_WORKERS]], more=len(live) > SHOWN_WORKERS,
        stopped=list(stopped), runners=[Running(k, held[k.pk], _all(held[k.pk])) for k in keys],
        duties=_duties(now, {w.pk: w.name for w in live}))


def _all(held: Sequence[Held]) -> int:
    return held[0].held if held else 0


def _working(worker: Worker, held: Sequence[Held], now: datetime) -> Working:
    return Working(worker, held, min(_all(held), worker.slots), now - worker.seen_at > LATE)


def _duties(now: datetime, names: dict[object, str]) -> list[Leading]:
    found = []
    for leader in Leader.objects.order_by("duty"):
        led = leader.holder is not None and leader.until is not None and leader.until > now
        ticks = leader.ticked_at is not None and now - leader.ticked_at < TICKS_WITHIN
        found.append(Leading(leader, names.get(leader.holder, "another process") if led else None, led,
                             not ticks and leader.duty not in RESTS))
    return found
