"""Limits of a workspace and of a tenant over HTTP and by command (C36, C37), and what they refuse (C10, C12, C13)."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.models import Job, Limits, Tenant
from jobs.services import costs, limits, recovery, tenancy
from tests import database as db
from tests.driver import check
from tests.edges.caller import ALL, Caller, everything, problem

PATH = "/workspaces/default/job-limits"


def put(api: Caller, said: Any, *, path: str = PATH, etag: str = "*", **headers: str) -> Any:
    return api.send("PUT", path, {"limits": said}, If_Match=etag, **headers)


def test_limits_are_read_set_and_taken_away(api: Caller) -> None:
    """C36, C37: with an ETag; what is not said stays, null takes away."""
    nothing = api.get(PATH)
    assert (nothing.status_code, nothing["ETag"], nothing["Cache-Control"]) == (200, '"r0"', "no-store")
    told = nothing.json()
    assert set(told["limits"]) == set(limits.NAMES)
    assert set(told["limits"].values()) == {None}
    assert (told["effective"]["claim_max_wait_s"], told["effective"]["tenant_ceiling"]) == (20, None)
    made = put(api, {"tenant_ceiling": 5, "max_cost_usd_cap": "2.5", "jobs.exclusive_group_max": 2}, etag='"r0"')
    assert (made.status_code, made["ETag"]) == (200, '"r1"')
    again = put(api, {"tenant_ceiling": None, "retry_budget": 0}, etag='"r1"').json()
    assert again == api.get(f"/workspaces/{api.key.workspace_id}/job-limits").json()
    assert (again["limits"]["tenant_ceiling"], again["limits"]["retry_budget"]) == (None, 0)
    assert (again["limits"]["max_cost_usd_cap"], again["limits"]["exclusive_group_max"]) == ("2.50", 2)


def test_a_tenants_own_limits_go_before_its_workspaces(api: Caller) -> None:
    """C36: named by header, query or field; the tenant is made with them."""
    put(api, {"tenant_ceiling": 5, "tenant_concurrency": 9})
    mine = put(api, {"tenant_ceiling": 7}, X_Tenant_Subject="acme").json()
    assert (mine["tenant_subject"], mine["limits"]["tenant_concurrency"]) == ("acme", None)
    assert (mine["effective"]["tenant_ceiling"], mine["effective"]["tenant_concurrency"]) == (7, 9)
    assert api.get(f"{PATH}?tenant_subject=acme").json() == mine
    assert api.get(PATH).json()["limits"]["tenant_ceiling"] == 5
    problem(api.get(PATH, X_Tenant_Subject="nobody"), 404, "not_found")


@pytest.mark.parametrize(("etag", "status", "code"), [
    ('"r7"', 412, "revision_mismatch"), ("", 428, "precondition_required"), ("7", 400, "invalid_if_match")])
def test_what_was_read_must_be_said_and_be_the_latest(api: Caller, etag: str, status: int, code: str) -> None:
    """C36, E12: two operators do not undo each other unseen."""
    put(api, {"tenant_ceiling": 5})
    before = everything()
    problem(put(api, {"tenant_ceiling": 6}, etag=etag), status, code)
    problem(put(api, {"tenant_ceiling": 6}, etag=etag, X_Tenant_Subject="new"), status, code)
    assert everything() == before


@pytest.mark.parametrize(("said", "code", "field"), [
    ({"tenant_cieling": 1}, "unknown_limit", "limits.tenant_cieling"),
    ({"tenant_ceiling": -1}, "invalid_limit", "limits.tenant_ceiling"),
    ({"tenant_ceiling": "5"}, "invalid_limit", "limits.tenant_ceiling"),
    ({"tenant_ceiling": True}, "invalid_limit", "limits.tenant_ceiling"),
    ({"tenant_ceiling": 2**40}, "invalid_limit", "limits.tenant_ceiling"),
    ({"tenant_concurrency": 0}, "invalid_limit", "limits.tenant_concurrency"),
    ({"max_attempts_cap": 1_001}, "invalid_limit", "limits.max_attempts_cap"),
    ({"max_cost_usd_cap": "much"}, "invalid_limit", "limits.max_cost_usd_cap"),
    ({"exclusive_group_scope": "world"}, "invalid_limit", "limits.exclusive_group_scope"),
    ({"exclusive_group_max": 1, "jobs.exclusive_group_max": 2}, "invalid_limit", "limits.jobs.exclusive_group_max"),
    ({"workspace_ceiling": 501}, "limit_exceeds_platform", "limits.workspace_ceiling"),
    ({"max_cost_usd_cap": 11}, "limit_exceeds_platform", "limits.max_cost_usd_cap"),
    (None, "missing_field", "limits"), ([], "invalid_limits", "limits"),
])
def test_impossible_limits_change_nothing(api: Caller, settings: Any, said: Any, code: str, field: str) -> None:
    """C36, C37: bounded by the platform, refused by name, all or none."""
    settings.JOBS = {**settings.JOBS, "PLATFORM_LIMITS": {"workspace_ceiling": 500, "max_cost_usd_cap": 10}}
    before = everything()
    with_another = {**said, "retry_budget": 3} if isinstance(said, dict) else said
    problem(put(api, with_another), 400, code, field)
    assert everything() == before


def test_every_fault_is_told_at_once(api: Caller) -> None:
    """C36."""
    told = put(api, {"tenant_ceiling": -1, "nonsense": 1, "retry_budget": 5, "workspace_ceiling": 1},
               X_Tenant_Subject="t").json()
    assert [fault["field"] for fault in told["faults"]] == [
        "limits.tenant_ceiling", "limits.nonsense", "limits.workspace_ceiling"]
    problem(api.send("PUT", PATH, {"limits": {}, "tenant_ceiling": 1}, If_Match="*"), 400, "unknown_field")


def test_only_keys_of_the_whole_workspace_with_the_permission_have_a_say(api: Caller) -> None:
    """RELIABILITY 6.1: a tenant's key has none, and another workspace is not there."""
    tenants = Caller("t", tenant="acme")
    weak = Caller("w", permissions=[p for p in ALL if p != "limits"])
    tenancy.make_workspace("elsewhere")
    before = everything()
    for who, path, status, code in ((tenants, PATH, 403, "permission_denied"), (weak, PATH, 403, "permission_denied"),
                                    (api, "/workspaces/elsewhere/job-limits", 404, "not_found"),
                                    (api, "/workspaces/nowhere/job-limits", 404, "not_found")):
        problem(who.get(path), status, code)
        problem(put(who, {"tenant_ceiling": 1}, path=path), status, code)
    assert everything() == before


