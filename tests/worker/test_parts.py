"""The parts of a worker where a process cannot be brought to the point: threads, bell, reports, surprises, leaks."""

from __future__ import annotations

import gc
import io
import json
import logging
import math
import os
import signal
import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.db.models import F
from django.db.utils import InterfaceError

from jobs import publish
from jobs.models import Attempt, Job
from jobs.services import assignments, duties, settlement
from jobs.states import State
from jobs.worker import runner
from jobs.worker.bell import Bell
from jobs.worker.connection import Patience, own_connection
from jobs.worker.context import Run
from jobs.worker.lines import Lines
from jobs.worker.listener import direct_dsn
from jobs.worker.outage import Outage
from jobs.worker.output import Output
from jobs.worker.plan import Plan
from jobs.worker.runner import Worker
from jobs.worker.threads import Threads
from tests.database import rows
from tests.worker.processes import until


def plan(**more):
    return Plan("here", more.pop("slots", 8), ["default"], ["collect"], **more)


@contextmanager
def running(made):
    """The worker in a thread of its own; it is drained in the end."""
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.ask_stop()
        made.ask_stop()
        thread.join(20)
        assert not thread.is_alive()


def said(made):
    return [json.loads(line)["event"] for line in made.output.stream.getvalue().splitlines()]


def new(**more):
    return Worker(plan(**more), Output(io.StringIO()))


def test_a_bell_may_be_rung_by_a_signal_handler_in_any_moment():
    """An Event would wait for itself when its own thread is interrupted inside it."""
    bell, rung = Bell(), []

    def ring(*_):
        rung.append(1)
        bell.ring()

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            bell.wait(0.001)
            bell.ring()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(rung) > 100


def test_a_bell_that_was_rung_before_the_wait_ends_it():
    """And many rings are one."""
    bell = Bell()
    for _ in range(5):
        bell.ring()
    begun = time.monotonic()
    bell.wait(5)
    assert time.monotonic() - begun < 1
    bell.wait(0.05)
    assert time.monotonic() - begun >= 0.05


def test_threads_start_when_needed_and_no_work_waits_behind_a_busy_one():
    """As many as there is work, at most so many, and a stuck one holds up nobody."""
    pool, gate, done = Threads(4, "t"), threading.Event(), []
    for _ in range(3):
        pool.submit(gate.wait)
    for n in range(200):
        pool.submit(done.append, n)
        until(lambda n=n: len(done) == n + 1, 5)
    assert pool._count == 4
    gate.set()
    pool.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("t-")], 5)


