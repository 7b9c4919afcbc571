"""Quorums and lanes over HTTP: what is answered, and that each refusal has its code and changes nothing."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import quote

import pytest

from lanes.models import Lane, LaneReceipt, Quorum
from tests.edges.caller import everything, problem
from tests.lanes.calling import COMMIT, MOVES, World
from tests.races.threads import together

# --- quorums ---------------------------------------------------------------------------------------------------------


def test_a_quorum_is_made_read_listed_and_closed_once(world: World) -> None:
    """D7: in the caller's workspace, by conductors; a closed one takes no lanes, and those that there are go on."""
    made = world.conductor.post("/quorums", {"name": "other"})
    assert (made.status_code, made["Location"]) == (201, f"/api/v1/quorums/{made.json()['id']}")
    assert world.member.get(f"/quorums/{made.json()['id']}").json() == made.json()
    assert [one["name"] for one in world.member.get("/quorums").json()["quorums"]] == ["other", "search"]
    problem(world.conductor.post("/quorums", {"name": "other"}), 409, "quorum_exists", "name")
    problem(world.assignee.post(f"/quorums/{world.quorum}/close"), 403, "role_required")
    closed = world.conductor.post(f"/quorums/{world.quorum}/close", {"reason": "agreed"}).json()
    assert (closed["closed"], closed["close_reason"]) == (True, "agreed")
    assert closed["closed_by"] == f"key:{world.conductor.key.prefix}"
    problem(world.conductor.post(f"/quorums/{world.quorum}/close"), 409, "quorum_closed")
    problem(world.conductor.post("/lanes", world.body("late")), 409, "quorum_closed")
    assert world.say("state", {"state": "in_progress"}).status_code == 200
    for said, names in (("true", ["search"]), ("false", ["other"])):
        found = world.conductor.get(f"/quorums?closed={said}").json()["quorums"]
        assert [one["name"] for one in found] == names
    problem(world.conductor.get("/quorums?closed=maybe"), 400, "invalid_closed", "closed")


# --- lanes -----------------------------------------------------------------------------------------------------------


def test_a_lane_is_made_with_all_that_it_is_and_read_with_its_version(world: World) -> None:
    """D7, D8: one branch, one assignee, one task; the quorum's workspace; what it waits for, and its reconcile job."""
    answer = world.conductor.post("/lanes", world.body(
        "second", title="Second", depends_on=["parser"], reconcile={"type": "outside", "input": {"n": 1}}))
    made = answer.json()
    assert (answer.status_code, answer["ETag"]) == (201, '"v1"')
    assert answer["Location"] == f"/api/v1/lanes/{made['id']}"
    assert (made["workspace"], made["quorum"]) == ("default", {"id": world.quorum, "name": "search"})
    assert (made["execution"], made["review"], made["merge"], made["commit"]) == ("open", "none", "none", None)
    assert made["depends_on"] == [{"id": world.lane, "name": "parser", "execution": "open"}]
    assert made["reconcile"] == {"type": "outside", "input": {"n": 1}}
    assert made["next"] == {"execution": ["in_progress", "cancelled"], "review": ["submit"],
                            "merge": ["conflicted", "abandoned"]}
    read = world.member.get(f"/lanes/{made['id']}")
    assert (read.json(), read["ETag"]) == (made, '"v1"')


@pytest.mark.parametrize(("said", "code", "field"), [
    ({"name": "A b"}, "invalid_name", "name"), ({"name": None}, "invalid_name", "name"),
    ({"branch": "a..b"}, "invalid_branch", "branch"), ({"branch": 5}, "invalid_branch", "branch"),
    ({"task": ""}, "invalid_task", "task"), ({"assignee": "user:nobody"}, "invalid_assignee", "assignee"),
    ({"title": ["x"]}, "invalid_title", "title"), ({"depends_on": ["missing"]}, "invalid_dependency", "depends_on"),
    ({"depends_on": "parser"}, "invalid_dependency", "depends_on"), ({"depends_on": [1]}, "invalid_dependency", None),
    ({"depends_on": ["new"]}, "dependency_cycle", "depends_on"), ({"reconcile": 5}, "invalid_reconcile", "reconcile"),
    ({"reconcile": {"type": "outside", "input": [1]}}, "invalid_input", "/reconcile/input"),
    ({"quorum": 7}, "invalid_quorum", "quorum"), ({"workspace": "elsewhere"}, "unknown_field", "workspace"),
])
def test_what_a_lane_cannot_be_is_refused_now_by_its_field(world: World, said: dict[str, Any], code: str,
                                                           field: str | None) -> None:
    """D8: validated at create, and nothing is written; a workspace is nothing that one may say."""
    rows = everything()
    problem(world.conductor.post("/lanes", {**world.body("new"), **said}), 400, code, field)
    missing = world.body("new")
    del missing["task"]
    problem(world.conductor.post("/lanes", missing), 400, "missing_field", "task")
    unknown = {**world.body("new"), "reconcile": {"type": "outsid"}}
    problem(world.conductor.post("/lanes", unknown), 422, "unknown_job_type", "reconcile.type")
    assert everything() == rows


