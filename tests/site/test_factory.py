"""`factory`: nine kinds, their contracts, codecs, leases, routes, and the watchdog's rule (A20 to A25, A40 to A44)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs import checks, routing
from jobs.conf import conf, registry
from jobs.errors import Invalid
from jobs.leases import heartbeat_s
from jobs.models import Job
from jobs.services import intake
from jobsite import definitions
from jobsite.definitions import factory
from jobsite.factory import leases, watchdog
from jobsite.factory.contracts import AGENTS, CONTRACTS
from jobsite.factory.payloads import PAYLOADS
from jobsite.factory.watchdog import Objective, Work
from tests.edges.caller import Caller, problem

KINDS = ("factory.dispatch", "factory.run", "factory.integration.publish", "factory.integration.validate",
         "factory.objective.audit", "factory.objective.control", "factory.objective.watchdog",
         "factory.task.monitor", "factory.task.run")
AUTH = {"userId": "u-1", "organizationId": "org-1"}


@pytest.fixture
def api(driver) -> Caller:
    """A key that may do everything, on the site's own routes."""
    return Caller()


def definition(kind: str) -> Any:
    return registry().current(kind)


# --- what is registered --------------------------------------------------------------------------------------------


def test_the_nine_kinds_are_registered_as_external_jobs_that_are_kept_for_ever() -> None:
    """A20, A33, E4, E9: 32 claims a chain, two attempts, no end of retention; and none of them has a handler here."""
    assert sorted(d.type for d in registry() if d.type.startswith("factory.")) == sorted(KINDS)
    for kind in KINDS:
        d = definition(kind)
        assert (d.executor, d.max_claims, d.retention, d.retry.max_attempts) == ("external", 32, None, 2), kind
        assert (d.label, d.enabled, d.runs, d.max_input_bytes) == (d.label.strip(), True, True, 128 * 1024)


def test_each_kind_declares_its_contract_and_the_catalogue_shows_it() -> None:
    """A22: the group, and flags as data; `factory.task.run` alone has a durable activity."""
    assert set(CONTRACTS) == set(PAYLOADS) == set(KINDS)
    assert [kind for kind in KINDS if CONTRACTS[kind].durable_activity] == ["factory.task.run"]
    assert CONTRACTS["factory.dispatch"].group == "control"
    assert {c.group for c in CONTRACTS.values()} == {"chat", "codex", "control"}
    for kind in KINDS:
        contract = CONTRACTS[kind]
        assert definition(kind).worker_group == f"receipt-{contract.group}"
        assert contract.agent in AGENTS
        assert f"group {contract.group}" in definition(kind).description
    assert CONTRACTS["factory.task.run"].flags == ("durable_activity", "objective_scoped", "reconciles", "live")
    assert "durable activity" in definition("factory.task.run").description


def test_the_readme_tells_the_contracts_and_settings_as_they_are() -> None:
    """E9: a table of the kinds, and one that names each flag of A beside the setting of ours."""
    told = (Path(definitions.__file__).parent / "README.md").read_text()
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in told.splitlines()]
    kinds = {row[0]: row[1:] for row in rows if row[0] in KINDS}
    assert kinds == {kind: [c.group, c.agent, ", ".join(f.replace("_", " ") for f in c.flags) or "none"]
                     for kind, c in CONTRACTS.items()}
    flags = told.partition("| theirs | ours | default |")[2]
    for name in settings.FACTORY:
        assert f"`FACTORY_{name}`" in flags, name
    for flag in ("JOB_LEASE_MS", "RECEIPT_CALLBACK_TOKEN", "RECEIPT_PROCESS_ROLE", "RESONATE_STARTUP_SETTLE_MS"):
        assert f"`{flag}`" in flags


