"""Jobs over HTTP: enqueue, read, list, history, cancel; who may, and what each refusal is called."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from jobs import selectors
from jobs.models import Job, Receipt
from jobs.receipts import check_chain
from jobs.selectors import Filter
from tests import database as db
from tests.driver import check, story
from tests.edges.caller import Caller, everything, problem

EMPTY = {"type": "outside", "input": {}}


def test_a_new_job_is_202_and_reads_back(api):
    """C3, E2: ids are ours and the caller's; the path accepts either."""
    answer = api.post("/jobs",
                      {"type": "outside", "input": {"a": 1.5, "b": ["é", None]}, "job_id": "mine-1", "priority": 7,
                                "queue": "chat", "target": "doc", "session_key": "s", "exclusive_group": "g"})
    assert answer.status_code == 202, answer.content
    told = answer.json()
    assert (told["status"], told["state"], told["job_id"], told["repeated"]) == ("queued", "queued", "mine-1", False)
    assert told["target"] == {"key": "doc", "generation": 1, "current": True}
    assert [w["code"] for w in told["warnings"]] == ["exclusive_group_unlimited"]
    assert answer["Location"] == f"/api/v1/jobs/{told['id']}"
    assert answer["Cache-Control"] == "no-store"
    check(told["id"])
    ours, theirs = api.get(f"/jobs/{told['id']}"), api.get("/jobs/mine-1")
    assert ours.status_code == 200
    assert ours.content == theirs.content
    assert ours["ETag"] == '"r1"'
    assert ours.json()["result_envelope"] is None
    assert "input" not in ours.json()
    assert api.get("/jobs/mine-1?include=input").json()["input"] == {"a": 1.5, "b": ["é", None]}


def test_the_origin_and_the_actor_are_stamped_by_the_key(api):
    """B13: an origin in the request is an unknown field."""
    told = api.enqueue()
    job = Job.objects.get(pk=told["id"])
    assert job.origin == "user"
    assert f'"by":"key:{api.key.prefix}"' in Receipt.objects.get(job_id=job.pk, number=1).body
    problem(api.post("/jobs", {**EMPTY, "origin": "scheduler"}), 400, "unknown_field", "origin")
    problem(api.post("/jobs", {"type": "scheduled-only", "input": {}}), 403, "origin_forbidden")


def test_the_same_key_and_request_is_200_and_another_request_422(api):
    """C3, E6: a repeat has no effect and says so."""
    before = api.post("/jobs", {"type": "outside", "input": {"n": 1}}, Idempotency_Key="k1")
    again = api.post("/jobs", {"input": {"n": 1}, "type": "outside"}, Idempotency_Key="k1")
    field = api.post("/jobs", {"type": "outside", "input": {"n": 1}, "idempotency_key": "k1"})
    assert (before.status_code, again.status_code, field.status_code) == (202, 200, 200)
    assert before.json()["id"] == again.json()["id"] == field.json()["id"]
    assert again.json()["repeated"] is True
    rows = everything()
    problem(api.post("/jobs", {"type": "outside", "input": {"n": 2}}, Idempotency_Key="k1"), 422,
            "idempotency_key_reused")
    assert everything() == rows
    assert Job.objects.count() == 1


def test_an_existing_job_id_answers_its_job_unchanged(api):
    """A18: also with another payload."""
    first = api.enqueue(job_id="x", input={"n": 1})
    rows = everything()
    again = api.post("/jobs", {"type": "outside", "input": {"n": 2}, "job_id": "x"})
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert everything() == rows


def test_keys_of_two_jobs_are_409(api):
    """E3: job_id and idempotency key that hit two jobs."""
    api.enqueue(job_id="x")
    api.enqueue(idempotency_key="k")
    rows = everything()
    problem(api.post("/jobs", {**EMPTY, "job_id": "x", "idempotency_key": "k"}), 409, "key_mismatch")
    problem(api.post("/jobs", {**EMPTY, "idempotency_key": "a"}, Idempotency_Key="b"), 400, "invalid_idempotency_key")
    assert everything() == rows


