"""Singletons and commands over HTTP: enqueue, steer, follow up, abort, and how runners read them (A14 to A16, A54)."""

from __future__ import annotations

import pytest

from jobs.models import Command, Job
from jobs.services import commands
from jobs.services.commands import AT_ONCE, MOST_UNREAD, PAYLOAD_BYTES
from tests.driver import check
from tests.edges.caller import Caller, everything, held, problem, state

COMMANDS = ("steer", "follow_up", "follow-up")


# --- enqueue -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [
    {"session_key": "s", "singleton": "steer"}, {"singleton": {"key": "s", "mode": "steer"}}])
def test_an_enqueue_that_steers_answers_with_the_job_that_it_steered(api, said):
    """A14, A16, E3: 202 with steered; its repeat 200, repeated and steered."""
    first = api.enqueue(input={"n": 1}, **said)
    assert (first["steered"], first["repeated"], first["session_key"], first["singleton"]) == (False, False, "s",
                                                                                               "steer")
    body = {"type": "outside", "input": {"n": 2}, **said}
    answer = api.post("/jobs", body, Idempotency_Key="k")
    assert (answer.status_code, answer.json()["id"], answer.json()["steered"]) == (202, first["id"], True)
    assert answer["Location"].endswith(first["id"])
    again = api.post("/jobs", body, Idempotency_Key="k")
    assert (again.status_code, again.json()["id"], again.json()["steered"], again.json()["repeated"]) == (
        200, first["id"], True, True)
    problem(api.post("/jobs", {**body, "input": {"n": 3}}, Idempotency_Key="k"), 422, "idempotency_key_reused",
            "idempotency_key")
    [command] = api.claim_one()["commands"]
    assert (command["kind"], command["payload"]) == (
        "steer", {"n": 2, "from_session_key": "s", "from_enqueue": True})
    check(first["id"])


def test_an_enqueue_that_cancels_ends_what_waits_and_asks_who_holds(api):
    """A15: the runner hears of it with its heartbeat."""
    running = held(api, session_key="s")
    waiting = api.enqueue(session_key="s")["id"]
    new = api.enqueue(session_key="s", singleton="cancel")
    assert (new["steered"], new["status"]) == (False, "queued")
    told = api.get(f"/jobs/{waiting}").json()
    assert (told["status"], told["reason"]) == ("cancelled", "singleton_cancel")
    beat = api.assignment(running, "extend").json()
    assert (beat["abort"], beat["commands"]) == ("singleton_cancel", [])


@pytest.mark.parametrize(("said", "code", "field"), [
    ({"session_key": "s", "singleton": "stear"}, "unknown_singleton_mode", "singleton"),
    ({"singleton": "steer"}, "missing_session_key", "session_key"),
    ({"session_key": "s", "singleton": {"key": "t", "mode": "steer"}}, "session_key_mismatch", "singleton.key"),
    ({"session_key": "s", "singleton": {"mod": "steer"}}, "unknown_field", "singleton.mod"),
    ({"session_key": "s", "singleton": {"key": 1, "mode": "steer"}}, "invalid_session_key", "singleton.key"),
    ({"session_key": "s", "singletonMode": "steer"}, "unknown_field", "singletonMode"),
])
def test_what_is_no_singleton_is_400_and_changes_nothing(api, said, code, field):
    """A14, B12."""
    api.enqueue(session_key="s")
    rows = everything()
    problem(api.post("/jobs", {"type": "outside", "input": {}, **said}), 400, code, field)
    assert everything() == rows


# --- steer, follow up, abort ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", COMMANDS)
def test_a_command_is_202_and_its_repeat_200(api, route):
    """A54: by our id or the caller's; what it says is not shown to who may control but not see inputs."""
    made = api.enqueue(job_id="mine")
    answer = api.post("/jobs/mine/" + route, {"payload": {"to": "left"}}, Idempotency_Key="k")
    told = answer.json()
    assert (answer.status_code, told["repeated"], told["job"]["id"]) == (202, False, made["id"])
    assert told["command"].items() >= {"kind": route.replace("-", "_"), "by": f"key:{api.key.prefix}", "reason": None,
                                       "consumed_at": None}.items()
    assert b"left" not in answer.content
    rows = everything()
    again = api.post(f"/jobs/{made['id']}/{route}", {"payload": {"to": "left"}, "idempotency_key": "k"})
    assert (again.status_code, again.json()["command"]["id"], again.json()["repeated"]) == (
        200, told["command"]["id"], True)
    problem(api.post(f"/jobs/mine/{route}", {"payload": {"to": "right"}}, Idempotency_Key="k"), 422,
            "idempotency_key_reused", "idempotency_key")
    assert everything() == rows
    check(made["id"])