def test_a_tenant_that_goes_gets_no_limits_any_more(api: Caller) -> None:
    """B38."""
    Tenant.objects.filter(pk=tenancy.tenant(tenancy.workspace(), "gone", make=True).pk).update(
        deleting_at="2026-01-01T00:00:00Z")
    problem(put(api, {"tenant_ceiling": 1}, X_Tenant_Subject="gone"), 409, "tenant_deleting", "tenant_subject")


def test_platform_ceilings_hold_where_nobody_has_set_one(api: Caller, settings: Any) -> None:
    """C10, C36: and bound what is set already."""
    settings.JOBS = {**settings.JOBS, "PLATFORM_LIMITS": {"tenant_ceiling": 1, "retry_budget": 4}}
    told = api.get(PATH).json()
    assert (told["platform"]["tenant_ceiling"], told["effective"]["tenant_ceiling"]) == (1, 1)
    assert told["effective"]["retry_budget"] == 4
    api.enqueue()
    problem(api.post("/jobs", {"type": "outside"}), 429, "queue_saturated")
    Limits.objects.create(workspace=api.key.workspace, tenant_ceiling=9)
    problem(api.post("/jobs", {"type": "outside"}), 429, "queue_saturated")


def test_a_full_queue_is_429_with_its_scope_and_when_to_come_back(api: Caller) -> None:
    """C10: at both doors; a repeat by its key passes."""
    api.enqueue(idempotency_key="k")
    put(api, {"tenant_ceiling": 1})
    before = everything()
    full = api.post("/jobs", {"type": "outside"})
    assert problem(full, 429, "queue_saturated")["scope"] == "tenant"
    assert int(full["Retry-After"]) >= 1
    problem(api.post("/agents/a/jobs", {"kind": "outside"}), 429, "queue_saturated")
    again = api.post("/jobs", {"type": "outside", "idempotency_key": "k"})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    assert everything() == before
    put(api, {"tenant_ceiling": None, "workspace_ceiling": 1})
    assert problem(api.post("/jobs", {"type": "outside"}, X_Tenant_Subject="other"), 429, "queue_saturated")[
        "scope"] == "workspace"


def test_a_cap_on_attempts_refuses_a_request_and_clamps_an_agents(api: Caller) -> None:
    """A19, C13, C18."""
    put(api, {"max_attempts_cap": 3})
    problem(api.post("/jobs", {"type": "outside", "retry": {"max_attempts": 4}}), 400, "retry_policy_exceeds_cap",
            "retry.max_attempts")
    assert api.enqueue(retry={"max_attempts": 3})["max_attempts"] == 3
    answer = api.post("/agents/a/jobs", {"kind": "outside", "maxAttempts": 8})
    assert (answer.status_code, answer.json()["job"]["max_attempts"]) == (202, 3)