@pytest.mark.parametrize(("fields", "status", "code"), [
    ({"type": "outsid"}, 422, "unknown_job_type"),
    ({"type": 5}, 400, "invalid_type"),
    ({"version": 9}, 422, "unregistered_version"),
    ({"version": "1"}, 422, "unregistered_version"),
    ({"type": "disabled"}, 403, "definition_disabled"),
    ({"type": "echo", "input": {"value": 3}}, 400, "invalid_input"),
    ({"type": "echo", "input": {"valu": "x"}}, 400, "invalid_input"),
    ({"input": None}, 400, "invalid_input"),
    ({"input": [1]}, 400, "invalid_input"),
    ({"input": {"x": "y" * 70_000}}, 413, "too_large"),
    ({"queue": "colect"}, 400, "unknown_queue"),
    ({"queue": ["collect"]}, 400, "unknown_queue"),
    ({"priority": 101}, 400, "invalid_priority"),
    ({"priority": 1.5}, 400, "invalid_priority"),
    ({"priority": True}, 400, "invalid_priority"),
    ({"agent": ""}, 400, "invalid_agent"),
    ({"job_id": "dead-letters"}, 400, "invalid_job_id"),
    ({"job_id": str(uuid.uuid4())}, 400, "invalid_job_id"),
    ({"job_id": "a/b"}, 400, "invalid_job_id"),
    ({"idempotency_key": ""}, 400, "invalid_idempotency_key"),
    ({"idempotency_key": "k" * 201}, 400, "invalid_idempotency_key"),
    ({"session_key": "é"}, 400, "invalid_session_key"),
    ({"exclusive_group": "\t"}, 400, "invalid_exclusive_group"),
    ({"exclusive_group": "g" * 201}, 400, "invalid_exclusive_group"),
    ({"target": "t" * 513}, 400, "invalid_target"),
    ({"delay_s": -1}, 400, "invalid_availability"),
    ({"delay_s": 1e308}, 400, "invalid_availability"),
    ({"delay_s": True}, 400, "invalid_availability"),
    ({"delay_s": 1, "available_at": "2030-01-01T00:00:00Z"}, 400, "invalid_availability"),
    ({"available_at": "2030-01-01T00:00:00"}, 400, "invalid_available_at"),
    ({"available_at": "2030-02-30T00:00:00Z"}, 400, "invalid_available_at"),
    ({"available_at": "2030-01-01T00:00:60Z"}, 400, "invalid_available_at"),
    ({"available_at": "9999-12-31T23:59:59+00:00"}, 400, "invalid_available_at"),
    ({"available_at": "0001-01-01T00:00:00+14:00"}, 400, "invalid_available_at"),
    ({"available_at": 1_893_456_000}, 400, "invalid_available_at"),
    ({"deadline_s": 0}, 400, "invalid_deadline"),
    ({"deadline_s": 8 * 86_400}, 400, "invalid_deadline"),
    ({"deadline_s": 5, "deadline_at": "2030-01-01T00:00:00Z"}, 400, "invalid_deadline"),
    ({"deadline_at": "soon"}, 400, "invalid_deadline_at"),
    ({"retry": "never"}, 400, "invalid_retry_policy"),
    ({"retry": {"max_attempts": 0}}, 400, "invalid_retry_policy"),
    ({"retry": {"max_attempts": True}}, 400, "invalid_retry_policy"),
    ({"retry": {"max_attempts": 2**40}}, 400, "invalid_retry_policy"),
    ({"retry": {"max_attempts": 5_000}}, 400, "retry_policy_exceeds_cap"),
    ({"retry": {"base_delay_s": 0.5}}, 400, "invalid_retry_policy"),
    ({"retry": {"base_delay_s": "5"}}, 400, "invalid_retry_policy"),
    ({"retry": {"base_delay_s": 10, "max_delay_s": 5}}, 400, "invalid_retry_policy"),
    ({"retry": {"max_delay_s": 1e300}}, 400, "invalid_retry_policy"),
    ({"retry": {"retry_on": ["Not A Code"]}}, 400, "invalid_retry_policy"),
    ({"retry": {"retry_on": "code"}}, 400, "invalid_retry_policy"),
    ({"retry": {"tries": 3}}, 400, "unknown_field"),
    ({"tenant_subject": ""}, 400, "invalid_tenant_subject"),
    ({"tenant_subject": 7}, 400, "invalid_tenant_subject"),
    ({"tenant_subject": "a\u200bb"}, 400, "invalid_tenant_subject"),
    ({"lane": "collect"}, 400, "unknown_field"),
])
def test_each_wrong_option_is_refused_by_name_and_writes_nothing(api, fields, status, code):
    """C13, C15, C18, E2, E6, E7: the refusal names the field, the same twice, and there is no row."""
    rows = everything()
    first, second = (api.post("/jobs", {**EMPTY, **fields}) for _ in range(2))
    told = problem(first, status, code)
    assert first.content == second.content
    assert any(name in told["field"] for name in fields), told
    assert everything() == rows