@pytest.mark.parametrize("route", COMMANDS)
def test_a_command_to_an_ended_job_is_409_with_its_status(api, route):
    """A54: and one that is not there 404, whosever it is."""
    job_id = held(api)["job"]["id"]
    api.post(f"/jobs/{job_id}/controls", {"action": "cancel"})
    told = problem(api.post(f"/jobs/{job_id}/{route}"), 409, "job_ended")
    assert (told["job_status"], "cancelled" in told["detail"]) == ("cancelled", True)
    unknown = problem(api.post(f"/jobs/nothing/{route}"), 404, "job_not_found")
    foreign = Caller(tenant="theirs").enqueue(job_id="foreign")["id"]
    assert problem(api.post(f"/jobs/{foreign}/{route}"), 404, "job_not_found") == unknown


@pytest.mark.parametrize(("route", "body", "status", "code", "field"), [
    ("steer", {"payload": [1]}, 400, "invalid_payload", "payload"),
    ("steer", {"payload": {"x": "x" * PAYLOAD_BYTES}}, 413, "too_large", "/payload"),
    ("steer", {"payload": {}, "by": "me"}, 400, "unknown_field", "by"),
    ("steer", {"idempotency_key": "é"}, 400, "invalid_idempotency_key", "idempotency_key"),
    ("follow_up", {"reason": "x"}, 400, "unknown_field", "reason"),
    ("abort", {"payload": {}}, 400, "unknown_field", "payload"),
    ("abort", {"reason": ""}, 400, "invalid_reason", "reason"),
    ("abort", {"reason": 5}, 400, "invalid_reason", "reason"),
    ("abort", {"reason": "r" * 513}, 400, "invalid_reason", "reason"),
])
def test_a_wrong_command_is_refused_and_changes_nothing(api, route, body, status, code, field):
    """A6, A54, A55, B12."""
    job_id = held(api)["job"]["id"]
    rows = everything()
    problem(api.post(f"/jobs/{job_id}/{route}", body), status, code, field)
    assert everything() == rows


@pytest.mark.parametrize("route", ["steer", "follow_up", "abort"])
def test_commands_need_the_permission_to_control(api, route):
    """E2: denied by default."""
    job_id = api.enqueue()["id"]
    others = Caller(permissions=["enqueue", "read", "claim", "dead_letters"])
    problem(others.post(f"/jobs/{job_id}/{route}"), 403, "permission_denied")
    assert Caller(permissions=["control"]).post(f"/jobs/{job_id}/{route}").status_code == 202


def test_too_many_unread_commands_are_429(api):
    """E4: too_many_commands; a heartbeat carries the oldest, and the others once those are consumed."""
    assignment = held(api)
    job_id = assignment["job"]["id"]
    for n in range(MOST_UNREAD):
        commands.steer(job_id, {"n": n}, by="user:test")
    problem(api.post(f"/jobs/{job_id}/steer"), 429, "too_many_commands")
    told = api.assignment(assignment, "extend").json()["commands"]
    assert [c["payload"]["n"] for c in told] == list(range(AT_ONCE))
    told = api.assignment(assignment, "extend", {"consumed": [c["id"] for c in told]}).json()["commands"]
    assert [c["payload"]["n"] for c in told] == list(range(AT_ONCE, 2 * AT_ONCE))


def test_an_abort_of_a_held_job_is_asked_for_and_honoured_by_its_runner(api):
    """A55, E5: 202 and pending; once more 200; the runner ends it and it is cancelled with the reason."""
    assignment = held(api)
    job_id = assignment["job"]["id"]
    first = api.post(f"/jobs/{job_id}/abort")
    assert (first.status_code, first.json()["command"]["reason"], first.json()["job"]["status"]) == (
        202, "abort_requested", "leased")
    again = api.post(f"/jobs/{job_id}/abort", {"reason": "once more"})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    assert again.json()["command"]["id"] == first.json()["command"]["id"]
    assert api.assignment(assignment, "extend").json()["abort"] == "abort_requested"
    ended = api.assignment(assignment, "cancelled")
    assert (ended.status_code, ended.json()["status"], ended.json()["repeated"]) == (200, "cancelled", False)
    assert api.assignment(assignment, "cancelled").json()["repeated"]
    told = api.get(f"/jobs/{job_id}").json()
    assert (told["reason"], told["result_envelope"]["unread_commands"]) == ("abort_requested", [])
    assert api.post(f"/jobs/{job_id}/abort").status_code == 200
    check(job_id)