def test_the_command_shows_and_sets_limits(api: Caller) -> None:
    """C36, C37."""
    told = StringIO()
    call_command("limits", "set", "tenant_ceiling=5", "max_cost_usd_cap=1.5", "--tenant", "acme", stdout=told)
    row = Limits.objects.get(tenant__subject="acme")
    assert (row.tenant_ceiling, str(row.max_cost_usd_cap), row.revision) == (5, "1.500000000", 1)
    call_command("limits", "set", "tenant_ceiling=null", "--tenant", "acme", stdout=told)
    told = StringIO()
    call_command("limits", "show", "--tenant", "acme", stdout=told)
    lines = {line.split()[0]: line.split()[1:] for line in told.getvalue().splitlines()}
    assert lines["max_cost_usd_cap"] == ["1.50", "holds:", "1.50"]
    assert lines["tenant_ceiling"] == ["-", "holds:", "-"]
    for words in (["tenant_ceiling"], ["tenant_ceiling=x"], ["nonsense=1"], ["retry_budget=1", "retry_budget=2"]):
        with pytest.raises(CommandError):
            call_command("limits", "set", *words, "--tenant", "fresh")
    assert not Tenant.objects.filter(subject="fresh").exists()


# --- costs ---------------------------------------------------------------------------------------------------------


def test_a_runner_is_told_what_is_left_and_ends_with_the_job_beyond_it(api: Caller) -> None:
    """C12, C17: extend says what the attempt has cost so far; twice is once."""
    job = api.enqueue(max_cost_usd="1.50")
    assert (job["max_cost_usd"], job["cost_usd"]) == ("1.50", None)
    held = api.claim_one()
    assert held["cost_left_usd"] == "1.50"
    for _ in range(2):
        assert api.assignment(held, "extend", {"cost_usd": 0.75}).status_code == 200
    assert api.get(f"/jobs/{job['id']}").json()["cost_usd"] == "0.75"
    assert api.assignment(held, "fail", {"reason_code": "flaky", "cost_usd": "1.00"}).json()["state"] == "queued"
    db.pass_time(20)
    assert recovery.promote() is False
    second = api.claim_one()
    assert second["cost_left_usd"] == "0.50"
    problem(api.assignment(second, "extend", {"cost_usd": "0.51"}), 409, "budget_exhausted")
    problem(api.assignment(second, "extend", {"cost_usd": "0.51"}), 409, "budget_exhausted")
    told = api.get(f"/jobs/{job['id']}").json()
    assert (told["state"], told["reason"], told["cost_usd"]) == ("failed", "terminal_error", "1.51")
    assert told["result_envelope"]["error"]["reason_code"] == "budget_exhausted"
    attempts = api.get(f"/jobs/{job['id']}/attempts").json()["attempts"]
    assert [a["cost_usd"] for a in attempts] in (["1.00", "0.51"], ["0.51", "1.00"])


