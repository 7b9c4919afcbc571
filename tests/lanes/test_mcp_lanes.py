"""Quorums and lanes as tools: the same verbs, roles and refusals as over REST, by the SDK's own client (D6 to D12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobs.models import Job
from jobs.services import grants
from lanes.models import LaneJob, LaneReceipt
from lanes.services import lanes, quorums
from tests.driver import Driver, check
from tests.edges.caller import Caller
from tests.lanes import making
from tests.lanes.talking import Talk, inside

UNKNOWN = "0197c000-0000-7000-8000-000000000000"
COMMIT = "c0ffee1234"
CHANGES: dict[str, dict[str, Any]] = {
    "lane_set_state": {"state": "in_progress"}, "lane_review": {"review": "submit"},
    "lane_merge": {"outcome": "conflicted"}}


class World:
    """A quorum with a lane, and clients with each role in its workspace and none."""

    def __init__(self) -> None:
        self.keys = {name: Caller(name) for name in ("conductor", "assignee", "member", "nobody")}
        for role in ("conductor", "assignee", "member"):
            grants.give(making.workspace(), role, by="test", key=self.keys[role].key)
        self.keys["foreign"] = Caller("foreign", workspace="elsewhere")
        grants.give(making.workspace("elsewhere"), "conductor", by="test", key=self.keys["foreign"].key)
        self.quorum = str(making.quorum("search").pk)
        self.assignee = f"key:{self.keys['assignee'].key.prefix}"
        self.lane = str(making.lane("parser", of="search", assignee=self.assignee).pk)
        self.talks: dict[str, Any] = {}

    def as_(self, name: str) -> Talk:
        """The client of this one."""
        if name not in self.talks:
            self.talks[name] = inside(self.keys[name].secret)
            self.talks[name].talk = self.talks[name].__enter__()
        return self.talks[name].talk  # type: ignore[no-any-return]

    def draft(self, **said: Any) -> dict[str, Any]:
        """A good request for a lane, but for what is said."""
        return {"quorum": self.quorum, "name": "lexer", "branch": "lane/lexer", "assignee": self.assignee,
                "task": "thread 7", **said}


@pytest.fixture
def world(driver: Driver) -> Iterator[World]:
    """A fresh one."""
    here = World()
    yield here
    for talk in here.talks.values():
        talk.__exit__(None, None, None)


def test_a_lane_goes_from_its_creation_to_its_merge(world: World) -> None:
    """D7 to D12: each move by who may, one version and one receipt each; a lane that is merged does not change."""
    conductor, assignee = world.as_("conductor"), world.as_("assignee")
    [found] = conductor.good("quorum_list", closed=False)["quorums"]
    assert (found["id"], found["name"]) == (world.quorum, "search")
    made = conductor.good("lane_create", **world.draft(title="Lexer", depends_on=["parser"]))
    assert (made["workspace"], made["branch"], made["version"]) == ("default", "lane/lexer", 1)
    assert (made["execution"], made["review"], made["merge"]) == ("open", "none", "none")
    assert [on["name"] for on in made["depends_on"]] == ["parser"]
    assert made["next"] == {"execution": ["in_progress", "cancelled"], "review": ["submit"],
                            "merge": ["conflicted", "abandoned"]}
    me = {"lane": made["id"]}
    assert conductor.good("lane_set_state", **me, state="in_progress", version=1)["version"] == 2
    assert assignee.good("lane_review", **me, review="submit", reason="look")["review"] == "submitted"
    assert conductor.good("lane_review", **me, review="approve")["execution"] == "in_progress"
    done = conductor.good("lane_set_state", **me, state="done")
    assert (done["execution"], done["review"], done["merge"]) == ("done", "approved", "none")
    merged = conductor.good("lane_merge", **me, outcome="merged", commit=COMMIT.upper())
    assert (merged["merge"], merged["commit"], merged["version"]) == ("merged", COMMIT, 6)
    assert merged["ended_at"] is not None
    for tool, said in CHANGES.items():
        conductor.refused(tool, "lane_ended", **me, **said)
    read = assignee.good("lane_get", **me, history=True, after=1)
    assert [(one["number"], one["axis"], one["after"]) for one in read["receipts"]] == [
        (2, "execution", "in_progress"), (3, "review", "submitted"), (4, "review", "approved"),
        (5, "execution", "done"), (6, "merge", "merged")]
    assert (read["receipts"][1]["by"], read["receipts"][1]["reason"]) == (world.assignee, "look")
    found = conductor.good("lane_list", quorum=world.quorum, merge="merged")["lanes"]
    assert [one["id"] for one in found] == [made["id"]]


def test_what_is_not_yours_is_not_there(world: World) -> None:
    """D12, E2, RELIABILITY 6.1: a broad key without a grant, and a conductor of elsewhere, learn nothing; alike."""
    for name in ("nobody", "foreign"):
        talk = world.as_(name)
        assert talk.good("lane_list") == {"lanes": [], "next_cursor": None}
        assert talk.good("lane_list", quorum=world.quorum) == {"lanes": [], "next_cursor": None}
        assert talk.good("quorum_list") == {"quorums": [], "next_cursor": None}
        for tool, said in {"lane_get": {}, **CHANGES}.items():
            told = [talk.refused(tool, "lane_not_found", lane=lane, **said) for lane in (world.lane, UNKNOWN, "x")]
            assert told[0] == told[1] == told[2]
        talk.refused("job_create", "lane_not_found", type="outside", lane=world.lane)
        told = [talk.refused("lane_create", "quorum_not_found", **world.draft(quorum=quorum))
                for quorum in (world.quorum, UNKNOWN)]
        assert told[0] == told[1]
    assert Job.objects.count() == 0
    assert LaneReceipt.objects.filter(lane_id=world.lane).count() == 1


def test_a_role_is_asked_for_before_the_lane_is_looked_at(world: World) -> None:
    """D2, D9, D10, D11: also where the lane would have refused it anyway."""
    ended = str(making.lane("given-up", of="search", assignee=world.assignee,
                            at=making.Standing(execution="cancelled")).pk)
    for name in ("member", "assignee"):
        talk = world.as_(name)
        assert {one["name"] for one in talk.good("lane_list")["lanes"]} == {"parser", "given-up"}
        talk.refused("lane_create", "role_required", **world.draft())
        talk.refused("job_create", "role_required", type="outside", lane=world.lane)
        for lane in (world.lane, ended):
            told = talk.refused("lane_set_state", "role_required", lane=lane, state="in_progress")
            assert told["role"] == "conductor"
            talk.refused("lane_merge", "role_required", lane=lane, outcome="conflicted")
            talk.refused("lane_review", "role_required", lane=lane, review="approve")
    world.as_("member").refused("lane_review", "role_required", lane=world.lane, review="submit")
    world.as_("assignee").refused("lane_review", "lane_ended", lane=ended, review="submit")


def test_a_job_of_a_lane_moves_none_of_its_axes(world: World) -> None:
    """D6, D10, D15: both are made or neither; whoever may claims it, and its end is no review."""
    conductor = world.as_("conductor")
    made = conductor.good("job_create", type="outside", lane=world.lane, idempotency_key="k")
    again = conductor.good("job_create", type="outside", lane=world.lane, idempotency_key="k")
    assert (again["id"], again["repeated"], Job.objects.count()) == (made["id"], True, 1)
    row = LaneJob.objects.get()
    assert (str(row.job_id), str(row.lane_id)) == (made["id"], world.lane)
    [one] = world.as_("nobody").good("job_claim")["assignments"]
    assert one["job"]["id"] == made["id"]
    world.as_("nobody").good("job_complete", assignment_id=one["assignment_id"], artifact={})
    read = conductor.good("lane_get", lane=world.lane)
    assert (read["execution"], read["review"], read["merge"], read["version"]) == ("open", "none", "none", 1)
    assert read["jobs"]["counts"] == {"completed": 1}
    conductor.refused("job_create", "unknown_job_type", "type", type="nothing", lane=world.lane)
    assert LaneJob.objects.count() == 1
    check(made["id"])


REFUSALS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("lane_create", "missing_field", "task", {"task": ...}),
    ("lane_create", "unknown_field", "workspace", {"workspace": "elsewhere"}),
    ("lane_create", "invalid_quorum", "quorum", {"quorum": 7}),
    ("lane_create", "invalid_name", "name", {"name": "A b"}),
    ("lane_create", "invalid_branch", "branch", {"branch": "a..b"}),
    ("lane_create", "invalid_task", "task", {"task": ""}),
    ("lane_create", "invalid_title", "title", {"title": "a\u2028b"}),
    ("lane_create", "invalid_assignee", "assignee", {"assignee": "user:nobody"}),
    ("lane_create", "invalid_dependency", "depends_on", {"depends_on": ["nowhere"]}),
    ("lane_create", "invalid_dependency", "depends_on", {"depends_on": "parser"}),
    ("lane_create", "dependency_cycle", "depends_on", {"depends_on": ["lexer"]}),
    ("lane_create", "lane_exists", "name", {"name": "parser"}),
    ("lane_create", "branch_taken", "branch", {"branch": "work/parser"}),
    ("lane_create", "invalid_reconcile", "reconcile", {"reconcile": {"typ": "x"}}),
    ("lane_set_state", "unknown_state", "state", {"state": "finished"}),
    ("lane_set_state", "missing_field", "state", {}),
    ("lane_set_state", "lane_move_refused", None, {"state": "done"}),
    ("lane_set_state", "invalid_version", "version", {"state": "in_progress", "version": "1"}),
    ("lane_set_state", "lane_version_changed", None, {"state": "in_progress", "version": 2}),
    ("lane_set_state", "invalid_reason", "reason", {"state": "in_progress", "reason": "a\nb"}),
    ("lane_review", "unknown_review", "review", {"review": "approved"}),
    ("lane_review", "lane_move_refused", None, {"review": "approve"}),
    ("lane_merge", "unknown_outcome", "outcome", {"outcome": "rebased"}),
    ("lane_merge", "commit_required", "commit", {"outcome": "merged"}),
    ("lane_merge", "invalid_commit", "commit", {"outcome": "merged", "commit": "HEAD"}),
    ("lane_merge", "not_mergeable", None, {"outcome": "merged", "commit": COMMIT}),
    ("lane_get", "invalid_history", "history", {"history": "yes"}),
    ("lane_get", "invalid_after", "after", {"after": -1}),
    ("lane_list", "unknown_state", "execution", {"execution": "finished"}),
    ("lane_list", "invalid_limit", "limit", {"limit": 0}),
    ("lane_list", "invalid_cursor", "cursor", {"cursor": "x"}),
    ("quorum_list", "invalid_closed", "closed", {"closed": "no"}),
]


def test_a_refusal_has_its_code_and_its_field(world: World) -> None:
    """D8 to D11, E2: and nothing has changed."""
    for tool, code, field, said in REFUSALS:
        start = world.draft() if tool == "lane_create" else {} if tool.endswith("_list") else {"lane": world.lane}
        arguments = {name: value for name, value in {**start, **said}.items() if value is not ...}
        world.as_("conductor").refused(tool, code, field, **arguments)
    assert LaneReceipt.objects.count() == 1


def test_a_closed_quorum_takes_no_lanes(world: World) -> None:
    """D8."""
    quorums.close(world.quorum, by=making.conductor())
    world.as_("conductor").refused("lane_create", "quorum_closed", **world.draft())


def test_a_list_goes_on_where_it_was_left(world: World) -> None:
    """D12: by a cursor that is good for this list and this caller."""
    for n in range(3):
        lanes.create(world.quorum, making.draft(f"more-{n}", assignee=world.assignee), by=making.conductor())
    talk, seen, cursor = world.as_("member"), [], None
    while True:
        page = talk.good("lane_list", limit=3, cursor=cursor, assignee=world.assignee)
        seen += [one["name"] for one in page["lanes"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        world.as_("conductor").refused("lane_list", "invalid_cursor", "cursor", limit=3, cursor=cursor)
    assert seen == ["more-2", "more-1", "more-0", "parser"]


def test_a_key_without_the_permission_has_no_lanes(driver: Driver) -> None:
    """6.1: whatever role it has."""
    caller = Caller(permissions=["enqueue", "read", "claim"])
    grants.give(making.workspace(), "conductor", by="test", key=caller.key)
    lane = str(making.lane().pk)
    with inside(caller.secret) as talk:
        assert not [name for name in talk.tools() if name.startswith(("lane", "quorum"))]
        for tool in ("lane_list", "quorum_list", "lane_create", "lane_get", *CHANGES):
            talk.refused(tool, "permission_denied", lane=lane)
        talk.refused("job_create", "permission_denied", type="outside", lane=lane)
