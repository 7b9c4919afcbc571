"""The site at a glance: what waits, runs, settles and stands still, by worker group and queue (issue 4).

Read in one short transaction and kept for a second, since pages that follow the site ask again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError, transaction
from django.db.models import Count, Sum

from jobs import clock
from jobs.conf import registry
from jobs.meters import Pair
from jobs.models import Key, Throttle, Worker
from jobs.routing import SYSTEM, UNROUTED
from jobs.selectors import QUERY_CANCELED, TooSlow
from jobs.services import throttles
from jobs.services.blockers.serving import RUNNER_LIVE_FOR
from jobs.services.keys import Permission
from jobs.services.letters import Grown, grown
from jobs.services.traffic import MINUTES
from jobs.services.workers import LIVE_FOR
from jobs.store import backlog, traffic
from jobs.store.backlog import CAP, LETTERS_CAP, Paused
from jobs.store.sql import ALIAS, run, sqlstate

PATIENCE_MS = 3_000
FRESH_S = 1.0
# Else everybody would wait in turn for a database that is silent.
WAITS_S = 5.0
# Claims of so many minutes ago, and nothing settled since: handlers that hang, or runners that only claim.
STALL_MINUTES, STALL_AFTER = 10, 3
PACE_MINUTES = 5
THROTTLED = 4
HOUR = timedelta(minutes=MINUTES)


@dataclass(frozen=True, slots=True)
class Capped:
    """A number that stopped at its cap where `more` is true."""

    number: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One worker group and queue. `settled` and `erred` are by minute, the present one last."""

    worker_group: str
    queue: str
    waiting: Capped
    scheduled: Capped
    held: Capped
    running: int
    oldest: datetime | None
    at_least: bool
    settled: Sequence[int]
    erred: Sequence[int]
    stalled: int
    unserved: str | None
    empty_in_s: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that the first page shows."""

    now: datetime
    lines: Sequence[Line]
    waiting: Capped
    running: int
    settled_minute: int
    settled_hour: int
    erred_hour: int
    letters: Capped
    letters_opened: int
    letters_answered: int
    grown: Sequence[Grown]
    workers: int
    slots: int
    busy: int
    paused: Sequence[Paused]
    parked: dict[str, int]
    throttled: Sequence[Throttle]
    switched_off: Sequence[str]
    closed: Sequence[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has ever happened here, as far as one can see."""
        return not (self.lines or self.workers or self.letters.number or self.paused)


class Look:
    """An overview that is at most a second old; one thread looks, the others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Look anew the next time."""
        self._seen: Overview | None = None
        self._at = 0.0

    def __call__(self) -> Overview:
        """The overview. Raises TooSlow, also where the one who looks does not come back."""
        if not self._lock.acquire(timeout=WAITS_S):
            raise TooSlow()
        try:
            if self._seen is None or clock.monotonic() - self._at > FRESH_S:
                self._seen, self._at = _patiently(), clock.monotonic()
            return self._seen
        finally:
            self._lock.release()


look = Look()


