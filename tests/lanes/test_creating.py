"""Making quorums and lanes: everything about a new one is right now, not later (D7, D8)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from jobs.clock import Now
from jobs.errors import JobsError
from jobs.models import Key
from jobs.services.grants import WorkspaceNotFound
from lanes.axes import Standing
from lanes.models import Dependency, Lane, LaneReceipt, Quorum
from lanes.services import lanes, quorums, reconcile
from tests.lanes import making
from tests.lanes.making import conductor, draft, quorum, user, workspace

pytestmark = pytest.mark.usefixtures("database")


def refusal(verb: Any) -> tuple[str, str | None]:
    """The code and the field of a refusal."""
    with pytest.raises(JobsError) as refused:
        verb()
    return refused.value.reason_code, refused.value.field


def create(**said: Any) -> Lane:
    """A lane of the quorum `one` by its conductor."""
    return lanes.create(quorum().pk, draft(**said), by=conductor())


def test_a_new_lane_is_open_and_belongs_where_its_quorum_does() -> None:
    """D7, D8: the workspace is inherited; one branch, one assignee, one task thread."""
    first = create(name="first")
    made = create(name="second", title="The second", branch="work/second", task="https://t.example.org/7",
                  depends_on=["first"])
    assert (made.workspace_id, made.quorum.name, made.standing, made.version) == (
        first.workspace_id, "one", Standing(), 1)
    assert (made.assignee, made.by, made.title, made.task) == (
        "user:assignee", conductor().name, "The second", "https://t.example.org/7")
    assert [one.pk for one in made.depends_on] == [one.pk for one in made.waiting_on] == [first.pk]
    receipt = LaneReceipt.objects.get(lane=made)
    assert (receipt.number, receipt.kind, receipt.version, receipt.by) == (1, "created", 1, conductor().name)


def test_a_dependency_is_told_until_it_is_done_and_holds_up_nothing() -> None:
    """D8: validated at create only."""
    making.lane("first")
    second = making.lane("second", depends_on=["first"])
    assert lanes.set_state(second.pk, "in_progress", by=conductor()).waiting_on
    first = Lane.objects.get(name="first")
    making.bring(first, Standing("done"), conductor())
    found = lanes.get(second.pk, by=conductor())
    assert (found.waiting_on, [one.name for one in found.depends_on]) == ([], ["first"])
    assert [one.name for one in lanes.dependents(first.pk)] == ["second"]


def test_who_may_be_given_a_lane() -> None:
    """D8: a living principal with the role of assignee or conductor in this workspace at this moment."""
    home = quorum()
    assert create(name="a", assignee=user("ann", "assignee").name).assignee == "user:ann"
    assert create(name="b", assignee=making.key("conductor").name).assignee.startswith("key:")
    gone = making.key("assignee")
    Key.objects.filter(pk=gone.key_id).update(revoked_at=Now())
    old = making.key("assignee")
    Key.objects.filter(pk=old.key_id).update(expires_at=Now())
    inactive = user("inactive", "assignee", is_active=False)
    user("boss", is_superuser=True)
    for name in (user("member", "member").name, user("stranger").name, user("far", "conductor", where="far").name,
                 making.key("conductor", where="far").name, gone.name, old.name, inactive.name, "user:boss", "ann",
                 "user:", "user:nobody", "key:", "group:ann", "", "user:a\x00", None, 7):
        said = refusal(lambda name=name: lanes.create(  # type: ignore[misc]
            home.pk, draft("x", assignee=name), by=conductor()))
        assert said == ("invalid_assignee", "assignee"), name
    assert not Lane.objects.filter(name="x").exists()


def test_a_name_and_the_branch_of_a_lane_that_has_not_ended_are_there_once() -> None:
    """D7: one branch is one lane's, until that lane has ended; another quorum may have the same."""
    first = create(name="a", branch="work/x")
    assert refusal(lambda: create(name="a", branch="work/y")) == ("lane_exists", "name")
    assert refusal(lambda: create(name="b", branch="work/x")) == ("branch_taken", "branch")
    quorum("two")
    assert lanes.create(quorum("two").pk, draft("a", branch="work/x"), by=conductor()).name == "a"
    lanes.set_state(first.pk, "cancelled", by=conductor())
    assert create(name="b", branch="work/x").branch == "work/x"
    assert refusal(lambda: create(name="a", branch="work/z")) == ("lane_exists", "name")


