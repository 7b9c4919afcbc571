"""The three axes as tables: every state with every verb, and who may say it. No database."""

from __future__ import annotations

from itertools import product

import pytest

from lanes.axes import (
    MOVES,
    STATES,
    Axis,
    Execution,
    Merge,
    Review,
    Role,
    Standing,
    may,
    moved,
    needed,
    possible,
    verbs,
)
from lanes.errors import LaneEnded, LaneMoveRefused, NotMergeable

# Written by hand from the seed: axis, from, verb, to.
ALLOWED = {
    (Axis.EXECUTION, "open", "in_progress"): "in_progress",
    (Axis.EXECUTION, "in_progress", "done"): "done",
    (Axis.EXECUTION, "in_progress", "failed"): "failed",
    (Axis.EXECUTION, "open", "cancelled"): "cancelled",
    (Axis.EXECUTION, "in_progress", "cancelled"): "cancelled",
    (Axis.REVIEW, "none", "submit"): "submitted",
    (Axis.REVIEW, "changes_requested", "submit"): "submitted",
    (Axis.REVIEW, "submitted", "approve"): "approved",
    (Axis.REVIEW, "submitted", "request_changes"): "changes_requested",
    (Axis.REVIEW, "approved", "request_changes"): "changes_requested",
    (Axis.MERGE, "none", "merged"): "merged",
    (Axis.MERGE, "conflicted", "merged"): "merged",
    (Axis.MERGE, "none", "conflicted"): "conflicted",
    (Axis.MERGE, "none", "abandoned"): "abandoned",
    (Axis.MERGE, "conflicted", "abandoned"): "abandoned",
}
STANDINGS = [Standing(*three) for three in product(Execution, Review, Merge)]


def test_every_state_with_every_verb_is_in_the_table_or_is_not() -> None:
    """D9, D10, D11: pair by pair, and nothing beside."""
    told = {(axis, state, verb): move.to for axis, table in MOVES.items() for (state, verb), move in table.items()}
    assert told == ALLOWED
    assert all(to in STATES[axis] for (axis, _, _), to in told.items())


@pytest.mark.parametrize("axis", list(Axis))
def test_a_verb_moves_its_own_axis_alone_or_is_refused(axis: Axis) -> None:
    """D9, D10, E14.15, E14.16: all 80 standings with every verb, against a second telling of the rule."""
    for now, verb in product(STANDINGS, [*verbs(axis), *STATES[axis]]):
        given_up = now.execution in ("failed", "cancelled")
        over = given_up or now.merge == "merged" or (now.execution, now.merge) == ("done", "abandoned")
        whole = now.execution == "done" and now.review == "approved"
        allowed = (axis, now.on(axis), verb) in ALLOWED and not over and (verb != "merged" or whole)
        assert now.over is over
        assert (verb in possible(now, axis)) is allowed, (now, verb)
        if allowed:
            after = moved(now, axis, verb)
            assert after.on(axis) == ALLOWED[axis, now.on(axis), verb]
            assert [after.on(other) for other in Axis if other is not axis] == [
                now.on(other) for other in Axis if other is not axis]
        else:
            with pytest.raises((LaneEnded, LaneMoveRefused, NotMergeable)) as refusal:
                moved(now, axis, verb)
            ended = over or (axis is Axis.EXECUTION and now.execution == "done")
            assert (refusal.type is LaneEnded) is ended, (now, verb)


def test_open_to_done_directly_is_refused() -> None:
    """E15 (D): it was never begun."""
    with pytest.raises(LaneMoveRefused, match="open") as refusal:
        moved(Standing(), Axis.EXECUTION, "done")
    assert "in_progress, cancelled" in refusal.value.message


def test_merged_takes_done_and_approved() -> None:
    """D11, E14.15: each missing half is refused as what it is."""
    for now in (Standing(), Standing("done"), Standing("in_progress", "approved"), Standing("done", "submitted")):
        with pytest.raises(NotMergeable) as refusal:
            moved(now, Axis.MERGE, "merged")
        assert refusal.value.facts == {"execution": now.execution, "review": now.review}
    assert moved(Standing("done", "approved", "conflicted"), Axis.MERGE, "merged").over


def test_who_may_say_what() -> None:
    """D9, D10, D11: conductors everything, the lane's own assignee submits, and nobody else anything."""
    for axis in Axis:
        for verb in verbs(axis):
            move = needed(axis, verb)
            assert may(move, Role.CONDUCTOR, False)
            assert may(move, Role.ASSIGNEE, True) is (verb == "submit")
            assert not may(move, Role.ASSIGNEE, False)
            # A lane's assignee who is no more than a member by now.
            assert not may(move, Role.MEMBER, True)
            assert not may(move, Role.MEMBER, False)
            assert not may(move, None, True)
