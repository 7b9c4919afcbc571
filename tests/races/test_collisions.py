"""Everybody at the same rows: settle, cancel, pause, supersede, recovery, requeue, bulk enqueue; and twins."""

from __future__ import annotations

import contextlib
import random
import threading
import uuid
from collections.abc import Callable

import pytest
from django.db import OperationalError, transaction

from jobs.errors import JobsError
from jobs.models import AttemptCap, DeadLetter, Job, Target
from jobs.outcomes import Failed, Interrupted, Outcome, Released
from jobs.services import assignments, cancellation, dead_letters, intake, recovery, settlement
from jobs.services.intake import Options, Request, enqueue_many
from jobs.services.recovery import Closing, Repair
from jobs.services.settlement import Report
from jobs.store.claim import claim
from jobs.store.moves import Moved
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, check, claimer, done, quiet_recovery
from tests.making import limit, tenant_id
from tests.races.threads import LONG, deadlocks, together

OUTCOMES: list[Outcome] = [
    done(),
    Failed("attempt_error"),
    Failed("attempt_error", retryable=False),
    Released(),
    Interrupted(),
]


def test_the_witness_of_deadlocks_sees_one(database: None) -> None:
    """case-C14: two transactions that lock two tenants crosswise; else a count of 0 would prove nothing."""
    ids, met, before = [tenant_id("a"), tenant_id("b")], threading.Barrier(2), deadlocks()

    def cross(first: int, second: int) -> None:
        with transaction.atomic():
            db.rows("SELECT 1 FROM jobs_tenant WHERE id = %s FOR UPDATE", first)
            met.wait(30)
            db.rows("SELECT 1 FROM jobs_tenant WHERE id = %s FOR UPDATE", second)

    with pytest.raises(OperationalError, match="deadlock"):
        together([lambda: cross(*ids), lambda: cross(*ids[::-1])])
    assert deadlocks() == before + 1


def quietly(work: Callable[[], object]) -> None:
    """A refusal is an answer; anything else comes out."""
    with contextlib.suppress(JobsError):
        work()


@pytest.mark.slow
def test_nobody_deadlocks_over_the_same_rows_and_every_story_is_whole(database: None) -> None:
    """case-C14, case-A11, DESIGN 4: 0 deadlocks, no error but refusals, fold == row and no cap row left behind."""
    rounds = 200 if LONG else 30
    limit(tenant_concurrency=6, exclusive_group_max=2)
    ids = [
        a.id
        for a in enqueue_many(
            [
                Request("echo", {"value": str(n)}, Options(exclusive_group=f"g{n % 3}" if n % 2 else None))
                for n in range(60)
            ]
        )
    ]
    before = deadlocks()

    def runner(seed: int) -> Callable[[], None]:
        def run() -> None:
            draw, by = random.Random(seed), claimer()
            for _ in range(rounds * 2):
                jobs = durable(lambda: claim(by, 4)).jobs
                draw.shuffle(jobs)
                assignments.extend([j.fence for j in jobs])
                assignments.start([(j.id, j.fence) for j in jobs[:2]], "test")
                outcome = draw.choice(OUTCOMES)
                settlement.settle(
                    [Report(j.id, j.fence, done() if draw.random() < 0.5 else outcome) for j in jobs], "test"
                )

        return run

    def people(seed: int) -> Callable[[], None]:
        def run() -> None:
            draw = random.Random(seed)
            for _ in range(rounds):
                some = draw.sample(ids, 8)
                cancellation.cancel_many(some[:3], by="user:x")
                quietly(lambda some=some: cancellation.pause(some[3], by="user:x"))
                quietly(lambda some=some: cancellation.resume(some[3], by="user:x"))
                quietly(lambda some=some: cancellation.pause(some[4], by="user:x"))
                quietly(lambda some=some: cancellation.resume(some[4], by="user:x"))
                for letter in DeadLetter.objects.filter(resolved_at=None)[:3]:
                    quietly(lambda letter=letter: dead_letters.requeue(letter, by="user:x"))
        return run

    def callers(seed: int) -> Callable[[], None]:
        def run() -> None:
            for n in range(rounds):
                enqueue_many([Request("echo", {"value": f"{seed}.{n}.{k}"}, Options(
                    target=f"t{k % 4}" if k < 4 else None, exclusive_group=f"g{k % 3}")) for k in range(8)])
        return run

    def keepers() -> None:
        recover, repair, closing = quiet_recovery(), Repair(), Closing()
        for _ in range(rounds):
            db.rows("UPDATE jobs_attempt SET lease_until = '2001-01-01' WHERE id IN (SELECT id FROM jobs_attempt"
                    " WHERE ended_at IS NULL ORDER BY random() LIMIT 2 FOR NO KEY UPDATE SKIP LOCKED) RETURNING 1")
            recover.run()
            repair.tick()
            closing.tick()
            recovery.promote()
            recovery.deadlines()

    together([runner(1), runner(2), runner(3), people(4), people(5), callers(6), callers(7), keepers, keepers])
    assert deadlocks() == before
    _let_all_end()
    for job in Job.objects.all():
        check(job.pk)


