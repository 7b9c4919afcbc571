"""Commands to handlers: on the loop, in a thread and in a child, and within a quarter of a second (A6, DESIGN 6)."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
import uuid
from typing import Any

import pytest

from jobs import clock
from jobs.conf import registry
from jobs.errors import StaleFence
from jobs.models import Artifact, Command
from jobs.outcomes import Interrupted, Stopped
from jobs.services import commands
from jobs.services.assignments import Claimed
from jobs.worker.away import Away
from jobs.worker.connection import close_all
from jobs.worker.context import Run
from jobs.worker.heartbeat import Heartbeats
from jobs.worker.inbox import Inbox
from jobs.worker.output import Silent
from jobs.worker.slots import Slots
from tests.driver import check
from tests.races.threads import together
from tests.worker.processes import until

TYPES = ("obeys", "obeys-thread", "obeys-apart")
TIMES = 5


def test_a_listening_worker_hands_a_command_to_its_handler_within_a_quarter_of_a_second(isolating, jobs, tmp_path):
    """A6, E5, DESIGN 6: by notification, though it polls each five seconds; consumed once each, with its receipt.

    An abort interrupts the wait of each alike, and ends as cancelled (A35, B26).
    """
    isolating(slots=4, env={"JOBS_POLL_S": "5"})
    ids = {type_: jobs.add(type_, path=str(tmp_path / type_), count=TIMES) for type_ in TYPES}
    for type_ in TYPES:
        until((tmp_path / type_).exists)
    sent: dict[str, list[float]] = {type_: [] for type_ in TYPES}
    for n in range(TIMES):
        for type_, job_id in ids.items():
            command = commands.send(job_id, ("steer", "follow_up")[n % 2], {"n": n}, by="user:test").command
            sent[type_].append(time.time())
            until(lambda command=command: Command.objects.filter(pk=command).exclude(consumed_at=None))
    for type_, job_id in ids.items():
        jobs.wait(job_id, "completed")
        read = [line.split() for line in json.loads(Artifact.objects.get(job_id=job_id).value)]
        assert [(kind, int(n)) for kind, n, _ in read] == [(("steer", "follow_up")[n % 2], n) for n in range(TIMES)]
        took = sorted(float(heard) - at for at, (_, _, heard) in zip(sent[type_], read, strict=True))
        assert took[TIMES // 2] < 0.25, (type_, took)
    for type_ in TYPES:
        path = tmp_path / f"{type_}-aborted"
        job_id = jobs.add(type_, path=str(path))
        until(path.exists)
        commands.abort(job_id, by="user:test")
        at = time.time()
        job = jobs.wait(job_id, "cancelled")
        assert (job.reason, jobs.outcomes(job_id), time.time() - at < 5) == ("abort_requested", ["cancelled"], True)


def run_of(job: Claimed, kind: type[Run] = Run) -> Run:
    """The run of a claimed job, as its handler gets it."""
    definition = registry().find(job.type, job.version)
    assert definition is not None
    return kind(job, definition, "worker:test")


def test_each_command_is_handed_out_once_an_attempt_until_it_is_consumed(driver):
    """A6, A17, E12: what a lost worker had read and not dealt with is its successor's; a void claim reads nothing."""
    driver.enqueue()
    job = driver.claim_one()
    run = run_of(job)
    assert run.commands() == []
    ids = [driver.send(job.id, "steer", {"n": n}).command for n in range(2)]
    first, second = run.commands()
    assert ([first.id, second.id], first.payload, first.by) == (ids, {"n": 0}, "user:test")
    assert (run.commands(), run.consume(first), run.consume(first, first.id)) == ([], 1, 0)
    driver.interrupt(job)
    driver.pass_time(60)
    assert run.commands() == []
    with pytest.raises(StaleFence):
        run.consume(second)
    successor = run_of(driver.claim_one())
    assert [c.id for c in successor.commands()] == ids[1:]
    assert (successor.consume(*ids), successor.consume()) == (1, 0)
    check(job.id)


def test_whoever_waits_is_woken_by_news_and_by_a_stop_and_else_by_the_time(driver):
    """A6, B26: the event is asked for before the look, so that nothing falls between."""
    driver.enqueue()
    job = driver.claim_one()
    run = run_of(job)
    assert run.commands(0.01) == []

    def speak() -> None:
        driver.send(job.id, "steer")
        run.heard()

    at = time.monotonic()
    heard, _ = together([lambda: run.commands(60), speak])
    assert (len(heard), time.monotonic() - at < 30) == (1, True)
    stopped, _ = together([lambda: run.commands(60), lambda: run.stop("abort_requested")])
    assert (stopped, run.stopping, time.monotonic() - at < 30) == ([], True, True)