def test_a_missing_type_and_a_nearest_word_are_told(api):
    """DESIGN 8: every refusal says what would be right."""
    problem(api.post("/jobs", {"input": {}}), 400, "missing_field", "type")
    assert "'priority'" in problem(api.post("/jobs", {**EMPTY, "priorty": 1}), 400, "unknown_field",
                                   "priorty")["detail"]
    told = problem(api.post("/jobs", {"type": "echo", "input": {"value": 1, "path": 2, "more": 3}}), 400,
                   "invalid_input")
    assert {f["field"] for f in told["faults"]} == {"/input/value", "/input/path", "/input/more"}


def test_a_retry_policy_of_the_request_is_kept(api):
    """C13, E4: given fields over the site's; null means never."""
    job = Job.objects.get(pk=api.enqueue(retry={"max_attempts": 3, "base_delay_s": 400, "retry_on": ["a_b"]})["id"])
    assert (job.max_attempts, job.base_delay_ms, job.max_delay_ms, job.retry_on) == (3, 400_000, 400_000, ["a_b"])
    job = Job.objects.get(pk=api.enqueue(retry=None)["id"])
    assert job.max_attempts is None
    assert api.enqueue()["max_attempts"] == 5
    assert Job.objects.get(pk=api.enqueue(retry={"max_delay_s": 2})["id"]).base_delay_ms == 2_000


def test_a_delayed_job_tells_when_it_is_next(api):
    """C16: next_attempt_at while it waits for a moment."""
    told = api.enqueue(available_at="2199-01-01T02:00:00+02:00")
    assert told["available_at"] == told["next_attempt_at"] == "2199-01-01T00:00:00Z"
    assert api.enqueue()["next_attempt_at"] is None


# --- reads ---------------------------------------------------------------------------------------------------------


def test_lists_are_newest_first_and_page_without_gaps(api):
    """B40: keyset pages by an opaque cursor; inputs are not in lists."""
    ids = [api.enqueue(input={"secret": n})["id"] for n in range(7)]
    seen, cursor = [], ""
    while cursor is not None:
        page = api.get(f"/jobs?limit=3{cursor and '&cursor=' + cursor}").json()
        seen += [job["id"] for job in page["jobs"]]
        assert all("input" not in job and "result_envelope" not in job for job in page["jobs"])
        cursor = page["next_cursor"]
    assert seen == ids[::-1]


def test_a_list_costs_the_same_however_long_it_is(api):
    """RELIABILITY 5.4: at most six statements, the caller's key included."""
    for n in range(12):
        api.enqueue(target=f"t{n}", tenant_subject=None)
    with CaptureQueriesContext(connection) as asked:
        assert len(api.get("/jobs").json()["jobs"]) == 12
    assert len(asked) <= 4, [q["sql"] for q in asked]


def test_filters_take_states_and_statuses(api, driver):
    """E1: lists accept either word, and canceled with one l."""
    waiting, paused, gone = (api.enqueue()["id"] for _ in range(3))
    driver.pause(paused)
    driver.cancel(gone)

    def ids(query):
        return {job["id"] for job in api.get(f"/jobs?{query}").json()["jobs"]}

    assert ids("status=queued") == {waiting, paused}
    assert ids("state=paused") == {paused}
    assert ids("status=canceled") == ids("state=cancelled") == {gone}
    assert ids("type=outside&queue=collect") == {waiting, paused, gone}
    assert ids("type=echo") == ids("queue=chat") == set()


@pytest.mark.parametrize(("query", "code"), [
    ("limit=0", "invalid_limit"), ("limit=501", "invalid_limit"), ("limit=x", "invalid_limit"),
    ("limit=1.0", "invalid_limit"),
    ("limit=%D9%A3", "invalid_limit"), ("limit=", "invalid_limit"), ("status=done", "invalid_status"),
    ("state=", "invalid_state"),
    ("status=queued&state=queued", "invalid_state"), ("cursor=x", "invalid_cursor"), ("cursor=", "invalid_cursor"),
    ("cursor=%00", "invalid_cursor"), ("type=%00", "invalid_type"), ("queue=%ff%00", "invalid_queue"),
    ("sort=up", "unknown_parameter"),
    ("limit=1&limit=2", "repeated_parameter"), ("tenant_subject=%00", "invalid_tenant_subject"),
    ("tenant_subject=", "invalid_tenant_subject"), ("&".join(f"p{n}=1" for n in range(1_500)), "bad_request"),
])
def test_each_wrong_query_is_400(api, query, code):
    """Reads are as strict as writes."""
    problem(api.get(f"/jobs?{query}"), 400, code)