def _patiently() -> Overview:
    try:
        with transaction.atomic(using=ALIAS):
            run(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
            return overview()
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            raise TooSlow() from error
        raise


def overview() -> Overview:
    """Look now, within the present transaction."""
    now = clock.now()
    lines = _lines(now)
    # Not pumps, which run nobody's jobs but the house's.
    live = Worker.objects.filter(stopped_at=None, seen_at__gt=now - LIVE_FOR).exclude(worker_groups=[SYSTEM])
    workers = live.aggregate(
        n=Count("pk"), slots=Sum("slots"), busy=Sum("running"))
    opened, answered = traffic.letters()
    return Overview(
        now=now, lines=lines, waiting=_sum(x.waiting for x in lines), running=sum(x.running for x in lines),
        settled_minute=_last_minute(lines, now), settled_hour=sum(sum(x.settled) for x in lines),
        erred_hour=sum(sum(x.erred) for x in lines), letters=_count(backlog.open_letters(), LETTERS_CAP),
        letters_opened=opened, letters_answered=answered, grown=grown(now - HOUR),
        workers=workers["n"], slots=workers["slots"] or 0,
        busy=workers["busy"] or 0, paused=backlog.paused(), parked=backlog.parked(),
        throttled=throttles.paused_now(now, THROTTLED),
        switched_off=sorted(d.name for d in registry() if not d.runs),
        closed=sorted(d.name for d in registry() if d.runs and not d.enabled))


def _count(found: int, cap: int = CAP) -> Capped:
    return Capped(min(found, cap), found > cap)


def _sum(counts: Iterable[Capped]) -> Capped:
    some = list(counts)
    return Capped(sum(x.number for x in some), any(x.more for x in some))


def _last_minute(lines: Sequence[Line], now: datetime) -> int:
    """Of the minute before this moment: all of the present one, and so much of the one before as is not over."""
    left = 1 - (now.second + now.microsecond / 1e6) / 60
    return round(sum(x.settled[-1] + left * x.settled[-2] for x in lines))


# --- by worker group and queue --------------------------------------------------------------------------------------


class _Minutes:
    """The last hour of one pair."""

    def __init__(self) -> None:
        self.claimed, self.settled, self.erred = ([0] * MINUTES for _ in range(3))

    def stalled(self) -> int:
        """How many were claimed some minutes ago, if nothing has settled since. A hint: a job may take long."""
        if any(self.settled[-STALL_MINUTES:]):
            return 0
        return sum(self.claimed[-STALL_MINUTES:-STALL_AFTER])

    def pace_s(self) -> float:
        """Jobs a second that ended as completed or failed, of late."""
        return sum(self.settled[-PACE_MINUTES - 1:-1]) / (60 * PACE_MINUTES)


def _hour(now: datetime) -> dict[Pair, _Minutes]:
    found: dict[Pair, _Minutes] = {}
    for row in traffic.minutes(MINUTES):
        back = int((now - row.minute).total_seconds() // 60)
        if 0 <= back < MINUTES:
            here = found.setdefault((row.worker_group, row.queue), _Minutes())
            at = MINUTES - 1 - back
            here.claimed[at], here.settled[at], here.erred[at] = row.claimed, row.settled, row.erred
    return found


def _lines(now: datetime) -> list[Line]:
    hour, running = _hour(now), backlog.running()
    (scheduled, all_due), (held, all_held) = backlog.gated("scheduled"), backlog.held_back()
    known = sorted({*backlog.pairs(), *hour, *running, *scheduled, *held})[: backlog.PAIRS]
    waiting, served = backlog.waiting(known), _Served(now)
    lines = []
    for pair in known:
        here, minutes = waiting[pair], hour.get(pair, _Minutes())
        pace = minutes.pace_s()
        # A line that stays behind when all of its work is done says nothing.
        if not (here.number or pair in hour or pair in running or pair in scheduled or pair in held):
            continue
        lines.append(Line(
            worker_group=pair[0], queue=pair[1], waiting=_count(here.number),
            scheduled=Capped(scheduled.get(pair, 0), not all_due), held=Capped(held.get(pair, 0), not all_held),
            running=running.get(pair, 0), oldest=here.oldest, at_least=not here.all_seen, settled=minutes.settled,
            erred=minutes.erred, stalled=minutes.stalled(), unserved=served.missing(pair) if here.number else None,
            empty_in_s=here.number / pace if pace and 0 < here.number <= CAP else None))
    return lines


class _Served:
    """Who is alive to claim from a pair: workers, or runners by the keys that were used of late (DESIGN 7.1)."""

    def __init__(self, now: datetime) -> None:
        live = Worker.objects.filter(stopped_at=None, seen_at__gt=now - LIVE_FOR)
        self._inside = {(group, queue) for groups, queues in live.values_list("worker_groups", "queues")
                        for group in groups for queue in queues}
        keys = Key.objects.filter(revoked_at=None, last_used_at__gt=now - RUNNER_LIVE_FOR,
                                  permissions__contains=[Permission.CLAIM.value])
        self._outside = list(keys.values_list("worker_groups", flat=True))
        # Jobs of unknown agents are every worker's; a group that has no handler here is for runners.
        self._ours = {*registry().groups(), UNROUTED} - set(registry().groups(external=True))

    def missing(self, pair: Pair) -> str | None:
        """What there is none of, if nobody alive serves this pair."""
        group = pair[0]
        if pair in self._inside:
            return None
        if group in self._ours:
            return "worker"
        return None if any(groups is None or group in groups for groups in self._outside) else "runner"
