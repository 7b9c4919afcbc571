"""When a timer fires: cron expressions in a time zone, and intervals from an anchor (D13). A plain rule.

cronsim knows the calendar; what becomes of local times that a clock change takes away or gives twice is decided here.
Moments are whole seconds, aware, in UTC; `next` is always later than what it is asked with.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from jobs.errors import Invalid

MIN_EVERY_S, MAX_EVERY_S = 1, 366 * 86_400
EXPRESSION_LIMIT, ZONE_LIMIT = 200, 64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
# How far missed moments are counted: beyond it, it is at least so many.
COUNTED = 1_000
# How many times as many as are asked for are read at once, before a search begins.
SPARE = 4
NAMES = {"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
         "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}
FIELDS = {"minute": "0 to 59", "hour": "0 to 23", "day-of-month": "1 to 31, L or LW",
          "month": "1 to 12 or JAN to DEC", "day-of-week": "0 to 7 or SUN to SAT, and 5#2 or 5L"}


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names of the time zones that this machine knows, but for those that mean another thing on another."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})


def check_zone(name: object) -> str:
    """A time zone by its name, as `Europe/Berlin`; raises Invalid unknown_zone naming the nearest."""
    if isinstance(name, str) and len(name) <= ZONE_LIMIT and name in zones():
        return name
    said = name[:ZONE_LIMIT] if isinstance(name, str) else ""
    near = {zone.casefold(): zone for zone in zones()}
    # By its last word too: who says Berlin means Europe/Berlin.
    ends = {zone.rpartition("/")[2].casefold(): zone for zone in sorted(zones())}
    found = [names[key] for names in (near, ends) for key in difflib.get_close_matches(said.casefold(), names, 1, 0.8)]
    found = found or [near[key] for key in difflib.get_close_matches(said.casefold(), near, 1)]
    hint = f"did you mean {found[0]!r}?" if found else "name one as Europe/Berlin, or UTC."
    raise Invalid(f"There is no such time zone; {hint}", field="zone", code="unknown_zone")


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields (minute, hour, day of month, month, day of week) or a name as @daily, in a time zone.

    Where minute and hour begin with no `*`, it is a time of day as Debian's cron takes it: one that a clock change
    takes away is the first minute after it, one that comes twice fires the first time. Otherwise it fires at every
    minute whose local time matches, so that hours that come twice fire twice. Raises Invalid invalid_cron,
    unknown_zone and timer_never_fires.
    """

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        _check_fields(self.expression)
        check_zone(self.zone)
        if next(self._walls(datetime(2000, 1, 1)), None) is None:
            raise _never()

    @property
    def least(self) -> timedelta:
        """Between two moments there is no less."""
        return MINUTE

    @property
    def fields(self) -> str:
        """The five fields, names translated."""
        return _fields(self.expression)

    @property
    def said(self) -> str:
        """In words, as `At 09:00 every day, Europe/Berlin`."""
        return f"{CronSim(self.fields, datetime(2000, 1, 1)).explain()}, {self.zone}"

    def next(self, after: datetime) -> datetime | None:
        """The first moment behind this one; None where there is none within 50 years."""
        zone = ZoneInfo(self.zone)
        minute, hour, *_ = self.fields.split()
        if minute.startswith("*") or hour.startswith("*"):
            return self._recurring(after, zone)
        walls = self._walls(after.astimezone(zone).replace(tzinfo=None))
        return next((at for wall in walls if (at := _first(wall, zone)) > after), None)

    def _recurring(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        here = after.astimezone(zone)
        wall_here = here.replace(tzinfo=None)
        # A clock that is about to be put back shows local times again that are behind us already.
        back = _offset(here) - _offset((after + DAY).astimezone(zone))
        found: datetime | None = None
        for wall in self._walls(wall_here - max(back, timedelta())):
            later = [at for at in _instants(wall, zone) if at > after]
            if later and (found is None or later[0] < found):
                found = later[0]
            if found is not None and wall > wall_here:
                break
        return found

    def _walls(self, after: datetime) -> Iterator[datetime]:
        """Local times that match, behind this one, whether or not any clock shows them."""
        try:
            yield from CronSim(self.fields, after)
        except CronSimError:
            return

    def count(self, after: datetime, until: datetime) -> int:
        """How many moments lie behind `after`, `until` included: no more than COUNTED are counted."""
        return len(_some(self, after, until, COUNTED))


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many whole seconds from an anchor: it never drifts. Raises Invalid invalid_every_s."""

    every_s: int
    anchor: datetime

    def __post_init__(self) -> None:
        if type(self.every_s) is not int or not MIN_EVERY_S <= self.every_s <= MAX_EVERY_S:
            raise Invalid(f"must be a whole number of seconds from {MIN_EVERY_S} to {MAX_EVERY_S}", field="every_s",
                          code="invalid_every_s")

    @property
    def least(self) -> timedelta:
        """Between two moments there is no less, and no more."""
        return timedelta(seconds=self.every_s)

    @property
    def said(self) -> str:
        """In words, as `Every 90 seconds`."""
        for unit, word in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
            if self.every_s % unit == 0:
                n = self.every_s // unit
                return f"Every {word}" if n == 1 else f"Every {n} {word}s"
        raise AssertionError("unreachable")

    def next(self, after: datetime) -> datetime | None:
        """The first moment behind this one; none lies before the anchor."""
        every = timedelta(seconds=self.every_s)
        return max(self.anchor, self.anchor + ((after - self.anchor) // every + 1) * every)

    def count(self, after: datetime, until: datetime) -> int:
        """How many moments lie behind `after`, `until` included."""
        first, every = self.next(after), timedelta(seconds=self.every_s)
        return 0 if first is None or first > until else (until - first) // every + 1


Schedule = Cron | Interval


def parse(*, cron: str | None = None, every_s: int | None = None, zone: str = "UTC",
          anchor: datetime | None = None) -> Schedule:
    """The schedule that somebody says: either a cron expression or an interval, which has an anchor.

    Raises Invalid with every fault: invalid_schedule for both or neither, invalid_cron, timer_never_fires,
    invalid_every_s, unknown_zone.
    """
    if (cron is None) == (every_s is None):
        raise Invalid("Say either cron or every_s.", field="cron", code="invalid_schedule")
    faults: list[Invalid] = []
    try:
        check_zone(zone)
    except Invalid as error:
        faults.append(error)
    try:
        # The zone's fault is told already.
        made = Cron(cron, "UTC" if faults else zone) if cron is not None else Interval(every_s, anchor or EPOCH)  # type: ignore[arg-type]
    except Invalid as error:
        faults.insert(0, error)
    if faults:
        raise Invalid(faults[0].message, field=faults[0].field, code=faults[0].reason_code,
                      faults=[fault for error in faults for fault in error.faults])
    return made


def newest(schedule: Schedule, after: datetime, until: datetime, most: int) -> tuple[list[datetime], int]:
    """Of the moments behind `after`, `until` included, the newest `most` in their order, and how many came before.

    What came before a cron expression's is counted up to COUNTED.
    """
    span = schedule.least * most
    while True:
        span = min(span, until - after)
        found = _some(schedule, until - span, until, most * SPARE + 1)
        if len(found) > most or span == until - after:
            break
        span *= 2
    if len(found) <= most:
        return found, 0
    if len(found) > most * SPARE:
        found = _some(schedule, _bisected(schedule, until - span, until, most), until, most)
    return found[-most:], schedule.count(after, found[-most:][0] - SECOND)


def _bisected(schedule: Schedule, low: datetime, high: datetime, most: int) -> datetime:
    """Behind what lie `most` moments, `high` included: moments are a second apart at least."""
    until = high
    while high - low > SECOND:
        middle = low + (high - low) / 2
        if len(_some(schedule, middle, until, most + 1)) > most:
            low = middle
        else:
            high = middle
    return high


def _some(schedule: Schedule, after: datetime, until: datetime, most: int) -> list[datetime]:
    found: list[datetime] = []
    at = schedule.next(after)
    while at is not None and at <= until and len(found) < most:
        found.append(at)
        at = schedule.next(at)
    return found


# --- local times ---------------------------------------------------------------------------------------------------


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta()


def _instants(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """When clocks there show this: once, twice or never."""
    both = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(at for at in both if at.astimezone(zone).replace(tzinfo=None) == wall)


def _first(wall: datetime, zone: ZoneInfo) -> datetime:
    """When clocks there show this first, or the first minute after it that they show."""
    while not (found := _instants(wall, zone)):
        wall += MINUTE
    return found[0]


# --- what may be said ----------------------------------------------------------------------------------------------


def _fields(expression: str) -> str:
    return NAMES.get(expression.strip().lower(), expression)


def _never() -> Invalid:
    return Invalid("This never comes: there is no such day in such a month.", field="cron", code="timer_never_fires")


def _wrong(message: str) -> Invalid:
    return Invalid(message, field="cron", code="invalid_cron")


def _check_fields(expression: object) -> None:
    if not isinstance(expression, str) or not 0 < len(expression) <= EXPRESSION_LIMIT or not expression.isprintable():
        raise _wrong(f"must be five fields in 1 to {EXPRESSION_LIMIT} printable characters")
    if expression.strip().startswith("@") and expression.strip().lower() not in NAMES:
        raise _wrong(f"There is no such name; known are {', '.join(NAMES)}.")
    parts = _fields(expression).split()
    if len(parts) != len(FIELDS):
        more = "; below a minute say every_s" if len(parts) == len(FIELDS) + 1 else ""
        raise _wrong(f"has {len(parts)} fields and must have five: {', '.join(FIELDS)}{more}")
    faults = []
    for n, (name, right) in enumerate(FIELDS.items()):
        alone = ["*"] * len(FIELDS)
        alone[n] = parts[n]
        try:
            CronSim(" ".join(alone), datetime(2000, 1, 1))
        except (CronSimError, ValueError):
            faults.append({"field": "cron", "message": f"Its {name} {parts[n]!r} is none: {right}, also as 1-5, 1,5 "
                                                       "or */2."})
    if faults:
        raise Invalid(faults[0]["message"], field="cron", code="invalid_cron", faults=faults)