def test_a_cursor_is_good_for_its_own_list_only(api):
    """B40: bound to the filter and the scope by its signature."""
    for _ in range(3):
        api.enqueue()
    cursor = api.get("/jobs?limit=1").json()["next_cursor"]
    other = Caller(workspace="other")
    for caller, query in ((api, f"type=outside&cursor={cursor}"), (other, f"cursor={cursor}"),
                          (api, f"cursor={cursor[:-1]}")):
        problem(caller.get(f"/jobs?{query}"), 400, "invalid_cursor")
    assert api.get(f"/jobs?limit=2&cursor={cursor}").status_code == 200


def test_history_is_told_and_the_chain_can_be_checked_from_outside(api, driver):
    """A12, E12: the bodies are the very texts that were hashed."""
    job_id = api.enqueue()["id"]
    held = api.claim_one()
    assert api.assignment(held, "complete", {"artifact": {"n": 1}}).status_code == 200
    page = api.get(f"/jobs/{job_id}/receipts?limit=2").json()
    assert ([r["kind"] for r in page["receipts"]], page["next_after"]) == (["job.enqueued", "job.leased"], 2)
    rest = api.get(f"/jobs/{job_id}/receipts?after=2").json()
    assert ([r["kind"] for r in rest["receipts"]], rest["next_after"]) == (["job.completed"], None)
    assert [r["hash"] for r in page["receipts"] + rest["receipts"]] == [r.hash.hex() for r in story(job_id)]
    assert check_chain(story(job_id))
    attempts = api.get(f"/jobs/{job_id}/attempts").json()["attempts"]
    assert [(a["number"], a["outcome"]) for a in attempts] == [(1, "completed")]
    assert held["assignment_id"] not in str(attempts)
    assert api.get(f"/jobs/{job_id}/artifact").json()["artifact"] == {"n": 1}
    told = api.get(f"/jobs/{job_id}").json()["result_envelope"]
    assert (told["outcome"], told["artifact"]) == ("completed", {"n": 1})


def test_a_job_without_an_artifact_says_so(api):
    """E2: a read of an artifact that is not there."""
    job_id = api.enqueue()["id"]
    problem(api.get(f"/jobs/{job_id}/artifact"), 404, "artifact_not_found")
    problem(api.get(f"/jobs/{job_id}?include=output"), 400, "invalid_include")
    problem(api.get(f"/jobs/{job_id}/receipts?after=-1"), 400, "invalid_after")
    assert api.get(f"/jobs/{job_id}/receipts?after=999999999").json() == {"receipts": [], "next_after": None}


def test_a_failed_job_tells_the_last_failure(api, driver):
    """C2, C14: the envelope has the stable code and the message."""
    job_id = api.enqueue(retry=None)["id"]
    api.assignment(api.claim_one(), "fail", {"reason_code": "no_luck", "message": "cost 5 \u20ac"})
    told = api.get(f"/jobs/{job_id}").json()
    assert (told["status"], told["reason"]) == ("failed", "retry_not_allowed")
    assert told["result_envelope"]["error"] == {"reason_code": "no_luck", "message": "cost 5 €"}


def test_a_list_that_takes_too_long_is_given_up(api, monkeypatch):
    """E12, E15: a filter that few jobs pass does not keep a connection busy for ever; the next list is free again."""
    told = api.enqueue()
    monkeypatch.setattr(selectors, "LIST_PATIENCE_MS", 50)
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("LOCK TABLE jobs_job IN ACCESS EXCLUSIVE MODE")
        problem(api.get("/jobs?state=failed"), 503, "too_slow")
        other.rollback()
    assert api.get("/jobs?state=failed").json()["jobs"] == []
    assert [job["id"] for job in api.get("/jobs").json()["jobs"]] == [told["id"]]
    assert db.rows("SHOW statement_timeout") == [("0",)]


def test_a_list_in_the_callers_transaction_leaves_it_as_it_was(api):
    """DESIGN 4: the limit would stay for the rest of it."""
    told = api.enqueue()
    seen = selectors.scope(api.key.workspace_id, None)
    with transaction.atomic():
        found = selectors.jobs(seen, Filter(("queued",)), limit=5).items
        assert [str(job.pk) for job in found] == [told["id"]]
        assert db.rows("SHOW statement_timeout") == [("0",)]
