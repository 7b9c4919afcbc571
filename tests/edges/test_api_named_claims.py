"""Claims under a name, of some types, and within what a key may hold; answers that nobody takes (C31, E5, E7, E8)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from jobs.api.events import beside
from jobs.models import Attempt, ClaimRequest, Job
from jobs.services import claiming
from jobs.services.retention import REQUESTS_MS, Retention
from jobs.store import claim_requests
from tests import database as db
from tests.driver import check
from tests.edges.caller import Caller, everything, problem, state
from tests.worker.processes import until

# --- request_id ----------------------------------------------------------------------------------------------------


def test_the_same_name_is_answered_with_the_same_assignments(api):
    """C31, D4: what was read, but for what has ended since; how long one waits is no part of what was asked."""
    for _ in range(4):
        api.enqueue(input={"n": [1.5, None]})
    first = api.claim(3, request_id="r-1")
    rows = everything()
    again = api.claim(3, request_id="r-1", wait_seconds=1)
    assert again == first
    assert len(first) == 3
    assert ClaimRequest.objects.get().repeats == 1
    assert Attempt.objects.count() == 3
    api.assignment(first[1], "complete", {"artifact": {}})
    assert api.claim(3, request_id="r-1") == [first[0], first[2]]
    assert rows != everything()
    # Another name, and none, are other claims.
    assert len(api.claim(3, request_id="r-2")) == 1
    assert api.claim(3) == []
    for held in first[0], first[2]:
        check(held["job"]["id"])


def test_a_name_for_something_else_is_refused_and_takes_nothing(api):
    """E6: as with keys of requests; of another key it is another name."""
    for _ in range(4):
        api.enqueue()
    api.claim(1, request_id="mine")
    rows = everything()
    for other in ({"slots": 2}, {"queues": ["collect"]}, {"worker_groups": ["runners"]}, {"types": ["outside"]}):
        problem(api.post("/runtime/claim", {"slots": 1, "request_id": "mine", **other}), 422, "request_id_reused",
                "request_id")
    assert everything() == rows
    other = Caller("other")
    assert len(other.claim(1, request_id="mine")) == 1
    assert other.claim(1, request_id="mine")[0]["job"]["id"] != api.claim(1, request_id="mine")[0]["job"]["id"]


def test_what_brought_nothing_leaves_nothing(api):
    """C31: a poll under a name costs no row, and the same name claims once there is something."""
    assert api.claim(1, request_id="mine") == []
    assert not ClaimRequest.objects.exists()
    api.enqueue()
    assert len(api.claim(1, request_id="mine")) == 1


@pytest.mark.parametrize("name", ["", "a" * 201, "a b", "Zoë", "a\n", 5, True, [], {}])
def test_a_name_that_is_none_is_refused(api, name):
    """E15: 1 to 200 printable characters."""
    api.enqueue()
    rows = everything()
    problem(api.post("/runtime/claim", {"request_id": name}), 400, "invalid_request_id", "request_id")
    assert everything() == rows


def test_two_at_the_same_moment_get_one_set(api, monkeypatch):
    """D4, E14.1: the later one waits for the first to commit, undoes what it took, and reads what the first one got."""
    for _ in range(4):
        api.enqueue()
    found: list[Any] = []
    first, dealt = threading.Lock(), claiming._dealt

    def slowly(jobs, wishes):
        if first.acquire(blocking=False):
            # Until the other one, which has looked for the name in vain, waits for us.
            until(lambda: db.rows("SELECT 1 FROM pg_locks WHERE NOT granted"), 20)
        return dealt(jobs, wishes)

    monkeypatch.setattr(claiming, "_dealt", slowly)

    def claim() -> None:
        with db.own_connection():
            found.append(api.claim(2, request_id="mine"))

    threads = [threading.Thread(target=claim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found[0] == found[1]
    assert len(found[0]) == Attempt.objects.count() == 2
    assert sorted(Job.objects.values_list("state", flat=True)) == ["leased", "leased", "queued", "queued"]


def test_names_are_forgotten_once_they_hold_nothing_and_some_minutes_are_over(api):
    """E13: kept as long as one of its assignments lives; then the duty `retention` deletes them, a batch at a time."""
    for _ in range(2):
        api.enqueue()
    ended, held = api.claim_one(request_id="ended"), api.claim_one(request_id="held")
    api.assignment(ended, "complete", {"artifact": {}})
    assert claim_requests.forget_old(REQUESTS_MS) == 0
    db.pass_time(REQUESTS_MS / 1_000 + 1)
    duty = Retention()
    for _ in range(6):
        duty.tick()
    assert list(ClaimRequest.objects.values_list("request_id", flat=True)) == ["held"]
    assert api.claim_one(request_id="held")["assignment_id"] == held["assignment_id"]


# --- types ---------------------------------------------------------------------------------------------------------


def test_types_narrow_what_a_group_holds(api):
    """E7: within a worker group; several at once; an unknown one is refused and names the nearest."""
    outside, secret = api.enqueue(), api.enqueue("secretive")
    told = problem(api.post("/runtime/claim", {"types": ["outsid"]}), 422, "unknown_job_type", "types")
    assert "outside" in told["detail"]
    assert api.claim(5, types=[]) == []
    assert api.claim(5, types=["outside"], worker_groups=["vault"]) == []
    assert [a["job"]["id"] for a in api.claim(5, types=["secretive"])] == [secret["id"]]
    assert [a["job"]["id"] for a in api.claim(5, types=["secretive", "outside"])] == [outside["id"]]
    for wrong in ("outside", [1], ["outside"] * 101):
        problem(api.post("/runtime/claim", {"types": wrong}), 400, "invalid_types", "types")


def test_many_of_other_types_in_front_are_read_past_so_long_and_no_longer(api, monkeypatch):
    """E7: bounded; nothing is claimed by a look that is given up."""
    api.enqueue()
    others = ", ".join(f.column for f in Job._meta.concrete_fields if not f.primary_key)
    db.rows(f"INSERT INTO jobs_job (id, {others}) SELECT gen_random_uuid(), {others} FROM jobs_job,"
            " generate_series(1, 5000) RETURNING 1")
    monkeypatch.setattr(claiming, "TYPES_PATIENCE_MS", 1)
    asked = {"types": ["secretive"], "worker_groups": ["runners"]}
    told = problem(api.post("/runtime/claim", asked), 503, "too_slow", "types")
    assert "queue" in told["detail"]
    assert Attempt.objects.count() == 0
    assert len(api.claim(1)) == 1


# --- what a key may hold ---------------------------------------------------------------------------------------------


def test_a_key_that_hoards_stops_at_its_cap_and_others_are_served(api, settings):
    """RELIABILITY 6.2: fewer jobs are given, then none; what it settles makes room, and other keys notice nothing."""
    settings.JOBS = {**settings.JOBS, "ASSIGNMENTS_PER_KEY": 3}
    for _ in range(6):
        api.enqueue()
    held = api.claim(2) + api.claim(2)
    assert len(held) == 3
    rows = everything()
    refused = api.post("/runtime/claim", {"slots": 1, "wait_seconds": 20})
    problem(refused, 429, "too_many_assignments")
    assert (refused["Retry-After"], everything()) == ("1", rows)
    assert len(Caller("other").claim(2)) == 2
    api.assignment(held[0], "release", {"delay_s": 60})
    assert len(api.claim(5)) == 1


def test_two_claims_of_a_key_together_stay_within_its_cap(api, settings):
    """RELIABILITY 6.2: the second one counts what the first one takes."""
    settings.JOBS = {**settings.JOBS, "ASSIGNMENTS_PER_KEY": 4}
    for _ in range(20):
        api.enqueue()
    found: list[Any] = []

    def claim() -> None:
        with db.own_connection():
            found.append(api.post("/runtime/claim", {"slots": 3}).status_code)

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == [200, 200, 429, 429, 429, 429]
    assert Attempt.objects.filter(ended_at=None).count() == 4


def test_a_claim_tells_whose_the_job_is(api):
    """C31, E8: by the caller's words, in one statement for the whole batch."""
    made = api.enqueue(job_id="mine", priority=3, tenant_subject="ann")
    Job.objects.filter(pk=made["id"]).update(subject="invoice 7")
    job = api.claim_one()["job"]
    assert (job["job_id"], job["subject"], job["tenant_subject"], job["priority"], job["attempt_count"]) == (
        "mine", "invoice 7", "ann", 3, 1)
    assert job["created_at"].endswith("Z")