# --- payloads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_but_the_watchdog_needs_an_authentication_context(kind: str) -> None:
    """A21, B8: a user and an organization; the rest may be left out; `kind` may be said, as its own."""
    codec = definition(kind).input
    full = {**AUTH, "workspaceId": "w", "receiptConnectGatewayUrl": "https://gw.example.org/x", "sessionId": "s",
            "source": "cli"}
    given = json.loads(codec.normal({"authContext": full}))
    assert given["authContext"] == full
    assert given["kind"] == kind
    assert codec.normal({"authContext": full}) == codec.normal({"authContext": full, "kind": kind})
    if kind == "factory.objective.watchdog":
        assert json.loads(codec.normal({}))["authContext"] is None
        return
    with pytest.raises(Invalid) as missing:
        codec.normal({})
    assert missing.value.field == "/authContext"


@pytest.mark.parametrize(("payload", "field"), [
    ({"authContext": {"userId": "u"}}, "/authContext/organizationId"),
    ({"authContext": {"organizationId": "o"}}, "/authContext/userId"),
    ({"authContext": {**AUTH, "token": "x"}}, "/authContext/token"),
    ({"authContext": {**AUTH, "userId": ""}}, "/authContext/userId"),
    ({"authContext": {**AUTH, "userId": " u"}}, "/authContext/userId"),
    ({"authContext": {**AUTH, "userId": "u\n"}}, "/authContext/userId"),
    ({"authContext": {**AUTH, "userId": "u" * 201}}, "/authContext/userId"),
    ({"authContext": {**AUTH, "userId": 7}}, "/authContext/userId"),
    ({"authContext": {**AUTH, "receiptConnectGatewayUrl": "file:///etc"}}, "/authContext/receiptConnectGatewayUrl"),
    ({"authContext": {**AUTH, "receiptConnectGatewayUrl": "https://u:p@x"}}, "/authContext/receiptConnectGatewayUrl"),
    ({"authContext": {**AUTH, "receiptConnectGatewayUrl": "https://x:99999"}}, "/authContext/receiptConnectGatewayUrl"),
    ({"authContext": None}, "/authContext"), ({"authContext": []}, "/authContext"),
    ({"authContext": AUTH, "kind": "factory.run"}, "/kind"), ({"authContext": AUTH, "extra": 1}, "/extra"),
    ({"authContext": AUTH, "timeoutMs": 0}, "/timeoutMs"),
    ({"authContext": AUTH, "timeoutMs": 86_400_001}, "/timeoutMs"),
    ({"authContext": AUTH, "timeoutMs": True}, "/timeoutMs"), ({"authContext": AUTH, "timeoutMs": "5"}, "/timeoutMs"),
    ({"authContext": AUTH, "executionPath": "Computer"}, "/executionPath"),
    ({"authContext": AUTH, "objectiveId": ""}, "/objectiveId"), ({"authContext": AUTH, "taskId": "\u0007"}, "/taskId"),
    ({"authContext": AUTH, "prompt": "x" * 32_769}, "/prompt"), ({"authContext": AUTH, "prompt": ""}, "/prompt"),
])
def test_a_payload_out_of_its_bounds_is_refused_with_its_field(payload: dict[str, Any], field: str) -> None:
    """A20, A21, B8, E15: exact fields with bounds; unknown ones, tokens among them, are refused."""
    with pytest.raises(Invalid) as refusal:
        definition("factory.task.run").input.normal(payload)
    assert (refusal.value.reason_code, refusal.value.field) == ("invalid_input", field)


@pytest.mark.parametrize(("kind", "payload", "field"), [
    ("factory.integration.publish", {"commit": "abc"}, "/commit"),
    ("factory.integration.validate", {"branch": "two\nlines"}, "/branch"),
    ("factory.objective.control", {"reason": "Two words"}, "/reason"),
    ("factory.dispatch", {"goal": ""}, "/goal"), ("factory.run", {"taskId": "t"}, "/taskId"),
    ("factory.task.monitor", {"prompt": "p"}, "/prompt"),
])
def test_each_kind_has_fields_of_its_own(kind: str, payload: dict[str, Any], field: str) -> None:
    """B8: what belongs to another kind is unknown here."""
    with pytest.raises(Invalid) as refusal:
        definition(kind).input.normal({"authContext": AUTH, **payload})
    assert refusal.value.field == field


