"""Timers at the edges: over the API, at the command line, declared in the settings (D13, E12, E14)."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs import clock
from jobs.models import Job, Timer
from jobs.services import grants, keys, tenancy, timers
from jobs.services.firing import Timers
from tests import database as db
from tests.edges.caller import Caller, everything, problem
from tests.making import tenant_id

DAILY = {"type": "outside", "cron": "0 3 * * *", "zone": "Europe/Berlin"}


def put(api: Caller, name: str = "nightly", body: Any = None, **headers: str) -> Any:
    return api.send("PUT", f"/timers/{name}", DAILY if body is None else body, **headers)


# --- over the API --------------------------------------------------------------------------------------------------


def test_a_timer_is_put_read_listed_and_removed(api) -> None:
    """D13, E12: under its name, with an ETag; what it enqueues is shown on request only."""
    made = put(api, body={**DAILY, "input": {"a": 1}, "options": {"priority": 5}, "catch_up": "all", "overlap": "skip"})
    assert (made.status_code, made["ETag"]) == (201, '"r1"')
    told = made.json()
    assert (told["name"], told["type"], told["cron"], told["zone"], told["catch_up"], told["catch_up_most"]) == (
        "nightly", "outside", "0 3 * * *", "Europe/Berlin", "all", 10)
    assert (told["options"], told["overlap"], told["paused"], told["last"], told["declared"]) == (
        {"priority": 5}, "skip", False, None, False)
    assert told["schedule"] == "At 03:00 every day, Europe/Berlin"
    assert told["by"] == f"key:{api.key.prefix}"
    assert "input" not in told
    assert api.get("/timers/nightly?include=input").json()["input"] == {"a": 1}
    assert [one["name"] for one in api.get("/timers").json()["timers"]] == ["nightly"]
    gone = api.send("DELETE", "/timers/nightly")
    assert (gone.status_code, gone.content) == (204, b"")
    problem(api.get("/timers/nightly"), 404, "timer_not_found")
    problem(api.send("DELETE", "/timers/nightly"), 404, "timer_not_found")


def test_the_same_said_again_changes_nothing_and_another_word_all_of_it(api) -> None:
    """D13, E12: PUT is idempotent; If-Match and If-None-Match guard it."""
    first = put(api).json()
    again = put(api)
    assert (again.status_code, again.json()) == (200, first)
    other = put(api, body={"type": "outside", "every_s": 60}, If_Match='"r1"')
    assert (other.status_code, other["ETag"], other.json()["cron"], other.json()["every_s"]) == (200, '"r2"', None, 60)
    problem(put(api, If_Match='"r1"'), 412, "revision_mismatch")
    problem(put(api, "new", If_Match='"r1"'), 404, "timer_not_found")
    problem(put(api, If_None_Match="*"), 409, "timer_exists", "name")
    problem(put(api, If_None_Match='"r1"'), 400, "invalid_if_none_match", "If-None-Match")
    problem(api.send("DELETE", "/timers/nightly", If_Match='"r1"'), 412, "revision_mismatch")
    assert put(api, "new", If_None_Match="*").status_code == 201


def test_post_makes_one_and_never_a_second_of_its_name(api) -> None:
    """D13: with its tenant, which is made with it; a refusal leaves neither behind."""
    made = api.post("/timers", {"name": "nightly", "tenant_subject": "new one", **DAILY})
    assert (made.status_code, made["Location"]) == (201, "/api/v1/timers/nightly")
    assert made.json()["tenant_subject"] == "new one"
    problem(api.post("/timers", {"name": "nightly", "tenant_subject": "new one", **DAILY}), 409, "timer_exists", "name")
    rows = everything()
    problem(api.post("/timers", {"name": "x", "tenant_subject": "other", "type": "outside"}), 400, "invalid_schedule")
    assert everything() == rows
    assert api.get("/timers", X_Tenant_Subject="new one").json()["timers"][0]["name"] == "nightly"
    assert api.get("/timers").json()["timers"] == []


@pytest.mark.parametrize(("body", "status", "code", "field"), [
    ({"cron": "0 3 * *"}, 400, "invalid_cron", "cron"), ({"cron": "0 25 * * *"}, 400, "invalid_cron", "cron"),
    ({"cron": "0 3 * * * *"}, 400, "invalid_cron", "cron"), ({"cron": "@dayly"}, 400, "invalid_cron", "cron"),
    ({"cron": "0 0 31 2 *"}, 400, "timer_never_fires", "cron"), ({"cron": 5}, 400, "invalid_cron", "cron"),
    ({"every_s": 60}, 400, "invalid_schedule", "cron"), ({"cron": None}, 400, "invalid_schedule", "cron"),
    ({"cron": None, "every_s": 0}, 400, "invalid_every_s", "every_s"),
    ({"cron": None, "every_s": 1.5}, 400, "invalid_every_s", "every_s"),
    ({"cron": None, "every_s": 366 * 86_400 + 1}, 400, "invalid_every_s", "every_s"),
    ({"cron": None, "every_s": 60, "anchor_at": "tomorrow"}, 400, "invalid_anchor_at", "anchor_at"),
    ({"anchor_at": "2030-01-01T00:00:00Z"}, 400, "invalid_anchor_at", "anchor_at"),
    ({"zone": "Europe/Berlinn"}, 400, "unknown_zone", "zone"), ({"zone": 5}, 400, "unknown_zone", "zone"),
    ({"catch_up": "al"}, 400, "unknown_catch_up", "catch_up"), ({"overlap": []}, 400, "unknown_overlap", "overlap"),
    ({"catch_up_most": 5}, 400, "invalid_catch_up_most", "catch_up_most"),
    ({"catch_up": "all", "catch_up_most": 1_001}, 400, "invalid_catch_up_most", "catch_up_most"),
    ({"moment_field": "a b"}, 400, "invalid_moment_field", "moment_field"),
    ({"options": {"queu": "chat"}}, 400, "unknown_field", "options.queu"),
    ({"options": {"queue": "chatt"}}, 400, "unknown_queue", "queue"),
    ({"options": {"job_id": "x"}}, 400, "unknown_field", "options.job_id"),
    ({"options": []}, 400, "invalid_options", "options"),
    ({"options": {"session_key": "x" * 16_400}}, 413, "too_large", "options"),
    ({"options": {"worker_group": "system"}}, 400, "unknown_field", "options.worker_group"),
    ({"options": {"origin": "human"}}, 400, "unknown_field", "options.origin"),
    ({"options": {"tenant_subject": "other"}}, 400, "unknown_field", "options.tenant_subject"),
    ({"options": {"priority": 101}}, 400, "invalid_priority", "priority"),
    ({"options": {"priority": True}}, 400, "invalid_priority", "priority"),
    ({"options": {"callback_url": "https://169.254.169.254/"}}, 400, "invalid_callback_url", "callback_url"),
    ({"options": {"max_cost_usd": -1}}, 400, "invalid_max_cost_usd", "max_cost_usd"),
    ({"options": {"singleton": "one"}}, 400, "unknown_singleton_mode", "singleton"),
    ({"options": {"deadline_s": -1}}, 400, "invalid_deadline", "deadline_s"),
    ({"type": "outsid"}, 422, "unknown_job_type", "type"), ({"version": 9}, 422, "unregistered_version", None),
    ({"type": "disabled"}, 403, "definition_disabled", "type"),
    ({"type": "echo", "input": {"valu": "b"}}, 400, "invalid_input", "/input/valu"),
    ({"cadence": "x"}, 400, "unknown_field", "cadence"),
])
def test_what_cannot_be_is_refused_by_its_field_and_nothing_is_written(api, body, status, code, field) -> None:
    """D13, E14: each refusal has a code of its own and names what would be right."""
    rows = everything()
    problem(put(api, body={**DAILY, **body}), status, code, field)
    assert (everything(), Timer.objects.count()) == (rows, 0)


@pytest.mark.parametrize("name", ["Nightly", "-x", "a b", "x" * 101, "preview", "ü", "a%00b", "a%0A"])
def test_a_name_that_cannot_be_is_refused_when_it_is_put_and_is_nobodys_when_it_is_read(api, name) -> None:
    """D13, E2: `preview` is a word of the API's own."""
    assert put(api, name).status_code in (400, 405)
    assert api.get(f"/timers/{name}").status_code in (404, 405)
    assert not Timer.objects.exists()


