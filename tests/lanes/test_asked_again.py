"""What a verb came in by is asked again once it has its lane, and held until it has ended; and callers at REPEATABLE
READ, who do not see what has happened while they waited.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, transaction

from jobs.models import Grant
from jobs.services.draft import Request
from lanes.axes import Standing
from lanes.models import Dependency, Lane, LaneReceipt, Quorum
from lanes.services import lane_jobs, lanes, quorums
from tests import database as db
from tests.driver import Driver
from tests.lanes import making
from tests.lanes.making import conductor, draft, snapshot, user
from tests.lanes.test_lane_races import _code
from tests.races.threads import elsewhere, together
from tests.store.noise import execute
from tests.worker.processes import until

pytestmark = pytest.mark.usefixtures("database")


def meanwhile(verbs: list[Callable[[], Any]], held: str, *params: Any, then: Callable[[], object] = int) -> list[str]:
    """What these verbs are answered, which wait for what `held` locks while `then` happens."""
    told: dict[int, str] = {}

    def say(n: int) -> None:
        with db.own_connection():
            told[n] = _code(verbs[n])

    threads = [threading.Thread(target=say, args=(n,), daemon=True) for n in range(len(verbs))]
    with elsewhere(held, *params):
        for thread in threads:
            thread.start()
        until(lambda: _waiting() == len(verbs), 60)
        then()
    for thread in threads:
        thread.join(60)
    return [told[n] for n in range(len(verbs))]


def _waiting() -> int:
    return int(db.rows("""SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE '%%lanes_%%'""")[0][0])


def test_who_loses_its_grant_while_it_stands_in_line_does_nothing(driver: Driver) -> None:
    """D2, D10: a role is what it is when the lane is there to be changed, not when somebody asked for it."""
    lane, job, ann = making.lane(), driver.enqueue(), user("ann", "conductor")
    wanted = draft("new")
    before, receipts = snapshot(lane), LaneReceipt.objects.count()
    verbs: list[Callable[[], Any]] = [
        partial(lanes.set_state, lane.pk, "in_progress", by=ann), partial(lane_jobs.attach, lane.pk, job, by=ann),
        partial(lane_jobs.enqueue, lane.pk, Request("echo"), by=ann), partial(lanes.depend, lane.pk, [], by=ann)]
    held = "SELECT id FROM lanes_lane WHERE id = %s FOR UPDATE"
    mine = Grant.objects.filter(user_id=ann.user_id)
    assert meanwhile(verbs, held, lane.pk, then=lambda: mine.update(role="member")) == ["role_required"] * 4
    mine.update(role="conductor")
    assert meanwhile(verbs[:1], held, lane.pk, then=mine.delete) == ["lane_not_found"]
    user("ann", "conductor")
    home = [partial(lanes.create, lane.quorum_id, wanted, by=ann), partial(quorums.close, lane.quorum_id, by=ann)]
    assert meanwhile(home, "SELECT id FROM lanes_quorum WHERE id = %s FOR UPDATE", lane.quorum_id,
                     then=mine.delete) == ["quorum_not_found"] * 2
    assert (snapshot(lane), LaneReceipt.objects.count()) == (before, receipts)
    assert not Quorum.objects.exclude(closed_at=None).exists()


def test_whose_lane_is_given_to_another_while_it_stands_in_line_submits_nothing() -> None:
    """D10."""
    lane, ann = making.lane(assignee=user("ann", "assignee").name), user("ann")
    submit = partial(lanes.review, lane.pk, "submit", by=ann)
    assert meanwhile([submit], """UPDATE lanes_lane SET version = version + 1, assignee = 'user:x', assignee_user = 'x'
        WHERE id = %s RETURNING 1""", lane.pk) == ["role_required"]
    assert Lane.objects.get(pk=lane.pk).review == "none"


def test_a_grant_is_taken_once_what_is_done_by_it_has_ended() -> None:
    """D2: after it was taken nothing is written by it any more; two who act by one grant do not wait for each other."""
    lane, other, ann = making.lane(), making.lane("other"), user("ann", "conductor")

    def elsewhere_meanwhile() -> str:
        lanes.set_state(other.pk, "in_progress", by=ann)
        with pytest.raises(OperationalError) as refusal, transaction.atomic():
            db.rows("SELECT 1 FROM jobs_grant WHERE user_id = %s FOR UPDATE NOWAIT", ann.user_id)
        return str(refusal.value)

    with transaction.atomic():
        lanes.set_state(lane.pk, "in_progress", by=ann)
        assert "could not obtain lock" in together([elsewhere_meanwhile])[0]


@pytest.mark.parametrize("what", ["jobs", "circle", "closed"])
def test_a_caller_at_repeatable_read_is_told_to_begin_again(driver: Driver, what: str) -> None:
    """E3, D8: what was done since its snapshot and would be decided without is a serialization failure, no wrong answer
    and no other error: receipts' numbers, two dependencies that close a circle, a quorum that was closed.
    """
    who, a, b = conductor(), making.placed("a", Standing()), making.placed("b", Standing())
    first, second = driver.enqueue(), driver.enqueue()
    wanted = draft("new")
    theirs, mine = {
        "jobs": (partial(lane_jobs.attach, a.pk, first, by=who), partial(lane_jobs.attach, a.pk, second, by=who)),
        "circle": (partial(lanes.depend, a.pk, ["b"], by=who), partial(lanes.depend, b.pk, ["a"], by=who)),
        "closed": (partial(quorums.close, a.quorum_id, by=who),
                   partial(lanes.create, a.quorum_id, wanted, by=who))}[what]

    def at_repeatable_read(*before: Callable[[], Any]) -> None:
        with transaction.atomic():
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            db.rows("SELECT count(*) FROM lanes_lane")
            if before:
                together(before)
            mine()

    with pytest.raises(OperationalError, match="could not serialize"):
        at_repeatable_read(theirs)
    if what == "jobs":
        at_repeatable_read()
        assert lanes.receipts(a.pk, by=who).items[-1].number == 3
    assert Dependency.objects.count() == (what == "circle")