def test_the_watchdog_looks_at_1_to_2000_and_a_result_is_words_and_addresses() -> None:
    """A49, B8."""
    for limit in (0, 2_001):
        with pytest.raises(Invalid) as refusal:
            definition("factory.objective.watchdog").input.normal({"scanLimit": limit})
        assert refusal.value.field == "/scanLimit"
    artifact = definition("factory.run").artifact
    assert json.loads(artifact.normal({"summary": "done"})) == {"summary": "done", "references": []}
    for bad in ({}, {"summary": "x", "references": ["ftp://x"]}, {"summary": "x", "log": ""}):
        with pytest.raises(Invalid):
            artifact.normal(bad)


def test_an_unknown_kind_and_a_bad_payload_are_refused_over_http_before_anything_is_written(api) -> None:
    """A27, E15: 422 with the nearest kind, and 400 with the field; the nine are accepted."""
    problem(api.post("/jobs", {"type": "factory.task.rum", "input": {}}), 422, "unknown_job_type", "type")
    problem(api.post("/jobs", {"type": "factory.run", "input": {"authContext": {"userId": "u"}}}), 400,
            "invalid_input", "/input/authContext/organizationId")
    assert Job.objects.count() == 0
    for kind in KINDS:
        assert api.enqueue(kind, input={"authContext": AUTH})["type"] == kind


# --- leases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "agent", "payload", "lease_s", "timeout_s"), [
    ("factory.run", "factory", {}, 300, 299),
    ("factory.dispatch", "factory", {"timeoutMs": 5_000_000}, 300, 299),
    ("factory.objective.control", "factory-control", {}, 900, 899),
    ("factory.objective.control", None, {}, 900, 899),
    ("factory.objective.control", "factory", {}, 300, 299),
    ("factory.objective.audit", "factory-control", {}, 300, 299),
    ("factory.task.monitor", "factory-monitor", {"executionPath": "computer"}, 900, 899),
    ("factory.task.monitor", "factory-monitor", {"executionPath": "local"}, 300, 299),
    ("factory.task.monitor", "factory-monitor", {}, 300, 299),
    ("factory.task.monitor", "factory", {"executionPath": "computer"}, 300, 299),
    ("factory.task.run", "codex", {}, 900, 899),
    ("factory.task.run", "codex", {"timeoutMs": 600_000}, 900, 899),
    ("factory.task.run", "codex", {"timeoutMs": 600_001}, 900.001, 899.001),
    ("factory.task.run", "codex", {"timeoutMs": 1_000_000}, 1_300, 1_299),
    ("factory.task.run", "codex", {"timeoutMs": 3_300_000}, 3_600, 3_599),
    ("factory.task.run", "codex", {"timeoutMs": 86_400_000}, 3_600, 3_599),
    ("factory.task.run", None, {"timeoutMs": 1_000_000}, 1_300, 1_299),
    ("factory.run", "codex", {}, 900, 899),
    ("factory.objective.watchdog", "factory-control", {}, 300, 60),
])
def test_leases_and_timeouts_follow_agent_kind_and_payload(
        kind: str, agent: str | None, payload: dict[str, Any], lease_s: float, timeout_s: float) -> None:
    """A40 to A44: the numbers of the source; without an agent those of the kind's own."""
    spans = definition(kind).spans(payload, agent=agent)
    assert (spans.lease_s, spans.timeout_s) == (pytest.approx(lease_s), pytest.approx(timeout_s))
    assert 2 * heartbeat_s(spans.lease_s) < spans.lease_s


def test_leases_stand_on_the_job(driver) -> None:
    """E8: computed at enqueue, for the claim is SQL; the agent counts."""
    made = intake.enqueue("factory.task.run", {"authContext": AUTH, "timeoutMs": 1_000_000}, agent="codex")
    job = Job.objects.get(pk=made.id)
    assert (job.lease_ms, job.timeout_ms, job.max_claims, job.max_attempts) == (1_300_000, 1_299_000, 32, 2)
    assert (job.worker_group, job.subject) == ("receipt-codex", None)
    made = intake.enqueue("factory.run", {"authContext": AUTH}, agent="codex")
    assert Job.objects.get(pk=made.id).lease_ms == 900_000
    made = intake.enqueue("factory.objective.control", {"authContext": AUTH, "objectiveId": "o-1"},
                          agent="factory-control")
    job = Job.objects.get(pk=made.id)
    assert (job.lease_ms, job.worker_group, job.subject) == (900_000, "receipt-control", "o-1")