def test_the_houses_own_jobs_have_no_timers(api, settings) -> None:
    """B34, E11: their origin is that of timers too, and one of them would end what has not ended."""
    settings.JOBS = {**settings.JOBS, "CALLBACKS": True}
    own = api.enqueue()["id"]
    for type_, input_ in (("callback-delivery", {"delivery": own}),
                          ("job-ended", {"job_id": own, "chain": 1, "state": "completed"})):
        problem(put(api, body={"type": type_, "every_s": 60, "input": input_}), 403, "origin_forbidden", "type")
    assert not Timer.objects.exists()


def test_a_timer_enqueues_nothing_that_its_caller_may_not_enqueue(api) -> None:
    """B13, E2: what is the scheduler's alone is declared in the settings or put by an operator, and may be run then."""
    for version in (None, 1):
        asked = {"type": "scheduled-only", "version": version, "every_s": 60}
        problem(put(api, "mine", asked), 403, "origin_forbidden", "type")
    timers.put(tenancy.tenant(tenancy.workspace(), None), "theirs", timers.Draft("scheduled-only", every_s=60),
               by="test")
    problem(put(api, "theirs", {"type": "scheduled-only", "every_s": 1}), 403, "origin_forbidden", "type")
    assert Timer.objects.get().every_s == 60
    assert api.post("/timers/theirs/run").json()["outcome"] == "enqueued"