# --- an answer that nobody takes -------------------------------------------------------------------------------------


async def _nobody(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("not ours")


def _gone(api: Caller, body: dict[str, Any], leave: Any) -> list[Any]:
    """A claim whose client leaves as `leave` says; what was sent to it."""
    sent: list[Any] = []
    data = json.dumps(body).encode()

    async def run() -> None:
        left = asyncio.Event()
        parts = [{"type": "http.request", "body": data}]

        async def receive() -> Any:
            if parts:
                return parts.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {api.secret}".encode()), (b"host", b"testserver"),
                   (b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        scope = {"type": "http", "method": "POST", "path": "/api/v1/runtime/claim", "query_string": b"",
                 "headers": headers, "server": ("testserver", 80), "scheme": "http"}
        await leave(left, beside(_nobody)(scope, receive, send))

    asyncio.run(run())
    return sent


async def _at_once(left: asyncio.Event, served: Any) -> None:
    left.set()
    await served


async def _killed(left: asyncio.Event, served: Any) -> None:
    task = asyncio.ensure_future(served)
    while not await asyncio.to_thread(_claims):
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _claims() -> int:
    with db.own_connection():
        return Attempt.objects.count()


@pytest.mark.parametrize("name", [None, "mine"])
def test_what_a_client_that_is_gone_has_claimed_is_given_back_at_once(api, name):
    """C31, C32: uncounted, as soon as its answer cannot be sent; its name is free again."""
    made = [api.enqueue()["id"] for _ in range(2)]
    asked = {"slots": 2} if name is None else {"slots": 2, "request_id": name}
    assert _gone(api, asked, _at_once) == []
    for job_id in made:
        job = Job.objects.get(pk=job_id)
        assert (job.state, job.claims, job.attempt_count, job.failures, job.interruptions) == ("queued", 1, 0, 0, 1)
        check(job_id)
    assert set(Attempt.objects.values_list("outcome", "reason_code")) == {("interrupted", "client_gone")}
    assert len(api.claim(**asked)) == 2


def test_what_a_server_that_ends_had_claimed_is_given_back(api, monkeypatch):
    """C31: cut off while it shapes its answer."""
    job_id, told, go = api.enqueue()["id"], claiming.credentials, threading.Event()
    monkeypatch.setattr(claiming, "credentials", lambda key, jobs: (go.wait(0.3), told(key, jobs))[1])
    assert _gone(api, {}, _killed) == []
    assert (state(job_id), Attempt.objects.get().reason_code) == ("queued", "client_gone")


def test_what_was_answered_again_is_not_given_back(api):
    """D4: who asks again is faster than the server's notice that the first client is gone."""
    api.enqueue()
    wish = claiming.wish(api.key, slots=1, request_id="mine")
    jobs, _ = claiming.take(wish)
    assert len(api.claim(1, request_id="mine")) == 1
    assert claiming.give_back(wish, jobs) == 0
    assert state(jobs[0].id) == "leased"
    assert claiming.give_back(claiming.wish(api.key, slots=1), []) == 0


def test_a_body_that_comes_in_parts_or_not_at_all(api):
    """E2: the same refusals in front of Django's handler; who leaves within it is asked nothing."""
    problem(api.post("/runtime/claim", {"x": "y" * 1_100_000}), 413, "too_large")

    async def before(left: asyncio.Event, served: Any) -> None:
        await served

    assert [m["status"] for m in _gone(api, {"x": "y" * 1_100_000}, before) if "status" in m] == [413]
    assert [m["status"] for m in _gone(api, {"wait_seconds": -1}, before) if "status" in m] == [400]