@pytest.mark.parametrize(("said", "code", "field"), [
    ({"name": "A"}, "invalid_name", "name"), ({"branch": "a..b"}, "invalid_branch", "branch"),
    ({"task": ""}, "invalid_task", "task"), ({"title": "\n"}, "invalid_title", "title"),
    ({"depends_on": ["there-is-none"]}, "invalid_dependency", "depends_on"),
    ({"depends_on": "first"}, "invalid_dependency", "depends_on"),
    ({"depends_on": ["lane"]}, "dependency_cycle", "depends_on"),
    ({"reconcile": {"typ": "echo"}}, "invalid_reconcile", "reconcile"),
    ({"reconcile": {"type": "echo", "by": 1}}, "invalid_reconcile", "reconcile"),
    ({"reconcile": ["echo"]}, "invalid_reconcile", "reconcile"),
    ({"reconcile": {"type": "there-is-none"}}, "unknown_job_type", "reconcile.type"),
])
def test_what_is_wrong_with_a_draft_is_named(said: dict[str, Any], code: str, field: str) -> None:
    """D8: before anything is written."""
    assert refusal(lambda: create(**said)) == (code, field)
    assert not Lane.objects.exists()


def test_a_reconcile_job_is_kept_as_its_codec_reads_it() -> None:
    """A49: wrong input is refused now, not when the lane stands still."""
    made = create(reconcile={"type": "noop"})
    assert (made.reconcile_type, made.reconcile_input) == ("noop", "{}")
    assert refusal(lambda: create(name="other", reconcile={"type": "noop", "input": {"unknown": 1}}))[0] != ""
    assert Lane.objects.count() == 1


def test_a_reconcile_job_is_one_that_the_watchdog_may_enqueue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A49, D8: what it would be refused each minute is refused now; and nobody has the house's own done by it."""
    house = {"type": "job-ended", "input": {"job_id": str(uuid.uuid4()), "chain": 1, "state": "failed"}}
    for said, code in (({"type": "disabled"}, "definition_disabled"), (house, "origin_forbidden")):
        assert refusal(lambda said=said: create(reconcile=said)) == (code, "reconcile.type")  # type: ignore[misc]
    assert create(name="a", reconcile={"type": "scheduled-only"}).reconcile_type == "scheduled-only"
    monkeypatch.setattr(reconcile, "DOOR", replace(reconcile.DOOR, origin="planner"))
    assert refusal(lambda: create(reconcile={"type": "scheduled-only"})) == ("origin_forbidden", "reconcile.type")
    assert Lane.objects.count() == 1


def test_who_acts_for_one_tenant_gives_a_lane_no_reconcile_job() -> None:
    """C25: that job goes to the workspace's own tenant, in which a tenant's key enqueues nothing."""
    key = making.key("conductor", tenant="acme")
    home, said = quorum(), draft("x", reconcile={"type": "noop"})
    assert refusal(lambda: lanes.create(home.pk, said, by=key)) == ("invalid_reconcile", "reconcile")
    assert lanes.create(home.pk, draft("x"), by=key).reconcile_type is None


def test_dependencies_are_of_the_same_quorum_by_id_or_name() -> None:
    """D8: one of another quorum, or another workspace, is none."""
    mine, other = create(name="mine"), making.lane("other", of="two")
    foreign = making.lane("foreign", where="far")
    made = create(name="x", depends_on=[str(mine.pk), "mine"])
    assert [one.name for one in made.depends_on] == ["mine"]
    for word in (str(other.pk), "other", str(foreign.pk), "foreign"):
        assert refusal(lambda word=word: create(name="y", depends_on=[word]))[0] == "invalid_dependency"  # type: ignore[misc]


