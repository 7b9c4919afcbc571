"""The door of agents' clients: POST /agents/{id}/jobs in their own shape (A18, A19, A26, A27, A31, A53, A63)."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from jobs import routing
from jobs.models import Job
from jobs.routing import Rule
from tests.driver import check
from tests.edges.caller import Caller, everything, problem


@pytest.fixture(autouse=True)
def _agents(settings):
    settings.JOBS = {**settings.JOBS, "AGENTS": ("codex", "factory")}


def post(api, agent="codex", **body):
    return api.post(f"/agents/{agent}/jobs", body)


def row(answer):
    assert answer.status_code in (200, 202), answer.content
    return Job.objects.get(pk=answer.json()["job"]["id"])


def test_a_job_is_answered_in_the_agents_shape_with_links_that_lead_somewhere(api):
    """A31, A53: {ok, job, async{jobId, stream, events{job, receipt}, status}}; the default queue is `collect` (A4)."""
    told = post(api, payload={"kind": "outside", "x": 1}, jobId="mine")
    assert told.status_code == 202
    said = told.json()
    job = row(told)
    assert (said["ok"], said["job"]["status"], said["repeated"], said["warnings"]) == (True, "queued", False, [])
    assert said["async"] == {
        "jobId": "mine", "stream": f"jobs/{job.pk}", "status": f"/api/v1/jobs/{job.pk}",
        "events": {"job": f"/api/v1/jobs/{job.pk}/events", "receipt": "/api/v1/events"}}
    assert (job.agent, job.queue, job.type, job.external_id) == ("codex", "collect", "outside", "mine")
    assert told["Location"] == said["async"]["status"]
    assert api.get(said["async"]["status"].removeprefix("/api/v1")).json()["id"] == str(job.pk)
    # Streams need an ASGI server: they are there.
    for link in said["async"]["events"].values():
        problem(api.get(link.removeprefix("/api/v1")), 501, "needs_asgi")
    check(job.pk)


def test_without_payload_the_whole_body_is_the_payload(api):
    """A53: but for the fields that say something about the job."""
    job = row(post(api, kind="outside", objective={"id": 7}, jobId="mine", lane="chat", sessionKey="s"))
    assert json.loads(job.input) == {"kind": "outside", "objective": {"id": 7}}
    assert (job.queue, job.external_id, job.session_key) == ("chat", "mine", "s")


def test_the_kind_is_part_of_the_input_where_the_definition_takes_it(api):
    """A20: a strict codec that knows no `kind` is not given one."""
    assert json.loads(row(post(api, payload={"kind": "echo", "value": "x"})).input)["value"] == "x"
    problem(post(api, payload={"kind": "echo", "nothing": "x"}), 400, "invalid_input", "/payload/nothing")
    problem(post(api, kind="echo", nothing="x"), 400, "invalid_input", "/nothing")


@pytest.mark.parametrize("body", [{"payload": {"kind": "outsid"}}, {"kind": "outsid", "x": 1}])
def test_an_unknown_kind_is_refused_before_any_write(api, body):
    """A27: 422, not 500; also with the whole body as payload (E15), and naming the nearest."""
    rows = everything()
    told = problem(api.post("/agents/codex/jobs", body), 422, "unknown_job_type", "kind")
    assert "'outside'" in told["detail"]
    assert everything() == rows


def test_a_job_id_that_exists_returns_its_job_unchanged(api):
    """A18: another payload, an unknown kind even, makes no second job and disturbs nothing."""
    first = post(api, payload={"kind": "outside"}, jobId="mine").json()["job"]
    api.claim_one()
    rows = everything()
    for payload in ({"kind": "outside", "other": True}, {"kind": "gone-meanwhile"}):
        told = post(api, agent="factory", payload=payload, jobId="mine", maxAttempts=8)
        assert (told.status_code, told.json()["repeated"]) == (200, True)
        assert told.json()["job"]["id"] == first["id"]
        assert told.json()["job"]["status"] == "leased"
    assert everything() == rows


@pytest.mark.parametrize(("asked", "kept"), [(None, 2), (0, 1), (-3, 1), (1, 1), (8, 8), (9, 8), (99, 8)])
def test_attempts_are_clamped_here_and_refused_elsewhere(api, asked, kept):
    """A19, E15: default 2, 0 is 1, 99 is 8; the other endpoint refuses what is out of range (E4)."""
    body = {"payload": {"kind": "outside"}, **({} if asked is None else {"maxAttempts": asked})}
    job = row(post(api, **body))
    assert (job.max_attempts, job.base_delay_ms) == (kept, 5_000)
    if asked is not None and not 1 <= asked <= 1_000:
        problem(api.post("/jobs", {"type": "outside", "retry": {"max_attempts": asked}}), 400, "invalid_retry_policy")


@pytest.mark.parametrize("wrong", [1.5, "2", True, [], {}])
def test_attempts_that_are_no_whole_number_are_refused(api, wrong):
    """A19: clamped means numbers; what is none is a mistake."""
    rows = everything()
    problem(post(api, payload={"kind": "outside"}, maxAttempts=wrong), 400, "invalid_max_attempts", "maxAttempts")
    assert everything() == rows


def test_a_definitions_own_policy_gives_the_timing_and_never_stays_never(api):
    """A19, E4: a default overrules no definition that is never retried; the request's word does."""
    quick = row(post(api, payload={"kind": "breaks"}))
    assert (quick.max_attempts, quick.base_delay_ms) == (2, 50)
    assert row(post(api, payload={"kind": "never-retried"})).max_attempts is None
    assert row(post(api, payload={"kind": "never-retried"}, maxAttempts=3)).max_attempts == 3


