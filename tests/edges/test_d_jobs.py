"""Saphira's job verbs over HTTP, line by line: create, claim, complete, release, and the keys for the world outside."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.contrib.auth.models import Permission as SitePermission
from django.http import HttpResponse

from jobs import clock
from jobs.models import Attempt, Job
from jobs.services import commands, grants, recovery, tenancy
from tests import database as db
from tests.driver import check
from tests.edges.caller import Caller, everything, problem, state
from tests.edges.test_api_isolation import told
from tests.edges.test_api_members import Somebody
from tests.races.threads import together

SAPHIRA = {"type": "saphira-job", "input": {"kind": "anything", "payload": {"opaque": [1, {"deep": None}]}}}
GROUP = {"worker_groups": ["saphira"]}
DOORS: dict[str, Any] = {
    "/jobs": SAPHIRA, "/jobs/batch": {"jobs": [SAPHIRA]}, "/agents/claude/jobs": {"payload": {"kind": "saphira-job"}}}


def _made(api: Caller, **more: Any) -> str:
    answer = api.post("/jobs", {**SAPHIRA, **more})
    assert answer.status_code == 202, answer.content
    return str(answer.json()["id"])


# --- job_create ------------------------------------------------------------------------------------------------------


def test_a_job_is_a_kind_and_an_opaque_payload_that_waits_and_is_nobodys(api: Caller) -> None:
    """D1, D2, D15: what is in it comes out as it went in; queued, in no lane, no executor assigned."""
    made = api.post("/jobs", SAPHIRA).json()
    assert (made["status"], made["state"], made["agent"], made["attempt_count"]) == ("queued", "queued", None, 0)
    row = Job.objects.get(pk=made["id"])
    assert (row.attempt_id, Attempt.objects.count()) == (None, 0)
    held = api.claim_one(**GROUP)
    assert (held["job"]["type"], held["job"]["input"]) == ("saphira-job", SAPHIRA["input"])
    done = api.assignment(held, "complete", {"artifact": {"whatever": ["came", None]}})
    assert done.json()["state"] == "completed"
    assert api.get(f"/jobs/{made['id']}/artifact").json()["artifact"] == {"whatever": ["came", None]}


@pytest.mark.parametrize("path", DOORS)
def test_no_scope_however_broad_stands_in_for_the_conductors_grant(api: Caller, path: str) -> None:
    """D2, E2, E14.20: at every door; superuser, staff, every right of the site, other roles, other workspaces."""
    place, far = tenancy.workspace(), tenancy.make_workspace("elsewhere")
    tenancy.demand_grant(place, True, by="test")
    # Keys are remembered for a moment, with what their workspace demands.
    broad, tenants, foreign = Caller(), Caller(tenant="mine"), Caller(workspace="elsewhere")
    root = Somebody("root", "assignee", superuser=True, staff=True)
    root.user.user_permissions.set(SitePermission.objects.filter(content_type__app_label="jobs"))
    grants.give(far, "conductor", by="test", user=root.user)
    grants.give(far, "conductor", by="test", key=foreign.key)
    grants.give(place, "assignee", by="test", key=tenants.key)
    rows, body = everything(), DOORS[path]
    for refused in (broad.post(path, body), tenants.post(path, body),
                    root.send("POST", path, body, X_Workspace="default")):
        problem(refused, 403, "grant_required")
    assert everything() == rows
    for key in (broad.key, tenants.key):
        grants.give(place, "conductor", by="test", key=key)
    grants.give(place, "conductor", by="test", user=root.user)
    for taken in (broad.post(path, body), tenants.post(path, body), foreign.post(path, body),
                  root.send("POST", path, body, X_Workspace="default")):
        assert taken.status_code in (200, 202), taken.content
    assert set(Job.objects.values_list("state", flat=True)) == {"queued"}
    assert Job.objects.count() == 4


# --- job_claim -------------------------------------------------------------------------------------------------------


def test_of_many_who_claim_at_once_one_has_it(api: Caller) -> None:
    """D3, E14.1: one winner, one holder; the others read that there is nothing."""
    job = _made(api)
    callers = [Caller(f"runner-{n}") for n in range(6)]
    got = together([lambda one=one: one.claim(1, **GROUP) for one in callers])
    [won] = [hand for hand in got if hand]
    assert won[0]["job"]["id"] == job
    assert (Attempt.objects.count(), state(job)) == (1, "leased")


def test_a_job_is_claimed_five_times_and_each_attempt_is_on_record(api: Caller) -> None:
    """D3, D5, D14: released, lapsed and failed count alike; the sixth claim finds nothing, and a person is asked."""
    job = _made(api, retry={"max_attempts": 100, "base_delay_s": 1, "max_delay_s": 1})
    keys = []
    for n in range(1, 6):
        held = api.claim_one(**GROUP)
        assert (held["job"]["id"], held["job"]["attempt"]) == (job, n)
        keys.append((held["job"]["idempotency_key"], held["job"]["attempt_key"]))
        if n == 2:
            assert api.assignment(held, "fail", {"reason_code": "no_luck"}).json()["state"] == "queued"
            db.pass_time(5)
            assert recovery.promote() is False
        else:
            assert api.assignment(held, "release").json()["state"] == "queued"
    assert api.claim(1, **GROUP) == []
    recovery.deadlines()
    ended = api.get(f"/jobs/{job}").json()
    assert (ended["state"], ended["dead_letter"]["reason"], ended["claims"]) == ("failed", "attempts_exhausted", 5)
    attempts = api.get(f"/jobs/{job}/attempts").json()["attempts"]
    assert [(one["number"], one["outcome"]) for one in attempts] == [
        (n, "failed" if n == 2 else "released") for n in range(1, 6)]
    assert {key for key, _ in keys} == {f"{job}:1"}
    assert [key for _, key in keys] == [f"{job}:1:{n}" for n in range(1, 6)]
    check(job)


def test_a_requeue_names_its_effects_anew(api: Caller, driver: Any) -> None:
    """D14: another chain is another wish; its attempts go on counting."""
    job = _made(api)
    api.assignment(api.claim_one(**GROUP), "fail", {"reason_code": "x", "retryable": False})
    driver.requeue(job)
    again = api.claim_one(**GROUP)["job"]
    assert (again["idempotency_key"], again["attempt_key"]) == (f"{job}:2", f"{job}:2:2")


def test_nothing_to_do_and_no_right_to_it_are_one_answer_also_in_how_long_they_wait(
        api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3, E15, RELIABILITY 6.1: status, headers, body, and every look while waiting; work of others changes nothing."""
    nobody = Caller("empty", workspace="empty")
    jobless = _waited(nobody, monkeypatch)
    assert jobless[0].json() == {"assignments": [], "again": False}
    assert sum(jobless[1]) >= 3
    _made(api)
    others = {"of another workspace": nobody, "of another tenant": Caller(tenant="mine"),
              "of no group": Caller(worker_groups=[]), "of other groups": Caller(worker_groups=["vault"])}
    for name, caller in others.items():
        answer, waits = _waited(caller, monkeypatch)
        assert told(answer) == told(jobless[0]), name
        assert waits == jobless[1], name
    # A group that is not the key's is refused as itself, whether something waits in it or not.
    narrow = Caller(worker_groups=["vault"])
    full = narrow.post("/runtime/claim", GROUP)
    api.assignment(api.claim_one(**GROUP), "complete", {"artifact": {}})
    assert told(narrow.post("/runtime/claim", GROUP)) == told(full)
    assert full.status_code == 403