def test_what_a_lane_depends_on_can_be_changed_but_to_no_circle() -> None:
    """D8: the circle is told, and the whole list is in the receipt."""
    a, b, c = (create(name=name) for name in "abc")
    lanes.depend(b.pk, ["a"], by=conductor())
    lanes.depend(c.pk, ["b", "a"], by=conductor(), reason="after both")
    assert [one.name for one in lanes.get(c.pk, by=conductor()).depends_on] == ["a", "b"]
    for lane, on in ((a, ["a"]), (a, ["b"]), (a, ["c"]), (b, ["c"])):
        said = refusal(lambda lane=lane, on=on: lanes.depend(lane.pk, on, by=conductor()))  # type: ignore[misc]
        assert said == ("dependency_cycle", "depends_on")
    with pytest.raises(JobsError, match=r"a > c > (b > )?a"):
        lanes.depend(a.pk, ["c"], by=conductor())
    lanes.depend(c.pk, ["a"], by=conductor())
    assert refusal(lambda: lanes.depend(c.pk, ["nobody"], by=conductor())) == ("invalid_dependency", "depends_on")
    told = [(one.kind, one.before, one.after, one.reason) for one in LaneReceipt.objects.filter(lane=c)]
    assert sorted(told[1:]) == sorted([("dependencies", "", "a, b", "after both"), ("dependencies", "a, b", "a", "")])
    assert Dependency.objects.count() == 2
    assert refusal(lambda: lanes.depend(a.pk, [], by=user("member", "member"))) == ("role_required", None)


def test_a_lane_is_given_to_one_other() -> None:
    """D7: by a conductor, to whoever may have it, and to one who has it already no second time."""
    made = create(name="a")
    given = lanes.reassign(made.pk, user("ann", "assignee").name, by=conductor(), reason="holidays")
    assert (given.assignee, given.version) == ("user:ann", 2)
    assert lanes.review(made.pk, "submit", by=user("ann")).review == "submitted"
    assert refusal(lambda: lanes.review(made.pk, "submit", by=user("assignee")))[0] == "role_required"
    assert refusal(lambda: lanes.reassign(made.pk, "user:ann", by=conductor()))[0] == "lane_move_refused"
    assert refusal(lambda: lanes.reassign(made.pk, "user:nobody", by=conductor())) == ("invalid_assignee", "assignee")
    assert refusal(lambda: lanes.reassign(made.pk, "user:ann", by=user("ann")))[0] == "role_required"


def test_a_user_of_a_new_name_keeps_its_lanes_and_is_given_them_by_that_name() -> None:
    """D7: who it is stays; what it was called when it was given the lane is told until somebody says it anew."""
    made = create(name="a", assignee=user("ann", "assignee").name)
    get_user_model().objects.filter(username="ann").update(username="anna")
    try:
        given = lanes.reassign(made.pk, "user:anna", by=conductor())
        assert (given.assignee, given.assignee_user) == ("user:anna", made.assignee_user)
        assert lanes.review(made.pk, "submit", by=user("anna")).review == "submitted"
        assert refusal(lambda: lanes.reassign(made.pk, "user:anna", by=conductor()))[0] == "lane_move_refused"
    finally:
        get_user_model().objects.filter(username="anna").delete()