def _let_all_end() -> None:
    """Afterwards every job that still waits can be run to its end: no place, line or gate was lost."""
    by, repair, recover, idle = claimer(), Repair(), quiet_recovery(), 0
    db.pass_time(10_000)
    recover.run()
    while idle < 3:
        while recovery.promote():
            pass
        repair.tick()
        jobs = durable(lambda: claim(by, 50)).jobs
        settlement.settle([Report(j.id, j.fence, done()) for j in jobs], "test")
        idle = 0 if jobs else idle + 1
    assert not Job.objects.filter(state__in=["queued", "leased", "running"]).exists()
    assert AttemptCap.objects.count() == 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_batch_is_settled_while_the_same_jobs_are_cancelled_in_another_order(database: None, order: int) -> None:
    """DESIGN 4, case-A11: each job has one winner, and nobody is a deadlock's victim."""
    before = deadlocks()
    for _ in range(20 if LONG else 6):
        enqueue_many([Request("echo", {"value": str(n)}) for n in range(400)])
        jobs = durable(lambda: claim(claimer(), 400)).jobs
        reports = [Report(j.id, j.fence, done()) for j in jobs]
        settled, cancelled = together([
            lambda reports=reports: settlement.settle(reports[::order], "test")[::order],
            lambda jobs=jobs: cancellation.cancel_many([j.id for j in jobs], by="user:x")])
        states = dict(Job.objects.values_list("id", "state"))
        for job, mine, theirs in zip(jobs, settled, cancelled, strict=True):
            state = states[uuid.UUID(job.id)]
            assert isinstance(mine, Moved) == (state == "completed")
            assert isinstance(theirs, Moved) == (state == "cancelled")
    assert deadlocks() == before


@pytest.mark.parametrize("rival", ["cancel", "pause", "supersede", "lapse", "settle"])
def test_a_settle_and_its_rival_have_one_winner(database: None, rival: str) -> None:
    """case-A11, E14.1, E14.2, E14.6: the loser is refused and has changed nothing."""
    driver = Driver()
    for n in range(30 if LONG else 10):
        driver.enqueue(target=f"t{n}")
        job = driver.claim_one()
        if rival == "lapse":
            db.rows("UPDATE jobs_attempt SET lease_until = '2001-01-01' WHERE id = %s RETURNING 1", job.fence)
        acts: dict[str, Callable[[], object]] = {
            "cancel": lambda job=job: cancellation.cancel(job.id, by="x"),
            "pause": lambda job=job: cancellation.pause(job.id, by="x"),
            "supersede": lambda n=n: intake.enqueue("echo", {}, target=f"t{n}", delay_s=1_000),
            "lapse": lambda: quiet_recovery().run(),
            "settle": lambda job=job: settlement.settle(
                [Report(job.id, job.fence, Failed("x", retryable=False))], "test"
            ),
        }
        together([lambda job=job: settlement.settle([Report(job.id, job.fence, done())], "test"),
                  lambda act=acts[rival]: quietly(act)])
        view = check(job.id)
        assert (view.claims, view.revision) == (1, 3), "exactly one of both has moved the job"
        quietly(lambda job=job: cancellation.cancel(job.id, by="x"))


@pytest.mark.parametrize(
    "words",
    [
        {"idempotency_key": "k"},
        {"job_id": "mine"},
        {"idempotency_key": "k", "target": "t"},
        {"idempotency_key": "k", "job_id": "mine", "tenant": "new"},
    ],
)
def test_thirty_two_twins_make_one_job(database: None, words: dict[str, str]) -> None:
    """E6, E14.5: two requests at the same moment make one job; the others are repeats of it."""
    for n in range(4 if LONG else 2):
        said = {k: f"{v}{n}" for k, v in words.items()}
        answers = together([lambda said=said: intake.enqueue("echo", {"value": "x"}, **said)] * 32)
        assert len({a.id for a in answers}) == 1
        assert sorted(a.repeated for a in answers) == [False] + [True] * 31
        assert check(answers[0].id).state == "queued"
    assert Job.objects.count() == n + 1
    assert set(Target.objects.values_list("generation", flat=True)) <= {1}


