"""Quorums and lanes over HTTP: what is answered, to whom, and that each refusal has its code and changes nothing."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest
from django.http import HttpResponse

from jobs.models import Job
from jobs.services import grants, keys, tenancy
from lanes.models import Lane, LaneJob, LaneReceipt, Quorum
from tests.edges.caller import ALL, Caller, everything, problem
from tests.edges.conftest import api  # noqa: F401
from tests.edges.test_api_isolation import told
from tests.edges.test_api_members import Somebody
from tests.races.threads import together

COMMIT = "9FCEB02D0AE598E95DC970B74767F19372D61AF8"


class World:
    """A key for each role in the default workspace, a quorum, and a lane that the assignee's key has."""

    def __init__(self) -> None:
        self.conductor, self.assignee, self.member = (self.key(role) for role in ("conductor", "assignee", "member"))
        self.nobody, self.foreign = Caller("nobody"), self.key("conductor", "elsewhere")
        self.quorum = self.conductor.post("/quorums", {"name": "search", "title": "The new search"}).json()["id"]
        self.lane = self.made()["id"]

    @staticmethod
    def key(role: str, workspace: str | None = None, **more: Any) -> Caller:
        made = Caller(role, workspace=workspace, **more)
        grants.give(made.key.workspace, role, by="test", key=made.key)
        return made

    def body(self, name: str = "parser", **said: Any) -> dict[str, Any]:
        return {"quorum": self.quorum, "name": name, "branch": f"lane/{name}", "task": "TRACK-7",
                "assignee": f"key:{self.assignee.key.prefix}", **said}

    def made(self, name: str = "parser", **said: Any) -> dict[str, Any]:
        answer = self.conductor.post("/lanes", self.body(name, **said))
        assert answer.status_code == 201, answer.content
        return dict(answer.json())

    def say(self, verb: str, body: dict[str, Any], by: Caller | None = None, lane: str | None = None,
            **headers: str) -> HttpResponse:
        return (by or self.conductor).post(f"/lanes/{lane or self.lane}/{verb}", body, **headers)

    def ready(self) -> None:
        """Done and approved."""
        for verb, body in (("state", {"state": "in_progress"}), ("state", {"state": "done"}),
                           ("review", {"review": "submit"}), ("review", {"review": "approve"})):
            assert self.say(verb, body).status_code == 200


@pytest.fixture
def world(api: Caller) -> World:  # noqa: F811
    """A fresh one."""
    return World()


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
    assert everything() == rows


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
    for query, code in (("execution=opened", "unknown_state"), ("limit=0", "invalid_limit"), ("limit=201", "invalid_limit"),
                        ("order=name", "unknown_parameter"), ("execution=open&execution=done", "repeated_parameter")):
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


MOVES: dict[str, dict[str, Any]] = {
    "state": {"state": "in_progress"}, "review": {"review": "submit"}, "merge": {"outcome": "conflicted"},
    "dependencies": {"depends_on": []}, "jobs": {"type": "outside", "input": {}}}


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


# --- who may ---------------------------------------------------------------------------------------------------------

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


# --- jobs of a lane --------------------------------------------------------------------------------------------------


def test_a_job_is_made_for_a_lane_or_given_to_it_and_what_they_do_is_told(world: World) -> None:
    """D6, D7: both or neither; counts are read, and no end of a job moves the lane."""
    made = world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"})
    assert (made.status_code, made["Location"]) == (202, f"/api/v1/jobs/{made.json()['id']}")
    again = world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"})
    assert (again.status_code, again.json()["repeated"], again.json()["id"]) == (200, True, made.json()["id"])
    other = world.conductor.enqueue(retry={"max_attempts": 1}, priority=100)["id"]
    assert world.say("jobs/attach", {"job_id": other}).json() == {"lane": world.lane, "job_id": other, "repeated": False}
    assert world.say("jobs/attach", {"job_id": other}).json()["repeated"] is True
    held = world.conductor.claim_one()
    world.conductor.assignment(held, "fail", {"reason_code": "x"})
    lane = world.member.get(f"/lanes/{world.lane}").json()
    assert lane["jobs"] | {"last_activity_at": None} == {
        "counts": {"failed": 1, "queued": 1}, "active": 1, "gone": 0, "capped": False, "dead_letters": 1,
        "last_activity_at": None}
    assert lane["jobs"]["last_activity_at"] is not None
    assert (lane["execution"], lane["review"], lane["version"]) == ("open", "none", 1)
    listed = world.member.get(f"/lanes/{world.lane}/jobs").json()
    assert [(one["id"], one["state"], one["gone"]) for one in listed["jobs"]] == [
        (other, "failed", False), (made.json()["id"], "queued", False)]
    first = world.member.get(f"/lanes/{world.lane}/jobs?limit=1").json()
    rest = world.member.get(f"/lanes/{world.lane}/jobs?before={first['next_before']}").json()
    assert [*first["jobs"], *rest["jobs"]] == listed["jobs"]
    assert rest["next_before"] is None
    receipts = world.member.get(f"/lanes/{world.lane}/receipts").json()["receipts"]
    assert [(one["kind"], one["after"]) for one in receipts[1:]] == [("job", made.json()["id"]), ("job", other)]