def test_a_circle_of_very_many_lanes_is_found_and_told_in_a_sentence() -> None:
    """D8: as deep as it goes, without recursion; a refusal of a thousand lanes names a few."""
    first, last = create(name="first"), create(name="last")
    home = first.quorum
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE lanes_lane DISABLE TRIGGER USER")
        cursor.execute("""INSERT INTO lanes_lane (id, quorum_id, workspace_id, name, title, branch, task, assignee,
                assignee_user, execution, review, merge, version, by, created_at, moved_at)
            SELECT md5(n::text)::uuid, %s, %s, 'n' || n, '', 'n' || n, 't', 'user:x', 'x', 'open', 'none', 'none', 1,
                'x', now(), now() FROM generate_series(1, 1000) n""", [home.pk, home.workspace_id])
        cursor.execute("ALTER TABLE lanes_lane ENABLE TRIGGER USER")
        cursor.execute("""INSERT INTO lanes_dependency (lane_id, on_id)
            SELECT md5(n::text)::uuid, md5((n - 1)::text)::uuid FROM generate_series(2, 1000) n""")
    lanes.depend(last.pk, ["n1000"], by=conductor())
    lanes.depend(first.pk, ["last"], by=conductor())
    with pytest.raises(JobsError, match=r"n1 > first > last > n1000 > .* > 993 more > n1\.$") as told:
        lanes.depend(Lane.objects.get(name="n1").pk, ["first"], by=conductor())
    assert len(told.value.message) < 200


# --- quorums ---------------------------------------------------------------------------------------------------------


def test_quorums_are_made_by_conductors_of_their_workspace() -> None:
    """D7, E2, E15: without a grant the workspace is not there, superusers included."""
    made = quorums.create(workspace(), "plan", "The plan", by=conductor())
    assert (made.name, made.title, made.by, made.workspace.slug) == ("plan", "The plan", conductor().name, "default")
    assert refusal(lambda: quorums.create(workspace(), "plan", by=conductor())) == ("quorum_exists", "name")
    assert quorums.create(workspace("far"), "plan", by=conductor("far")).name == "plan"
    boss = user("boss", is_superuser=True, is_staff=True)
    for who in (boss, user("stranger"), making.key(), conductor("far")):
        with pytest.raises(WorkspaceNotFound):
            quorums.create(workspace(), "other", by=who)
    for who in (user("member", "member"), user("ann", "assignee"), making.key("member")):
        assert refusal(lambda who=who: quorums.create(workspace(), "other", by=who))[0] == "role_required"  # type: ignore[misc]
    assert refusal(lambda: quorums.create(workspace(), "Not", by=conductor())) == ("invalid_name", "name")
    assert Quorum.objects.count() == 2


def test_a_closed_quorum_takes_no_new_lanes_and_those_it_has_go_on() -> None:
    """D7."""
    made = create(name="a")
    home = quorum()
    assert refusal(lambda: quorums.close(home.pk, by=user("member", "member")))[0] == "role_required"
    assert refusal(lambda: quorums.close(home.pk, by=user("stranger")))[0] == "quorum_not_found"
    closed = quorums.close(home.pk, by=conductor(), reason="all is agreed")
    assert closed.closed_at is not None
    assert (closed.closed_by, closed.close_reason) == (conductor().name, "all is agreed")
    assert refusal(lambda: quorums.close(home.pk, by=conductor()))[0] == "quorum_closed"
    assert refusal(lambda: lanes.create(home.pk, draft("b"), by=conductor()))[0] == "quorum_closed"
    assert lanes.set_state(made.pk, "in_progress", by=conductor()).execution == "in_progress"


def test_who_may_not_make_lanes() -> None:
    """D8, E2, E15."""
    home = quorum()
    for who in (user("stranger"), making.key(), user("boss", is_superuser=True), conductor("far")):
        assert refusal(lambda who=who: lanes.create(home.pk, draft(), by=who))[0] == "quorum_not_found"  # type: ignore[misc]
    for who in (user("member", "member"), user("ann", "assignee")):
        assert refusal(lambda who=who: lanes.create(home.pk, draft(), by=who))[0] == "role_required"  # type: ignore[misc]
    for word in ("", "x", None, home.workspace_id):
        assert refusal(lambda word=word: lanes.create(word, draft(), by=conductor()))[0] == "quorum_not_found"  # type: ignore[misc]