@pytest.mark.parametrize(("said", "kind", "agent", "payload", "spans"), [
    ({"LEASE_S": 1_000.0}, "factory.objective.control", "factory-control", {}, (1_000, 999)),
    ({"LEASE_S": 4.0}, "factory.run", "factory", {}, (4, 5)),
    ({"CONTROL_TIMEOUT_S": 60.0}, "factory.objective.control", "factory-control", {}, (900, 60)),
    ({"CONTROL_TIMEOUT_S": 2.0}, "factory.objective.control", "factory-control", {}, (900, 5)),
    ({"CONTROL_TIMEOUT_S": 3_000.0}, "factory.objective.control", "factory-control", {}, (900, 899)),
    ({"CONTROL_TIMEOUT_S": 60.0}, "factory.objective.audit", "factory-control", {}, (300, 299)),
    ({"CODEX_LEASE_S": 1_800.0}, "factory.task.monitor", "factory-monitor", {"executionPath": "computer"},
     (1_800, 1_799)),
    ({"WATCHDOG_TIMEOUT_S": 5.0}, "factory.objective.watchdog", "factory-control", {}, (300, 10)),
])
def test_the_settings_move_them_within_their_bounds(
        said: dict[str, Any], kind: str, agent: str, payload: dict[str, Any], spans: tuple[float, float]) -> None:
    """A40 to A44, A49: the larger of two, floors of 5 and 10 s, and only objective control may be lowered."""
    [made] = [d for d in factory.definitions(said) if d.type == kind]
    assert made.spans(payload, agent=agent)[:2] == spans


@pytest.mark.parametrize("said", [{"LEASE_S": 2.0}, {"CODEX_LEASE_S": 3_601.0}, {"CONTROL_TIMEOUT_S": 0.0}])
def test_a_setting_that_cannot_work_is_refused_by_name(said: dict[str, float]) -> None:
    """A lease of two seconds leaves no room for two heartbeats (A45)."""
    with pytest.raises(ImproperlyConfigured, match=f"FACTORY_{next(iter(said))} is"):
        leases.Numbers.of(said)


def test_the_watchdog_can_be_switched_off() -> None:
    """A49: its kind takes no requests then; the others do."""
    off = {d.type: d.enabled for d in factory.definitions({"WATCHDOG": False})}
    assert [kind for kind, enabled in off.items() if not enabled] == ["factory.objective.watchdog"]


# --- routes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "kind", "group"), [
    ("codex", "factory.task.run", "receipt-codex"), ("codex", "factory.dispatch", "receipt-codex"),
    ("factory", "factory.integration.publish", "receipt-codex"),
    ("factory-monitor", "factory.integration.validate", "receipt-codex"),
    ("factory-control", "factory.objective.control", "receipt-control"),
    ("factory", "factory.dispatch", "receipt-chat"), ("factory-monitor", "factory.task.monitor", "receipt-chat"),
    (None, "factory.task.run", "receipt-chat"), (None, "research-answer", "research"), (None, "noop", "default"),
    ("codex", "noop", "default"), ("factory-control", "research-brief", "research"),
])
def test_jobs_are_routed_by_agent_first_and_kind_second(driver, agent: str | None, kind: str, group: str) -> None:
    """A23, A24: the rules are the site's settings; `factory.dispatch` for the agent `factory` lands on chat."""
    assert tuple(conf().AGENTS) == AGENTS
    own = definition(kind).worker_group
    assert routing.route(conf().ROUTING, agent, kind, own) == group
    if kind == "factory.dispatch":
        made = intake.enqueue(kind, {"authContext": AUTH}, agent=agent)
        assert (Job.objects.get(pk=made.id).worker_group, made.warnings) == (group, ())
    if (agent, kind) == ("codex", "factory.task.run"):
        [warning] = intake.enqueue(kind, {"authContext": AUTH}, agent="nobody").warnings
        assert warning["code"] == "unknown_agent"