def test_of_several_threads_that_wait_each_is_woken_by_the_stop(driver, monkeypatch):
    """B26: one that looks again meanwhile takes no other's ring."""
    driver.enqueue()
    run = run_of(driver.claim_one())
    at = time.monotonic()
    both = threading.Barrier(2)
    look = Inbox.read

    def slowly(inbox: Inbox) -> list[commands.Command]:
        found = look(inbox)
        if not run.stopping:
            # Both have looked, and neither waits yet: now it is said, and one of them looks again.
            both.wait(30)
            run.stop("abort_requested")
        return found

    monkeypatch.setattr(Inbox, "read", slowly)
    assert together([lambda: run.commands(60), lambda: run.commands(60)]) == [[], []]
    assert time.monotonic() - at < 30


def test_commands_that_were_read_for_a_wait_that_was_cancelled_are_handed_out_by_the_next(driver, monkeypatch):
    """A6: `asyncio.wait_for(run.acommands(60), 1)` loses none, wherever it is cut off."""
    driver.enqueue()
    job = driver.claim_one()
    run = run_of(job)
    sent = driver.send(job.id, "steer").command
    look = Inbox._unread

    async def waits() -> list[commands.Command]:
        begun, goes_on = threading.Event(), threading.Event()

        def slowly(inbox: Inbox) -> list[commands.Command]:
            begun.set()
            goes_on.wait(30)
            try:
                return look(inbox)
            finally:
                close_all()

        monkeypatch.setattr(Inbox, "_unread", slowly)
        task = asyncio.ensure_future(run.acommands(60))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run.acommands(30)

    assert [c.id for c in asyncio.run(waits())] == [sent]


def test_news_goes_to_a_child_that_has_the_job(driver):
    """One that waits for a child reads what there is when it begins."""
    driver.enqueue()
    run = run_of(driver.claim_one(), Away)
    assert isinstance(run, Away)
    told: list[Any] = []
    run.tell = told.append
    run.heard()
    assert told == []
    run.handed_out()
    run.heard()
    run.stop("enough")
    assert told == [{"heard": True}, {"stop": "enough"}]


def test_an_attempt_that_has_settled_itself_is_not_taken_for_lost(driver):
    """A2: between its commit and its word of it, a child's atomic job is over and no claim of anybody else's."""
    lost = []
    for complete in (True, False):
        job = driver.claim_one() if driver.enqueue("patient", {"seconds": 60}) else None
        slots = Slots(1, driver.claimer.by, lambda: None)
        try:
            slots.begin([(job, registry().find(job.type, job.version))])
            [live] = slots.live.values()
            beats = Heartbeats(slots, uuid.UUID(driver.claimer.worker_id), driver.claimer.by, lost.append, Silent())
            driver.start(job)
            driver.complete(job) if complete else driver.fail(job)
            beats._look([live])
            beats._renew([live], math.inf)
            assert (live.verdict, lost) == ((None, []) if complete else (Interrupted("claim_lost"), [live]))
            live.run.note_settled()
            slots.stop(live, "over", Stopped("over"))
            until(lambda slots=slots: slots.ended)
        finally:
            slots.close()


def test_an_attempt_too_young_for_a_look_is_looked_at_soon_after(driver):
    """A35, E5: an abort in its first moments is no later than any other, and not the next heartbeat's."""
    driver.enqueue("patient", {"seconds": 60})
    job = driver.claim_one()
    slots = Slots(1, driver.claimer.by, lambda: None)
    try:
        definition = registry().find(job.type, job.version)
        slots.begin([(job, definition)])
        [live] = slots.live.values()
        beats = Heartbeats(slots, uuid.UUID(driver.claimer.worker_id), driver.claimer.by, lambda live: None, Silent())
        live.begun = clock.monotonic() + 5
        driver.send(job.id, "abort")
        beats._peek()
        assert live.verdict is None
        beats._peeked -= 1
        beats._tick()
        assert live.verdict == Stopped("abort_requested")
        until(lambda: slots.ended)
    finally:
        slots.close()