def test_a_runner_stops_only_what_it_was_asked_to_stop(api):
    """E5, E8: 409 no_abort_pending, and it holds the job as before; every other end of an aborted job is one too."""
    assignment = held(api)
    rows = everything()
    problem(api.assignment(assignment, "cancelled"), 409, "no_abort_pending")
    problem(api.assignment(assignment, "cancelled", {"why": 1}), 400, "unknown_field")
    assert everything() == rows
    api.post(f"/jobs/{assignment['job']['id']}/abort", {"reason": "enough"})
    assert api.assignment(assignment, "fail", {"reason_code": "broken"}).json()["status"] == "cancelled"
    problem(api.assignment(assignment, "cancelled"), 409, "stale_claim")
    problem(Caller("other").assignment(assignment, "cancelled"), 404, "assignment_not_found")


def test_an_abort_of_a_waiting_job_stops_it_with_the_answer(api):
    """A55, E5: there is no command that anybody would read."""
    job_id = api.enqueue()["id"]
    told = api.post(f"/jobs/{job_id}/abort", {"reason": "not needed"})
    assert (told.status_code, told.json()["command"]) == (202, None)
    assert (told.json()["job"]["status"], told.json()["job"]["reason"]) == ("cancelled", "not needed")
    done = held(api)
    api.assignment(done, "complete", {"artifact": {}})
    problem(api.post(f"/jobs/{done['job']['id']}/abort"), 409, "job_ended")
    problem(api.post("/jobs/nothing/abort"), 404, "job_not_found")


# --- runners -------------------------------------------------------------------------------------------------------


def test_a_runner_reads_and_consumes_with_its_heartbeat(api):
    """A6, E8, E12: told until consumed, once each; again is a quiet yes."""
    assignment = held(api)
    job_id = assignment["job"]["id"]
    assert (assignment["commands"], api.assignment(assignment, "extend").json()["commands"]) == ([], [])
    for route, n in (("steer", 1), ("follow_up", 2)):
        api.post(f"/jobs/{job_id}/{route}", {"payload": {"n": n}})
    told = api.assignment(assignment, "extend").json()["commands"]
    assert [(c["kind"], c["payload"], c["by"]) for c in told] == [
        ("steer", {"n": 1}, f"key:{api.key.prefix}"), ("follow_up", {"n": 2}, f"key:{api.key.prefix}")]
    assert api.assignment(assignment, "extend").json()["commands"] == told
    first, second = (c["id"] for c in told)
    assert [c["id"] for c in api.assignment(assignment, "extend", {"consumed": [first]}).json()["commands"]] == [second]
    number = Job.objects.get(pk=job_id).number
    assert api.assignment(assignment, "extend", {"consumed": [first]}).status_code == 200
    assert Job.objects.get(pk=job_id).number == number
    assert api.assignment(assignment, "extend", {"consumed": [second, first]}).json()["commands"] == []
    assert [r["kind"] for r in api.get(f"/jobs/{job_id}/receipts").json()["receipts"]][-2:] == [
        "queue.command.consumed"] * 2
    check(job_id)


def test_the_next_attempt_is_told_what_the_last_one_left(api, driver):
    """A17, E12: with its claim."""
    assignment = held(api)
    job_id = assignment["job"]["id"]
    api.post(f"/jobs/{job_id}/steer", {"payload": {"n": 1}})
    api.assignment(assignment, "release")
    successor = api.claim_one()
    assert [c["payload"] for c in successor["commands"]] == [{"n": 1}]
    consumed = {"consumed": [successor["commands"][0]["id"]]}
    problem(api.assignment(assignment, "extend", consumed), 409, "stale_claim")
    assert Command.objects.get().consumed_at is None
    assert api.assignment(successor, "extend", consumed).json()["commands"] == []


@pytest.mark.parametrize(("consumed", "code"), [
    ("x", "invalid_consumed"), ([1], "invalid_consumed"), (["nothing"], "unknown_command"),
    (["00000000-0000-4000-8000-000000000000"], "unknown_command")])
def test_a_runner_cannot_consume_what_is_no_command_to_its_job(api, consumed, code):
    """E12: and its lease is as it was."""
    assignment = held(api)
    api.post(f"/jobs/{assignment['job']['id']}/steer")
    rows = everything()
    problem(api.assignment(assignment, "extend", {"consumed": consumed}), 400, code, "consumed")
    assert everything() == rows


def test_an_ended_job_shows_what_it_did_not_read(api):
    """E3: in its result; what was said only where inputs are asked for."""
    assignment = held(api)
    job_id = assignment["job"]["id"]
    api.post(f"/jobs/{job_id}/follow_up", {"payload": {"n": 1}})
    api.assignment(assignment, "complete", {"artifact": {}})
    [left] = api.get(f"/jobs/{job_id}").json()["result_envelope"]["unread_commands"]
    assert (left["kind"], "payload" in left) == ("follow_up", False)
    [left] = api.get(f"/jobs/{job_id}?include=input").json()["result_envelope"]["unread_commands"]
    assert left["payload"] == {"n": 1}
    assert state(job_id) == "completed"
