"""Many claimers at once, with real commits: each job once, no cap exceeded, turns kept, nothing stranded."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction

from jobs import clock
from jobs.models import Attempt, AttemptCap, ClaimLine, DeadLetter, Job
from jobs.outcomes import Released
from jobs.services import cancellation, dead_letters, intake, settlement
from jobs.services.intake import Options, Request, enqueue_many
from jobs.services.recovery import Closing, Repair
from jobs.services.settlement import Locked, Report
from jobs.states import Verb
from jobs.store import due
from jobs.store.claim import Claimed, Claimer, claim
from jobs.store.moves import Moved, apply
from jobs.store.sql import durable
from jobs.store.verbs import Move
from tests import database as db
from tests.driver import Driver, check, claimer, done
from tests.making import limit, tenant_id
from tests.races.threads import LONG, PATIENCE_S, deadlocks, together

WORKERS = 16


def bulk(count: int, **options: object) -> list[str]:
    """So many jobs in one go; options may be functions of the number."""
    def said(n: int) -> Options:
        return Options(**{k: v(n) if callable(v) else v for k, v in options.items()})  # type: ignore[arg-type]

    return [a.id for a in enqueue_many([Request("echo", {"value": str(n)}, said(n)) for n in range(count)])]


def take(by: Claimer, slots: int) -> list[Claimed]:
    return durable(lambda: claim(by, slots)).jobs


def finish(jobs: list[Claimed]) -> None:
    """As a worker does it: what is locked for longer than it waits is asked again, for a minute at most."""
    left, until = [Report(j.id, j.fence, done()) for j in jobs], clock.monotonic() + 60
    settle = settlement.settle
    while left:
        answers = settle(left, "test")
        locked = [report for report, answer in zip(left, answers, strict=True) if isinstance(answer, Locked)]
        assert all(isinstance(a, (Moved, Locked)) and not getattr(a, "repeated", False) for a in answers), answers
        assert not locked or clock.monotonic() < until, locked
        left, settle = locked, settlement.settle_free


@pytest.mark.slow
def test_sixteen_claimers_get_each_job_once(database: None) -> None:
    """E14.1, DESIGN 9: batches of every size, tenants and priorities mixed, and a drain to the end."""
    rounds = 500 if LONG else 60
    ids = bulk(WORKERS * rounds, tenant=lambda n: f"t{n % 7}", priority=lambda n: n % 3)
    before = deadlocks()

    def work(w: int) -> Callable[[], list[Claimed]]:
        def run() -> list[Claimed]:
            by, mine = claimer(), []
            for n in range(rounds):
                jobs = take(by, 1 + (w + n) % 3)
                mine += jobs
                finish(jobs)
            return mine
        return run

    taken = [job for mine in together([work(w) for w in range(WORKERS)]) for job in mine]
    while jobs := take(claimer(), 500):
        taken += jobs
        finish(jobs)
    assert Counter(job.id for job in taken) == Counter(ids)
    assert Job.objects.filter(state="completed", claims=1).count() == len(ids) == Attempt.objects.count()
    assert deadlocks() == before
    for job_id in ids[::97]:
        check(job_id)


@pytest.mark.slow
def test_sixteen_claimers_fight_over_one_job_at_a_time(database: None) -> None:
    """E14.1, issue 2: 500 rounds of a single job, claimed at the same moment by all; one gets it."""
    rounds = 2_000 if LONG else 500
    gate = threading.Barrier(WORKERS)
    put = [""]

    def work(w: int) -> Callable[[], list[int]]:
        def run() -> list[int]:
            by, got = claimer(), []
            for _ in range(rounds):
                if gate.wait(PATIENCE_S) == 0:
                    put[0] = intake.enqueue("echo", {}).id
                gate.wait(PATIENCE_S)
                jobs = take(by, 2)
                got.append(len(jobs))
                finish(jobs)
                gate.wait(PATIENCE_S)
            return got
        return run

    each = together([work(w) for w in range(WORKERS)])
    assert [sum(row) for row in zip(*each, strict=True)] == [1] * rounds


class Watch:
    """Counts what runs by the threads' own word: the only witness that is not the database itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def begin(self, names: list[str]) -> None:
        with self._lock:
            for name in names:
                self.running[name] += 1
                self.most[name] = max(self.most[name], self.running[name])

    def end(self, names: list[str]) -> None:
        with self._lock:
            self.running.subtract(names)


