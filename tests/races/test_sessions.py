"""Enqueues of one session key at the same moment, and commands against ends (A15 to A17, E3, case-D04, case-C14)."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable

import pytest
from django.db import transaction

from jobs.errors import JobEnded, JobsError, KeyReused
from jobs.models import Command, Job
from jobs.outcomes import Failed
from jobs.receipts import Kind
from jobs.services import commands, intake, settlement, singletons
from jobs.services.intake import Enqueued, Options, Request
from jobs.services.settlement import Report
from jobs.store import lookup
from jobs.store.claim import claim
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, check, claimer, done, story
from tests.making import tenant_id
from tests.races.threads import LONG, deadlocks, elsewhere, together
from tests.store import noise
from tests.worker.processes import until

ROUNDS = 40 if LONG else 6


def enqueue(mode: str, key: str, **options: object) -> Callable[[], Enqueued]:
    return lambda: intake.enqueue("echo", {}, session_key=key, singleton=mode, **options)


def active(key: str) -> list[str]:
    return [str(pk) for pk in Job.objects.filter(session_key=key, ended_at=None).values_list("pk", flat=True)]


def test_of_twins_that_steer_one_makes_the_job_and_the_others_steer_it(driver: Driver) -> None:
    """A16, E3: whoever comes second waits for the key and then sees the first one's job."""
    for n in range(ROUNDS):
        answers = together([enqueue("steer", f"s{n}")] * 4)
        assert len({a.id for a in answers}) == 1
        assert sorted(a.steered for a in answers) == [False, True, True, True]
        assert Command.objects.filter(job_id=answers[0].id).count() == 3
        check(answers[0].id)


def test_of_twins_that_cancel_one_is_left(driver: Driver) -> None:
    """A15, E3: never two, never none."""
    for n in range(ROUNDS):
        answers = together([enqueue("cancel", f"s{n}")] * 4)
        assert len({a.id for a in answers}) == 4
        assert len(active(f"s{n}")) == 1
        ended = Job.objects.filter(session_key=f"s{n}").exclude(ended_at=None)
        assert {(job.state, job.reason) for job in ended} == {("cancelled", "singleton_cancel")}
        for answer in answers:
            check(answer.id)


@pytest.mark.parametrize("mode", ["cancel", "steer"])
def test_a_twin_does_not_cancel_or_steer_what_its_own_request_made(driver: Driver, mode: str) -> None:
    """E3.2, E14.5, case-D04: the look-up again, once the key is ours."""
    for n in range(ROUNDS):
        answers = together([enqueue(mode, f"s{n}", idempotency_key=f"k{n}")] * 4)
        assert len({a.id for a in answers}) == 1
        assert sorted(a.repeated for a in answers) == [False, True, True, True]
        assert active(f"s{n}") == [answers[0].id]
    assert Command.objects.count() == 0


def test_one_without_a_singleton_waits_for_nobody_and_comes_after(driver: Driver) -> None:
    """E3: a cancel stops what there was when it looked; an enqueue beside it could as well have come after it."""
    first = driver.enqueue("echo", session_key="s")
    with transaction.atomic():
        new = enqueue("cancel", "s")().id
        [beside] = together([enqueue("allow", "s")])
    assert (driver.state(first), driver.state(new), driver.state(beside.id)) == ("cancelled", "queued", "queued")


@pytest.mark.parametrize("mode", ["cancel", "steer"])
def test_who_has_locked_a_keys_jobs_waits_for_none_that_came_since(driver: Driver, mode: str) -> None:
    """DESIGN 4, E3, case-C14: its id may be older than one of ours, and whoever holds it may wait for that one."""
    mine, tenant = driver.enqueue("echo", session_key="s"), tenant_id()
    row = {"tenant_id": tenant, "session_key": "s", "singleton": mode, "input": "{}", "idempotency_key": None,
           "external_id": None, "fingerprint": b""}
    with transaction.atomic():
        lookup.lock_active([], [(tenant, "s")])
        [late] = together([enqueue("allow", "s")])
        with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", late.id):
            noise.execute("SET LOCAL lock_timeout = '5s'")
            steered = singletons.act(row, "test", True)
    assert steered == (mine if mode == "steer" else None)
    assert driver.state(mine) == ("queued" if mode == "steer" else "cancelled")
    assert driver.state(late.id) == "queued"


def test_a_steer_and_the_end_of_its_job_come_in_one_order(driver: Driver) -> None:
    """A16: it is told before the end, or a new job is made; never told to what has ended."""
    met = set()
    for n in range(4 * ROUNDS):
        driver.enqueue("echo", session_key=f"s{n}", priority=9)
        job = driver.claim_one()
        answer, _ = together([enqueue("steer", f"s{n}"),
                              lambda job=job: settlement.settle([Report(job.id, job.fence, done())], "test")])
        kinds = [r.kind for r in story(job.id)]
        assert answer.steered == (Kind.COMMAND in kinds) == (answer.id == job.id)
        assert not answer.steered or kinds.index(Kind.COMMAND) < kinds.index(Kind.COMPLETED)
        assert len(active(f"s{n}")) == (0 if answer.steered else 1)
        met.add(answer.steered)
        check(job.id)
    assert met


