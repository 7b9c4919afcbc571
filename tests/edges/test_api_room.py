"""Runners that wait at a served site: nobody holds a thread or a connection, and no job is lost (C31, E8)."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobs.models import Attempt, Job
from jobs.services import claiming, commands, intake, keys
from tests import database as db
from tests.driver import check
from tests.edges.caller import Caller
from tests.edges.waiters import Asked, ask, claims
from tests.pages.site import server
from tests.worker.processes import until

OURS = "datname = current_database() AND pid <> pg_backend_pid()"
# What has not been answered for so long, waits.
SETTLED_S = 1.0


@pytest.fixture(scope="module")
def port(django_db_setup):
    with server(JOBS_WAITS_PER_KEY="60") as (port, _):
        yield port


@pytest.fixture
def caller(driver, settings):
    settings.ROOT_URLCONF = "tests.edges.urls"
    claiming._cursors.clear()
    return Caller()


def count(which: str) -> int:
    return db.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND {which}")[0][0]


def while_waiting(asking: Callable[[], Any], do: Callable[[], Any], patience_s: float = 30) -> list[Asked]:
    """The answers to these requests, when this is done while all of them wait."""
    def apart() -> None:
        with db.own_connection():
            do()

    async def run() -> list[Asked]:
        answers = [asyncio.create_task(one.answer()) for one in await asking()]
        await asyncio.sleep(SETTLED_S)
        assert not any(one.done() for one in answers), [one.result().body for one in answers if one.done()]
        await asyncio.to_thread(apart)
        return list(await asyncio.wait_for(asyncio.gather(*answers), patience_s))

    return asyncio.run(run())


def test_sixty_runners_wait_and_each_is_served(port, caller):
    """C31, case-C04, case-C07: few connections, none in a transaction; `python -m tests.edges.waiters 200` measures."""
    seen: list[float] = []

    def enqueue() -> None:
        seen.extend((count("application_name = 'served'"), count(
            "state LIKE 'idle in transaction%%' AND state_change < clock_timestamp() - interval '1 s'")))
        for _ in range(60):
            caller.enqueue()
        seen.append(time.monotonic())

    answers = while_waiting(lambda: claims(port, [caller.secret] * 60), enqueue)
    given = [one.body["assignments"] for one in answers]
    assert {len(one) for one in given} == {1}
    assert len({one[0]["job"]["id"] for one in given}) == Attempt.objects.count() == 60
    late = max(one.at for one in answers) - seen[2]
    print(f"{seen[0]} connections; the last answer {late * 1000:.0f} ms after the last enqueue")
    assert (seen[0] <= 12, seen[1], late < 10) == (True, 0, True)


def test_one_job_is_given_to_one_of_those_who_wait_the_first_that_came(port, caller):
    """C31, RELIABILITY 5.8: one job wakes exactly one runner; the others read an empty list when their time is over."""
    async def asking() -> list[Asked]:
        first = await claims(port, [caller.secret], wait_seconds=5)
        await asyncio.sleep(0.5)
        return first + await claims(port, [caller.secret] * 9, wait_seconds=4)

    answers = while_waiting(asking, caller.enqueue)
    assert [len(one.body["assignments"]) for one in answers] == [1] + [0] * 9
    assert (Attempt.objects.count(), Job.objects.get().claims) == (1, 1)


def test_with_fifty_that_wait_and_a_hundred_idle_sockets_others_are_answered(port, caller):
    """case-C07: nothing is idle in a transaction, and a read takes as long as ever."""
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    took: list[float] = []

    def read() -> None:
        other, made = Caller("other"), caller.enqueue("secretive")
        for _ in range(5):
            began = time.monotonic()
            asyncio.run(_one(port, other.secret, "/runtime/claim", {"worker_groups": ["vault"]}))
            took.append(time.monotonic() - began)
        assert Job.objects.get(pk=made["id"]).claims == 1
        assert count("state LIKE 'idle in transaction%%' AND xact_start < clock_timestamp() - interval '2 s'") == 0
        for _ in range(50):
            caller.enqueue()

    try:
        while_waiting(lambda: claims(port, [caller.secret] * 50, worker_groups=["runners"]), read)
    finally:
        for one in idle:
            one.close()
    print(f"a claim beside them took {', '.join(f'{s * 1000:.0f}' for s in took)} ms")
    assert min(took) < 2


async def _one(port: int, secret: str, path: str, body: dict[str, Any]) -> Asked:
    return await (await ask(port, secret, path, body)).answer()


def test_who_is_gone_while_it_waits_claims_nothing(port, caller):
    """C31, case-H05: its place is free for another, and the job goes to who is there."""
    async def asking() -> list[Asked]:
        gone = await claims(port, [caller.secret] * 60)
        await asyncio.sleep(SETTLED_S)
        full = await _one(port, caller.secret, "/runtime/claim", {"wait_seconds": 5})
        assert (full.status, full.body["code"], full.headers["retry-after"]) == (429, "too_many_connections", "1")
        for one in gone:
            one.vanish()
        await asyncio.sleep(SETTLED_S)
        return await claims(port, [caller.secret])

    [told] = while_waiting(asking, caller.enqueue)
    assert len(told.body["assignments"]) == 1
    assert Attempt.objects.count() == 1


def test_of_two_that_wait_under_one_name_both_get_the_same(port, caller):
    """C31, D4: one set, whoever is answered first."""
    def enqueue() -> None:
        for _ in range(3):
            caller.enqueue()

    first, second = while_waiting(
        lambda: claims(port, [caller.secret] * 2, request_id="mine", slots=2), enqueue)
    assert first.body["assignments"] == second.body["assignments"] != []
    assert Attempt.objects.count() == len(first.body["assignments"])


def test_a_key_that_is_revoked_while_it_waits_gets_nothing(port, caller):
    """C25: looked at again before each claim for it; the job stays for others."""
    other = Caller("other")

    def revoke() -> None:
        keys.revoke(other.key.prefix)
        caller.enqueue()

    [told] = while_waiting(lambda: claims(port, [other.secret]), revoke)
    assert (told.status, told.body["code"]) == (401, "unauthenticated")
    assert Attempt.objects.count() == 0


def test_a_heartbeat_that_waits_hears_of_a_command_and_of_a_void_claim(port, caller):
    """A54, E5, E8: at once; and when the next one is due in any case."""
    made = caller.enqueue()
    held = caller.claim_one()
    path = f"/assignments/{held['assignment_id']}/extend"

    def beating(seconds: int = 20) -> Any:
        async def asking() -> list[Asked]:
            return [await ask(port, caller.secret, path, {"wait_seconds": seconds})]
        return asking

    began = time.monotonic()
    [told] = while_waiting(beating(), lambda: commands.steer(made["id"], {"to": "left"}, by="user:ann"))
    assert (told.status, [c["payload"] for c in told.body["commands"]]) == (200, [{"to": "left"}])
    # What is unread already is told at once.
    assert asyncio.run(_one(port, caller.secret, path, {"wait_seconds": 20})).body["commands"] != []
    caller.assignment(held, "extend", {"consumed": [c["id"] for c in told.body["commands"]]})
    [told] = while_waiting(beating(2), lambda: None)
    assert (told.status, told.body["commands"], told.body["abort"]) == (200, [], None)
    [told] = while_waiting(beating(), lambda: caller.post(f"/jobs/{made['id']}/controls", {"action": "cancel"}))
    assert (told.status, told.body["code"], told.body["job_status"]) == (409, "stale_claim", "cancelled")
    assert time.monotonic() - began < 20
    check(made["id"])


def test_a_server_that_ends_lets_those_who_wait_go_at_once(caller):
    """C31: with an honest answer, and before its grace is over; what comes later is for another server."""
    async def asking() -> list[Asked]:
        waiting = await claims(port, [caller.secret] * 12)
        # All of them have been read once a later one is answered; how far they are does not matter.
        await _one(port, caller.secret, "/runtime/claim", {})
        return waiting

    with server() as (port, process):
        answers = while_waiting(asking, lambda: process.send_signal(signal.SIGTERM))
        assert {(one.status, one.body["again"], len(one.body["assignments"]), one.headers["connection"])
                for one in answers} == {(200, True, 0, "close")}
        assert process.wait(30) == 0


def test_what_a_killed_server_had_claimed_is_answered_under_its_name_by_another(caller):
    """C31, D4, E14.1: killed between the commit and the answer; `request_id` gets the same jobs, and no others."""
    made = {caller.enqueue()["id"] for _ in range(3)}
    body = {"request_id": "lost", "slots": 2}
    with server(JOBS_FAILPOINTS="api.claimed=kill") as (port, process):
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            asyncio.run(_one(port, caller.secret, "/runtime/claim", body))
        process.wait(30)
    held = {str(pk) for pk in Attempt.objects.values_list("job_id", flat=True)}
    assert len(held) == 2
    told = caller.claim(2, request_id="lost")
    assert {one["job"]["id"] for one in told} == held
    assert {one["job"]["id"] for one in caller.claim(2)} == made - held
    assert caller.assignment(told[0], "complete", {"artifact": {}}).status_code == 200
    assert [one["job"]["id"] for one in caller.claim(2, request_id="lost")] == [told[1]["job"]["id"]]


def test_nobody_waits_in_vain_for_a_wake_that_was_lost(port, caller):
    """C31, DESIGN 5: each line looks by itself now and then."""
    def silently() -> None:
        made = caller.enqueue(delay_s=1)
        until(lambda: Job.objects.get(pk=made["id"]).claims == 1, 20)

    [told] = while_waiting(lambda: claims(port, [caller.secret]), silently)
    assert len(told.body["assignments"]) == 1


def test_those_who_wait_outlast_a_database_that_drops_every_connection(port, caller):
    """C31, case-C09: sixty wait, the listener's connection and all others are cut, and each is served as before."""
    def cut() -> None:
        # Not as a condition: it would be asked before whose database it is, and end what other tests are served by.
        db.rows(f"""SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}
            AND application_name IN ('served', 'jobs live')""")
        for _ in range(60):
            intake.enqueue("outside", {})

    answers = while_waiting(lambda: claims(port, [caller.secret] * 60), cut)
    assert {(one.status, len(one.body["assignments"])) for one in answers} == {(200, 1)}
    assert Attempt.objects.count() == 60