def test_where_only_conductors_enqueue_nobody_else_makes_jobs_by_a_timer(api) -> None:
    """D2, E2: neither putting one nor running it is a way around the demand."""
    put(api)
    tenancy.demand_grant(tenancy.workspace(), True, by="test")
    keys.forget()
    problem(put(api, "other"), 403, "grant_required")
    problem(api.post("/timers/nightly/run"), 403, "grant_required")
    grants.give(tenancy.workspace(), "conductor", by="test", key=api.key)
    assert api.post("/timers/nightly/run").status_code == 202


def test_a_pause_has_a_reason_and_an_end_and_is_resumed(api) -> None:
    """D13: what is paused has no next moment; said in spans or moments, never both."""
    put(api)
    paused = api.post("/timers/nightly/pause", {"reason": "the vendor is down", "for_s": 3_600})
    told = paused.json()
    assert (told["paused"], told["paused_reason"], told["next_at"]) == (True, "the vendor is down", None)
    assert told["paused_until"] > clock.jsonable(clock.now())
    assert paused["ETag"] == '"r2"'
    assert [one["name"] for one in api.get("/timers?state=paused").json()["timers"]] == ["nightly"]
    assert api.get("/timers?state=active").json()["timers"] == []
    assert len(api.get("/timers/nightly/upcoming").json()["upcoming"]) == 5
    forever = api.post("/timers/nightly/pause", {"reason": "for good"}).json()
    assert (forever["paused_until"], api.get("/timers/nightly/upcoming").json()["upcoming"]) == (None, [])
    problem(api.post("/timers/nightly/resume", If_Match='"r2"'), 412, "revision_mismatch")
    back = api.post("/timers/nightly/resume", {"reason": "it is back"}).json()
    assert (back["paused"], back["paused_reason"]) == (False, None)
    problem(api.post("/timers/nightly/resume"), 409, "timer_not_paused")
    for body, code, field in (({}, "missing_field", "reason"), ({"reason": ""}, "invalid_reason", "reason"),
                              ({"reason": "x", "for_s": 0}, "invalid_for_s", "for_s"),
                              ({"reason": "x", "until": "2001-01-01T00:00:00Z"}, "invalid_until", "until"),
                              ({"reason": "x", "for_s": 5, "until": "2100-01-01T00:00:00Z"}, "invalid_until", "until")):
        problem(api.post("/timers/nightly/pause", body), 400, code, field)
    problem(api.get("/timers?state=asleep"), 400, "invalid_state", "state")