def _waited(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> tuple[HttpResponse, list[float]]:
    """The answer to a claim that waits for three seconds, and how long it slept between its looks."""
    now, waits, real, mine = [1_000_000.0], [], clock.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        # What wakes workers has a thread of its own.
        if threading.get_ident() != mine:
            real(seconds)
            return
        waits.append(seconds)
        now[0] += seconds

    with monkeypatch.context() as patch:
        patch.setattr(clock, "monotonic", lambda: now[0])
        patch.setattr(clock, "sleep", sleep)
        return caller.post("/runtime/claim", {"wait_seconds": 3}), waits


# --- job_complete and job_release ------------------------------------------------------------------------------------


def test_complete_again_is_a_quiet_yes_and_any_other_word_is_refused(api: Caller) -> None:
    """D4, E5: whichever of the two ends it was; a terminal job takes nothing else, from whoever held it."""
    ends = {"complete": {"artifact": {"n": 1}}, "fail": {"reason_code": "x", "retryable": False}}
    for verb, body in ends.items():
        job = _made(api)
        held = api.claim_one(**GROUP)
        first = api.assignment(held, verb, body)
        assert (first.status_code, first.json()["repeated"]) == (200, False)
        rows = everything()
        for _ in range(2):
            again = api.assignment(held, verb, body)
            assert (again.status_code, again.json()) == (200, {**first.json(), "repeated": True})
        others = {"complete": {"artifact": {"n": 2}}, "fail": {"reason_code": "y", "retryable": False}, "release": {},
                  "cancelled": {}, "extend": {}}
        for other, said in others.items():
            refused = problem(api.assignment(held, other, said), 409, "stale_claim")
            assert refused["job_state"] == first.json()["state"]
        for word in ("cancel", "pause", "resume"):
            answer = api.post(f"/jobs/{job}/controls", {"action": word})
            assert answer.status_code == 409, (word, answer.content)
        problem(api.post(f"/jobs/{job}/steer", {"payload": {}}), 409, "job_ended")
        assert everything() == rows
        check(job)


def test_completed_as_failed_is_never_tried_again(api: Caller) -> None:
    """D4, E5: `fail` with `retryable` false, whatever the policy allows; it leaves a dead letter."""
    job = _made(api, retry={"max_attempts": 100})
    end = api.assignment(api.claim_one(**GROUP), "fail", {"reason_code": "no_luck", "retryable": False})
    assert end.json()["state"] == "failed"
    assert api.claim(1, **GROUP) == []
    assert api.get(f"/jobs/{job}").json()["dead_letter"]["reason"] == "terminal_error"


def test_a_stale_holder_completes_nothing(api: Caller) -> None:
    """D3, E14.2: its lease has lapsed and another one holds the job; nor does a key that never held it."""
    job = _made(api)
    late = api.claim_one(**GROUP)
    db.pass_time(36)
    recovery.Recovery().run()
    other = Caller("other")
    held = other.claim_one(**GROUP)
    assert held["job"]["id"] == job
    rows = everything()
    problem(api.assignment(late, "complete", {"artifact": {}}), 409, "stale_claim")
    problem(api.assignment(held, "complete", {"artifact": {}}), 404, "assignment_not_found")
    assert everything() == rows
    assert other.assignment(held, "complete", {"artifact": {}}).status_code == 200
    assert [one["outcome"] for one in api.get(f"/jobs/{job}/attempts").json()["attempts"]] == ["lapsed", "completed"]


def test_release_gives_back_for_another_and_keeps_the_attempts(api: Caller) -> None:
    """D5: queued at once, the checkpoint and the record stay, no failure is counted, anybody may claim it."""
    job = _made(api)
    held = api.claim_one(**GROUP)
    api.assignment(held, "extend", {"checkpoint": {"seq": 1, "page": 7}})
    back = api.assignment(held, "release")
    assert (back.json()["state"], api.assignment(held, "release").json()["repeated"]) == ("queued", True)
    row = Job.objects.get(pk=job)
    assert (row.claims, row.failures, row.attempt_id) == (1, 0, None)
    again = Caller("another").claim_one(**GROUP)
    assert (again["job"]["id"], again["job"]["attempt"], again["checkpoint"]["page"]) == (job, 2, 7)
    attempts = api.get(f"/jobs/{job}/attempts").json()["attempts"]
    assert [one["outcome"] for one in attempts] == ["released", None]
    assert commands.unread([job], limit=1) == {}
