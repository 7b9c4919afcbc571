"""Timers as people see them: how each stands, its next moments, what became of the last ones. Nothing here writes.

Lists go by id, newest first, and what each timer did last is one probe of an index a line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core import signing
from django.db.models import OuterRef, Q, QuerySet, Subquery

from jobs import clock, schedules
from jobs.errors import Invalid
from jobs.models import Firing, Job, Timer
from jobs.redaction import whole
from jobs.schedules import Schedule
from jobs.selectors import Page, Scope, known
from jobs.services import recurring, timers
from jobs.services.operations import patiently
from jobs.services.timers import TimerNotFound
from jobs.services.words import MAX_DELAY_S, moment

ACTIVE, PAUSED, ARCHIVED = "active", "paused", "tenant archived"
REFUSED: Final = "refused last"
# What a list can be narrowed to.
STATES: Final = (ACTIVE, PAUSED, REFUSED)
SHOWN = 50
NEXT = 5
# Looked back at most, to say how many were refused in a row.
ROW = 20
# Refused firings that are looked at for timers that were refused last.
LATELY = 1_000
# Said from so late on.
LATE_S = 60
# The microseconds of the calendar's end.
END = 253_402_300_799_999_999


class Filter(NamedTuple):
    """What the list is narrowed to. `search`: the beginning of a name, or a type; `tenant`: a subject."""

    search: str = ""
    tenant: str = ""
    state: str = ""


class Line(NamedTuple):
    """A timer, how it stands, what it did last."""

    timer: Timer
    state: str
    last: Firing | None

    @property
    def words(self) -> str:
        """Its schedule in words."""
        return words(self.timer)

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.state == PAUSED

    @property
    def subject(self) -> str | None:
        """Of its tenant."""
        return self.timer.tenant.subject

    @property
    def workspace(self) -> str:
        """Its slug."""
        return self.timer.workspace.slug


class Lines(NamedTuple):
    """A page of timers, and where the next one begins."""

    lines: list[Line]
    more: UUID | None

    @property
    def many(self) -> int:
        """How many these are."""
        return len(self.lines)


class Upcoming(NamedTuple):
    """A moment, in UTC and as clocks of the timer's zone show it."""

    at: datetime
    there: datetime


class Fired(NamedTuple):
    """A firing, how its job stands (None: it has none, or none any more), and how much later than its moment it was."""

    firing: Firing
    job_state: str | None
    late_s: float | None


class History(NamedTuple):
    """A page of firings, the latest first, and the microseconds since 1970 behind which the next one begins."""

    lines: list[Fired]
    more: int | None

    @property
    def many(self) -> int:
        """How many these are."""
        return len(self.lines)


class Trouble(NamedTuple):
    """The latest firings were refused: so many, or more, and the last one."""

    many: int
    more: bool
    firing: Firing


# --- timers --------------------------------------------------------------------------------------------------------


def listed(narrowed: Filter, before: UUID | None = None, limit: int = SHOWN) -> Lines:
    """A page of the site's timers, the newest first. Raises TooSlow."""
    found = _narrowed(narrowed)
    if before is not None:
        found = found.filter(pk__lt=before)
    rows = patiently(lambda: list(found.order_by("-pk")[: limit + 1]))
    return Lines(lines(rows[:limit]), rows[limit - 1].pk if len(rows) > limit else None)


def page(seen: Scope, state: str | None, *, limit: int, cursor: str | None = None) -> Page:
    """A page of a scope's timers, the newest first, as Lines; the cursor is signed for it.

    Raises Invalid invalid_cursor, TenantNotFound, TooSlow.
    """
    signer = _signer("timers", tuple(known(seen)), state)
    found = _narrowed(Filter(state=state or "")).filter(tenant_id=seen.tenant_id or 0)
    if cursor is not None:
        found = found.filter(pk__lt=_unsigned(signer, cursor))
    rows = patiently(lambda: list(found.order_by("-pk")[: limit + 1]))
    return Page(lines(rows[:limit]), signer.sign(rows[limit - 1].pk.hex) if len(rows) > limit else None)


def _signer(*said: Any) -> signing.Signer:
    # A cursor is good for the list that it came from.
    return signing.Signer(salt="jobs.timers:" + hashlib.sha256(repr(said).encode()).hexdigest())


def _unsigned(signer: signing.Signer, cursor: str) -> str:
    try:
        return signer.unsign(cursor)
    except signing.BadSignature:
        raise Invalid("This cursor does not belong to this list.", field="cursor", code="invalid_cursor") from None


def lines(rows: Sequence[Timer]) -> list[Line]:
    """The same of timers that were read with their tenants."""
    now, last = clock.now(), latest(rows)
    return [Line(row, state(row, now), last.get(row.pk)) for row in rows]


def of(pk: UUID) -> Line:
    """One timer, whosever. Raises TimerNotFound."""
    row = _timers().filter(pk=pk).first()
    if row is None:
        raise TimerNotFound()
    return lines([row])[0]


def state(row: Timer, now: datetime) -> str:
    """How it stands."""
    if row.paused(now):
        return PAUSED
    return ACTIVE if row.tenant.archived_at is None and row.tenant.deleting_at is None else ARCHIVED


def latest(rows: Sequence[Timer]) -> dict[UUID, Firing]:
    """The latest firing of each of these that has one, by timer."""
    newest = Firing.objects.filter(timer=OuterRef("pk")).order_by("-moment").values("pk")[:1]
    wanted = Timer.objects.filter(pk__in=[row.pk for row in rows]).values(firing=Subquery(newest))
    return {firing.timer_id: firing for firing in Firing.objects.filter(pk__in=[one["firing"] for one in wanted])}


