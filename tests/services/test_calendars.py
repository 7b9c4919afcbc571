"""When timers fire, against the database's own calendar, which shares nothing with Python's (RELIABILITY 5.1)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.schedules import Cron
from tests.database import rows
from tests.rules.test_schedules import ODD

FIRST, LAST = datetime(2010, 7, 1, tzinfo=UTC), datetime(2012, 7, 1, tzinfo=UTC)
# Every quarter of an hour for two years: clocks are changed by quarters, and so are these expressions.
SHOWN = """SELECT t, t AT TIME ZONE %s
    FROM generate_series(%s::timestamptz + interval '15 min', %s, interval '15 min') t
    WHERE extract(hour FROM t AT TIME ZONE %s) IN (0, 2) ORDER BY t"""


def told(said: str, zone: str) -> list[datetime]:
    schedule, found = Cron(said, zone), []
    at = schedule.next(FIRST)
    while at is not None and at <= LAST:
        found.append(at)
        at = schedule.next(at)
    return found


@pytest.mark.parametrize("zone", ODD)
def test_two_years_agree_with_the_databases_calendar(database: None, zone: str) -> None:
    """case-E03: the half hours of the hour at which clocks change; and a time of day once on each day."""
    shown = rows(SHOWN, zone, FIRST, LAST, zone)
    recurring = [at for at, wall in shown if wall.hour == 2 and wall.minute % 30 == 0]
    assert told("*/30 2 * * *", zone) == recurring
    daily = told("30 0 * * *", zone)
    seen: dict[object, datetime] = {}
    for at, wall in shown:
        if (wall.hour, wall.minute) == (0, 30):
            seen.setdefault(wall.date(), at)
    # What the database shows is among them, once a day; the others are days whose half past midnight was taken away.
    assert set(seen.values()) <= set(daily)
    assert len(set(daily) - set(seen.values())) <= 2
    assert 729 <= len(daily) <= 732