def test_an_id_has_one_spelling(world: World) -> None:
    """D12, E2: what only UUID's own parser takes for an id names nothing, as in the API of jobs."""
    lane = world.lane
    assert world.conductor.get(f"/lanes/{lane.upper()}").status_code == 200
    for odd in (f"urn:uuid:{lane}", f"{{{lane}}}", lane.replace(lane[0], "\u0660", 1), f" {lane}"):
        problem(world.conductor.get(f"/lanes/{quote(odd)}"), 404, "lane_not_found")
        problem(world.conductor.post("/lanes", {**world.body("x"), "quorum": odd}), 404, "quorum_not_found")


def test_a_name_and_an_open_branch_are_once_in_a_quorum(world: World) -> None:
    """D7."""
    problem(world.conductor.post("/lanes", world.body(branch="other")), 409, "lane_exists", "name")
    problem(world.conductor.post("/lanes", world.body("other", branch="lane/parser")), 409, "branch_taken", "branch")


def test_a_list_is_narrowed_paged_and_silent_of_what_is_not_the_callers(world: World) -> None:
    """D12: newest first, by a signed cursor that belongs to its list."""
    names = [world.made(f"lane-{n}")["name"] for n in range(5)]
    world.say("state", {"state": "in_progress"})
    found, cursor = [], ""
    for _ in range(4):
        page = world.member.get(f"/lanes?limit=2{cursor}").json()
        found += [one["name"] for one in page["lanes"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [*reversed(names), "parser"]
    for query, expected in (("execution=in_progress", ["parser"]), ("review=approved", []), ("merge=none", found),
                            (f"quorum={world.quorum}", found), ("quorum=x", []), ("assignee=user:ann", []),
                            (f"assignee=key:{world.assignee.key.prefix}", found)):
        assert [one["name"] for one in world.member.get(f"/lanes?{query}").json()["lanes"]] == expected, query
    problem(world.member.get(f"/lanes?execution=open{cursor}"), 400, "invalid_cursor", "cursor")
    problem(world.assignee.get(f"/lanes?limit=2{cursor}"), 400, "invalid_cursor", "cursor")
    for query, code in (("execution=opened", "unknown_state"), ("limit=0", "invalid_limit"),
                        ("limit=201", "invalid_limit"), ("order=name", "unknown_parameter"),
                        ("execution=open&execution=done", "repeated_parameter")):
        problem(world.member.get(f"/lanes?{query}"), 400, code)
    for one in (world.nobody, world.foreign):
        assert one.get("/lanes").json() == {"lanes": [], "next_cursor": None}
        assert one.get("/quorums").json() == {"quorums": [], "next_cursor": None}


# --- the three axes --------------------------------------------------------------------------------------------------


def test_a_lane_goes_its_way_and_each_step_is_a_receipt(world: World) -> None:
    """D9, D10, D11: who, from where to where, why, under which version; merged takes done, approved and a commit."""
    path = f"/lanes/{world.lane}"
    assert world.say("state", {"state": "in_progress", "reason": "begun"}).json()["execution"] == "in_progress"
    assert world.say("review", {"review": "submit"}, world.assignee).json()["review"] == "submitted"
    problem(world.say("merge", {"outcome": "merged", "commit": COMMIT}), 409, "not_mergeable")
    assert world.say("state", {"state": "done"}).json()["review"] == "submitted"
    assert world.say("review", {"review": "approve"}).json()["execution"] == "done"
    problem(world.say("merge", {"outcome": "merged"}), 400, "commit_required", "commit")
    merged = world.say("merge", {"outcome": "merged", "commit": COMMIT, "reason": "in"})
    assert (merged["ETag"], merged.json()["merge"], merged.json()["commit"]) == ('"v6"', "merged", COMMIT.lower())
    assert merged.json()["ended_at"] is not None
    assert merged.json()["next"] == {"execution": [], "review": [], "merge": []}
    receipts = world.member.get(f"{path}/receipts").json()
    assert [(one["number"], one["axis"], one["before"], one["after"]) for one in receipts["receipts"]][1:] == [
        (2, "execution", "open", "in_progress"), (3, "review", "none", "submitted"),
        (4, "execution", "in_progress", "done"), (5, "review", "submitted", "approved"), (6, "merge", "none", "merged")]
    assert receipts["receipts"][1]["reason"] == "begun"
    assert receipts["receipts"][2]["by"] == f"key:{world.assignee.key.prefix}"
    assert receipts["receipts"][5]["commit"] == COMMIT.lower()
    part = world.member.get(f"{path}/receipts?after=2&limit=2").json()
    assert ([one["number"] for one in part["receipts"]], part["next_after"]) == ([3, 4], 4)


def test_what_the_axes_do_not_allow_is_409_and_writes_nothing(world: World) -> None:
    """D9, E15: open to done directly is refused; what has ended stays; with what would be right."""
    rows = everything()
    refused = problem(world.say("state", {"state": "done"}), 409, "lane_move_refused")
    assert "in_progress, cancelled" in refused["detail"]
    problem(world.say("review", {"review": "approve"}), 409, "lane_move_refused")
    problem(world.say("state", {"state": "open"}), 409, "lane_move_refused")
    problem(world.say("state", {"state": "opened"}), 400, "unknown_state", "state")
    problem(world.say("review", {"review": "approved"}), 400, "unknown_review", "review")
    problem(world.say("merge", {"outcome": "squashed"}), 400, "unknown_outcome", "outcome")
    problem(world.say("merge", {"outcome": "conflicted", "commit": "xyz"}), 400, "invalid_commit", "commit")
    assert everything() == rows
    world.say("state", {"state": "cancelled"})
    rows = everything()
    for verb, body in MOVES.items():
        problem(world.say(verb, body), 409, "lane_ended")
    assert everything() == rows


def test_if_match_holds_a_change_to_what_was_read(world: World) -> None:
    """E12: 412 where the lane has moved on, and nothing of it changes; without it, and with *, the latest is meant."""
    etag = world.member.get(f"/lanes/{world.lane}")["ETag"]
    assert world.say("review", {"review": "submit"}, If_Match=etag)["ETag"] == '"v2"'
    rows = everything()
    for verb, body in MOVES.items():
        if verb == "jobs":
            continue
        stale = problem(world.say(verb, body, If_Match=etag), 412, "lane_version_changed")
        assert stale["version"] == 2
        for wrong in ('"r2"', "v2", '"v2", "v3"', 'W/"v2"', ""):
            problem(world.say(verb, body, If_Match=wrong or " "), 400, "invalid_if_match", "If-Match")
    assert everything() == rows
    assert world.say("state", {"state": "in_progress"}, If_Match="*").status_code == 200


def test_of_two_who_read_the_same_version_one_changes_it(world: World) -> None:
    """E14.16: at the same moment; the other reads that the lane has moved on."""
    answers = together([lambda n=n: world.say("review", {"review": "submit"}, If_Match='"v1"').status_code
                        for n in range(4)])
    assert sorted(answers) == [200, 412, 412, 412]
    assert LaneReceipt.objects.filter(lane_id=world.lane).count() == 2


def test_a_lane_is_given_to_somebody_else_and_waits_for_others(world: World) -> None:
    """D7, D8: by conductors; circles are refused whenever they would close."""
    other = world.made("other", depends_on=["parser"])
    problem(world.say("dependencies", {"depends_on": ["other"]}), 400, "dependency_cycle", "depends_on")
    problem(world.say("dependencies", {}), 400, "missing_field", "depends_on")
    assert world.say("dependencies", {"depends_on": []}, lane=other["id"]).json()["depends_on"] == []
    assert [one["name"] for one in world.say("dependencies", {"depends_on": [other["id"]]}).json()["depends_on"]] == [
        "other"]
    given = world.say("assignee", {"assignee": f"key:{world.conductor.key.prefix}", "reason": "ill"})
    assert (given.json()["assignee"], given.json()["version"]) == (f"key:{world.conductor.key.prefix}", 3)
    problem(world.say("assignee", {"assignee": f"key:{world.member.key.prefix}"}), 400, "invalid_assignee", "assignee")
    problem(world.say("review", {"review": "submit"}, world.assignee), 403, "role_required")


# --- hostile ---------------------------------------------------------------------------------------------------------

STRANGE = (None, True, -1, 1.5, "", "x" * 600, "a\nb", "\u202e", " x", [None], ["a", "a"], {"type": 5},
           {"type": "outside", "more": 1})


def test_no_value_in_any_field_is_a_server_error_and_what_is_refused_writes_nothing(world: World) -> None:
    """B8: each answer is one that the document names."""
    doors = {"/quorums": {"name": "q"}, f"/quorums/{world.quorum}/close": {"reason": "x"},
             "/lanes": world.body("new", title="t", depends_on=[], reconcile=None),
             **{f"/lanes/{world.lane}/{verb}": {"reason": "x", **MOVES[verb]} for verb in MOVES if verb != "jobs"},
             f"/lanes/{world.lane}/assignee": {"assignee": "x", "reason": "x"},
             f"/lanes/{world.lane}/jobs/attach": {"job_id": "x"}}
    rows = everything()
    for path, body in doors.items():
        for field, value in itertools.product(body, STRANGE):
            answer = world.conductor.post(path, {**body, field: value})
            assert answer.status_code < 500, (path, field, value, answer.content)
            if answer.status_code < 400:
                rows = everything()
            else:
                assert "code" in answer.json()
        assert everything() == rows, path
        for raw in (b"[]", b"null", b"{", b'{"unheard_of": 1}', b'{"reason": "\\u0000"}'):
            assert 400 <= world.conductor.send("POST", path, raw=raw).status_code < 500, (path, raw)
        problem(world.conductor.send("POST", path, raw=b"{}", content_type="text/plain"), 415, "unsupported_media_type")
        problem(world.conductor.send("POST", path, raw=b'{"reason": "' + b"x" * 1_100_000 + b'"}'), 413, "too_large")
    assert Quorum.objects.filter(workspace__slug="default").count() < 5
    assert Lane.objects.get(pk=world.lane).workspace.slug == "default"