def test_where_routes_and_contracts_disagree_is_reported_unless_it_is_acknowledged(settings) -> None:
    """A24: the site acknowledges its five; a type that is not named is told, and one named in vain is too."""
    assert checks.check_settings(None) == []
    settings.JOBS = {**settings.JOBS, "ROUTING_ACKNOWLEDGED": []}
    found = checks.check_settings(None)
    assert {fault.id for fault in found} == {"jobs.W005"}
    told = " ".join(fault.msg for fault in found)
    assert "factory.dispatch declares worker group 'receipt-control', the routing rules send it to" in told
    assert len(found) == 5
    site = ["factory.dispatch", "factory.objective.audit", "factory.objective.control", "factory.objective.watchdog",
            "factory.task.run"]
    settings.JOBS = {**settings.JOBS, "ROUTING_ACKNOWLEDGED": [*site, "noop", "gone"]}
    [fault] = checks.check_settings(None)
    assert (fault.id, "'noop'" in fault.msg) == ("jobs.W021", True)


def test_the_groups_are_runners_alone(api) -> None:
    """E7: no worker of ours serves them, and a runner may ask for each."""
    groups = {"receipt-chat", "receipt-codex", "receipt-control", "research", "saphira"}
    assert groups <= set(registry().groups(external=True))
    assert not groups & set(registry().groups())
    assert api.claim(worker_groups=sorted(groups)) == []


# --- the watchdog --------------------------------------------------------------------------------------------------

FRESH, QUIET = Work("build", 10), Work("build", 600)


@pytest.mark.parametrize(("objective", "reason"), [
    ({"work": ()}, "no_active_objective_work"),
    ({"work": (), "ended": True}, None),
    ({"work": (FRESH,)}, None),
    ({"work": (FRESH, QUIET)}, None),
    ({"work": (QUIET,)}, "active_objective_work_stalled"),
    ({"work": (QUIET, QUIET)}, "active_objective_work_stalled"),
    ({"work": (QUIET, FRESH), "phase": "review"}, "phase_supersession_has_active_stale_job"),
    ({"work": (FRESH,), "phase": "review"}, None),
    ({"work": (Work("build", 900, sandboxed=True),)}, None),
    ({"work": (Work("build", 901, sandboxed=True),)}, "active_objective_work_stalled"),
    ({"work": (Work("build", 300),)}, None),
    ({"work": (QUIET,), "ended": True}, None),
])
def test_the_watchdog_names_why_an_objective_stands_still(objective: dict[str, Any], reason: str | None) -> None:
    """A49: three reasons; in a sandbox work may be quiet for a quarter of an hour."""
    seen = Objective(**{"id": "o", "phase": "build", "auth_context": AUTH, "revision": 1, **objective})
    assert watchdog.reason(seen) == reason


def test_a_round_asks_once_for_what_it_saw_and_looks_at_so_many(driver) -> None:
    """A49: a control job with the reason `reconcile`; the same state asked about again is the same job."""
    stuck = [Objective(f"o-{n}", "build", AUTH, 1) for n in range(4)]
    made = intake.enqueue_many(watchdog.round_(stuck, 3), door=intake.TIMER)
    assert [done.repeated for done in made] == [False] * 3
    job = Job.objects.get(pk=made[0].id)
    assert (job.type, job.agent) == ("factory.objective.control", "factory-control")
    assert job.worker_group == "receipt-control"
    asked = json.loads(job.input)
    assert (asked["reason"], asked["cause"], asked["objectiveId"]) == ("reconcile", "no_active_objective_work", "o-0")
    again = intake.enqueue_many(watchdog.round_(stuck[:1]), door=intake.TIMER)
    assert [done.repeated for done in again] == [True]
    later = Objective("o-0", "build", AUTH, 2)
    assert not intake.enqueue_many(watchdog.round_([later]), door=intake.TIMER)[0].repeated
    assert len(list(watchdog.round_(stuck, 0))) == 1
    assert len(list(watchdog.round_((Objective(str(n), "p", AUTH, 1) for n in range(2_100)), 5_000))) == 2_000