def test_a_command_and_the_end_of_its_job_come_in_one_order(driver: Driver) -> None:
    """A54, E1: told and unread, or refused as ended; an abort is honoured, or too late."""
    for n in range(2 * ROUNDS):
        driver.enqueue()
        job = driver.claim_one()
        kind = ("steer", "abort")[n % 2]

        def send(job_id: str = job.id, kind: str = kind) -> object:
            try:
                return commands.send(job_id, kind, by="user:test")
            except JobEnded as refusal:
                return refusal

        failed = Report(job.id, job.fence, Failed("broken", retryable=False))
        sent, _ = together([send, lambda failed=failed: settlement.settle([failed], "test")])
        check(job.id)
        told = Command.objects.filter(job_id=job.id)
        assert len(told) == (0 if isinstance(sent, JobEnded) else 1)
        if kind == "abort" and told:
            assert (driver.state(job.id), told[0].consumed_at is not None) == ("cancelled", True)
        else:
            assert driver.state(job.id) == "failed"


def test_a_command_is_consumed_once_by_two_threads_of_a_handler(driver: Driver) -> None:
    """E12: one receipt names it."""
    for _ in range(ROUNDS):
        driver.enqueue()
        job = driver.claim_one()
        ids = [str(commands.steer(job.id, by="user:test").command) for _ in range(3)]
        counts = together([lambda job=job, ids=ids: commands.consume(job.id, job.fence, ids, "test")] * 3)
        assert sorted(counts) == [0, 0, 3]
        assert [r.kind for r in story(job.id)].count(Kind.CONSUMED) == 1
        check(job.id)


def test_the_same_key_at_the_same_moment_is_one_command(driver: Driver) -> None:
    """E6, case-D04: to one job a repeat; to two jobs one of them, and the other is refused, never a 5xx."""
    ids = [driver.enqueue(), driver.enqueue()]

    def send(job_id: str, key: str) -> Callable[[], object]:
        def work() -> object:
            try:
                return commands.steer(job_id, {"n": 1}, by="user:test", idempotency_key=key)
            except JobsError as refusal:
                return refusal
        return work

    for n in range(ROUNDS):
        same = together([send(ids[0], f"a{n}")] * 3)
        assert sorted(s.repeated for s in same) == [False, True, True]  # type: ignore[attr-defined]
        two = together([send(id_, f"b{n}") for id_ in ids])
        assert sorted(isinstance(s, KeyReused) for s in two) == [False, True]
    assert Command.objects.count() == 2 * ROUNDS
    for id_ in ids:
        check(id_)


@pytest.mark.parametrize("kinds", [("session", "session"), ("session", "target")])
def test_a_batch_locks_all_jobs_before_it_ends_the_first(driver: Driver, kinds: tuple[str, str]) -> None:
    """case-C14, DESIGN 4: by id, as whoever settles them does, though its requests come the other way round."""
    def options(n: int) -> dict[str, str]:
        return {"session_key": f"s{n}"} if kinds[n] == "session" else {"target": "t"}

    ids = [driver.enqueue("echo", **options(n)) for n in (1, 0)]
    lock = "SELECT 1 FROM jobs_job WHERE id = '{}' FOR NO KEY UPDATE"
    asked = [Request("echo", {}, Options(**options(n), singleton="cancel" if kinds[n] == "session" else None))
             for n in (0, 1)]
    batch = threading.Thread(target=lambda: together([lambda: intake.enqueue_many(asked)]))
    with elsewhere(lock.format(ids[0]), after=lock.format(ids[1])):
        batch.start()
        until(lambda: db.rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                              " AND wait_event_type = 'Lock'"))
    batch.join(60)
    assert {driver.state(ids[0]), driver.state(ids[1])} <= {"cancelled", "superseded"}
    for id_, in Job.objects.values_list("id"):
        check(id_)


@pytest.mark.slow
def test_singletons_commands_claims_and_settles_over_the_same_rows_do_not_deadlock(driver: Driver) -> None:
    """case-C14, DESIGN 4: 0 deadlocks, no error but refusals, and every story is whole."""
    before, keys, rounds = deadlocks(), ["a", "b", "c"], 60 if LONG else 12

    def enqueuer(seed: int) -> Callable[[], None]:
        def run() -> None:
            draw = random.Random(seed)
            for _ in range(rounds):
                asked = [Request("echo", {}, Options(
                    session_key=draw.choice(keys), singleton=draw.choice(["allow", "cancel", "steer"]),
                    target=draw.choice([None, None, "t"]), idempotency_key=uuid.uuid4().hex))
                    for _ in range(draw.choice([1, 1, 3]))]
                intake.enqueue_many(asked)
        return run

    def runner(seed: int) -> Callable[[], None]:
        def run() -> None:
            draw, by = random.Random(seed), claimer()
            for _ in range(rounds):
                jobs = durable(lambda: claim(by, 4)).jobs
                for job in jobs:
                    found = commands.unread([job.id], fence=job.fence).get(job.id, [])
                    try:
                        commands.consume(job.id, job.fence, [c.id for c in found], "test")
                    except JobsError:
                        continue
                draw.shuffle(jobs)
                ends = [draw.choice([done(), Failed("broken")]) for _ in jobs]
                settlement.settle([Report(j.id, j.fence, end) for j, end in zip(jobs, ends, strict=True)], "test")
        return run

    together([enqueuer(1), enqueuer(2), runner(3), runner(4)])
    assert deadlocks() == before
    assert Job.objects.count() > rounds
    for job_id, in Job.objects.values_list("id"):
        check(job_id)