def test_run_now_makes_one_job_for_each_key(api) -> None:
    """D13: said again it is the same firing; the job is the timer's, by whoever asked, and its moments stay."""
    before = put(api, body={**DAILY, "options": {"priority": 7}}).json()
    first = api.post("/timers/nightly/run", {"reason": "they asked"}, Idempotency_Key="once")
    told = first.json()
    assert first.status_code == 202
    assert (told["outcome"], told["manual"], told["detail"], told["by"]) == (
        "enqueued", True, "they asked", f"key:{api.key.prefix}")
    assert api.post("/timers/nightly/run", Idempotency_Key="once").json()["job"] == told["job"]
    job = Job.objects.get()
    assert (str(job.pk), job.origin, job.priority) == (told["job"], "scheduler", 7)
    assert api.post("/timers/nightly/run").json()["job"] != told["job"]
    after = api.get("/timers/nightly").json()
    assert (after["next_at"], after["last"]["outcome"]) == (before["next_at"], "enqueued")
    problem(api.post("/timers/nightly/run", Idempotency_Key="x" * 101), 400, "invalid_idempotency_key")
    put(api, "alone", {**DAILY, "overlap": "skip"})
    api.post("/timers/alone/run")
    problem(api.post("/timers/alone/run"), 409, "timer_job_active")


def test_what_became_of_moments_is_paged_by_a_cursor_that_is_good_for_this_timer_alone(api) -> None:
    """D13, E14: the latest first, with the job or why there is none."""
    put(api)
    put(api, "other")
    for _ in range(5):
        api.post("/timers/nightly/run")
    first = api.get("/timers/nightly/firings?limit=3").json()
    second = api.get(f"/timers/nightly/firings?limit=3&cursor={first['next_cursor']}").json()
    moments = [one["moment"] for page in (first, second) for one in page["firings"]]
    assert (len(moments), moments, second["next_cursor"]) == (5, sorted(moments, reverse=True), None)
    problem(api.get(f"/timers/other/firings?cursor={first['next_cursor']}"), 400, "invalid_cursor", "cursor")
    problem(api.get("/timers/nightly/firings?cursor=x"), 400, "invalid_cursor", "cursor")
    problem(api.get("/timers/nightly/firings?limit=0"), 400, "invalid_limit", "limit")
    listed = api.get("/timers?limit=1").json()
    assert [one["name"] for one in listed["timers"]] == ["other"]
    assert [one["name"] for one in api.get(f"/timers?limit=1&cursor={listed['next_cursor']}").json()["timers"]] == [
        "nightly"]
    problem(api.get(f"/timers?state=active&cursor={listed['next_cursor']}"), 400, "invalid_cursor", "cursor")


def test_a_refused_moment_says_why(api) -> None:
    """D13: the code of the refusal stands where the timer is read."""
    put(api, body={"type": "outside", "every_s": 60})
    tenancy.archive(tenancy.tenant(tenancy.workspace(), "acme", make=True), by="test", reason="x")
    api.send("PUT", "/timers/theirs", {"type": "outside", "every_s": 60}, X_Tenant_Subject="other")
    tenancy.archive(tenancy.tenant(tenancy.workspace(), "other"), by="test", reason="x")
    db.pass_time(61)
    Timers().tick()
    last = api.get("/timers/theirs", X_Tenant_Subject="other").json()["last"]
    assert (last["outcome"], last["code"], last["job"]) == ("refused", "tenant_archived", None)
    assert api.get("/timers/nightly").json()["last"]["outcome"] == "enqueued"