WRONG = [
    ({"payload": {"kind": "outside"}, "lane": "colect"}, "unknown_queue", "lane"),
    ({"payload": {"kind": "outside"}, "lane": 7}, "unknown_queue", "lane"),
    ({"payload": {"kind": "outside"}, "lane": "abort"}, "unknown_queue", "lane"),
    ({"payload": {"kind": "outside"}, "singletonMode": "stear"}, "unknown_singleton_mode", "singletonMode"),
    ({"payload": {"kind": "outside"}, "singleton": {"mode": "x"}}, "unknown_singleton_mode", "singletonMode"),
    ({"payload": {"kind": "outside"}, "singleton": "x"}, "unknown_singleton_mode", "singletonMode"),
    ({"payload": {"kind": "outside"}, "singleton": {"why": 1}}, "invalid_singleton", "singleton"),
    ({"payload": {"kind": "outside"}, "singleton": 3}, "invalid_singleton", "singleton"),
    ({"payload": {"kind": "outside"}, "sessionKey": "a", "singleton": {"key": "b"}}, "invalid_singleton", "singleton"),
    ({"payload": {"kind": "outside"}, "sessionKey": "a\n"}, "invalid_session_key", "sessionKey"),
    ({"payload": {"kind": "outside"}, "jobId": "a b"}, "invalid_job_id", "jobId"),
    ({"payload": {"kind": "outside"}, "colour": 1}, "unknown_field", "colour"),
    ({"payload": {"kind": 3}}, "invalid_kind", "kind"), ({"payload": {}}, "missing_field", "kind"),
    ({}, "missing_field", "kind"),
    ({"payload": [1]}, "invalid_payload", "payload"), ({"payload": None}, "invalid_payload", "payload"),
]


@pytest.mark.parametrize(("body", "code", "field"), WRONG)
def test_wrong_fields_are_refused_by_the_callers_names_and_change_nothing(api, body, code, field):
    """A63: an invalid lane or mode is refused, not dropped, and abort is no lane (A6); B12."""
    rows = everything()
    problem(api.post("/agents/codex/jobs", body), 400, code, field)
    assert everything() == rows


def test_bodies_that_are_none_are_refused_like_anywhere(api):
    """A61: malformed, not an object; an agent's id is a short printable word."""
    problem(api.send("POST", "/agents/codex/jobs", raw=b"{"), 400, "malformed_json")
    problem(api.post("/agents/codex/jobs", [1]), 400, "not_an_object")
    problem(api.post(f"/agents/{'a' * 65}/jobs", {"kind": "outside"}), 400, "invalid_agent", "agent")
    problem(api.post("/agents/%0A/jobs", {"kind": "outside"}), 400, "invalid_agent", "agent")
    assert api.get("/agents/codex/jobs").status_code == 405
    problem(Caller(permissions=["read"]).post("/agents/codex/jobs", {"kind": "outside"}), 403, "permission_denied")


