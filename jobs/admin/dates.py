"""The date hierarchy of lists whose ids begin with their moment (UUIDv7): two index probes, never a scan."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from django.utils import formats, timezone

from jobs.clock import micros, moment
from jobs.ids import earliest

PARAMETER = "created"
YEARS = range(1970, 9_999)


class Period(NamedTuple):
    """A year, a month, a day or an hour of the site's time zone; no parts: all time."""

    parts: tuple[int, ...] = ()

    @property
    def word(self) -> str:
        """As it stands in the address."""
        return "-".join(f"{part:02d}" for part in self.parts)

    @property
    def parent(self) -> Period:
        """The one around it."""
        return Period(self.parts[:-1])

    @property
    def title(self) -> str:
        """As Django's own hierarchy says it."""
        if not self.parts:
            return "All dates"
        begin = self.begin()
        words = {1: str(begin.year), 2: formats.date_format(begin, "YEAR_MONTH_FORMAT"),
                 3: formats.date_format(begin, "MONTH_DAY_FORMAT"), 4: f"{begin:%H}:00"}
        return words[len(self.parts)]

    def begin(self) -> datetime:
        """Its first moment; raises ValueError for a date that there is not."""
        year, month, day, hour = (*self.parts, *(1970, 1, 1, 0)[len(self.parts):])
        if year not in YEARS:
            raise ValueError(f"no such year: {year}")
        return datetime(year, month, day, hour, tzinfo=_zone())

    def end(self) -> datetime:
        """The first moment after it."""
        begin = self.begin()
        match len(self.parts):
            case 1:
                return begin.replace(year=begin.year + 1)
            case 2:
                return (begin + timedelta(days=32)).replace(day=1)
            case 3:
                return begin + timedelta(days=1)
            case _:
                return begin + timedelta(hours=1)

    def within(self, first: datetime, last: datetime) -> list[Period]:
        """Its parts that touch the time from first to last."""
        match len(self.parts):
            case 0:
                numbers = range(first.year, last.year + 1)
            case 1:
                numbers = range(1, 13)
            case 2:
                numbers = range(1, (self.end() - timedelta(days=1)).day + 1)
            case 3:
                numbers = range(24)
            case _:
                return []
        found = [Period((*self.parts, number)) for number in numbers]
        return [part for part in found if part.begin() <= last and part.end() > first]


class Hierarchy(NamedTuple):
    """What the bar over a list offers."""

    here: Period
    back: Period | None
    choices: list[Period]


def _zone() -> tzinfo:
    return timezone.get_current_timezone()


def read(word: str) -> Period:
    """The period that an address names; raises ValueError."""
    found = Period(tuple(int(part) for part in word.split("-")))
    if not 1 <= len(found.parts) <= 4 or not all(part.isascii() and part.isdigit() for part in word.split("-")):
        raise ValueError(f"no such date: {word}")
    found.begin()
    return found


def ids(period: Period) -> tuple[uuid.UUID, uuid.UUID]:
    """The ids that were made within the period: from the first, below the second."""
    return tuple(earliest((micros(edge) or 0) // 1_000) for edge in (period.begin(), period.end()))  # type: ignore


def made(id_: Any) -> datetime | None:
    """When an id was made; None for one that does not say."""
    if not isinstance(id_, uuid.UUID) or id_.version != 7:
        return None
    # A forged id may name a year that the calendar does not have.
    at = (id_.int >> 80) * 1_000
    return moment(at).astimezone(_zone()) if at < 253_000_000_000_000_000 else None


def hierarchy(here: Period, first: datetime | None, last: datetime | None) -> Hierarchy | None:
    """What to offer below `here` for ids from first to last; where there is one choice only, what lies in it."""
    if first is None or last is None:
        return None
    back = here.parent if here.parts else None
    choices = here.within(first, last)
    while len(choices) == 1 and (inner := choices[0].within(first, last)):
        here, choices = choices[0], inner
    return Hierarchy(here, back, choices)
