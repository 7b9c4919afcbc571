"""Bulk operations over HTTP: previewed, begun once, followed item by item, stopped; of one's own tenant alone."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.models import BulkOperation, DeadLetter
from jobs.services.triage import Triage
from tests.driver import Driver, check
from tests.edges.caller import ATTESTED, Caller, everything, problem
from tests.edges.test_api_letters import dead

ACME = {"tenant_subject": "acme"}


def carried_on() -> None:
    """What a worker's duty does."""
    duty = Triage()
    while duty.tick():
        pass


def begun(api: Caller, verb: str = "cancel", status: int = 202, key: str = "", **more: Any) -> dict[str, Any]:
    """One operation, as it was answered."""
    answer = api.post("/bulk", {"verb": verb, "reason": "a clean-up", **ACME, **more}, Idempotency_Key=key)
    assert answer.status_code == status, answer.content
    return answer.json()


def test_jobs_are_previewed_and_cancelled_and_each_is_told_of(api: Caller, driver: Driver) -> None:
    """Preview with count and sample, 202, progress, an outcome each; nobody else's jobs."""
    jobs = [driver.enqueue(tenant="acme") for _ in range(25)]
    other = driver.enqueue(tenant="other")
    rows = everything()
    told = api.post("/bulk/preview", {"verb": "cancel", **ACME}).json()
    assert (told["expected"], told["more"], len(told["sample"])) == (25, False, 20)
    assert told["sample"][0]["id"] == jobs[-1]
    assert everything() == rows
    made = begun(api)
    assert (made["total"], made["done"], made["repeated"]) == (None, 0, False)
    driver.complete(driver.claim(1)[0])
    carried_on()
    seen = api.get(f"/bulk/{made['id']}?tenant_subject=acme").json()
    assert (seen["status"], seen["total"], seen["done"], seen["left"]) == ("finished", 24, 24, 0)
    items, after = [], 0
    while after is not None:
        page = api.get(f"/bulk/{made['id']}/items?limit=10&after={after}", X_Tenant_Subject="acme").json()
        items, after = items + page["items"], page["next_after"]
    assert [i["number"] for i in items] == list(range(1, 25))
    assert {i["outcome"] for i in items} == {"done"}
    assert driver.state(other) == "queued"


def test_letters_are_requeued_with_a_canary_by_whoever_says_who_it_is(api: Caller, driver: Driver) -> None:
    """C28: attested, bound by the tenant's rate; one first, and the rest when it is let go."""
    jobs = [dead(driver) for _ in range(3)]
    dead(driver, tenant="other")
    problem(api.post("/bulk", {"verb": "requeue", "reason": "r", **ACME}), 403, "actor_attestation_required")
    assert api.post("/bulk/preview", {"verb": "requeue", **ACME}).json()["expected"] == 3
    made = begun(api, "requeue", canary=True, **ATTESTED)
    carried_on()
    assert sum(driver.state(job) == "queued" for job in jobs) == 1
    path = f"/bulk/{made['id']}/controls?tenant_subject=acme"
    assert api.post(path, {"action": "let_go"}).status_code == 200
    carried_on()
    assert {driver.state(job) for job in jobs} == {"queued"}
    assert {d.resolved_by for d in DeadLetter.objects.filter(job_id__in=jobs)} == {
        f"key:{api.key.prefix} for user:alice"}
    problem(api.post(path, {"action": "let_go", "x": 1}), 400, "unknown_field")
    problem(api.post(path, {"action": "stop"}), 409, "bulk_ended")
    for job in jobs:
        check(job)


def test_the_same_key_is_one_operation(api: Caller, driver: Driver) -> None:
    """E6: 200 and repeated; for something else 422; another tenant's key of that name is another."""
    for tenant in ("acme", "other"):
        driver.enqueue(tenant=tenant)
    first = begun(api, key="k")
    again = begun(api, status=200, key="k")
    assert (again["id"], again["repeated"]) == (first["id"], True)
    problem(api.post("/bulk", {"verb": "pause", "reason": "r", **ACME}, Idempotency_Key="k"), 422,
            "idempotency_key_reused")
    assert begun(api, key="k", tenant_subject="other")["id"] != first["id"]
    assert BulkOperation.objects.count() == 2