def test_a_heartbeat_is_kept_whole_or_not_at_all(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """C12, C33: a cost that comes with a checkpoint that is refused counts as little as that, and the other way."""
    job, held = api.enqueue(), api.claim_one()
    point = {"seq": 3, "at": "page 3"}
    assert api.assignment(held, "extend", {"checkpoint": point, "cost_usd": "0.25"}).status_code == 200
    for refused, code in (({"seq": 0}, "invalid_checkpoint"), ({"seq": 3}, "stale_checkpoint"),
                          ({"seq": 2, "at": "page 3"}, "stale_checkpoint")):
        answer = api.assignment(held, "extend", {"checkpoint": refused, "cost_usd": "0.75"})
        assert answer.json()["code"] == code
    later, cost = {"checkpoint": {"seq": 4}, "cost_usd": "0.75"}, costs.store.report
    monkeypatch.setattr(costs.store, "report", lambda *_: None)
    problem(api.assignment(held, "extend", later), 409, "stale_claim")
    found = Job.objects.get(pk=job["id"])
    assert (str(found.cost_usd), found.checkpoint_number) == ("0.250000000", 3)
    check(found.pk)
    monkeypatch.setattr(costs.store, "report", cost)
    # The same checkpoint once more, with what has been spent meanwhile.
    for again in ({"checkpoint": point, "cost_usd": "0.50"}, later):
        assert api.assignment(held, "extend", again).status_code == 200
    found.refresh_from_db()
    assert (str(found.cost_usd), found.checkpoint_number) == ("0.750000000", 4)
    check(found.pk)


def test_a_failure_beyond_the_maximum_is_not_retried_and_a_completion_is_taken(api: Caller) -> None:
    """C12, C17: what is paid for is kept; the same words again are a quiet yes (E5)."""
    api.enqueue(max_cost_usd=1)
    held = api.claim_one()
    said = {"reason_code": "flaky", "cost_usd": 2}
    assert api.assignment(held, "fail", said).json()["state"] == "failed"
    again = api.assignment(held, "fail", said)
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    api.enqueue(max_cost_usd=1)
    held = api.claim_one()
    done = {"artifact": {"x": 1}, "cost_usd": 2}
    assert api.assignment(held, "complete", done).json()["state"] == "completed"
    assert api.assignment(held, "complete", done).json()["repeated"] is True
    assert [str(c) for c in Job.objects.order_by("id").values_list("cost_usd", flat=True)] == ["2.000000000"] * 2


@pytest.mark.parametrize("amount", [-1, "x", True, [], "1e9", 1e300])
def test_what_is_no_amount_is_refused_and_the_attempt_lives_on(api: Caller, amount: Any) -> None:
    """C12."""
    problem(api.post("/jobs", {"type": "outside", "max_cost_usd": amount}), 400, "invalid_max_cost_usd", "max_cost_usd")
    api.enqueue()
    held = api.claim_one()
    for verb, more in (("extend", {}), ("fail", {"reason_code": "x"}), ("complete", {"artifact": 1})):
        problem(api.assignment(held, verb, {**more, "cost_usd": amount}), 400, "invalid_cost_usd", "cost_usd")
    assert Job.objects.latest("id").state == "leased"


# --- retry policies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "code", "field"), [
    ({"deadline_s": 60, "deadline_at": "2199-01-01T00:00:00Z"}, "invalid_retry_policy", "retry.deadline_at"),
    ({"deadline_s": 0}, "invalid_retry_policy", "retry.deadline_s"),
    ({"deadline_s": "60"}, "invalid_retry_policy", "retry.deadline_s"),
    ({"deadline_s": True}, "invalid_retry_policy", "retry.deadline_s"),
    ({"deadline_at": "tomorrow"}, "invalid_retry_policy", "retry.deadline_at"),
    ({"deadline_at": "2001-01-01T00:00:00Z"}, "invalid_retry_policy", "retry.deadline_at"),
    ({"deadline_s": 8 * 86_400}, "retry_policy_exceeds_cap", "retry.deadline_s"),
    ({"deadline_at": "2190-01-01T00:00:00Z"}, "retry_policy_exceeds_cap", "retry.deadline_at"),
    ({"max_attempts": 1_001}, "retry_policy_exceeds_cap", "retry.max_attempts"),
    ({"base_delay_s": 0.5}, "invalid_retry_policy", "retry.base_delay_s"),
])
def test_a_policys_deadline_is_one_of_two_and_not_too_far(api: Caller, policy: Any, code: str, field: str) -> None:
    """C13, C15, C18: malformed is one refusal, beyond the platform's another; both name the field."""
    before = everything()
    problem(api.post("/jobs", {"type": "outside", "retry": policy}), 400, code, field)
    assert everything() == before


def test_a_policy_may_say_its_deadline_itself(api: Caller) -> None:
    """C13, C15: the shape of `retry`; beside a deadline of the request it is one too many."""
    policy = {"max_attempts": 3, "deadline_s": 3600, "retry_on": ["provider_timeout"]}
    job = Job.objects.get(pk=api.enqueue(retry=policy)["id"])
    assert (job.deadline_ms, job.max_attempts, job.retry_on) == (3_600_000, 3, ["provider_timeout"])
    problem(api.post("/jobs", {"type": "outside", "retry": policy, "deadline_s": 5}), 400, "invalid_deadline")
    assert Job.objects.get(pk=api.enqueue(deadline_s=5)["id"]).deadline_ms == 5_000


def test_a_retried_job_tells_its_attempts_and_when_it_goes_on(api: Caller) -> None:
    """C14, C16, C19: by reason_code; `next_attempt_at` lies between half and the whole of the wait."""
    job = api.enqueue(retry={"base_delay_s": 100, "retry_on": ["provider_timeout"]})
    assert (job["attempt_count"], job["next_attempt_at"]) == (0, None)
    api.assignment(api.claim_one(), "fail", {"reason_code": "provider_timeout"})
    told = api.get(f"/jobs/{job['id']}").json()
    assert (told["status"], told["attempt_count"]) == ("queued", 1)
    row = Job.objects.get()
    assert told["next_attempt_at"] == told["available_at"]
    assert 45 <= (row.available_at - row.attempts.get().ended_at).total_seconds() <= 101
    never = api.enqueue(retry=None)
    api.assignment(api.claim_one(), "fail", {"reason_code": "provider_timeout"})
    assert api.get(f"/jobs/{never['id']}").json()["state"] == "failed"
    other = api.enqueue(retry={"retry_on": ["provider_timeout"]})
    api.assignment(api.claim_one(), "fail", {"reason_code": "else"})
    assert api.get(f"/jobs/{other['id']}").json()["reason"] == "retry_not_allowed"