def test_an_unknown_agent_is_accepted_and_its_job_waits_for_whoever_fails_it(api):
    """A26, E7: 202 with a warning, in the group that every worker serves; without one it stays queued."""
    told = post(api, agent="nobody", payload={"kind": "outside"})
    assert told.status_code == 202
    assert [w["code"] for w in told.json()["warnings"]] == ["unknown_agent"]
    assert row(told).worker_group == routing.UNROUTED
    assert api.claim() == []
    call_command("runworker", "--until-empty", "--skip-checks", verbosity=0)
    job = row(post(api, agent="nobody", payload={"kind": "outside"}, jobId="later"))
    assert job.state == "queued"
    ended = row(told)
    assert (ended.state, ended.failures) == ("failed", 1)
    [attempt] = ended.attempts.all()
    assert (attempt.reason_code, attempt.message) == ("no_handler", "No handler for agent 'nobody'")
    assert api.get(f"/jobs/{ended.pk}").json()["result_envelope"]["result_status"] == "failed"


RULES = (Rule("codex", agent="codex"), Rule("codex", type_prefix="factory.integration."), Rule("chat", type_prefix="f"),
         Rule("control", agent="factory-control"))


@pytest.mark.parametrize(("agent", "type_", "group"), [
    ("codex", "factory.run", "codex"), ("factory", "factory.integration.publish", "codex"),
    ("factory-control", "factory.integration.publish", "control"), ("factory", "factory.run", "chat"),
    ("factory", "other", "own"),
])
def test_the_agent_decides_the_group_before_the_kind_does(agent, type_, group):
    """A22, A23, A25, A29: routing is a table of rules, agents first, whatever order they stand in."""
    assert routing.route(RULES, agent, type_, "own") == group


def test_the_spelling_of_the_agents_endpoints_is_a_setting(api, settings):
    """E1: `cancelled` everywhere; these write one l where the site says so, and only these."""
    job_id = post(api, payload={"kind": "outside"}, jobId="mine").json()["job"]["id"]
    api.post(f"/jobs/{job_id}/controls", {"action": "cancel"})
    again = {"payload": {"kind": "outside"}, "jobId": "mine"}
    assert post(api, **again).json()["job"]["status"] == "cancelled"
    settings.JOBS = {**settings.JOBS, "CANCELED_WITH_ONE_L": True}
    said = post(api, **again).json()["job"]
    assert (said["status"], said["state"], said["reason"]) == ("canceled", "canceled", "cancelled")
    waited = api.get(f"/jobs/{job_id}/wait").json()
    assert (waited["status"], waited["result_envelope"]["outcome"]) == ("canceled", "canceled")
    assert api.get(f"/jobs/{job_id}").json()["status"] == "cancelled"


def test_a_key_tells_agents_apart_whatever_the_body_says(api):
    """E6: the same body to another agent is another request, also where it names an agent itself."""
    body = {"kind": "outside", "agent": "x"}
    assert api.post("/agents/codex/jobs", body, Idempotency_Key="k").status_code == 202
    problem(api.post("/agents/factory/jobs", body, Idempotency_Key="k"), 422, "idempotency_key_reused")
    assert api.post("/agents/codex/jobs", body, Idempotency_Key="k").json()["repeated"] is True
    problem(api.post("/agents/codex/jobs", {**body, "agent": "y"}, Idempotency_Key="k"), 422, "idempotency_key_reused")


def test_an_idempotency_key_holds_here_too(api):
    """B15, E6: the same request again is quiet, another one with its key refused."""
    body = {"kind": "outside", "x": 1}
    first = api.post("/agents/codex/jobs", body, Idempotency_Key="k")
    assert (first.status_code, api.post("/agents/codex/jobs", body, Idempotency_Key="k").status_code) == (202, 200)
    problem(api.post("/agents/factory/jobs", body, Idempotency_Key="k"), 422, "idempotency_key_reused")
    assert Job.objects.count() == 1
