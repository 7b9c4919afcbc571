"""Privilege before the entry: what a caller without a grant causes does not differ from a lane that is not there."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from jobs.errors import JobNotFound, JobsError, NotFound
from jobs.services.draft import Request
from lanes.actors import Actor
from lanes.axes import Standing
from lanes.services import lane_jobs, lanes, quorums
from lanes.services.lanes import LaneDraft
from tests.lanes import making
from tests.lanes.making import conductor, user
from tests.making import statements

pytestmark = pytest.mark.usefixtures("database")
VERBS: dict[str, Any] = {
    "get": lambda id_, by: lanes.get(id_, by=by),
    "receipts": lambda id_, by: lanes.receipts(id_, by=by),
    "start": lambda id_, by: lanes.set_state(id_, "in_progress", by=by),
    "open to done": lambda id_, by: lanes.set_state(id_, "done", by=by, version=7),
    "submit": lambda id_, by: lanes.review(id_, "submit", by=by),
    "approve": lambda id_, by: lanes.review(id_, "approve", by=by, version=2, reason="fine"),
    "request changes": lambda id_, by: lanes.review(id_, "request_changes", by=by),
    "merged": lambda id_, by: lanes.merge(id_, "merged", commit=making.COMMIT, by=by),
    "reassign": lambda id_, by: lanes.reassign(id_, "user:ann", by=by),
    "depend": lambda id_, by: lanes.depend(id_, ["a"], by=by),
    "attach": lambda id_, by: lane_jobs.attach(id_, uuid.uuid4(), by=by),
    "enqueue": lambda id_, by: lane_jobs.enqueue(id_, Request("noop"), by=by),
    "jobs": lambda id_, by: lane_jobs.jobs(id_, by=by),
    "read quorum": lambda id_, by: quorums.get(id_, by=by),
    "close quorum": lambda id_, by: quorums.close(id_, by=by),
    "create": lambda id_, by: lanes.create(id_, LaneDraft(name="x", branch="x", assignee="user:x", task="x"), by=by),
}


def asked(verb: Any, id_: Any, by: Actor) -> tuple[Any, list[str]]:
    """What was answered, and the statements that it took, without their values."""
    with statements() as found, pytest.raises(JobsError) as refusal:
        verb(id_, by)
    return (type(refusal.value), refusal.value.reason_code, refusal.value.message, refusal.value.field,
            refusal.value.facts), [sql for sql, _ in found]


@pytest.mark.parametrize("name", VERBS)
def test_foreign_and_missing_are_answered_alike_by_the_same_statement(name: str) -> None:
    """D10, E15 (D): one statement that begins from the caller's grants, whatever stands in the lane."""
    lane = making.lane(at=Standing("cancelled", "submitted"))
    there = lane.quorum_id if name in ("read quorum", "close quorum", "create") else lane.pk
    for who in (user("stranger"), user("boss", is_superuser=True), making.key(), conductor("far"),
                making.key("conductor", where="far")):
        foreign, missing = (asked(VERBS[name], id_, who) for id_ in (there, uuid.uuid4()))
        assert foreign == missing
        assert issubclass(foreign[0][0], NotFound)
        (sql,) = foreign[1]
        assert re.search(r'FROM "jobs_grant"', sql)
        assert not re.search(r'"(?:execution|review|merge|version|name|title|branch|task)"', sql)
    answered, took = asked(VERBS[name], "no id at all", user("stranger"))
    assert (answered, took) == (foreign[0], [])


@pytest.mark.parametrize("name", [name for name in VERBS if name not in (
    "get", "receipts", "jobs", "read quorum")])
def test_a_member_is_refused_before_the_lane_is_read(name: str) -> None:
    """D10: one statement too, which tells the role and whose the lane is, and nothing of where it stands."""
    lane = making.lane(at=Standing("cancelled", "submitted"))
    there = lane.quorum_id if name in ("close quorum", "create") else lane.pk
    answered, took = asked(VERBS[name], there, user("member", "member"))
    assert answered[1] == "role_required"
    assert len(took) == 1
    assert not re.search(r'"(?:execution|review|merge|version|name|title|branch|task)"', took[0])


def test_what_a_grant_is_worth_is_its_workspace_alone() -> None:
    """E2, D2: who is a conductor in one is nobody in another, and what it may on the whole site says nothing."""
    here, far = making.lane("here"), making.lane("far", where="far")
    both = user("both", "conductor")
    user("both", "member", where="far")
    assert lanes.set_state(here.pk, "in_progress", by=both).execution == "in_progress"
    assert asked(VERBS["start"], far.pk, both)[0][1] == "role_required"
    assert lanes.get(far.pk, by=both).name == "far"
    boss = user("boss", is_superuser=True, is_staff=True)
    assert asked(VERBS["get"], here.pk, boss)[0][1] == "lane_not_found"
    assert lanes.listing(by=boss).items == []


def test_a_job_of_elsewhere_is_no_job(driver: Any) -> None:
    """E2: unknown, foreign and the house's own alike."""
    lane = making.lane()
    making.workspace("far")
    far = driver.enqueue(workspace="far")
    for word in (far, str(uuid.uuid4()), "x", None, "\x00"):
        with pytest.raises(JobNotFound):
            lane_jobs.attach(lane.pk, word, by=conductor())