def test_two_requests_with_one_key_and_two_bodies_make_one_job(database: None) -> None:
    """B15, E6: the loser is refused with a code and not with a database error."""
    for n in range(20):
        answers = together([lambda n=n, v=v: refused_or_made({"value": v}, f"k{n}") for v in ("a", "b")])
        assert sorted(answers) == ["idempotency_key_reused", "made"]
    assert Job.objects.count() == 20


def refused_or_made(input_: dict[str, str], key: str) -> str:
    try:
        intake.enqueue("echo", input_, idempotency_key=key)
    except JobsError as error:
        return error.reason_code
    return "made"


def test_requests_for_one_target_at_the_same_moment_stand_in_line(database: None) -> None:
    """B16, E14.6: generations 1 to n without a gap, and exactly one active: the newest."""
    for n in range(10 if LONG else 4):
        answers = together([lambda n=n: intake.enqueue("echo", {}, target=f"t{n}").id] * 8)
        jobs = Job.objects.filter(pk__in=answers).order_by("generation")
        assert [job.generation for job in jobs] == list(range(1, 9))
        assert [job.state for job in jobs] == ["superseded"] * 7 + ["queued"]
        assert Target.objects.get(key=f"echo:t{n}").generation == 8
        for job in jobs:
            check(job.pk)


def test_batches_that_name_the_same_targets_in_another_order_stand_in_line(database: None) -> None:
    """DESIGN 4, case-C14: all targets of a batch first, then all their jobs by id; holders settle meanwhile."""
    before = deadlocks()
    targets = [f"t{k}" for k in range(6)]

    def ask(order: list[str]) -> Callable[[], None]:
        def run() -> None:
            for n in range(40 if LONG else 12):
                enqueue_many([Request("echo", {"value": str(n)}, Options(target=t)) for t in order])
        return run

    def work() -> None:
        by = claimer()
        for _ in range(60 if LONG else 20):
            jobs = durable(lambda: claim(by, 6)).jobs
            settlement.settle([Report(j.id, j.fence, Failed("attempt_error")) for j in jobs[::-1]], "test")

    together([ask(targets), ask(targets[::-1]), ask(targets[3:] + targets[:3]), work, work])
    assert deadlocks() == before
    for target in Target.objects.all():
        jobs = Job.objects.filter(target=target).order_by("generation")
        assert [j.generation for j in jobs] == list(range(1, target.generation + 1))
        assert [j.state for j in jobs[: len(jobs) - 1]] == ["superseded"] * (len(jobs) - 1)


def test_batches_with_the_same_keys_in_another_order_make_each_job_once(database: None) -> None:
    """E6, E14.5, case-C14: the inserts of one batch wait for those of the other in one order."""
    before = deadlocks()
    for n in range(10 if LONG else 4):
        requests = [Request("echo", {"value": "x"}, Options(idempotency_key=f"k{n}.{k}")) for k in range(300)]
        there, back = together([lambda r=requests: enqueue_many(r), lambda r=requests: enqueue_many(r[::-1])])
        assert [a.id for a in there] == [a.id for a in back[::-1]]
        assert all(a.repeated != b.repeated for a, b in zip(there, back[::-1], strict=True))
    assert deadlocks() == before
    first = [str(i) for i in Job.objects.order_by("id").values_list("id", flat=True)]
    assert [j.id for j in durable(lambda: claim(claimer(), 50)).jobs] == first[:50]


def test_a_letter_is_answered_once(database: None) -> None:
    """C28, C29: requeue and discard at the same moment; one of them finds no letter."""
    driver = Driver()
    for _ in range(10):
        job_id = driver.enqueue()
        driver.fail(driver.claim_one(), retryable=False)
        letter = DeadLetter.objects.get(job_id=job_id)

        def answer(verb: Callable[..., object], letter: DeadLetter = letter) -> str:
            try:
                verb(letter, by="user:x")
            except JobsError as error:
                return error.reason_code
            return "done"

        answers = together([lambda v=v: answer(v) for v in (dead_letters.requeue, dead_letters.discard) * 2])
        assert sorted(answers) == ["done"] + ["not_dead_lettered"] * 3
        check(job_id)
        quietly(lambda job_id=job_id: cancellation.cancel(job_id, by="x"))
