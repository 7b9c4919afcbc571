"""Who may do what with lanes over HTTP: roles, permissions, sessions, and answers that tell nothing."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest
from django.http import HttpResponse

from jobs.services import grants, keys, tenancy
from tests.edges.caller import ALL, everything, problem
from tests.edges.test_api_isolation import told
from tests.edges.test_api_members import Somebody
from tests.lanes.calling import COMMIT, MOVES, World

DOORS: dict[str, tuple[str, str, Any]] = {
    "create": ("POST", "/lanes", None), "read": ("GET", "/lanes/{lane}", None),
    "receipts": ("GET", "/lanes/{lane}/receipts", None), "list of jobs": ("GET", "/lanes/{lane}/jobs", None),
    "quorum": ("GET", "/quorums/{quorum}", None), "close": ("POST", "/quorums/{quorum}/close", {}),
    **{verb: ("POST", f"/lanes/{{lane}}/{verb}", body) for verb, body in MOVES.items()},
    "assignee": ("POST", "/lanes/{lane}/assignee", {"assignee": "user:ann"}),
    "approve": ("POST", "/lanes/{lane}/review", {"review": "approve"}),
    "merged": ("POST", "/lanes/{lane}/merge", {"outcome": "merged", "commit": COMMIT}),
    "attach": ("POST", "/lanes/{lane}/jobs/attach", {"job_id": str(uuid.UUID(int=7))}),
}
READS = ("read", "receipts", "list of jobs", "quorum")


def _send(who: Any, world: World, door: str, **named: str) -> HttpResponse:
    method, path, body = DOORS[door]
    names = {"lane": world.lane, "quorum": world.quorum, **named}
    said = {**world.body("new"), "quorum": names["quorum"]} if door == "create" else body
    return who.send(method, path.format(**names), said)


@pytest.mark.parametrize("door", DOORS)
def test_foreign_missing_and_ungranted_are_one_answer_whatever_the_lane_is(world: World, door: str) -> None:
    """D10, D12, E15: byte for byte, before the entry is touched, also for who has a grant elsewhere or every right."""
    root = Somebody("root", "conductor", "elsewhere", superuser=True, staff=True)
    granted_here = world.member
    answers = {}
    for state in ("open", "approved"):
        if state == "approved":
            world.ready()
        rows = everything()
        answers |= {f"{state} without a grant": _send(world.nobody, world, door),
                    f"{state} foreign": _send(world.foreign, world, door),
                    f"{state} superuser": _send(root, world, door)}
        assert everything() == rows
    gone, shapeless = str(uuid.uuid4()), "no-id"
    answers |= {"missing": _send(granted_here, world, door, lane=gone, quorum=gone),
                "shapeless": _send(granted_here, world, door, lane=shapeless, quorum=shapeless)}
    assert len({told(answer) for answer in answers.values()}) == 1, {n: told(a) for n, a in answers.items()}
    about = "quorum" if door in ("create", "quorum", "close") else "lane"
    problem(answers["missing"], 404, f"{about}_not_found")


@pytest.mark.parametrize("door", [door for door in DOORS if door not in READS])
def test_a_member_and_an_assignee_read_that_a_role_is_missing_whatever_the_lane_is(world: World, door: str) -> None:
    """D9, D10, D11: the role is asked for before the entry is touched, so that a refusal tells nothing of it."""
    answers = {}
    for state in ("open", "done"):
        if state == "done":
            world.ready()
            world.say("merge", {"outcome": "merged", "commit": COMMIT})
        rows = everything()
        answers |= {state: _send(world.member, world, door)}
        if door != "review":
            assert told(_send(world.assignee, world, door)) == told(answers[state])
        assert everything() == rows
    refused = problem(answers["open"], 403, "role_required")
    assert refused["role"] == "conductor"
    assert told(answers["open"]) == told(answers["done"])


def test_members_read(world: World) -> None:
    """E2: a grant of any role shows what there is."""
    for who, door in itertools.product((world.member, world.assignee, world.conductor), READS):
        assert _send(who, world, door).status_code == 200, door


def test_a_key_needs_the_permission_beside_its_grant(world: World) -> None:
    """E2: `lanes`, and for the jobs of a lane `read` or `enqueue` too; a runner and a planner have none of it."""
    narrow = world.key("conductor", permissions=["lanes"])
    assert narrow.get(f"/lanes/{world.lane}").status_code == 200
    for answer in (narrow.get(f"/lanes/{world.lane}/jobs"), narrow.post(f"/lanes/{world.lane}/jobs", MOVES["jobs"]),
                   narrow.post(f"/lanes/{world.lane}/jobs/attach", {"job_id": str(uuid.uuid4())})):
        problem(answer, 403, "permission_denied")
    without = world.key("conductor", permissions=[one for one in ALL if one != "lanes"])
    for door in DOORS:
        problem(_send(without, world, door), 403, "permission_denied")
    for kind in (keys.Kind.RUNNER, keys.Kind.PLANNER):
        assert "lanes" not in keys.MAY[kind]


def test_people_act_by_their_session_in_the_workspace_that_they_name(world: World) -> None:
    """E2: as `user:ann`, with the token; a lane of the other workspace is not there, though there is a grant."""
    ann = Somebody("ann", "conductor")
    made = ann.send("POST", "/lanes", world.body("hers", assignee="user:ann"))
    assert (made.status_code, made.json()["by"], made.json()["assignee"]) == (201, "user:ann", "user:ann")
    problem(ann.send("POST", f"/lanes/{world.lane}/state", {"state": "in_progress"}, csrf=False), 403, "csrf_failed")
    assert ann.send("POST", f"/lanes/{world.lane}/state", {"state": "in_progress"}).json()["version"] == 2
    ann.grant("conductor", "elsewhere")
    problem(ann.send("GET", "/lanes"), 400, "workspace_required")
    rows = everything()
    for door in DOORS:
        method, path, body = DOORS[door]
        said = world.body("new") if door == "create" else body
        answer = ann.send(method, path.format(lane=world.lane, quorum=world.quorum), said, X_Workspace="elsewhere")
        assert (answer.status_code, answer.json()["code"][-10:]) == (404, "_not_found"), door
    assert everything() == rows
    assert ann.send("GET", "/lanes?workspace=elsewhere").json()["lanes"] == []
    assert len(ann.send("GET", "/lanes?workspace=default").json()["lanes"]) == 2


def test_a_grant_that_is_taken_ends_at_once(world: World) -> None:
    """RELIABILITY 6.5.6: from the next request on."""
    grants.take(tenancy.workspace(), key=world.conductor.key)
    problem(world.say("state", {"state": "in_progress"}), 404, "lane_not_found")
    assert world.conductor.get("/lanes").json()["lanes"] == []
    problem(world.conductor.post("/quorums", {"name": "x"}), 404, "workspace_not_found")

