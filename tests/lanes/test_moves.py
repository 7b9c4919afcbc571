"""Moves of lanes through the services: every pair of every axis, by everybody, with receipts and versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from jobs.errors import JobsError
from jobs.models import Grant
from lanes.actors import Actor
from lanes.axes import STATES, Axis, Execution, Merge, Review, Standing, possible, verbs
from lanes.errors import LaneNotFound, LaneVersionChanged, RoleRequired
from lanes.models import Lane, LaneReceipt
from lanes.services import lane_jobs, lanes
from tests.lanes import making
from tests.lanes.making import COMMIT, bring, conductor, snapshot, user

pytestmark = pytest.mark.usefixtures("database")
# Where a lane can be: one standing for each state of each axis.
PLACES = [*(Standing(execution=e) for e in Execution), *(Standing(review=r) for r in Review),
          Standing(merge=Merge.CONFLICTED), Standing(merge=Merge.ABANDONED), Standing("done", "approved"),
          Standing("done", "approved", "merged"), Standing("done", "approved", "conflicted"),
          Standing("done", "none", "abandoned"), Standing("in_progress", "submitted", "conflicted")]


def say(lane: Lane, axis: Axis, verb: str, by: Actor, **more: Any) -> Lane:
    """The service's verb."""
    if axis is Axis.EXECUTION:
        return lanes.set_state(lane.pk, verb, by=by, **more)
    if axis is Axis.REVIEW:
        return lanes.review(lane.pk, verb, by=by, **more)
    return lanes.merge(lane.pk, verb, by=by, commit=COMMIT if verb == "merged" else None, **more)


def refused(verb: Callable[..., object], *said: Any, **more: Any) -> str:
    """The code of a refusal."""
    with pytest.raises(JobsError) as refusal:
        verb(*said, **more)
    return refusal.value.reason_code


def test_every_verb_from_every_place_moves_its_axis_or_changes_nothing() -> None:
    """D9, D10, D11, E14.16: what the table does not allow leaves no trace, and a terminal lane does not change."""
    who, made = conductor(), 0
    for place in PLACES:
        made += 1
        lane = making.placed(f"still-{made}", place)
        before = snapshot(lane)
        for axis in Axis:
            for verb in {*verbs(axis), *(STATES[axis] if axis is not Axis.REVIEW else ())} - {*possible(place, axis)}:
                code = refused(say, lane, axis, verb, who)
                assert code in ("lane_ended", "lane_move_refused", "not_mergeable"), (place, verb)
                assert (code == "lane_ended") is (place.over or (axis is Axis.EXECUTION and place.execution == "done"))
        assert snapshot(lane) == before
        for axis in Axis:
            for verb in possible(place, axis):
                made += 1
                before_move = making.placed(f"moves-{made}", place)
                after = say(before_move, axis, verb, who, reason="why not")
                assert after.version == before_move.version + 1
                assert [after.standing.on(other) for other in Axis if other is not axis] == [
                    place.on(other) for other in Axis if other is not axis]
                last = LaneReceipt.objects.filter(lane=after).order_by("-number").first()
                assert last is not None
                assert (last.axis, last.before, last.after, last.by, last.reason, last.version) == (
                    axis, place.on(axis), after.standing.on(axis), who.name, "why not", after.version)
                assert (after.ended_at is not None) is after.standing.over


def everybody() -> dict[str, Actor]:
    """Who may ask, by what it is."""
    return {"superuser": user("boss", is_superuser=True), "stranger": user("stranger"),
            "elsewhere": user("far", "conductor", where="far"),
            "member": user("member", "member"), "other assignee": user("other", "assignee"),
            "assignee": user("assignee-default", "assignee"), "conductor": user("second", "conductor"),
            "key stranger": making.key(), "key member": making.key("member"), "key assignee": making.key("assignee"),
            "key conductor": making.key("conductor"), "key elsewhere": making.key("conductor", where="far")}


NOBODY = {"superuser", "stranger", "elsewhere", "key stranger", "key elsewhere"}
CONDUCTORS = {"conductor", "key conductor"}


def test_each_verb_is_refused_to_everybody_who_may_not() -> None:
    """D9, D10, D11, E2, E15: without a grant there is no lane, without the role nothing is done."""
    people, made = everybody(), 0
    places = {Axis.EXECUTION: Standing("in_progress"), Axis.REVIEW: Standing(review="submitted"),
              Axis.MERGE: Standing("done", "approved")}
    for axis in Axis:
        for verb in verbs(axis):
            place = {"in_progress": Standing(), "submit": Standing()}.get(verb, places[axis])
            made += 1
            lane = making.placed(f"lane-{made}", place)
            before = snapshot(lane)
            able = CONDUCTORS | ({"assignee"} if verb == "submit" else set())
            for name, who in people.items():
                if name in able:
                    continue
                code = refused(say, lane, axis, verb, who)
                assert code == ("lane_not_found" if name in NOBODY else "role_required"), (name, verb)
            assert snapshot(lane) == before
            for name in able:
                made += 1
                assert say(making.placed(f"lane-{made}", place), axis, verb, people[name]).version > 1


def test_the_refusal_of_a_role_says_which_would_do() -> None:
    """D10."""
    lane = making.lane()
    with pytest.raises(RoleRequired, match="conductor, or the lane's own assignee") as refusal:
        lanes.review(lane.pk, "submit", by=user("member", "member"))
    assert refusal.value.facts == {"role": "conductor"}


