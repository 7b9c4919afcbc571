"""News of lanes goes out after the commit only, with ids alone (E14.18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from jobs.worker.listener import direct_dsn
from lanes import news
from lanes.models import Lane
from lanes.news import News
from lanes.services import lane_jobs, lanes, quorums
from tests.driver import Driver
from tests.lanes import making
from tests.lanes.making import conductor

pytestmark = pytest.mark.usefixtures("database")


def heard(verb: Callable[[], Any]) -> list[News | None]:
    """What is said while `verb` runs, in order."""
    with psycopg.connect(direct_dsn(), autocommit=True) as listening:
        listening.execute(f"LISTEN {news.CHANNEL}")
        verb()
        # On one server notifications come in the order of commits: after this one nothing is left of ours.
        with connection.cursor() as cursor:
            cursor.execute(f"NOTIFY {news.CHANNEL}, 'over'")
        found: list[News | None] = []
        for notification in listening.notifies(timeout=20):
            if notification.payload == "over":
                return found
            found.append(news.parse(notification.payload))
    raise AssertionError("nothing was heard")


def test_each_change_is_told_with_ids_alone(driver: Driver) -> None:
    """E14.18: of a lane with its version, of a quorum without; a job given to a lane is news of the lane."""
    home = making.quorum()
    made: list[Lane] = []
    assert heard(lambda: made.append(making.lane())) == [News(home.workspace_id, home.pk, made[0].pk, 1)]
    lane = made[0]
    job = driver.enqueue()
    for verb, version in ((lambda: lanes.set_state(lane.pk, "in_progress", by=conductor()), 2),
                          (lambda: lanes.review(lane.pk, "submit", by=conductor()), 3),
                          (lambda: lanes.merge(lane.pk, "conflicted", by=conductor()), 4),
                          (lambda: lanes.reassign(lane.pk, conductor().name, by=conductor()), 5),
                          (lambda: lanes.depend(lane.pk, [], by=conductor()), 6),
                          (lambda: lane_jobs.attach(lane.pk, job, by=conductor()), 6)):
        assert heard(verb) == [News(lane.workspace_id, lane.quorum_id, lane.pk, version)]
    assert heard(lambda: lane_jobs.attach(lane.pk, job, by=conductor())) == []
    assert heard(lambda: quorums.close(home.pk, by=conductor())) == [News(home.workspace_id, home.pk)]


def test_nothing_is_told_before_the_commit_or_of_what_was_undone() -> None:
    """E14.18."""
    lane = making.lane()

    def undone() -> None:
        with transaction.atomic():
            lanes.set_state(lane.pk, "in_progress", by=conductor())
            transaction.set_rollback(True)

    assert heard(undone) == []


@pytest.mark.parametrize("payload", ["", "x", "1 2", "1 x - -", "a b c d", "1 2 3 4 5", "\x00"])
def test_what_none_of_ours_says_is_no_news(payload: str) -> None:
    """E14.18: anybody may notify."""
    assert news.parse(payload) is None
