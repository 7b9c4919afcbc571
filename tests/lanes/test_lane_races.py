"""Several at once, with threads and real commits: one wins, the others are told, and nothing is half done."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from jobs.errors import JobsError
from jobs.services.draft import Options, Request
from lanes.axes import Standing
from lanes.models import Dependency, Lane, LaneJob, LaneReceipt
from lanes.services import lane_jobs, lanes
from tests import database as db
from tests.lanes import making
from tests.lanes.making import COMMIT, conductor, draft
from tests.races.threads import elsewhere, together

pytestmark = pytest.mark.usefixtures("database")


def at_once(*verbs: Callable[[], Any]) -> Counter[str]:
    """Run them in a thread each, begun together; `done`, or the code of the refusal. Anything else is raised."""
    return Counter(together([partial(_code, verb) for verb in verbs]))


def _code(verb: Callable[[], Any]) -> str:
    try:
        verb()
    except JobsError as refusal:
        return refusal.reason_code
    return "done"


def test_two_who_read_the_same_version_change_it_once() -> None:
    """D9: eight conductors with one version: one is done, seven are told."""
    lane, who = making.lane(), conductor()
    told = at_once(*[partial(lanes.set_state, lane.pk, "in_progress", by=who, version=1)] * 4,
                   *[partial(lanes.set_state, lane.pk, "cancelled", by=who, version=1)] * 4)
    assert told == {"done": 1, "lane_version_changed": 7}
    assert Lane.objects.get(pk=lane.pk).version == 2
    assert LaneReceipt.objects.filter(lane=lane).count() == 2


def test_without_a_version_they_stand_in_line_and_each_is_judged_by_what_it_finds() -> None:
    """D9, D10, D11, E14.16: on all axes at once; the receipts are numbered without a gap."""
    who = conductor()
    for round_ in range(5):
        lane = making.placed(f"lane-{round_}", Standing("in_progress", "submitted"))
        told = at_once(partial(lanes.set_state, lane.pk, "done", by=who),
                       partial(lanes.set_state, lane.pk, "failed", by=who),
                       partial(lanes.review, lane.pk, "approve", by=who),
                       partial(lanes.review, lane.pk, "request_changes", by=who),
                       partial(lanes.merge, lane.pk, "merged", commit=COMMIT, by=who),
                       partial(lanes.merge, lane.pk, "abandoned", by=who))
        row = Lane.objects.get(pk=lane.pk)
        assert row.version == 1 + told["done"]
        assert not told["lane_version_changed"]
        numbers = list(LaneReceipt.objects.filter(lane=lane).order_by("number").values_list("number", flat=True))
        assert numbers == [*range(1, told["done"] + 2)]
        assert (row.ended_at is not None) is row.standing.over


def test_one_name_and_one_branch_are_one_lanes_under_any_number_of_creates() -> None:
    """D7, D8."""
    home, who = making.quorum(), conductor()
    assignee = making.user("assignee", "assignee").name
    same = [partial(lanes.create, home.pk, draft("same", branch=f"b{n}", assignee=assignee), by=who)
            for n in range(3)]
    branch = [partial(lanes.create, home.pk, draft(f"n{n}", branch="one", assignee=assignee), by=who)
              for n in range(3)]
    assert at_once(*same, *branch) == {"done": 2, "lane_exists": 2, "branch_taken": 2}


def test_no_two_dependencies_close_a_circle_together() -> None:
    """D8: each alone would be right; of the two one is refused."""
    who = conductor()
    for round_ in range(4):
        a, b = (making.placed(f"{name}{round_}", Standing()) for name in "ab")
        told = at_once(partial(lanes.depend, a.pk, [b.name], by=who), partial(lanes.depend, b.pk, [a.name], by=who))
        assert told == {"done": 1, "dependency_cycle": 1}
    assert Dependency.objects.count() == 4


def test_no_lane_comes_into_a_quorum_after_it_was_closed() -> None:
    """D7: whoever adds one shares the quorum, whoever closes it has it alone: who comes second sees what the first did.
    """
    home, who, late = making.quorum(), conductor(), draft("late")
    told: list[str] = []

    def create() -> None:
        with db.own_connection():
            told.append(_code(partial(lanes.create, home.pk, late, by=who)))

    thread = threading.Thread(target=create, daemon=True)
    with elsewhere("""UPDATE lanes_quorum SET closed_at = now(), closed_by = 'x', close_reason = '' WHERE id = %s
            RETURNING 1""", home.pk):
        thread.start()
        until = time.monotonic() + 60
        while not told and not _waits() and time.monotonic() < until:
            time.sleep(0.02)
        assert told == []
    thread.join(60)
    assert told == ["quorum_closed"]
    assert not Lane.objects.exists()


def _waits() -> bool:
    """Whether somebody waits for a lock in this database."""
    return bool(db.rows("""SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE '%%lanes_quorum%%'"""))


def test_a_job_goes_into_one_lane_and_into_none_that_has_ended(driver: Any) -> None:
    """E2, E14.16: two lanes want one job, while one of them is being cancelled."""
    who = conductor()
    for round_ in range(4):
        one, other = making.placed(f"one{round_}", Standing()), making.placed(f"other{round_}", Standing())
        job = driver.enqueue()
        at_once(partial(lane_jobs.attach, one.pk, job, by=who), partial(lane_jobs.attach, other.pk, job, by=who),
                partial(lane_jobs.attach, one.pk, job, by=who), partial(lanes.set_state, one.pk, "cancelled", by=who))
        (mine,) = LaneJob.objects.filter(pk=job)
        assert LaneReceipt.objects.filter(kind="job", after=job).values_list("lane_id", flat=True).get() == mine.lane_id
        told = list(LaneReceipt.objects.filter(lane=one).order_by("number").values_list("kind", flat=True))
        assert "job" not in told or told.index("job") < told.index("state")


def test_enqueues_into_a_lane_and_its_moves_do_not_deadlock(driver: Any) -> None:
    """DESIGN 4: a lane comes before jobs, in every transaction, so that who holds a target never waits for a lane."""
    lane, who = making.lane(), conductor()
    for verb in range(6):
        told = at_once(*[partial(lane_jobs.enqueue, lane.pk, Request("echo", {}, _target(n % 2)), by=who)
                         for n in range(6)], partial(_both, lane, who, verb))
        assert told["done"] == 7
    assert LaneJob.objects.filter(lane=lane).count() == 42
    numbers = list(LaneReceipt.objects.filter(lane=lane).order_by("number").values_list("number", flat=True))
    assert numbers == [*range(1, len(numbers) + 1)]


def _target(n: int) -> Options:
    return Options(target=f"thing-{n}")


def _both(lane: Lane, who: Any, n: int) -> None:
    with transaction.atomic():
        lanes.review(lane.pk, "submit" if n % 2 == 0 else "request_changes", by=who)
        lane_jobs.enqueue(lane.pk, Request("echo", {}, _target(n % 2)), by=who)
