"""Dead letters over HTTP: listed by a signed cursor, requeued and discarded by whoever says who it is (C22 to C29)."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.models import DeadLetter, Receipt, Tenant
from jobs.services import cancellation, dead_letters, limits
from tests import database as db
from tests.driver import Driver, check
from tests.edges.caller import ATTESTED, Caller, everything, problem
from tests.making import default_workspace
from tests.races.threads import together


def dead(driver: Driver, tenant: str | None = "acme", message: str = "it broke", **options: Any) -> str:
    """A job with an open dead letter."""
    job_id = driver.enqueue("echo", tenant=tenant, **options)
    driver.fail(driver.claim_one(), message=message, retryable=False)
    return job_id


def listed(api: Caller, query: str = "", tenant: str | None = "acme") -> dict[str, Any]:
    """A page of the list."""
    answer = api.get(f"/jobs/dead-letters?{query}", X_Tenant_Subject=tenant or "")
    assert answer.status_code == 200, answer.content
    return answer.json()


def walked(api: Caller, query: str) -> list[str]:
    """The ids of all pages."""
    found, cursor = [], None
    while True:
        told = listed(api, query + (f"&cursor={cursor}" if cursor else ""))
        found += [row["id"] for row in told["dead_letters"]]
        if (cursor := told["next_cursor"]) is None:
            return found


# --- the list --------------------------------------------------------------------------------------------------------


def test_the_list_is_newest_first_and_says_why_each_failed(api: Caller, driver: Driver) -> None:
    """C22, C23, C24: reason, attempt_count and last_error.reason_code; the status stays failed."""
    jobs = [dead(driver, message=f"timeout after {n} s") for n in range(3)]
    dead(driver, tenant="other")
    found = listed(api)["dead_letters"]
    assert [row["id"] for row in found] == jobs[::-1]
    row = found[0]
    assert (row["reason"], row["attempt_count"], row["tenant_subject"]) == ("terminal_error", 1, "acme")
    assert row["last_error"] == {"reason_code": "attempt_error", "message": "timeout after <n> s"}
    job = api.get(f"/jobs/{jobs[0]}", X_Tenant_Subject="acme").json()
    assert (job["status"], job["dead_letter"]["reason"], job["dead_letter"]["resolution"]) == (
        "failed", "terminal_error", None)
    assert "input" not in row


def test_the_list_is_narrowed_and_bounded(api: Caller, driver: Driver) -> None:
    """C23: limit 1 to 200, default 50; reason, type, cluster, since."""
    first, second = dead(driver, message="a thing"), dead(driver, message="another")
    letter = DeadLetter.objects.get(job_id=second)
    assert walked(api, "limit=1") == [second, first]
    for query, wanted in ((f"cluster={letter.cluster}", [second]), ("reason=quarantined", []), ("type=echo",
                          [second, first]), ("type=other", []), ("since=2200-01-01T00:00:00Z", [])):
        assert walked(api, query) == wanted, query
    for query, code in (("limit=0", "invalid_limit"), ("limit=201", "invalid_limit"), ("limit=x", "invalid_limit"),
                        ("cluster=zz", "invalid_cluster"), ("since=yesterday", "invalid_since"),
                        ("reason=", "invalid_reason"), ("type=%00", "invalid_type"), ("bogus=1", "unknown_parameter"),
                        ("cursor=1", "invalid_cursor"), ("cursor=%00", "invalid_cursor")):
        problem(api.get(f"/jobs/dead-letters?{query}", X_Tenant_Subject="acme"), 400, code)


def test_a_cursor_is_good_for_its_own_list_alone(api: Caller, driver: Driver) -> None:
    """case-G01, C23: signed for the scope and the filters; forged, foreign and for another filter is 400."""
    for tenant in ("acme", "acme", "other", "other"):
        dead(driver, tenant)
    cursor = listed(api, "limit=1")["next_cursor"]
    assert len(listed(api, f"limit=1&cursor={cursor}")["dead_letters"]) == 1
    for query, tenant in ((f"cursor={cursor}", "other"), (f"type=echo&cursor={cursor}", "acme"),
                          (f"cursor={cursor}x", "acme"), (f"cursor=9{cursor}", "acme")):
        problem(api.get(f"/jobs/dead-letters?{query}", X_Tenant_Subject=tenant), 400, "invalid_cursor")


def test_each_letter_that_existed_throughout_is_seen_once(api: Caller, driver: Driver) -> None:
    """case-G01: 1,000 letters of one moment, while others are opened and discarded between the pages."""
    from tests.pages.letter_seeds import by_verbs

    by_verbs(1_000, "echo", tenants=1)
    db.rows("UPDATE jobs_dead_letter SET opened_at = '2026-01-01T00:00:00Z' RETURNING 1")
    ids = list(DeadLetter.objects.order_by("-pk").values_list("job_id", flat=True))
    gone = {str(ids[n]) for n in range(5, 1_000, 100)}
    seen, cursor = [], None
    for page in range(30):
        told = listed(api, "limit=50" + (f"&cursor={cursor}" if cursor else ""), "tenant-0")
        seen += [row["id"] for row in told["dead_letters"]]
        if (cursor := told["next_cursor"]) is None:
            break
        dead(driver, "tenant-0")
        if page == 0:
            dead_letters.discard_many(list(DeadLetter.objects.filter(job_id__in=gone).values_list("pk", flat=True)),
                                      by="test")
    assert len(seen) == len(set(seen))
    assert set(seen) | gone == {str(id_) for id_ in ids}


# --- whose they are --------------------------------------------------------------------------------------------------


def test_a_key_sees_the_letters_of_the_tenant_that_it_names(api: Caller, driver: Driver) -> None:
    """C25: a workspace's key names one, or is shown those of none; a tenant's key names its own."""
    mine, nobodys = dead(driver), dead(driver, tenant=None)
    assert [r["id"] for r in listed(api, "tenant_subject=acme", tenant=None)["dead_letters"]] == [mine]
    assert [r["id"] for r in listed(api, tenant=None)["dead_letters"]] == [nobodys]
    problem(api.get("/jobs/dead-letters", X_Tenant_Subject="nobody"), 404, "tenant_not_found")
    own = Caller(tenant="acme")
    assert [r["id"] for r in listed(own)["dead_letters"]] == [mine]
    problem(own.get("/jobs/dead-letters"), 400, "tenant_subject_required", "tenant_subject")
    problem(own.get("/jobs/dead-letters", X_Tenant_Subject="other"), 404, "tenant_not_found")
    problem(own.post(f"/jobs/{mine}/requeue"), 400, "tenant_subject_required")
    assert own.post(f"/jobs/{mine}/requeue", X_Tenant_Subject="acme").status_code == 200


def test_a_letter_of_no_tenant_is_for_members_to_answer(api: Caller, driver: Driver, monkeypatch) -> None:
    """C25: listed to a key that names no tenant, which can neither requeue nor discard it; a member can."""
    job_id = dead(driver, tenant=None)
    for body in ({}, {"actor_kind": "user", "actor_ref": "alice"}, {**ATTESTED, "tenant_subject": None}):
        problem(api.post(f"/jobs/{job_id}/requeue", body), 403, "actor_attestation_required")
        problem(api.send("DELETE", f"/jobs/{job_id}/dead-letter", body), 403, "actor_attestation_required")
    problem(api.post(f"/jobs/{job_id}/requeue", ATTESTED), 404, "job_not_found")
    monkeypatch.setattr("jobs.api.attesting.is_member", lambda who: True)
    assert api.post(f"/jobs/{job_id}/requeue").status_code == 200


def test_a_key_of_the_workspace_says_for_whom_it_speaks(api: Caller, driver: Driver) -> None:
    """C28: tenant_subject, actor_kind and actor_ref, else 403; they stand with the answer and in the receipt."""
    job_id = dead(driver)
    rows = everything()
    for name in ATTESTED:
        body = {k: v for k, v in ATTESTED.items() if k != name}
        problem(api.post(f"/jobs/{job_id}/requeue", body, X_Tenant_Subject="acme"), 403, "actor_attestation_required",
                name)
    for name, value in (("actor_kind", "User"), ("actor_kind", 1), ("actor_kind", "a" * 33), ("actor_ref", ""),
                        ("actor_ref", "a\nb"), ("actor_ref", "x" * 121), ("actor_ref", ["x"]), ("tenant_subject", 5)):
        problem(api.post(f"/jobs/{job_id}/requeue", {**ATTESTED, name: value}), 400, f"invalid_{name}", name)
    assert everything() == rows
    assert api.post(f"/jobs/{job_id}/requeue", ATTESTED).status_code == 200
    letter = DeadLetter.objects.get(job_id=job_id)
    by = f"key:{api.key.prefix} for user:alice"
    assert (letter.actor_kind, letter.actor_ref, letter.resolved_by) == ("user", "alice", by)
    assert f'"by":"{by}"' in Receipt.objects.filter(job_id=job_id).latest("number").body
    check(job_id)


# --- the answers -----------------------------------------------------------------------------------------------------


def test_a_requeue_is_a_new_chain_that_keeps_the_checkpoint(api: Caller) -> None:
    """C27: the count of attempts starts again; what was answered is not answered again (C28)."""
    job_id = api.enqueue(retry={"max_attempts": 1}, tenant_subject="acme")["id"]
    problem(api.post(f"/jobs/{job_id}/requeue", ATTESTED), 404, "job_not_found")
    held = api.claim_one()
    api.assignment(held, "extend", {"checkpoint": {"seq": 1, "page": 7}})
    api.assignment(held, "fail", {"reason_code": "no_luck"})
    told = api.post(f"/jobs/{job_id}/requeue", {**ATTESTED, "reason": "try again"})
    assert (told.status_code, told.json()["state"], told.json()["chain"], told.json()["attempt_count"]) == (
        200, "queued", 2, 0)
    problem(api.post(f"/jobs/{job_id}/requeue", ATTESTED), 404, "job_not_found")
    again = api.claim_one()
    assert again["checkpoint"] == {"seq": 1, "page": 7}
    check(job_id)


def test_a_discard_closes_the_letter_and_the_job_stays_failed(api: Caller, driver: Driver) -> None:
    """C29: it leaves the list; the same rules of tenant and actor, in the body or in the query."""
    jobs = [dead(driver), dead(driver)]
    asked = "&".join(f"{name}={value}" for name, value in ATTESTED.items())
    assert api.send("DELETE", f"/jobs/{jobs[0]}/dead-letter?{asked}").json()["state"] == "failed"
    told = api.send("DELETE", f"/jobs/{jobs[1]}/dead-letter", ATTESTED).json()
    assert (told["state"], told["dead_letter"]["resolution"]) == ("failed", "discarded")
    assert listed(api)["dead_letters"] == []
    problem(api.send("DELETE", f"/jobs/{jobs[1]}/dead-letter", ATTESTED), 404, "job_not_found")
    problem(api.send("DELETE", f"/jobs/{jobs[1]}/dead-letter"), 403, "actor_attestation_required")
    for job_id in jobs:
        check(job_id)


def test_another_tenants_letter_is_not_there(api: Caller, driver: Driver) -> None:
    """C28: foreign, unknown and not dead-lettered answer alike, byte for byte."""
    theirs, mine = dead(driver, tenant="other"), driver.enqueue("echo", tenant="acme")
    rows = everything()
    answers = [api.post(f"/jobs/{id_}/requeue", ATTESTED) for id_ in (theirs, mine, "0" * 32, "nothing")]
    assert len({a.content for a in answers}) == 1
    problem(answers[0], 404, "job_not_found")
    assert everything() == rows


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_the_same_answer_with_its_key_is_given_once(api: Caller, driver: Driver, verb: str) -> None:
    """C27, E6: repeated quietly, at the same moment too; another answer under the key is refused."""
    job_id = dead(driver)

    def say(**more: Any) -> Any:
        body = {**ATTESTED, **more}
        sender = Caller.__new__(Caller)
        sender.__dict__.update(api.__dict__, client=type(api.client)())
        if verb == "requeue":
            return sender.post(f"/jobs/{job_id}/requeue", body, Idempotency_Key="k1")
        return sender.send("DELETE", f"/jobs/{job_id}/dead-letter", body, Idempotency_Key="k1")

    answers = together([say] * 4)
    assert [a.status_code for a in answers] == [200] * 4
    assert sorted(a.json()["repeated"] for a in answers) == [False, True, True, True]
    rows = everything()
    problem(say(reason="something else"), 422, "idempotency_key_reused")
    problem(say(actor_ref="bob"), 422, "idempotency_key_reused")
    assert everything() == rows
    kind = "job.requeued" if verb == "requeue" else "job.discarded"
    assert Receipt.objects.filter(job_id=job_id, kind=kind).count() == 1
    check(job_id)


def test_beyond_the_rate_of_its_tenant_a_requeue_is_429(api: Caller, driver: Driver) -> None:
    """C28: with Retry-After; no other tenant is affected, discards are not, and a new window is a new rate."""
    jobs = [dead(driver) for _ in range(4)]
    other = dead(driver, tenant="other")
    limits.set_limits(default_workspace(), Tenant.objects.get(subject="acme"), requeue_rate=2, requeue_window_s=30)
    assert [api.post(f"/jobs/{id_}/requeue", ATTESTED).status_code for id_ in jobs[:2]] == [200, 200]
    rows = everything()
    answer = api.post(f"/jobs/{jobs[2]}/requeue", ATTESTED)
    told = problem(answer, 429, "rate_limited", "tenant_subject")
    assert 0 < int(answer["Retry-After"]) <= 30
    assert told["retry_after_s"] <= 30
    assert everything() == rows
    assert api.post(f"/jobs/{other}/requeue", {**ATTESTED, "tenant_subject": "other"}).status_code == 200
    assert api.send("DELETE", f"/jobs/{jobs[3]}/dead-letter", ATTESTED).status_code == 200
    db.pass_time(31)
    assert api.post(f"/jobs/{jobs[2]}/requeue", ATTESTED).status_code == 200
    db.reset_clock()


def test_the_rate_is_exact_under_requeues_at_the_same_moment(api: Caller, driver: Driver) -> None:
    """C28: eight at once, three may; what people of the site requeue is not counted."""
    jobs = [dead(driver) for _ in range(8)]
    limits.set_limits(default_workspace(), requeue_rate=3)
    letters = [DeadLetter.objects.get(job_id=id_) for id_ in jobs]

    def say(letter: DeadLetter) -> str:
        return type(dead_letters.requeue_many([letter.pk], by="test", limited=True)[0]).__name__

    said = together([lambda letter=letter: say(letter) for letter in letters])
    assert (said.count("Moved"), said.count("RateLimited")) == (3, 5)
    left = [letter for letter, word in zip(letters, said, strict=True) if word == "RateLimited"]
    assert dead_letters.requeue(left[0], by="user:operator").state == "queued"


def test_a_cancelled_job_is_nobodys_dead_letter(api: Caller, driver: Driver) -> None:
    """C30, E14.12: cancelled by controls it leaves no letter, is not requeued and not claimed."""
    job_id = api.enqueue(tenant_subject="acme")["id"]
    told = api.post(f"/jobs/{job_id}/controls", {"action": "cancel"}, X_Tenant_Subject="acme").json()
    assert (told["status"], told["dead_letter"]) == ("cancelled", None)
    assert listed(api)["dead_letters"] == []
    problem(api.post(f"/jobs/{job_id}/requeue", ATTESTED), 404, "job_not_found")
    assert api.claim() == []
    assert cancellation.cancel(job_id, by="test").repeated
    check(job_id)