def test_a_job_for_which_there_is_no_thread_is_handed_back(jobs, monkeypatch):
    """A machine out of threads: interrupted, not lost, and the slot is free again."""
    monkeypatch.setattr(Threads, "submit", lambda *_: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
    job_id = jobs.add("echo-thread")
    with running(new()):
        until(lambda: "interrupted" in jobs.outcomes(job_id))
        jobs.wait(jobs.add("echo"), "completed")
    assert jobs.get(job_id).failures == 0


def test_a_wait_of_several_threads_of_a_handler_ends_for_all():
    """`run.wait` is safe from any thread of a handler (B26)."""
    for _ in range(50):
        run = Run.__new__(Run)
        run._stop, run._inbox, run.stop_reason = None, None, None
        threads = [threading.Thread(target=run.wait, args=[10]) for _ in range(4)]
        for thread in threads:
            thread.start()
        run.stop("runner_shutdown")
        for thread in threads:
            thread.join(5)
        assert not any(thread.is_alive() for thread in threads)


def test_ends_survive_any_trouble_between_their_collection_and_their_settlement(jobs, monkeypatch):
    """An undecodable input beside completions, with a database that fails in between: each is settled once (E8)."""
    settle, spoil, trouble = settlement.settle_and_claim, settlement.spoil, iter((OperationalError, InterfaceError) * 2)

    def failing(real):
        def call(*args):
            if kind := next(trouble, None):
                raise kind("gone")
            return real(*args)
        return call

    made = [jobs.add("stamps") for _ in range(5)]
    bad = jobs.add("typed", count=1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET input = '{}' WHERE id = %s", [bad])
    worker = new()
    monkeypatch.setattr(settlement, "spoil", failing(spoil))
    monkeypatch.setattr(settlement, "settle_and_claim",
                        lambda reports, *more: (failing(settle) if reports else settle)(reports, *more))
    with running(worker):
        for job_id in made:
            jobs.wait(job_id, "completed")
        jobs.wait(bad, "failed")
    assert [jobs.outcomes(job_id) for job_id in made] == [["completed"]] * 5
    assert jobs.outcomes(bad) == ["failed"]


def test_a_hook_that_raises_for_one_job_costs_the_others_nothing(jobs, caplog):
    """Not only database errors: the worker settles one by one, leaves that one to its lease, and goes on (DESIGN 4)."""
    poison = jobs.add("echo", value="poison")

    @publish.in_transaction
    def refuse(news):
        if any(id_ == poison and state is State.COMPLETED for id_, _, state in news):
            raise LookupError("not this one")

    try:
        with running(new()) as worker, caplog.at_level(logging.CRITICAL):
            made = [jobs.add("echo") for _ in range(20)]
            for job_id in made:
                jobs.wait(job_id, "completed")
            until(lambda: "worker.left_to_lease" in said(worker))
            jobs.wait(jobs.add("echo"), "completed")
        assert jobs.state(poison) == "leased"
        assert [jobs.outcomes(job_id) for job_id in made] == [["completed"]] * 20
    finally:
        publish.forget(refuse)


def test_a_worker_that_somebody_waits_for_gives_up_on_what_never_works(jobs, monkeypatch, caplog):
    """`--until-empty` does not go on for ever over a fault of ours; what it held is handed back, and it raises."""
    monkeypatch.setattr(settlement, "settle_and_claim", lambda *_: 1 / 0)
    jobs.add("echo")
    with caplog.at_level(logging.CRITICAL), pytest.raises(ZeroDivisionError):
        new(until_empty=True).run()


def test_what_was_claimed_but_could_not_be_begun_is_handed_back(jobs, monkeypatch, caplog):
    """An exception between claim and start: uncounted, at once, without waiting for the lease (E8)."""
    begin, failures = Worker._begin, iter([1])

    def broken(self, claimed):
        if claimed and next(failures, None):
            raise ZeroDivisionError
        begin(self, claimed)

    monkeypatch.setattr(Worker, "_begin", broken)
    job_id = jobs.add("echo")
    with caplog.at_level(logging.CRITICAL), running(new()):
        jobs.wait(job_id, "completed")
    assert jobs.outcomes(job_id) == ["interrupted", "completed"]


def test_strays_are_given_back_even_if_the_first_look_fails(jobs, monkeypatch):
    """The look after a reconnect may meet trouble itself; the next round makes up for it (E8)."""
    real, failures = assignments.hand_back_unknown, iter([1, 2])

    def failing(*args):
        if next(failures, None):
            raise OperationalError("still gone")
        return real(*args)

    monkeypatch.setattr(assignments, "hand_back_unknown", failing)
    claim, once = settlement.settle_and_claim, iter([1])

    def lost(*args):
        answer = claim(*args)
        if answer[1].jobs and next(once, None):
            raise OperationalError("the answer to COMMIT was lost")
        return answer

    monkeypatch.setattr(settlement, "settle_and_claim", lost)
    job_id = jobs.add("echo")
    with running(new()):
        jobs.wait(job_id, "completed")
    assert jobs.outcomes(job_id) == ["interrupted", "completed"]


def test_a_duty_that_fails_stops_no_claim(jobs, monkeypatch, caplog):
    """It is logged and put off; promotion, repair and the rest have nothing to do with settling (CLAIM)."""
    monkeypatch.setattr(duties.recovery, "promote", lambda: 1 / 0)
    with running(new()), caplog.at_level(logging.ERROR):
        jobs.wait(jobs.add("echo"), "completed")
        jobs.wait(jobs.add("echo"), "completed")
    assert len([r for r in caplog.records if "duty" in r.message]) == 1


def test_heartbeats_survive_whatever_they_meet(jobs, monkeypatch, caplog, tmp_path):
    """An exception of any kind is logged and tried again: every lease hangs on this thread."""
    extend, failures = assignments.extend, iter(range(2))

    def failing(fences):
        if next(failures, None) is not None:
            raise ValueError("unforeseen")
        return extend(fences)

    monkeypatch.setattr(assignments, "extend", failing)
    path, gate = tmp_path / "trace", tmp_path / "gate"
    job_id = jobs.add("gated", path=str(path), gate=str(gate))
    with caplog.at_level(logging.CRITICAL), running(new()):
        look = "SELECT lease_until > leased_at + interval '4 s' FROM jobs_attempt WHERE job_id = %s"
        with connection.cursor() as cursor:
            until(lambda: (cursor.execute(look, [job_id]), cursor.fetchone())[1] == (True,))
        gate.touch()
        assert jobs.wait(job_id, "completed").lapses == 0


def test_the_waker_of_a_process_survives_a_lost_database(database, monkeypatch):
    """A wake that cannot be sent is lost, the next one is sent (DESIGN 4)."""
    sent = []

    class Broken:
        def cursor(self):
            raise OperationalError("gone")

        def close(self):
            raise InterfaceError("gone for good")

    real = publish.connections
    monkeypatch.setattr(publish, "connections", {"default": Broken()})
    waker = publish._Waker()
    waker.ask()
    until(lambda: not waker._asked.is_set(), 5)
    monkeypatch.setattr(publish, "connections", real)
    monkeypatch.setattr(publish._Waker, "_send", lambda self: sent.append(1))
    waker.ask()
    until(lambda: sent, 5)


@pytest.mark.parametrize("state", [State.QUEUED, State.CANCELLED, State.PAUSED, State.SUPERSEDED])
def test_news_that_void_a_claim_or_make_one_possible_wake_workers(database, monkeypatch, state):
    """Cancel, pause and supersession void a live claim; its worker hears of it (E5, DESIGN 6)."""
    asked = []
    monkeypatch.setattr(publish._waker, "ask", lambda: asked.append(1))
    publish.moved([("id", 1, state)])
    publish.moved([("id", 2, State.COMPLETED), ("id", 3, State.LEASED)])
    assert asked == [1]


def test_the_listener_uses_what_libpq_knows_of_djangos_options(settings, database):
    """Not the pool, the cursor's class, the adapters nor any other word of Django's."""
    options = connection.settings_dict["OPTIONS"]
    kept = dict(options)
    options["row_factory"] = tuple
    try:
        dsn = direct_dsn()
    finally:
        options.clear()
        options.update(kept)
    assert f"dbname={connection.settings_dict['NAME']}" in dsn
    assert "keepalives_idle=10" in dsn
    assert "pool" not in dsn
    assert "row_factory" not in dsn


def test_the_workers_own_connections_are_outside_the_pool(database):
    """Handlers that take all of the pool keep no lease from being renewed and no end from being settled (DESIGN 5)."""
    pooled = connections[DEFAULT_DB_ALIAS]
    with own_connection():
        assert connections[DEFAULT_DB_ALIAS].pool is None
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        raw = connection.connection
    assert raw.closed
    assert connections[DEFAULT_DB_ALIAS] is pooled
    assert pooled.pool is not None


def census():
    """Threads, descriptors and backends, but for what the pool keeps, which may grow to its size."""
    gc.collect()
    pooled = connection.pool.get_stats()["pool_size"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        backends = cursor.fetchone()[0]
    return threading.active_count(), len(os.listdir("/proc/self/fd")) - pooled, backends - pooled


def test_two_thousand_jobs_leave_no_thread_descriptor_or_connection(jobs):
    """One process, several lives of a worker: as before."""
    def life(count):
        for type_, share in (("stamps", count), ("echo-thread", count // 4), ("looks", count // 20)):
            jobs.add_many(type_, share)
        made = new(until_empty=True)
        assert made.run().completed == count + count // 4 + count // 20
        assert not made.slots.stuck

    # What another test in this process has opened may be there still.
    most = max(8 + 4, connection.pool.get_stats()["pool_size"])
    life(100)
    before = census()
    for _ in range(3):
        life(600)
    end = time.monotonic() + 5
    while any(now > then + 1 for now, then in zip(census(), before, strict=True)):
        assert time.monotonic() < end, (before, census(), threading.enumerate())
    assert Job.objects.filter(state="completed").count() == 130 + 3 * 780
    assert connection.pool.get_stats()["pool_size"] <= most


def test_an_attempts_log_lines_are_bounded_in_number_and_size() -> None:
    """DESIGN 6: the last 200 lines, each and all of them cut."""
    lines = Lines()
    assert not lines
    for n in range(1_000):
        lines.add(f"line {n}")
    assert lines.text().splitlines() == [f"line {n}" for n in range(800, 1_000)]
    assert lines.dropped == 800
    for _ in range(100):
        lines.add("x" * 20_000_000)
    assert len(lines.text()) <= 64 * 1024 + 200
    assert max(map(len, lines.text().splitlines())) == 2_000


def until_nobody_sleeps():
    """The server hears of a client that has gone with the end of its statement."""
    until(lambda: not rows("SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(2)' AND state = 'active'"))


def test_one_statement_that_is_not_answered_is_given_up_and_others_are_not_touched(database):
    """RELIABILITY 5.6: however the server says nothing; a connection with a patience of its own, as loops have."""
    with own_connection(Patience(0.5)), connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("SELECT 1")
        with pytest.raises(OperationalError, match=r"has not answered for 0\.5 s"):
            cursor.execute("SELECT pg_sleep(2)")
        assert connection.connection.closed
    until_nobody_sleeps()
    with own_connection(Patience(20)), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.7)")
        cursor.execute("SHOW statement_timeout")
        # The server is the first to give up: no statement waits there for a client that has gone.
        assert cursor.fetchone() == ("18s",)
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("1min",)


def test_a_transaction_that_broke_its_connection_opens_no_other_on_its_way_out(database):
    """Django would connect again at once, wait for that, and raise its trouble instead of the first."""
    with own_connection(Patience(0.5)):
        with pytest.raises(OperationalError, match="has not answered"), transaction.atomic():
            rows("SET LOCAL statement_timeout = 0; SELECT pg_sleep(2)")
        assert connection.connection is None
        until_nobody_sleeps()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        assert connection.get_autocommit()


def test_a_claim_that_took_long_has_its_leases_renewed_at_once(jobs, monkeypatch, settings):
    """E8: its answer was late, or the process stood still: a part of the lease has passed before the job begins."""
    monkeypatch.setattr(runner, "LATE_S", -1.0)
    settings.JOBS = {**settings.JOBS, "LEASE_S": 90.0}
    worker = new(slots=1)
    job_id = jobs.add("patient", seconds=60)
    with running(worker):
        # The first heartbeat would come after thirty seconds.
        until(lambda: Attempt.objects.filter(job_id=job_id, lease_until__gt=F("leased_at") + timedelta(seconds=90.01)))


def test_what_a_lost_commit_left_is_looked_for_more_than_once():
    """E8: a server that was slow to hear of it may commit after the first look."""
    outage = Outage()
    assert not outage.in_doubt()
    outage.again()
    assert outage.in_doubt()
    outage.looked()
    assert not outage.in_doubt()
    assert 0 < outage.wait_s() <= 2
    outage.leave_it()
    assert outage.wait_s() == math.inf


def test_lines_that_nobody_reads_are_dropped_and_counted():
    """A64: the one who says something never waits."""
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as stream:
        output = Output(stream)
        for n in range(12_000):
            output("worker.said", n=n, filler="x" * 100)
        read = b""
        while b"lines_lost" not in read:
            read += os.read(ours, 65_536)
        output.close()
    os.close(ours)
    lines = [json.loads(line) for line in read.decode().splitlines()]
    said = [line["n"] for line in lines if line["event"] == "worker.said"]
    assert said == list(range(len(said)))
    assert len(said) + sum(line["lines"] for line in lines if line["event"] == "worker.lines_lost") == 12_000