@pytest.mark.slow
def test_no_cap_is_exceeded_while_settles_race_with_claims(database: None) -> None:
    """C9, C11, E14.8, E14.9, issue 2: caps of 1 to 3 and groups, 300 rounds, 0 over; what is free is filled."""
    workers, rounds = 8, 1_000 if LONG else 300
    caps = {f"cap{n}": n for n in (1, 2, 3)}
    for subject, cap in caps.items():
        limit(tenant=subject, tenant_concurrency=cap)
    limit(tenant="grouped", exclusive_group_max=2)
    subjects = [*caps, "grouped"]
    ids = bulk(workers * rounds * 2, tenant=lambda n: subjects[n % 4],
               exclusive_group=lambda n: f"g{n // 4 % 2}" if n % 4 == 3 else None)
    group = dict(Job.objects.values_list("id", "exclusive_group"))
    by_tenant = {tenant_id(s): s for s in subjects}
    watch, before = Watch(), deadlocks()

    def names(jobs: list[Claimed]) -> list[str]:

        return [group[uuid.UUID(j.id)] or by_tenant[j.tenant_id] for j in jobs]

    def work(w: int) -> Callable[[], None]:
        def run() -> None:
            by, held = claimer(), []
            for n in range(rounds):
                jobs = take(by, 1 + (w + n) % 4)
                watch.begin(names(jobs))
                held += jobs
                if (w + n) % 3:
                    # Before the settle: the database may free a place that we still count.
                    watch.end(names(held))
                    finish(held)
                    held = []
            watch.end(names(held))
            finish(held)
        return run

    together([work(w) for w in range(workers)])
    assert {name for name, cap in caps.items() if watch.most[name] > cap} == set()
    assert max(watch.most["g0"], watch.most["g1"]) <= 2
    _drain_quietly(caps, ids)
    assert deadlocks() == before


def _drain_quietly(caps: dict[str, int], ids: list[str]) -> None:
    """One quiet claimer fills exactly what is free until nothing is left: no place was lost in the race."""
    by, repair = claimer(), Repair()
    places = {(tenant_id(name), None): cap for name, cap in caps.items()}
    places |= {(tenant_id("grouped"), group): 2 for group in ("g0", "g1")}
    assert AttemptCap.objects.count() == 0
    while Job.objects.filter(state="queued").exists():
        waiting = Counter(Job.objects.filter(state="queued").values_list("tenant_id", "exclusive_group"))
        jobs: list[Claimed] = []
        for _ in range(4):
            jobs += take(by, 50)
            repair.tick()
        assert len(jobs) == sum(min(places[name], count) for name, count in waiting.items())
        finish(jobs)
    assert Job.objects.filter(state="completed").count() == len(ids)


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_turns_are_kept_within_one_round_a_claimer(database: None, workers: int) -> None:
    """C4, E14.8, DESIGN 5: exact with one claimer, within one round per claimer with W of them."""
    tenants, each = 6, 40
    bulk(tenants * each, tenant=lambda n: f"t{n % tenants}")
    served: Counter[int] = Counter()
    spread: list[int] = []
    lock = threading.Lock()

    def run() -> None:
        by = claimer()
        while jobs := take(by, 1):
            with lock:
                served[jobs[0].tenant_id] += 1
                if max(served.values()) <= each - 1 and len(served) == tenants:
                    spread.append(max(served.values()) - min(served.values()))

    together([run] * workers)
    assert set(served.values()) == {each}
    assert max(spread) <= (1 if workers == 1 else workers + 1), max(spread)


