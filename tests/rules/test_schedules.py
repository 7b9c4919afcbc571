"""When timers fire: against a scan of every minute, in zones whose clocks change in every odd way there is.

The scan knows nothing of calendars and nothing of cronsim: it asks each minute of UTC what local clocks show.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import Invalid
from jobs.schedules import COUNTED, NAMES, Cron, Interval, check_zone, newest, parse, zones

LONG = os.environ.get("JOBSITE_LONG") == "1"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# Half an hour, three quarters, two hours, at midnight, a day that never was, before midnight, not at the full hour;
# years with a Ramadan in summer time, and zones that changed their mind.
ODD = ("Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll", "America/Santiago", "Pacific/Apia",
       "America/St_Johns", "Africa/Casablanca", "Africa/Cairo", "Asia/Amman", "Asia/Gaza", "Antarctica/Casey",
       "America/Havana")
FIFTY = (*ODD,
         "UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow",
         "Europe/Istanbul", "Europe/Kyiv", "America/New_York", "America/Chicago", "America/Denver",
         "America/Los_Angeles", "America/Anchorage", "America/Halifax", "America/Sao_Paulo", "America/Asuncion",
         "America/Montevideo", "America/Mexico_City", "America/Caracas", "America/Scoresbysund", "America/Nuuk",
         "Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Asia/Shanghai", "Asia/Jerusalem",
         "Asia/Beirut", "Asia/Damascus", "Asia/Karachi", "Asia/Pyongyang", "Asia/Ulaanbaatar",
         "Australia/Adelaide", "Australia/Sydney", "Pacific/Auckland", "Pacific/Fiji", "Pacific/Tongatapu",
         "Pacific/Norfolk")
FIRST, YEARS = datetime(2009, 7, 1, tzinfo=UTC), 5
SAID = ("30 2 * * *", "0 0 * * *", "0,45 1-3 * * SUN", "15 0 1,15 * *", "30 23 * * SAT",
        "*/15 * * * *", "5 * * * *", "10 */2 * * *", "*/20 2 * * *", "* 3 * 3,4,9,10 *")


def test_the_zones_of_the_proof_are_known() -> None:
    """case-E03: fifty of them."""
    assert len(FIFTY) == 50 == len(set(FIFTY))
    assert set(FIFTY) <= zones()


# --- the scan ------------------------------------------------------------------------------------------------------


class Meant:
    """Which local times are meant; no more of cron's language than SAID needs."""

    def __init__(self, said: str) -> None:
        minute, hour, day, month, weekday = said.split()
        self.of_day = not minute.startswith("*") and not hour.startswith("*")
        self._times = [_has(minute, n % 60) and _has(hour, n // 60) for n in range(1_440)]
        self._date = (day, month, weekday.replace("SUN", "0").replace("SAT", "6"))
        self._dates: dict[date, bool] = {}

    def __call__(self, wall: datetime) -> bool:
        if not self._times[wall.hour * 60 + wall.minute]:
            return False
        on, (day, month, weekday) = wall.date(), self._date
        if on not in self._dates:
            self._dates[on] = _has(day, on.day) and _has(month, on.month) and _has(weekday, (on.weekday() + 1) % 7)
        return self._dates[on]


def _has(part: str, value: int) -> bool:
    for one in part.split(","):
        span, _, step = one.partition("/")
        low, _, high = span.partition("-")
        if value % int(step or 1) == 0 if span == "*" else int(low) <= value <= int(high or low):
            return True
    return False


@lru_cache(maxsize=2)
def shown(name: str, after: datetime, until: datetime) -> list[datetime]:
    """What clocks show at each minute behind `after`."""
    zone = ZoneInfo(name)
    return [(after + n * MINUTE).astimezone(zone).replace(tzinfo=None)
            for n in range(1, (until - after) // MINUTE + 1)]


def scan(said: str, name: str, after: datetime, until: datetime) -> list[datetime]:
    """Every moment behind `after` at which it fires, minute by minute.

    A time of day fires when the latest time that clocks have shown so far passes it; anything else at every minute
    that matches.
    """
    meant, walls = Meant(said), shown(name, after, until)
    if not meant.of_day:
        return [after + n * MINUTE for n, wall in enumerate(walls, 1) if meant(wall)]
    # What clocks have shown before: further back than any clock is put.
    high = max((after - n * HOUR).astimezone(ZoneInfo(name)).replace(tzinfo=None) for n in range(26))
    found = []
    for n, wall in enumerate(walls, 1):
        passed = False
        while high < wall:
            high += MINUTE
            passed = meant(high) or passed
        if passed:
            found.append(after + n * MINUTE)
    return found


def changes(zone: ZoneInfo) -> list[datetime]:
    """The hours in which clocks are changed."""
    found, was = [], FIRST.astimezone(zone).utcoffset()
    for n in range(1, YEARS * 8_766):
        at = FIRST + n * HOUR
        if (now := at.astimezone(zone).utcoffset()) != was:
            found.append(at)
            was = now
    return found


def told(schedule: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    at = schedule.next(after)
    while at is not None and at <= until:
        yield at
        before, at = at, schedule.next(at)
        assert at is None or at > before


def windows(name: str) -> list[tuple[datetime, datetime]]:
    """All of it in the long form; else the hours around some of its clock changes, and some day or other."""
    if LONG:
        return [(FIRST, FIRST + timedelta(days=365 * YEARS))]
    chance = random.Random(name)
    days = [chance.choice(found)] if (found := changes(ZoneInfo(name))) else []
    # Every date line, and both directions.
    days += [at for at in found if at.year == 2011 and at.month in (3, 10, 12)][:2]
    days.append(FIRST + timedelta(days=chance.randrange(365 * YEARS)))
    return [(at - 5 * HOUR, at + 26 * HOUR) for at in days]


@pytest.mark.timeout(3_000 if LONG else 180)
@pytest.mark.parametrize("name", FIFTY if LONG else [*ODD, "Europe/Berlin", "America/Scoresbysund"])
def test_it_fires_as_a_scan_of_every_minute_says(name: str) -> None:
    """case-E03, D13: strictly later each time, never in the past, nothing left out and nothing doubled."""
    chance = random.Random(name)
    for after, until in windows(name):
        for said in SAID if LONG else chance.sample(SAID, 4):
            expected = scan(said, name, after, until)
            assert list(told(Cron(said, name), after, until)) == expected, (said, after)


def test_clocks_of_odd_places_change_where_we_looked() -> None:
    """case-E03: a proof over a zone without changes would prove nothing."""
    for name in ODD:
        assert len({(FIRST + timedelta(days=n)).astimezone(ZoneInfo(name)).utcoffset() for n in range(1_800)}) > 1, name


@settings(deadline=None)
@given(st.sampled_from(FIFTY), st.sampled_from(SAID), st.integers(0, YEARS * 365 * 86_400 * 1_000_000))
def test_the_next_moment_lies_ahead_and_nothing_lies_between(name: str, said: str, us: int) -> None:
    """case-E03: from any microsecond on, also within an hour that comes twice."""
    after = FIRST + timedelta(microseconds=us)
    schedule = Cron(said, name)
    at = schedule.next(after)
    assert at is not None
    assert at > after
    assert (at.second, at.microsecond) == (0, 0)
    # From wherever one asks in between, it is the same.
    assert schedule.next(after + (at - after) / 2) == at
    assert schedule.next(at - timedelta(microseconds=1)) == at


# --- the rules in words --------------------------------------------------------------------------------------------


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(("said", "zone", "after", "moments"), [
    # 02:30 is not there on this day: the first minute after the gap, and the day after as ever.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28 23:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
    # It comes twice: the first one.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24 22:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
    # Asked within the second one, the first is behind.
    ("45 2 * * *", "Europe/Berlin", "2026-10-25 01:30", ["2026-10-26 01:45"]),
    # Every hour fires in both, and not in the gap.
    ("30 * * * *", "Europe/Berlin", "2026-10-24 23:45",
     ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"]),
    ("30 * * * *", "Europe/Berlin", "2026-03-29 00:00", ["2026-03-29 00:30", "2026-03-29 01:30"]),
    # The gap lies at midnight.
    ("0 0 * * *", "America/Santiago", "2026-09-05 12:00", ["2026-09-06 04:00", "2026-09-07 03:00"]),
    # Half an hour, at two: what is put back is half of an hour.
    ("*/20 2 * * *", "Australia/Lord_Howe", "2026-04-04 12:00",
     ["2026-04-04 15:30", "2026-04-04 15:50", "2026-04-04 16:10"]),
    # The 30th of December 2011 was not: it fires at the first minute after it.
    ("0 9 30 12 *", "Pacific/Apia", "2011-12-29 00:00", ["2011-12-30 10:00", "2012-12-29 19:00"]),
    # Days by their number and by their name: either, unless one of them is a star.
    ("0 0 13 * FRI", "UTC", "2026-11-12 12:00", ["2026-11-13 00:00", "2026-11-20 00:00"]),
    ("0 12 L * *", "UTC", "2027-02-01 00:00", ["2027-02-28 12:00", "2027-03-31 12:00"]),
    ("0 0 29 2 *", "UTC", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
])
def test_both_clock_changes_are_right(said: str, zone: str, after: str, moments: list[str]) -> None:
    """D13: a time of day fires once on every day, whatever its clocks do."""
    schedule, found = Cron(said, zone), []
    here: datetime | None = at(after)
    while here is not None and len(found) < len(moments):
        here = schedule.next(here)
        found.append(here)
    assert found == [at(moment) for moment in moments]


@pytest.mark.parametrize("name", NAMES)
def test_the_usual_names_are_translated(name: str) -> None:
    """D13: `@daily` and its like."""
    assert Cron(name).next(at("2026-05-05 05:05:05")) == Cron(NAMES[name]).next(at("2026-05-05 05:05:05"))
    assert Cron(f" {name.upper()} ").fields == NAMES[name]


@pytest.mark.parametrize(("said", "code", "says"), [
    ("", "invalid_cron", "five fields"), (None, "invalid_cron", "five fields"), (5, "invalid_cron", "five fields"),
    ("*" * 201, "invalid_cron", "five fields"), ("* * * *\x00*", "invalid_cron", "printable"),
    ("* * * *", "invalid_cron", "has 4 fields"), ("0 * * * * *", "invalid_cron", "every_s"),
    ("@reboot", "invalid_cron", "@hourly"), ("60 * * * *", "invalid_cron", "minute '60'"),
    ("* 24 * * *", "invalid_cron", "hour '24'"), ("* * 0 * *", "invalid_cron", "day-of-month '0'"),
    ("* * * JAN-FOO *", "invalid_cron", "month"), ("* * * * MON#6", "invalid_cron", "day-of-week"),
    ("*/0 * * * *", "invalid_cron", "minute '*/0'"), ("5-1 * * * *", "invalid_cron", "minute '5-1'"),
    ("1,,2 * * * *", "invalid_cron", "minute"), ("\u0661 * * * *", "invalid_cron", "minute"),
    ("0 0 31 2 *", "timer_never_fires", "no such day"), ("0 0 30 2 *", "timer_never_fires", "no such day"),
    ("0 0 31 4,6,9,11 *", "timer_never_fires", "no such day"),
])
def test_what_is_no_expression_is_refused_in_a_sentence(said: object, code: str, says: str) -> None:
    """D13: at once, and not found out in a loop; the field and what would be right."""
    with pytest.raises(Invalid) as caught:
        Cron(said)  # type: ignore[arg-type]
    assert caught.value.reason_code == code
    assert caught.value.field == "cron"
    assert says in caught.value.message


def test_every_fault_is_named_at_once() -> None:
    """House rule: all faults, not the first."""
    with pytest.raises(Invalid) as caught:
        parse(cron="99 99 * * *", zone="Europe/Berln")
    assert [fault["field"] for fault in caught.value.faults] == ["cron", "cron", "zone"]
    for both in ({}, {"cron": "* * * * *", "every_s": 5}):
        with pytest.raises(Invalid, match="either") as caught:
            parse(**both)  # type: ignore[arg-type]
        assert caught.value.reason_code == "invalid_schedule"


@pytest.mark.parametrize(("said", "nearest"), [
    ("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin"), ("Europe/Berln", "Europe/Berlin"),
    ("new york", "America/New_York"), ("../../etc/passwd", None), ("", None), (None, None), ("x" * 70, None),
    ("localtime", None), ("/etc/localtime", None), ("posix/UTC", None)])
def test_an_unknown_zone_names_the_nearest(said: object, nearest: str | None) -> None:
    """D13: unknown_zone."""
    with pytest.raises(Invalid) as caught:
        check_zone(said)
    assert caught.value.reason_code == "unknown_zone"
    assert f"{nearest!r}?" in caught.value.message or nearest is None


# --- intervals -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 366 * 86_400), st.integers(-10**15, 10**15), st.integers(0, 10**15))
def test_an_interval_counts_from_its_anchor_and_never_drifts(every_s: int, anchor_us: int, after_us: int) -> None:
    """D13: however late somebody asks."""
    anchor = at("2026-01-01").replace(microsecond=0) + timedelta(seconds=anchor_us // 10**6)
    after = anchor + timedelta(microseconds=after_us)
    found = Interval(every_s, anchor).next(after)
    assert found is not None
    assert found > after >= found - timedelta(seconds=every_s)
    assert (found - anchor) % timedelta(seconds=every_s) == timedelta()


def test_an_interval_begins_with_its_anchor() -> None:
    """D13: one that lies ahead is the first moment."""
    anchor = at("2026-01-01")
    assert Interval(60, anchor).next(anchor - timedelta(days=3)) == anchor
    assert Interval(60, anchor).next(anchor) == anchor + MINUTE


@pytest.mark.parametrize("every_s", [0, -1, 366 * 86_400 + 1, 1.5, True, "60", None])
def test_what_is_no_interval_is_refused(every_s: object) -> None:
    """D13: 1 s to 366 days."""
    with pytest.raises(Invalid) as caught:
        Interval(every_s, at("2026-01-01"))  # type: ignore[arg-type]
    assert (caught.value.reason_code, caught.value.field) == ("invalid_every_s", "every_s")


@pytest.mark.parametrize(("schedule", "words"), [
    (Cron("0 9 * * *", "Europe/Berlin"), "At 09:00 every day, Europe/Berlin"),
    (Interval(90, at("2026-01-01")), "Every 90 seconds"), (Interval(3600, at("2026-01-01")), "Every hour"),
    (Interval(172_800, at("2026-01-01")), "Every 2 days"), (Cron("@hourly"), "At the start of every hour, UTC")])
def test_a_schedule_can_be_said_in_words(schedule: Cron | Interval, words: str) -> None:
    """D13: what pages show."""
    assert schedule.said == words


# --- missed moments ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([(Cron("*/5 * * * *"), 300), (Cron("0 3 * * *", "Europe/Berlin"), 86_400),
                        (Cron("0 * 1 * *"), 3_600), (Interval(7, FIRST), 7), (Interval(86_400, FIRST), 86_400)]),
       st.integers(0, 150), st.integers(1, 30))
def test_the_newest_of_what_was_missed_are_found_without_reading_all(schedule_of: tuple[Cron | Interval, int], n: int,
                                                                     most: int) -> None:
    """D13: catch-up; equal to reading them all."""
    schedule, step_s = schedule_of
    after = FIRST + timedelta(days=3, seconds=17)
    until = after + timedelta(seconds=n * step_s + 3)
    every, here = [], schedule.next(after)
    while here is not None and here <= until:
        every.append(here)
        here = schedule.next(here)
    found, earlier = newest(schedule, after, until, most)
    assert found == every[-most:]
    assert earlier == len(every) - len(found)


def test_what_was_missed_for_years_is_counted_as_far_as_is_cheap() -> None:
    """D13: an interval's number is exact, an expression's is no more than 1,000."""
    until = FIRST + timedelta(days=1_000)
    assert newest(Interval(1, FIRST), FIRST, until, 1) == ([until], 86_400_000 - 1)
    assert newest(Cron("* * * * *", "Europe/Berlin"), FIRST, until, 1) == ([until], COUNTED)
