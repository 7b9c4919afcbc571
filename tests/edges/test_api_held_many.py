"""Many heartbeats and many ends in one request, each as if it had come alone (C33, C38, E5)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs import clock
from jobs.models import Attempt, Job
from jobs.services import commands
from tests import database as db
from tests.driver import check
from tests.edges.caller import Caller, everything, held, problem, state

NOBODY = "00000000-0000-4000-8000-000000000000"


def settle(api: Caller, *items: Any) -> list[dict[str, Any]]:
    answer = api.post("/assignments/settle", {"items": list(items)})
    assert answer.status_code == 200, answer.content
    return answer.json()["results"]


def extend(api: Caller, *items: Any) -> list[dict[str, Any]]:
    answer = api.post("/assignments/extend", {"items": list(items)})
    assert answer.status_code == 200, answer.content
    return answer.json()["results"]


def alone(api: Caller, name: str, item: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    body = dict(item)
    answer = api.post(f"/assignments/{name}/{body.pop('outcome')}", body)
    return answer.status_code, answer.json()


# Each word of a holder, said once or again: what the single call answers the batch answers too.
WORDS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("complete", {"outcome": "complete", "artifact": {"a": 1}}, None),
    ("complete again", {"outcome": "complete", "artifact": {"a": 1}}, {"outcome": "complete", "artifact": {"a": 1}}),
    ("complete otherwise", {"outcome": "complete", "artifact": {"a": 2}}, {"outcome": "complete", "artifact": {}}),
    ("no artifact", {"outcome": "complete"}, None),
    ("a wrong artifact", {"outcome": "complete", "artifact": [1]}, None),
    ("a field too many", {"outcome": "complete", "artifact": {}, "more": 1}, None),
    ("fail", {"outcome": "fail", "reason_code": "no_luck", "message": "m"}, None),
    ("fail for good", {"outcome": "fail", "reason_code": "no_luck", "retryable": False}, None),
    ("fail again", {"outcome": "fail", "reason_code": "x"}, {"outcome": "fail", "reason_code": "x"}),
    ("fail otherwise", {"outcome": "fail", "reason_code": "x"}, {"outcome": "fail", "reason_code": "y"}),
    ("no code", {"outcome": "fail"}, None),
    ("a bad diagnostic", {"outcome": "fail", "reason_code": "x", "diagnostic": {"": 1}}, None),
    ("release", {"outcome": "release"}, None),
    ("release for later", {"outcome": "release", "delay_s": 30}, None),
    ("release again", {"outcome": "release", "delay_s": 30}, {"outcome": "release", "delay_s": 30}),
    ("release otherwise", {"outcome": "release"}, {"outcome": "release", "delay_s": 30}),
    ("release too far", {"outcome": "release", "delay_s": 86_401}, None),
    ("release into the past", {"outcome": "release", "not_before": "2020-01-01T00:00:00Z"}, None),
    ("cancelled unasked", {"outcome": "cancelled"}, None),
    ("too late", {"outcome": "complete", "artifact": {}}, {"outcome": "release"}),
]


def test_each_word_is_answered_in_a_batch_as_alone(api):
    """C32, C35, C38, A35, A39, E5: the same number, the same code and the same row, all in one request."""
    names = {one["assignment_id"]: one["job"]["id"] for one in (held(api) for _ in range(2 * len(WORDS)))}
    alones, together = list(names)[:len(WORDS)], list(names)[len(WORDS):]
    for name, (_, _, before) in zip([*alones, *together], [*WORDS, *WORDS], strict=True):
        if before is not None:
            assert alone(api, name, before)[0] == 200
    items = [{"assignment_id": name, **item} for name, (_, item, _) in zip(together, WORDS, strict=True)]
    results = settle(api, *items)
    assert [one["assignment_id"] for one in results] == together
    for single, name, told, (word, item, _) in zip(alones, together, results, WORDS, strict=True):
        status, body = alone(api, single, item)
        assert told["status"] == status, word
        assert [told.get(f) for f in ("code", "field", "result_status")] == [
            body.get(f) for f in ("code", "field", "result_status")], word
        rows = [Job.objects.get(pk=names[one]) for one in (single, name)]
        assert len({(row.state, row.releases, row.failures, row.revision, row.number) for row in rows}) == 1, word
        for row in rows:
            check(str(row.pk))
    assert {one["job_status"] for one in results if one["status"] == 200} >= {"completed", "queued", "failed"}


@pytest.mark.parametrize("bad", [
    5, None, [], {}, {"assignment_id": 5}, {"assignment_id": "x", "outcome": "complete"},
    {"assignment_id": NOBODY, "outcome": "complete", "artifact": {}}, {"assignment_id": "FIRST", "outcome": "release"},
    {"assignment_id": "SECOND", "outcome": "finish"}, {"assignment_id": "SECOND"},
    {"assignment_id": "FOREIGN", "outcome": "complete", "artifact": {}},
])
def test_a_bad_item_is_refused_in_its_place_and_harms_no_other(api, bad):
    """E15: malformed, unknown, foreign, twice."""
    first, second, foreign = held(api), held(api), held(Caller("other"))
    ids = {"FIRST": first, "SECOND": second, "FOREIGN": foreign}
    if isinstance(bad, dict) and bad.get("assignment_id") in ids:
        bad = {**bad, "assignment_id": ids[bad["assignment_id"]]["assignment_id"]}
    good = {"assignment_id": first["assignment_id"], "outcome": "complete", "artifact": {}}
    results = settle(api, good, bad)
    assert results[0]["status"] == 200
    assert 400 <= results[1]["status"] < 500
    assert {"status", "code", "detail", "assignment_id"} <= results[1].keys()
    assert state(first["job"]["id"]) == "completed"
    assert state(second["job"]["id"]) == state(foreign["job"]["id"]) == "leased"


@pytest.mark.parametrize("path", ["/assignments/settle", "/assignments/extend"])
@pytest.mark.parametrize("body", [{}, {"items": []}, {"items": {}}, {"items": [{}] * 101}, {"items": "x"}])
def test_a_batch_that_is_none_is_refused_as_a_whole(api, path, body):
    """E15: 1 to 100 items."""
    held(api)
    rows = everything()
    problem(api.post(path, body), 400, "invalid_items", "items")
    assert everything() == rows
    problem(api.post(path, {"items": [{}], "more": 1}), 400, "unknown_field")


def test_many_ends_are_one_transaction(api):
    """E1, E12: as a worker's: the statements of 28 are hardly more than those of two."""
    many = [held(api) for _ in range(30)]
    with CaptureQueriesContext(connection) as few:
        settle(api, *({"assignment_id": one["assignment_id"], "outcome": "complete", "artifact": {}}
                      for one in many[:2]))
    with CaptureQueriesContext(connection) as all_:
        results = settle(api, *({"assignment_id": one["assignment_id"], "outcome": "complete", "artifact": {}}
                                for one in many[2:]))
    assert {one["status"] for one in results} == {200}
    assert len(all_) <= len(few) + 2
    assert set(Job.objects.values_list("state", flat=True)) == {"completed"}