def _timers() -> QuerySet[Timer]:
    return Timer.objects.select_related("workspace", "tenant").defer("input")


def _narrowed(narrowed: Filter) -> QuerySet[Timer]:
    found = _timers()
    if narrowed.search:
        found = found.filter(Q(name__startswith=narrowed.search) | Q(type=narrowed.search.partition("@")[0]))
    if narrowed.tenant:
        found = found.filter(tenant__subject=narrowed.tenant)
    if narrowed.state in (ACTIVE, PAUSED):
        paused = Q(paused_at__isnull=False) & (Q(paused_until=None) | Q(paused_until__gt=clock.Now()))
        found = found.filter(paused if narrowed.state == PAUSED else ~paused)
    if narrowed.state == REFUSED:
        newest = Firing.objects.filter(timer=OuterRef("pk")).order_by("-moment").values("outcome")[:1]
        lately = Firing.objects.filter(outcome="refused").order_by("-pk").values_list("timer_id", flat=True)[:LATELY]
        found = found.filter(pk__in=set(lately)).annotate(last=Subquery(newest)).filter(last="refused")
    return found


def refused() -> int:
    """How many timers made no job at their last moment, among those that were refused lately. Raises TooSlow."""
    found = _narrowed(Filter(state=REFUSED))
    return patiently(lambda: len(found.order_by("pk").values_list("pk")[: SHOWN + 1]))


# --- one timer -----------------------------------------------------------------------------------------------------


def words(row: Timer) -> str:
    """Its schedule in words."""
    try:
        return recurring.schedule_of(row).said
    except Invalid:
        return f"{row.cron or row.every_s} in {row.zone}, which this machine does not know"


def moments(row: Timer, count: int = NEXT) -> list[Upcoming]:
    """Its next moments; none while it is paused without an end, or where this machine does not know its zone."""
    try:
        return there(timers.upcoming(row, count), row.zone)
    except Invalid:
        return []


def preview(cron: str | None = None, every_s: int | None = None, zone: str = "UTC", anchor_at: datetime | None = None,
            count: int = NEXT) -> tuple[Schedule, list[Upcoming]]:
    """The next moments (at most 100) of a schedule that no timer has.

    Raises Invalid as `schedules.parse`, and invalid_anchor_at.
    """
    now = clock.now()
    anchor = moment(anchor_at, "anchor_at") or now
    schedule = schedules.parse(cron=cron, every_s=every_s, zone=zone, anchor=anchor.replace(microsecond=0))
    found: list[datetime] = []
    after = now
    while len(found) < min(count, 100) and (at := schedule.next(after)) is not None:
        found.append(at)
        after = at
    return schedule, there(found, zone)


def there(found: Sequence[datetime], zone: str) -> list[Upcoming]:
    """Moments with what clocks of a zone show."""
    return [Upcoming(at, at.astimezone(ZoneInfo(zone))) for at in found]


def end_of(until: datetime | None, for_s: float | None) -> datetime | None:
    """The end of a pause that is said as a moment or as a span. Raises Invalid invalid_until, invalid_for_s."""
    if until is not None and for_s is not None:
        raise Invalid("`until` and `for_s` are two ends of one pause: say one", field="until", code="invalid_until")
    if for_s is None:
        return until
    if not 1 <= for_s <= MAX_DELAY_S:
        raise Invalid(f"must be a number of seconds from 1 to {MAX_DELAY_S}", field="for_s", code="invalid_for_s")
    return clock.now() + timedelta(seconds=for_s)


def firings(row: Timer, *, limit: int, cursor: str | None = None) -> Page:
    """A page of what became of its moments, the latest first. Raises Invalid invalid_cursor."""
    signer = _signer("firings", row.pk)
    before = None if cursor is None else clock.moment(int(_unsigned(signer, cursor)))
    rows = timers.history(row, before=before, limit=limit + 1)
    more = str(clock.micros(rows[limit - 1].moment)) if len(rows) > limit else None
    return Page(rows[:limit], None if more is None else signer.sign(more))


def history(row: Timer, before: int | None = None, limit: int = SHOWN) -> History:
    """The same for pages, with how their jobs stand."""
    behind = None if before is None or before > END else clock.moment(before)
    rows = timers.history(row, before=behind, limit=limit + 1)
    states = dict(Job.objects.filter(pk__in=[one.job_id for one in rows[:limit] if one.job_id])
                  .values_list("pk", "state"))
    told = [Fired(one, states.get(one.job_id), _late(one)) for one in rows[:limit]]  # type: ignore[arg-type]
    return History(told, clock.micros(rows[limit - 1].moment) if len(rows) > limit else None)


def _late(one: Firing) -> float | None:
    late = (one.made_at - one.moment).total_seconds()
    return late if late >= LATE_S and one.outcome != "missed" else None


def trouble(row: Timer) -> Trouble | None:
    """That its latest firings were refused, if they were."""
    rows = timers.history(row, limit=ROW)
    many = next((n for n, one in enumerate(rows) if one.outcome != "refused"), len(rows))
    return Trouble(many, many == ROW, rows[0]) if many else None


def options_said(row: Timer) -> str:
    """What an enqueue takes beside, for people: secrets by their names left out; empty where it says nothing.

    Of the address that is told of its jobs only where it is: what follows may be a secret, and pages of jobs show none.
    """
    said: Any = whole(json.loads(row.options or "{}"))
    if said.get("callback_url"):
        where = urlsplit(said["callback_url"])
        said["callback_url"] = f"{where.scheme}://{where.netloc}/..."
    return json.dumps(said, ensure_ascii=False) if said else ""