def test_privilege_comes_before_the_lanes_state_and_version() -> None:
    """D10: who may not learns nothing of where it stands."""
    lane = making.lane(at=Standing("cancelled"))
    member = user("member", "member")
    assert refused(lambda: lanes.review(lane.pk, "approve", by=member, version=1)) == "role_required"
    assert refused(lambda: lanes.review(lane.pk, "approve", by=user("stranger"), version=1)) == "lane_not_found"
    assert refused(lambda: lanes.review(lane.pk, "approve", by=conductor(), version=1)) == "lane_version_changed"
    assert refused(lambda: lanes.review(lane.pk, "approve", by=conductor())) == "lane_ended"


def test_a_taken_grant_counts_from_the_next_verb_on() -> None:
    """D2: roles are read, never remembered. An assignee whose role is gone submits no more."""
    lane, who = making.lane(), user("assignee-default", "assignee")
    lanes.review(lane.pk, "submit", by=who)
    Grant.objects.filter(user_id=who.user_id).update(role="member")
    lane = lanes.review(lane.pk, "request_changes", by=conductor())
    assert refused(lambda: lanes.review(lane.pk, "submit", by=who)) == "role_required"
    Grant.objects.filter(user_id=who.user_id).delete()
    assert refused(lambda: lanes.review(lane.pk, "submit", by=who)) == "lane_not_found"


def test_somebody_else_of_the_same_name_is_not_the_assignee() -> None:
    """D7: an assignee is a principal and no name: a user made later under it submits nothing of the former's."""
    lane = making.lane(assignee=user("ann", "assignee").name)
    get_user_model().objects.filter(username="ann").delete()
    second = user("ann", "assignee")
    assert second.name == lane.assignee
    assert refused(lambda: lanes.review(lane.pk, "submit", by=second)) == "role_required"


def test_a_version_that_is_not_the_lanes_changes_nothing() -> None:
    """D9: optimistic, told with the version that it is at."""
    lane = making.lane()
    moved = lanes.set_state(lane.pk, "in_progress", by=conductor(), version=1)
    assert moved.version == 2
    before = snapshot(lane)
    for verb in (lambda: lanes.set_state(lane.pk, "done", by=conductor(), version=1),
                 lambda: lanes.review(lane.pk, "submit", by=conductor(), version=3),
                 lambda: lanes.merge(lane.pk, "conflicted", by=conductor(), version=1),
                 lambda: lanes.reassign(lane.pk, conductor().name, by=conductor(), version=1),
                 lambda: lanes.depend(lane.pk, [], by=conductor(), version=1)):
        with pytest.raises(LaneVersionChanged) as refusal:
            verb()
        assert refusal.value.facts == {"version": 2}
    assert snapshot(lane) == before


def test_receipts_tell_the_whole_story_in_order() -> None:
    """D9, D10, D11: numbered without gaps, and folding them is the row."""
    who = conductor()
    lane = making.lane()
    lanes.reassign(lane.pk, who.name, by=who, reason="it is mine")
    lane = bring(lanes.get(lane.pk, by=who), Standing("done", "changes_requested", "conflicted"), who)
    for verdict in ("submit", "approve"):
        lanes.review(lane.pk, verdict, by=who)
    lane = lanes.merge(lane.pk, "merged", commit=COMMIT.upper(), by=who)
    told = lanes.receipts(lane.pk, by=who).items
    assert [one.number for one in told] == [*range(1, len(told) + 1)]
    assert [one.version for one in told] == [*range(1, len(told) + 1)]
    assert [one.kind for one in told] == ["created", "assignee", "review", "review", "merge", "state", "state",
                                          "review", "review", "merge"]
    standing = Standing()
    for one in told:
        if one.axis is not None:
            assert standing.on(Axis(one.axis)) == one.before
            standing = standing._replace(**{one.axis: one.after})
    assert standing == lane.standing == Standing("done", "approved", "merged")
    assert (lane.commit, told[-1].commit, lane.version) == (COMMIT, COMMIT, len(told))
    assert (told[1].before, told[1].after) == ("user:assignee-default", who.name)
    assert [one.number for one in lanes.receipts(lane.pk, by=who, after=7).items] == [8, 9, 10]
    page = lanes.receipts(lane.pk, by=who, limit=4)
    assert (len(page.items), page.next) == (4, 4)


def test_what_a_verb_did_is_undone_with_its_callers_transaction() -> None:
    """DESIGN 4: it joins, and a refusal within poisons nothing."""
    lane = making.lane()
    before = snapshot(lane)
    with transaction.atomic():
        lanes.set_state(lane.pk, "in_progress", by=conductor())
        assert refused(lambda: lanes.set_state(lane.pk, "open", by=conductor())) == "lane_move_refused"
        assert lanes.set_state(lane.pk, "done", by=conductor()).version == 3
        transaction.set_rollback(True)
    assert snapshot(lane) == before


def test_a_lane_that_is_over_takes_nothing_more() -> None:
    """E14.16: no assignee, no dependency, and no job."""
    lane = making.lane(at=Standing("done", "approved", "merged"))
    making.lane("other")
    before = snapshot(lane)
    for verb in (lambda: lanes.reassign(lane.pk, conductor().name, by=conductor()),
                 lambda: lanes.depend(lane.pk, ["other"], by=conductor()),
                 lambda: lane_jobs.attach(lane.pk, lane.pk, by=conductor())):
        assert refused(verb) == "lane_ended"
    assert snapshot(lane) == before


def test_what_can_be_no_lane_is_none() -> None:
    """E2: malformed, unknown and foreign alike."""
    for word in ("", "x", "\x00", None, 7, "0" * 31, "é" * 36):
        with pytest.raises(LaneNotFound):
            lanes.get(word, by=conductor())