def test_a_job_is_one_lanes_and_of_the_same_workspace(world: World) -> None:
    """D7, E14.20: foreign and unknown read alike; a key of a lane is not another lane's."""
    other = world.made("other")["id"]
    job = world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"}).json()["id"]
    foreign = Caller(workspace="elsewhere").enqueue()["id"]
    rows = everything()
    problem(world.say("jobs/attach", {"job_id": job}, lane=other), 409, "job_in_other_lane", "job_id")
    problem(world.say("jobs", {"type": "outside", "input": {}, "idempotency_key": "k"}, lane=other), 409,
            "job_in_other_lane")
    answers = [world.say("jobs/attach", {"job_id": name}) for name in (foreign, str(uuid.uuid4()), "x", "")]
    problem(answers[0], 404, "job_not_found", "job_id")
    assert len({told(answer) for answer in answers}) == 1
    refused = world.say("jobs", {"type": "no-such-type", "input": {}})
    problem(refused, 422, "unknown_job_type", "type")
    problem(world.say("jobs", {"type": "outside", "input": []}), 400, "invalid_input")
    assert everything() == rows
    assert (Job.objects.count(), LaneJob.objects.count()) == (2, 1)


def test_a_tenants_key_is_shown_its_own_jobs_alone(world: World) -> None:
    """C25: and so is whoever names a tenant; a lane is no tenant's."""
    for tenant in ("mine", "theirs", "theirs"):
        assert world.say("jobs", {"type": "outside", "input": {}, "tenant_subject": tenant}).status_code == 202
    mine = world.key("conductor", tenant="mine")
    seen = {name: who.get(f"/lanes/{world.lane}", **headers).json()["jobs"]["counts"] for name, who, headers in (
        ("all", world.conductor, {}), ("mine", mine, {}), ("named", world.conductor, {"X_Tenant_Subject": "theirs"}))}
    assert seen == {"all": {"queued": 3}, "mine": {"queued": 1}, "named": {"queued": 2}}
    assert len(mine.get(f"/lanes/{world.lane}/jobs").json()["jobs"]) == 1
    theirs = next(job.pk for job in Job.objects.select_related("tenant") if job.tenant.subject == "theirs")
    problem(mine.post(f"/lanes/{world.lane}/jobs/attach", {"job_id": str(theirs)}), 404, "job_not_found")
    problem(mine.get(f"/lanes/{world.lane}", X_Tenant_Subject="theirs"), 404, "tenant_not_found")


def test_only_conductors_make_jobs_for_a_lane_and_none_where_enqueues_need_a_grant(world: World) -> None:
    """D2: the lane's jobs are enqueued by a conductor of its workspace, whatever else somebody may."""
    tenancy.demand_grant(tenancy.workspace(), True, by="test")
    fresh = world.key("assignee")
    problem(fresh.post(f"/lanes/{world.lane}/jobs", MOVES["jobs"]), 403, "grant_required")
    assert world.key("conductor").post(f"/lanes/{world.lane}/jobs", MOVES["jobs"]).status_code == 202
    assert Job.objects.count() == 1


# --- hostile -----------------------------------------------------------------------------------------------------------

STRANGE = (None, True, -1, 1.5, "", "x" * 600, "a\nb", "\u202e", " x", [None], ["a", "a"], {"type": 5},
           {"type": "outside", "more": 1})


def test_no_value_in_any_field_is_a_server_error_and_what_is_refused_writes_nothing(world: World) -> None:
    """B8: each answer is one that the document names."""
    doors = {"/quorums": {"name": "q"}, f"/quorums/{world.quorum}/close": {"reason": "x"},
             "/lanes": world.body("new", title="t", depends_on=[], reconcile=None),
             **{f"/lanes/{world.lane}/{verb}": {"reason": "x", **body} for verb, body in MOVES.items() if verb != "jobs"},
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
