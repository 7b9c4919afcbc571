"""The rollup by minute (issue 4: settled a minute, stalls, dead letters of a day)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction

from jobs import enqueue, meters
from jobs.models import Traffic
from jobs.services import traffic
from jobs.services.intake import Request, enqueue_many
from jobs.services.retention import Retention
from jobs.store.sql import rows
from jobs.store.traffic import forget, letters, minutes
from tests.database import empty, own_connection, pass_time
from tests.worker.processes import REPOSITORY, environment, start_worker, until

PAIR = ("default", "collect")


def begin() -> None:
    """Forget what earlier tests have counted."""
    traffic.flusher.flush()
    empty()


def totals(*names: str, pair: tuple[str, str] = PAIR) -> dict[str, int]:
    """The sums over all minutes of one pair."""
    found = Traffic.objects.filter(worker_group=pair[0], queue=pair[1])
    return {name: sum(found.values_list(name, flat=True)) for name in names}


@contextmanager
def held(sql: str) -> Iterator[None]:
    """What this statement locks is held by another transaction."""
    has, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with own_connection(), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
            has.set()
            ends.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert has.wait(30)
        yield
    finally:
        ends.set()
        thread.join(30)


def test_every_move_is_counted_once_as_what_it_was(driver):
    begin()
    _, failing, gone = (driver.enqueue() for _ in range(3))
    driver.complete(driver.claim_one())
    driver.fail(driver.claim_one(), retryable=False)
    held = driver.claim_one()
    driver.release(held)
    driver.interrupt(driver.claim_one())
    driver.pass_time(60)
    driver.claim_one()
    driver.cancel(gone)
    driver.requeue(failing)
    driver.fail(driver.claim_one(), retryable=False)
    driver.discard(failing)
    driver.cancel(driver.enqueue())
    traffic.flusher.flush()
    assert totals(*meters.COUNTS) == {
        "enqueued": 4, "claimed": 6, "completed": 1, "erred": 2, "lapsed": 0, "released": 1, "interrupted": 1,
        "stopped": 1, "failed": 2, "cancelled": 2, "superseded": 0, "letters_opened": 2, "letters_answered": 2}
    assert letters() == (2, 2)
    assert sum(x.settled for x in minutes(60)) == 6


def test_a_lapse_is_counted_and_is_no_settlement(driver):
    begin()
    driver.enqueue()
    driver.claim_one()
    driver.pass_time(120)
    assert driver.recover() == 1
    traffic.flusher.flush()
    assert totals("claimed", "lapsed", "completed") == {"claimed": 1, "lapsed": 1, "completed": 0}
    assert sum(x.settled for x in minutes(60)) == 0


def test_waits_and_runs_are_measured_by_the_clock_of_the_database(driver):
    begin()
    driver.enqueue()
    pass_time(100)
    job = driver.claim_one()
    pass_time(10)
    driver.complete(job)
    traffic.flusher.flush()
    [minute] = [m for m in minutes(60) if m.claimed]
    found = totals("waited_us", "ran_us")
    assert 100e6 <= found["waited_us"] < 110e6
    assert 10e6 <= found["ran_us"] < 20e6
    assert len(minute.waits) == int(100e6).bit_length() + 1
    assert minute.waits[-1] == 1
    assert sum(sum(m.runs) for m in minutes(60)) == 1


def test_what_is_rolled_back_is_not_counted(database):
    begin()
    with transaction.atomic():
        enqueue("echo", {})
        transaction.set_rollback(True)
    traffic.flusher.flush()
    assert totals("enqueued") == {"enqueued": 0}


def test_flushes_at_the_same_time_add_up_and_never_deadlock(database):
    """Sums are exact, whatever the order of the pairs in the flushes."""
    begin()
    pairs = [(f"group{g}", f"queue{q}") for g in range(5) for q in range(4)]
    faults: list[BaseException] = []

    def add(turn: int) -> None:
        try:
            for n in range(20):
                mixed = pairs[(turn + n) % 7:] + pairs[:(turn + n) % 7]
                one = [1] * meters.WIDTH
                traffic.traffic.add(dict.fromkeys(mixed, one))
        except BaseException as error:
            faults.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=add, args=(turn,)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    sums = rows("SELECT sum(enqueued)::int, sum(ran_us)::int, min(cardinality(waits)), sum((SELECT sum(x) FROM"
                " unnest(runs) x))::int FROM jobs_traffic GROUP BY worker_group, queue")
    assert sums == [(120, 120, meters.BUCKETS, 120 * meters.BUCKETS)] * len(pairs)


def test_two_flushes_count_what_came_between_them(database):
    begin()
    for n in (3, 4):
        enqueue_many([Request("echo", {}) for _ in range(n)])
        traffic.flusher.flush()
        traffic.flusher.flush()
    assert totals("enqueued") == {"enqueued": 7}


def test_a_flush_that_fails_is_made_up_for_by_the_next(database, monkeypatch):
    begin()
    enqueue("echo", {})
    monkeypatch.setattr(traffic, "PATIENCE_MS", 100)
    with held("LOCK TABLE jobs_traffic"), pytest.raises(OperationalError, match="timeout"):
        traffic.flusher.flush()
    enqueue("echo", {})
    traffic.flusher.flush()
    assert totals("enqueued") == {"enqueued": 2}


def test_a_worker_flushes_while_it_runs_and_when_it_ends(database):
    """Case: a process that ends in order loses nothing, however short its life."""
    begin()
    enqueue_many([Request("echo", {}) for _ in range(5)])
    worker = start_worker("--until-empty")
    assert worker.wait(60) == 0
    assert totals("claimed", "completed") == {"claimed": 5, "completed": 5}


def test_a_killed_worker_loses_seconds_of_statistics_and_nothing_else(database):
    begin()
    enqueue_many([Request("echo", {}) for _ in range(5)])
    worker = start_worker().wait_ready()
    until(lambda: totals("completed") == {"completed": 5}, 30)
    worker.signal(signal.SIGKILL)
    worker.kill()
    assert totals("claimed", "completed") == {"claimed": 5, "completed": 5}


def test_a_command_flushes_at_its_end(database):
    begin()
    done = subprocess.run([sys.executable, "manage.py", "enqueue", "echo", "{}"], cwd=REPOSITORY, env=environment(),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert totals("enqueued") == {"enqueued": 1}


def test_old_minutes_are_forgotten_a_bounded_batch_at_a_time(database):
    rows("INSERT INTO jobs_traffic (minute, worker_group, queue, enqueued, claimed, completed, erred, lapsed, released,"
         " interrupted, stopped, failed, cancelled, superseded, letters_opened, letters_answered, waited_us, ran_us,"
         " waits, runs) SELECT date_trunc('minute', jobs_now()) - n * interval '1 hour', 'a', 'b', 1,"
         " 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}', '{}' FROM generate_series(1, 300) n RETURNING 1")
    assert forget(8, 50) == 50
    duty = Retention()
    while duty.tick():
        pass
    assert 8 * 24 - 1 <= Traffic.objects.count() <= 8 * 24