def test_a_stop_is_said_once_and_quietly_again(api: Caller, driver: Driver) -> None:
    """It ends before its next batch; who stopped it is told."""
    job = driver.enqueue(tenant="acme")
    path = f"/bulk/{begun(api)['id']}/controls?tenant_subject=acme"
    problem(api.post(path, {"action": "let_go"}), 409, "nothing_waits")
    problem(api.post(path, {"action": "halt"}), 400, "unknown_action")
    for _ in range(2):
        told = api.post(path, {"action": "stop"}).json()
        assert (told["status"], told["ended_by"]) == ("stopped", f"key:{api.key.prefix}")
    carried_on()
    assert driver.state(job) == "queued"


def test_what_is_of_another_tenant_is_not_there(api: Caller, driver: Driver) -> None:
    """E2: foreign, unknown and malformed ids alike, byte for byte, with every method."""
    driver.enqueue(tenant="acme")
    made = begun(api)
    own = Caller(tenant="other")
    for caller, head in ((own, ""), (api, "other"), (api, ""), (Caller(workspace="elsewhere"), "acme")):
        for method, tail, body in (("GET", "", None), ("GET", "/items", None), ("POST", "/controls",
                                                                                {"action": "stop"})):
            answers = [caller.send(method, f"/bulk/{name}{tail}", body, X_Tenant_Subject=head)
                       for name in (made["id"], "0" * 32, "nothing")]
            assert len({a.content for a in answers}) == 1
            problem(answers[0], 404, "bulk_not_found")
    problem(api.post("/bulk", {"verb": "cancel", "reason": "r", "tenant_subject": "nobody"}), 404, "tenant_not_found")


@pytest.mark.parametrize(("verb", "needs"), [("cancel", "control"), ("pause", "control"), ("requeue", "dead_letters"),
                                             ("discard", "dead_letters")])
def test_each_verb_needs_its_own_permission(api: Caller, driver: Driver, verb: str, needs: str) -> None:
    """Beside `read`, since an operation shows what it meets."""
    dead(driver)
    driver.enqueue(tenant="acme")
    wrong = "control" if needs == "dead_letters" else "dead_letters"
    for path in ("/bulk", "/bulk/preview"):
        body = {"verb": verb, **(ATTESTED if path == "/bulk" else ACME), **({"reason": "r"} if path == "/bulk" else {})}
        problem(Caller(permissions=["read", wrong]).post(path, body), 403, "permission_denied")
        problem(Caller(permissions=[needs]).post(path, body), 403, "permission_denied")
        assert Caller(permissions=["read", needs]).post(path, body).status_code in (200, 202)


@pytest.mark.parametrize(("body", "code"), [
    ({"verb": "explode"}, "unknown_verb"), ({"verb": None}, "invalid_verb"), ({"filter": []}, "invalid_filter"),
    ({"filter": {"bogus": 1}}, "unknown_field"), ({"filter": {"type": 1}}, "invalid_type"),
    ({"filter": {"type": "a\n"}}, "invalid_type"), ({"filter": {"cluster": "x"}}, "unknown_field"),
    ({"filter": {"state": "asleep"}}, "invalid_state"), ({"filter": {"state": []}}, "invalid_state"),
    ({"filter": {"state": ["queued"], "status": "queued"}}, "invalid_state"),
    ({"filter": {"state": "completed"}}, "invalid_state"), ({"filter": {"since": "today"}}, "invalid_since"),
    ({"reason": ""}, "invalid_reason"), ({"reason": None}, "invalid_reason"), ({"rate": 0}, "invalid_rate"),
    ({"rate": "5"}, "invalid_rate"), ({"rate": True}, "invalid_rate"), ({"canary": 1}, "invalid_canary"),
    ({"canary": True}, "invalid_pace"), ({"most_failed": 101}, "invalid_most_failed"), ({"x": 1}, "unknown_field"),
])
def test_what_makes_no_sense_is_refused_and_begins_nothing(api: Caller, driver: Driver, body: dict[str, Any],
                                                           code: str) -> None:
    driver.enqueue(tenant="acme")
    rows = everything()
    problem(api.post("/bulk", {"verb": "cancel", "reason": "r", **ACME, **body}), 400, code)
    assert everything() == rows


def test_nothing_that_matches_is_404(api: Caller, driver: Driver) -> None:
    """Nothing is begun for nothing."""
    driver.enqueue(tenant="acme")
    problem(api.post("/bulk", {"verb": "resume", "reason": "r", **ACME}), 404, "nothing_matches")
    assert api.post("/bulk/preview", {"verb": "resume", **ACME}).json() == {
        "verb": "resume", "expected": 0, "more": False, "sample": []}
