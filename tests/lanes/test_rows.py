"""What the database keeps of lanes by itself: hand-written SQL is refused by named constraints and triggers."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, transaction

from lanes.axes import Standing
from lanes.models import Lane
from lanes.services import lanes
from lanes.store import rows as store
from tests import database as db
from tests.lanes import making
from tests.lanes.making import COMMIT, conductor

pytestmark = pytest.mark.usefixtures("database")


def refused(sql: str, *params: Any) -> str:
    """What the database says to this."""
    with pytest.raises(DatabaseError) as refusal, transaction.atomic():
        db.rows(f"{sql} RETURNING 1", *params)
    return str(refusal.value)


@pytest.mark.parametrize(("written", "constraint"), [
    ("execution = 'finished'", "lane_execution_known"), ("review = 'maybe'", "lane_review_known"),
    ("merge = 'maybe'", "lane_merge_known"),
    ("merge = 'merged', ended_at = jobs_now()", "lane_merged_is_whole"),
    ("merge = 'merged', ended_at = jobs_now(), commit = 'c0ffee1', execution = 'done'", "lane_merged_is_whole"),
    ("execution = 'cancelled'", "lane_ended_iff_over"), ("ended_at = jobs_now()", "lane_ended_iff_over"),
    ("execution = 'done', merge = 'abandoned'", "lane_ended_iff_over"),
    ("assignee_key = 7", "lane_assignee_is_one"), ("assignee_user = NULL", "lane_assignee_is_one"),
    ("commit = 'C0FFEE1'", "lane_commit_is_hex"), ("commit = 'main'", "lane_commit_is_hex"),
    ("reconcile_type = 'noop'", "lane_reconcile_whole"),
    ("workspace_id = workspace_id + 1", "what a lane is does not change"),
    ("quorum_id = gen_random_uuid()", "what a lane is does not change"),
    ("name = 'other'", "what a lane is does not change"), ("branch = 'other'", "what a lane is does not change"),
    ("task = 'other'", "what a lane is does not change"), ("\"by\" = 'other'", "what a lane is does not change"),
])
def test_a_lane_cannot_become_what_it_may_not_be(written: str, constraint: str) -> None:
    """D8, D11, E14.15, E14.16: known states, merged with all that it takes, and what it is for good."""
    lane = making.lane()
    assert constraint in refused(f"UPDATE lanes_lane SET version = version + 1, {written} WHERE id = %s", lane.pk)


def test_each_change_is_one_version() -> None:
    """D9: nobody writes a lane past its version."""
    lane = making.lane()
    for version in ("version", "version + 2", "1"):
        sql = f"UPDATE lanes_lane SET version = {version}, title = 'x' WHERE id = %s"
        assert "one version" in refused(sql, lane.pk)


@pytest.mark.parametrize("place", [Standing("failed"), Standing("cancelled", "submitted"), Standing("done", "approved",
                                   "merged"), Standing("done", "none", "abandoned")])
def test_a_lane_that_has_ended_is_not_written(place: Standing) -> None:
    """E14.16: not even its title, by nobody."""
    lane = making.placed("over", place)
    for written in ("title = 'x'", "ended_at = NULL, execution = 'open', merge = 'none'", "review = 'none'"):
        assert "has ended" in refused(f"UPDATE lanes_lane SET version = version + 1, {written} WHERE id = %s", lane.pk)


def test_a_lane_is_in_the_workspace_of_its_quorum_and_its_quorum_stays_there() -> None:
    """D8."""
    home, far = making.quorum(), making.workspace("far")
    with pytest.raises(DatabaseError, match="workspace of its quorum"), transaction.atomic():
        Lane.objects.create(quorum=home, workspace=far, name="x", branch="x", task="x", assignee="user:x",
                            assignee_user="1", by="x")
    assert "stays in its workspace" in refused("UPDATE lanes_quorum SET workspace_id = %s", far.pk)
    assert "quorum_closing_whole" in refused("UPDATE lanes_quorum SET closed_at = jobs_now()")


def test_lanes_depend_on_lanes_of_their_own_quorum_and_not_on_themselves() -> None:
    """D8."""
    lane, other = making.lane(), making.lane("other", of="two")
    insert = "INSERT INTO lanes_dependency (lane_id, on_id) VALUES (%s, %s)"
    assert "own quorum" in refused(insert, lane.pk, other.pk)
    assert "dependency_on_another" in refused(insert, lane.pk, lane.pk)


def test_receipts_are_written_once() -> None:
    """E14.20, D9: neither changed nor deleted, no number twice, and of each version one: jobs change none."""
    making.lane()
    for sql in ("UPDATE lanes_receipt SET reason = 'x'", "DELETE FROM lanes_receipt"):
        assert "written once" in refused(sql)
    assert "lanes_receipt_pkey" in refused("""INSERT INTO lanes_receipt (lane_id, number, kind, by, reason, version, at)
        SELECT lane_id, number, kind, by, reason, version, at FROM lanes_receipt""")
    assert "kind_known" in refused("""INSERT INTO lanes_receipt (lane_id, number, kind, by, reason, version, at)
        SELECT lane_id, 7, 'merged', by, reason, version, at FROM lanes_receipt""")
    again = """INSERT INTO lanes_receipt (lane_id, number, kind, by, reason, version, at)
        SELECT lane_id, 7, %s, by, reason, version, at FROM lanes_receipt"""
    assert "lane_receipt_of_version_once" in refused(again, "state")
    db.rows(f"{again} RETURNING 1", "job")


def test_a_job_is_one_lanes() -> None:
    """E2: `LaneJob(lane, job unique)`."""
    one, other = making.lane(), making.lane("other")
    insert = "INSERT INTO lanes_job (job_id, lane_id, by, created_at) VALUES (%s, %s, 'x', jobs_now())"
    db.rows(f"{insert} RETURNING 1", one.pk, one.pk)
    assert "lanes_job_pkey" in refused(insert, one.pk, other.pk)
    assert "stays in its lane" in refused("UPDATE lanes_job SET lane_id = %s", other.pk)


def test_the_guard_of_a_change_is_in_its_where() -> None:
    """DESIGN 8.2: a lane that was read at an earlier version is not written, whatever else holds."""
    from lanes.axes import Axis

    lane = making.lane()
    old = Lane.objects.get(pk=lane.pk)
    lanes.review(lane.pk, "submit", by=conductor())
    before = making.snapshot(lane)
    assert store.move(old, Axis.EXECUTION, Standing("in_progress"), None) is False
    assert store.assign(old, "user:x", "1", None) is False
    assert store.depend(old, []) is False
    # A version that fits by chance, with states that do not.
    old.version = 2
    assert store.move(old, Axis.MERGE, Standing(merge="conflicted"), COMMIT) is False
    assert making.snapshot(lane) == before