def test_many_heartbeats_share_their_statements(api):
    """C33, A45: each is renewed; those with reports, a first one and a lost one are answered in their places."""
    many = api.claim(100) or [held(api) for _ in range(12)]
    first = extend(api, *({"assignment_id": one["assignment_id"]} for one in many))
    assert {(one["status"], one["abort"], one["heartbeat_after_s"]) for one in first} == {(200, None, 10.0)}
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}
    db.pass_time(20)
    api.post(f"/jobs/{many[1]['job']['id']}/controls", {"action": "cancel"})
    commands.steer(many[2]["job"]["id"], {"to": "left"}, by="user:ann")
    commands.abort(many[3]["job"]["id"], by="user:ann", reason="enough")
    with CaptureQueriesContext(connection) as asked:
        told = extend(api, {"assignment_id": many[0]["assignment_id"], "checkpoint": {"seq": 3}},
                      *({"assignment_id": one["assignment_id"]} for one in many[1:]), {"assignment_id": NOBODY})
    assert (told[0]["checkpoint_number"], told[1]["code"], told[1]["job_status"]) == (3, "stale_claim", "cancelled")
    assert ([c["payload"] for c in told[2]["commands"]], told[3]["abort"]) == ([{"to": "left"}], "enough")
    assert told[-1]["code"] == "assignment_not_found"
    assert all(one["status"] == 200 for one in told[2:-1])
    soon = clock.now() + timedelta(seconds=25)
    assert all(row.lease_until > soon for row in Attempt.objects.filter(ended_at=None))
    assert len(asked) < 4 * len(many)
    assert extend(api, {"assignment_id": many[0]["assignment_id"], "outcome": "x"})[0]["code"] == "unknown_field"


def test_a_runner_that_beats_without_a_pause_writes_once_a_second(api):
    """RELIABILITY 6.2: more often than that a heartbeat is a read; it hears of an abort all the same."""
    one = held(api)
    api.assignment(one, "extend")
    db.pass_time(5)
    first = api.assignment(one, "extend").json()
    rows = everything()
    for _ in range(3):
        assert api.assignment(one, "extend").json() == first
    assert everything() == rows
    commands.abort(one["job"]["id"], by="user:ann", reason="enough")
    assert api.assignment(one, "extend").json()["abort"] == "enough"
    db.pass_time(2)
    assert api.assignment(one, "extend").json()["lease_expires_at"] > first["lease_expires_at"]


def test_a_heartbeat_whose_time_is_over_ends_its_job_in_a_batch_too(api):
    """C34, B26: `duration_exceeded`, as alone."""
    one, other = held(api), held(api)
    Job.objects.filter(pk=one["job"]["id"]).update(max_duration_ms=1_000)
    extend(api, {"assignment_id": other["assignment_id"]})
    db.pass_time(2)
    told = extend(api, *({"assignment_id": x["assignment_id"]} for x in (one, other)))
    assert [(x["status"], x.get("code")) for x in told] == [(409, "duration_exceeded"), (200, None)]
    [end] = settle(api, {"assignment_id": one["assignment_id"], "outcome": "complete", "artifact": {}})
    assert (end["status"], end["code"], state(one["job"]["id"])) == (409, "duration_exceeded", "failed")


@pytest.mark.parametrize("wait", [-1, True, 1.5, "5"])
def test_a_heartbeat_that_would_wait_wrongly_is_400_and_renews_nothing(api, wait):
    """C31, E15."""
    one = held(api)
    rows = everything()
    problem(api.assignment(one, "extend", {"wait_seconds": wait}), 400, "invalid_wait_seconds", "wait_seconds")
    assert everything() == rows


def test_under_wsgi_a_heartbeat_waits_in_a_thread(api):
    """E8: the same answers; at the limit of the workspace in any case."""
    one = held(api)
    assert api.assignment(one, "extend", {"wait_seconds": 1}).status_code == 200
    commands.steer(one["job"]["id"], {"to": "left"}, by="user:ann")
    assert len(api.assignment(one, "extend", {"wait_seconds": 20}).json()["commands"]) == 1