def test_the_next_moments_of_a_timer_and_of_a_schedule_that_is_not_kept(api) -> None:
    """D13: in UTC, and as the zone's clocks show them; nothing is kept."""
    put(api)
    told = api.get("/timers/nightly/upcoming").json()
    assert (told["zone"], len(told["upcoming"])) == ("Europe/Berlin", 5)
    assert {one["there"][11:19] for one in told["upcoming"]} == {"03:00:00"}
    rows = everything()
    same = api.post("/timers/preview", {"cron": "0 3 * * *", "zone": "Europe/Berlin"}).json()
    assert same == told
    every = api.post("/timers/preview", {"every_s": 90, "anchor_at": "2030-01-01T00:00:00Z"}).json()
    assert (every["schedule"], every["upcoming"][0]["at"]) == ("Every 90 seconds", "2030-01-01T00:00:00Z")
    problem(api.post("/timers/preview", {}), 400, "invalid_schedule", "cron")
    for beyond in ("9999-12-31T23:59:59Z", "2200-01-01T00:00:00Z", "1969-12-31T23:59:59Z"):
        problem(api.post("/timers/preview", {"every_s": 366 * 86_400, "anchor_at": beyond}), 400, "invalid_anchor_at",
                "anchor_at")
    problem(api.post("/timers/preview", {"cron": "0 0 31 2 *"}), 400, "timer_never_fires", "cron")
    assert everything() == rows


def test_a_list_of_timers_is_paged_by_a_cursor_that_is_good_for_nobody_else(api) -> None:
    """D13, C25, E2: not for another tenant's list, another state's, nor the firings'."""
    mine, theirs = Caller(tenant="mine"), Caller(tenant="theirs")
    for n in range(3):
        put(mine, f"t{n}")
        put(theirs, f"t{n}")
    first = mine.get("/timers?limit=2").json()
    assert [one["name"] for one in first["timers"]] == ["t2", "t1"]
    said = quote(first["next_cursor"])
    assert [one["name"] for one in mine.get(f"/timers?cursor={said}").json()["timers"]] == ["t0"]
    whole = api.get(f"/timers?cursor={said}", X_Tenant_Subject="mine").json()
    assert [one["name"] for one in whole["timers"]] == ["t0"]
    for who, path in ((theirs, "/timers?"), (api, "/timers?"), (mine, "/timers?state=active&"),
                      (mine, "/timers/t0/firings?")):
        problem(who.get(f"{path}cursor={said}"), 400, "invalid_cursor", "cursor")
    problem(mine.get(f"/timers?cursor={said[:-1]}"), 400, "invalid_cursor", "cursor")


def test_foreign_and_unknown_timers_are_one_answer_by_the_same_statements(api) -> None:
    """E2, I16: as far as a clock could tell; the headers that ask for a revision change nothing of it."""
    mine, theirs = Caller(tenant="mine"), Caller(tenant="theirs")
    put(theirs, "theirs")
    rows = everything()
    for method, verb, body, more in (
            ("GET", "", None, {}), ("GET", "?include=input", None, {}), ("GET", "/upcoming", None, {}),
            ("GET", "/firings", None, {}), ("DELETE", "", None, {}), ("DELETE", "", None, {"If_Match": '"r1"'}),
            ("DELETE", "", None, {"If_Match": '"r2"'}), ("POST", "/pause", {"reason": "x"}, {}),
            ("POST", "/resume", {}, {"If_Match": '"r1"'}), ("POST", "/run", {"idempotency_key": "k"}, {}),
            ("PUT", "", DAILY, {"If_Match": '"r1"'})):
        answers = {}
        # The least of a few: that a key was used is noted now and then.
        for name in ("theirs", "unknown") * 3:
            with CaptureQueriesContext(connection) as asked:
                answer = mine.send(method, f"/timers/{name}{verb}", body, **more)
            problem(answer, 404, "timer_not_found")
            told = (answer.content, sorted(answer.items()), len(asked))
            answers[name] = min(answers.get(name, told), told)
        assert answers["theirs"] == answers["unknown"], (method, verb)
    assert everything() == rows