@pytest.mark.slow
def test_an_enqueue_that_races_with_the_closing_of_its_line_is_never_stranded(database: None) -> None:
    """CLAIM: closing takes the bucket lock and looks again; retries, releases and past moments count as well."""
    rounds = 400 if LONG else 60
    stop = threading.Event()

    def close() -> int:
        here, ticks = Closing(), 0
        while not stop.is_set():
            here.tick()
            ticks += 1
        return ticks

    def put(w: int) -> Callable[[], int]:
        def run() -> int:
            try:
                for n in range(rounds):
                    when = {"available_at": clock.now() - timedelta(seconds=1)} if n % 3 == 0 else {}
                    intake.enqueue("echo", {}, tenant=f"t{w}{n % 4}", **when)
            finally:
                with lock:
                    left[0] -= 1
            return rounds
        return run

    def run_jobs() -> int:
        by, count = claimer(), 0
        while left[0] or count < 4 * rounds:
            jobs = take(by, 4)
            for n, job in enumerate(jobs):
                if job.claims == 1 and n % 2:
                    settlement.settle([Report(job.id, job.fence, Released())], "test")
                else:
                    finish([job])
                    count += 1
            if not jobs and not left[0]:
                waiting = Job.objects.filter(state="queued", gate=None).count()
                lines = ClaimLine.objects.count()
                assert waiting == 0 or lines, "jobs wait without a line"
                if waiting == 0:
                    break
        stop.set()
        return count

    lock, left = threading.Lock(), [4]
    together([close, run_jobs, *(put(w) for w in range(4))])
    assert Job.objects.filter(state="completed").count() == 4 * rounds


JOINING: dict[str, tuple[str, Callable[[str], object]]] = {
    "enqueue": ("none", lambda id_: intake.enqueue("echo", {})),
    "enqueue a past moment": (
        "none", lambda id_: intake.enqueue("echo", {}, available_at=clock.now() - timedelta(seconds=1))),
    "enqueue many": ("none", lambda id_: bulk(3, tenant=lambda n: (None, "x", "y")[n])),
    "resume": ("paused", lambda id_: cancellation.resume(id_, by="x")),
    "requeue": ("failed", lambda id_: dead_letters.requeue(DeadLetter.objects.get(job_id=id_), by="x")),
    "release": ("leased", lambda id_: apply([Move(id_, Verb.RELEASE, fence=str(Job.objects.get(pk=id_).attempt_id))])),
    "promote": ("scheduled", lambda id_: due.promote(10)),
}


@pytest.mark.parametrize(("state", "act"), JOINING.values(), ids=JOINING)
def test_a_line_is_not_closed_under_a_transaction_that_needs_it(
        database: None, state: str, act: Callable[[str], object]) -> None:
    """CLAIM: whoever makes a job claimable holds its bucket until the commit; closing only tries."""
    driver = Driver()
    driver.enqueue()
    driver.complete(driver.claim_one())
    job_id = driver.enqueue(delay_s=5 if state == "scheduled" else None)
    match state:
        case "none":
            driver.cancel(job_id)
        case "paused":
            driver.pause(job_id)
        case "failed":
            driver.fail(driver.claim_one(), retryable=False)
        case "leased":
            driver.claim_one()
        case "scheduled":
            db.pass_time(10)
    assert ClaimLine.objects.count() == 1
    with transaction.atomic():
        act(job_id)
        together([Closing().tick])
        assert ClaimLine.objects.filter(tenant_id=tenant_id()).count() == 1
    assert driver.claim(5) != []


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_settle_that_breaks_at_any_statement_frees_nothing_and_keeps_the_claim(
        database: None, nth: int) -> None:
    """case-A18: no cap row lost, no half receipt; the same settle succeeds afterwards."""
    driver = Driver()
    limit(tenant_concurrency=1, exclusive_group_max=1)
    driver.enqueue(exclusive_group="g")
    driver.enqueue(exclusive_group="g")
    job = driver.claim_one()
    before, seen = db.row_hash(job.id), []

    def break_after(execute: object, sql: str, params: object, many: bool, context: object) -> object:
        result = execute(sql, params, many, context)  # type: ignore[operator]
        seen.append(sql)
        if len(seen) == nth:
            raise LookupError
        return result

    with connection.execute_wrapper(break_after), pytest.raises(LookupError):
        finish([job])
    assert db.row_hash(job.id) == before
    assert AttemptCap.objects.count() == 2
    finish([job])
    assert AttemptCap.objects.count() == 0
    driver.claim_one()
