"""Verbs of the holder commit by themselves, and a batch that the database refuses is settled one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DataError, OperationalError, transaction

from jobs.services import assignments, progress, recovery, settlement
from jobs.services.settlement import Report
from jobs.store import moves, sql
from jobs.store.moves import Moved
from jobs.store.sql import NotInTransaction
from tests import database as db
from tests.driver import Driver, done, quiet_recovery, refused

HOLDERS: dict[str, Callable[[Any, Any], object]] = {
    "claim": lambda driver, job: assignments.take(driver.claimer, 1),
    "settle": lambda driver, job: settlement.settle([Report(job.id, job.fence, done())], "test"),
    "settle and claim": lambda driver, job: settlement.settle_and_claim([], "test", driver.claimer, 1),
    "extend": lambda driver, job: assignments.extend([job.fence]),
    "start": lambda driver, job: assignments.start([(job.id, job.fence)], "test"),
    "spoil": lambda driver, job: settlement.spoil(job.id, job.fence, "no", "test"),
    "checkpoint": lambda driver, job: progress.checkpoint(job.id, job.fence, 1, {}, "test"),
    "promote": lambda driver, job: recovery.promote(),
    "deadlines": lambda driver, job: recovery.deadlines(),
    "repair": lambda driver, job: recovery.Repair().tick(),
    "close": lambda driver, job: recovery.Closing().tick(),
}


@pytest.mark.parametrize("verb", HOLDERS.values(), ids=HOLDERS)
def test_a_holders_verb_refuses_to_hide_in_somebody_elses_transaction(
        driver: Driver, verb: Callable[[Any, Any], object]) -> None:
    """DESIGN 4: NotInTransaction, and no row changes."""
    driver.enqueue("staged")
    job = driver.claim_one()
    other = driver.enqueue()
    before = (db.row_hash(job.id), db.row_hash(other))
    with transaction.atomic(), pytest.raises(NotInTransaction) as refusal:
        verb(driver, job)
    assert refusal.value.code == "not_in_transaction"
    assert (db.row_hash(job.id), db.row_hash(other)) == before


def test_recovery_is_durable_too(driver: Driver) -> None:
    """DESIGN 4, E3.4."""
    driver.enqueue()
    driver.claim_one()
    driver.pass_time(60)
    with transaction.atomic(), pytest.raises(NotInTransaction):
        quiet_recovery().run()
    assert quiet_recovery().run() == 1


class Deadlock(Exception):
    sqlstate = "40P01"


class Broken(Exception):
    sqlstate = "57014"


def failing(error: type[Exception], times: int) -> tuple[Callable[[], str], list[int]]:
    """Work that fails so often by this database error before it answers."""
    tried: list[int] = []

    def work() -> str:
        tried.append(1)
        if len(tried) <= times:
            raise OperationalError("undone") from error()
        return "done"

    return work, tried


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(sql.clock, "sleep", waits.append)
    return waits


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_deadlock_is_tried_again_up_to_five_times(database: None, no_waiting: list[float], times: int) -> None:
    """DESIGN 4, case-C14: with growing pauses."""
    work, tried = failing(Deadlock, times)
    assert sql.durable(work) == "done"
    assert len(tried) == times + 1
    assert no_waiting == sorted(no_waiting)
    assert len(no_waiting) == times


def test_after_five_times_the_deadlock_comes_out(database: None, no_waiting: list[float]) -> None:
    """DESIGN 4."""
    work, tried = failing(Deadlock, 99)
    with pytest.raises(OperationalError):
        sql.durable(work)
    assert len(tried) == 6


def test_other_trouble_is_not_tried_again(database: None, no_waiting: list[float]) -> None:
    """A36: transient errors only."""
    work, tried = failing(Broken, 99)
    with pytest.raises(OperationalError):
        sql.durable(work)
    assert (len(tried), no_waiting) == (1, [])


def test_one_refused_settlement_is_no_neighbours_fault(
        driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """DESIGN 4, A62: a batch that fails for one member's sake is settled one by one; why is for the log alone."""
    for _ in range(3):
        driver.enqueue()
    jobs = driver.claim(3)
    real = moves.apply

    def refuse_one(wishes: Any, **more: Any) -> Any:
        if any(m.job_id == jobs[1].id for m in wishes):
            raise DataError("this one cannot be stored")
        return real(wishes, **more)

    monkeypatch.setattr(settlement, "apply", refuse_one)
    answers = settlement.settle([Report(j.id, j.fence, done()) for j in jobs], "test")
    assert isinstance(answers[0], Moved)
    assert isinstance(answers[2], Moved)
    refused(answers[1], "settlement_refused")
    assert "cannot be stored" not in str(answers[1])
    assert "this one cannot be stored" in caplog.text
    assert driver.state(jobs[1].id) == "leased"
    assert "settling one by one" in caplog.text


def test_a_settle_comes_before_the_claim_of_the_same_transaction(driver: Driver) -> None:
    """DESIGN 5: the place that an attempt held is free for the next job at once."""
    from tests.making import limit

    limit(tenant_concurrency=1)
    driver.enqueue()
    second = driver.enqueue()
    job = driver.claim_one()
    answers, batch = settlement.settle_and_claim([Report(job.id, job.fence, done())], "test", driver.claimer, 5)
    assert isinstance(answers[0], Moved)
    assert [j.id for j in batch.jobs] == [second]


def test_a_job_whose_input_no_longer_decodes_fails_for_good(driver: Driver) -> None:
    """B21, E1: invalid_persisted_input, from leased; a running one is not spoilt any more."""
    driver.enqueue()
    driver.enqueue()
    first, second = driver.claim(2)
    assert isinstance(settlement.spoil(first.id, first.fence, "no \x00 good", "test"), Moved)
    row = driver.job(first.id)
    assert (row.state, row.reason, row.failures) == ("failed", "invalid_persisted_input", 1)
    assert row.dead_letters.get().reason == "terminal_error"
    driver.start(second)
    refused(settlement.spoil(second.id, second.fence, "no", "test"), "not_claimed")