# --- at the command line -------------------------------------------------------------------------------------------


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("timers", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_an_operator_puts_shows_pauses_runs_and_removes_a_timer(driver) -> None:
    """D13, E12: a line each, by whoever is at the shell."""
    line = said("put", "nightly", "--type", "echo", "--input", '{"value": "x"}', "--cron", "0 3 * * *", "--zone",
                "Europe/Berlin", "--options", '{"priority": 3}', "--tenant", "acme")
    assert line.startswith("active  nightly  echo  At 03:00 every day, Europe/Berlin  next ")
    assert said("list", "--tenant", "acme") == line
    assert said("list") == ""
    assert "default  tenant acme  nightly" in said("list", "--all")
    row = Timer.objects.get()
    assert (row.tenant_id, row.by.startswith("shell:"), json.loads(row.options)) == (
        tenant_id("acme"), True, {"priority": 3})
    told = said("show", "nightly", "--tenant", "acme")
    assert '{"value": "x"}' in told
    assert "paused by shell:" in said("pause", "nightly", "--tenant", "acme", "--reason", "too loud", "--for", "60")
    assert said("resume", "nightly", "--tenant", "acme").startswith("active")
    job = said("run", "nightly", "--tenant", "acme", "--key", "k").strip()
    assert said("run", "nightly", "--tenant", "acme", "--key", "k").strip() == job == str(Job.objects.get().pk)
    assert f"enqueued  job {job}  by shell:" in said("show", "nightly", "--tenant", "acme")
    assert len(said("upcoming", "nightly", "--tenant", "acme").splitlines()) == 5
    assert said("upcoming", "--every", "60", "--count", "2").count("\n") == 2
    assert said("remove", "nightly", "--tenant", "acme") == "removed\n"
    assert not Timer.objects.exists()


@pytest.mark.parametrize(("arguments", "words"), [
    (("show", "nothing"), "There is no such timer"), (("run", "nothing"), "There is no such timer"),
    (("put", "x", "--type", "ecko", "--every", "60"), "did you mean"),
    (("put", "x", "--type", "echo", "--cron", "0 3 * *"), "cron: has 4 fields and must have five"),
    (("put", "x", "--type", "echo", "--cron", "0 3 * * *", "--zone", "Berlin"), "did you mean 'Europe/Berlin'"),
    (("put", "x", "--type", "echo"), "either cron or every_s"),
    (("put", "x", "--type", "echo", "--every", "60", "--input", "{"), "--input: "),
    (("put", "X", "--type", "echo", "--every", "60"), "name: must be 1 to 100"),
    (("put", "x", "--type", "echo", "--every", "60", "--tenant", "new", "--options", '{"que": 1}'), "did you mean"),
    (("put", "x", "--type", "echo", "--every", "60", "--workspace", "else"), "no workspace 'else'"),
    (("upcoming",), "either cron or every_s"), (("list", "--tenant", "nobody"), "no such tenant"),
    (("put", "x", "--type", "echo", "--catch-up", "al"), "invalid choice"),
    (("upcoming", "x", "--cron", "0 3 * * *"), "Say a timer, or a schedule"),
    (("list", "--all", "--tenant", "x"), "say no --workspace and no --tenant"),
])
def test_what_cannot_be_is_one_line_and_nothing_is_written(driver, arguments, words) -> None:
    """E14: the line names what would be right."""
    rows = everything()
    with pytest.raises(CommandError, match=words):
        said(*arguments)
    assert everything() == rows
