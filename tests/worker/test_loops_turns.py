"""How the loops take turns: long passes, slow ones, broken ones, and a database that is away."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError

from jobs.models import Leader
from jobs.services import leaders
from jobs.worker import loops
from jobs.worker.loops import Loop, Loops
from jobs.worker.output import Output
from tests import database as db
from tests.worker.processes import until


@pytest.fixture(autouse=True)
def _database(database: None) -> None:
    pass


@contextmanager
def running(*mine: Loop) -> Iterator[Loops]:
    """The loops in their thread; ended in the end."""
    here = Loops(mine, Output(io.StringIO()))
    here.start()
    try:
        yield here
    finally:
        here.ask_end()
        here.join(20)
        assert not here.is_alive()


def loop(duty: str, tick: Callable[[int], bool], interval_s: float = 0.05, **more: object) -> Loop:
    return Loop(duty, tick, interval_s, **{"first_after_s": 0.0, **more})  # type: ignore[arg-type]


def said(here: Loops) -> list[dict]:
    return [json.loads(line) for line in here._output.stream.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_one_of_two_processes_does_a_duty_and_the_other_after_it() -> None:
    """E2: an orderly end hands it over at once, whatever is left of the lease."""
    done: list[str] = []
    with running(loop("x", lambda n: bool(done.append("a")))) as first:
        until(lambda: done)
        with running(loop("x", lambda n: bool(done.append("b")), 60.0)):
            seen = len(done)
            until(lambda: len(done) > seen + 20)
            assert set(done) == {"a"}
            first.ask_end()
            until(lambda: "b" in done)
    assert Leader.objects.get().until is None


def test_a_long_pass_holds_up_no_other_duty() -> None:
    """A48, DESIGN 5: batch by batch they take turns."""
    turns: list[str] = []
    with running(loop("long", lambda n: not turns.append("long") and len(turns) < 2_000, 60.0),
                 loop("short", lambda n: bool(turns.append("short")), 0.01)):
        until(lambda: turns.count("short") > 20 and "long" in turns)
    assert turns.index("short") < 5
    first, last = turns.index("long"), len(turns) - 1 - turns[::-1].index("long")
    assert "short" in turns[first:last]


def test_a_slow_pass_keeps_its_leader_is_said_once_and_ticks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A48: renewed between its batches, longer than its lease; the ticks that it missed are one."""
    monkeypatch.setattr(loops, "SLOW_S", 1.0)
    monkeypatch.setattr(leaders, "lease_s", lambda interval_s: 1.0)
    monkeypatch.setattr(loops, "lease_s", lambda interval_s: 1.0)
    began: list[float] = []

    def slow(limit: int) -> bool:
        began.append(time.monotonic())
        time.sleep(0.25)
        return len(began) % 10 != 0

    with running(loop("slow", slow, 1.5)) as here:
        until(lambda: len(began) >= 10, 30)
        seen = [x for x in said(here) if x["event"] == "loop.slow"]
        assert Leader.objects.get().holder == here.leadership.holder
        until(lambda: len(began) >= 11, 30)
    assert [x["duty"] for x in seen] == ["slow"]
    assert seen[0]["seconds"] >= 1.0
    # An interval after its end, not at once for the ones that it missed.
    assert began[10] - began[9] > 1.2


def test_a_duty_that_breaks_is_put_off_and_starves_nobody(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """DESIGN 8.8: whether it is its own fault or the database's answer; it is logged, and not each time."""
    monkeypatch.setattr(loops, "AFTER_FAILURE_S", 0.5)
    tried: list[str] = []

    def breaks(error: Exception) -> Callable[[int], bool]:
        def tick(limit: int) -> bool:
            tried.append(type(error).__name__)
            raise error
        return tick

    with caplog.at_level(logging.WARNING), running(
            loop("own", breaks(LookupError("no"))), loop("database", breaks(OperationalError("canceled"))),
            loop("fine", lambda n: bool(tried.append("fine")))):
        until(lambda: min(tried.count(name) for name in ("LookupError", "OperationalError", "fine")) > 2, 30)
    assert 1 <= len([r for r in caplog.records if r.name == "jobs.loops"]) <= 3


def test_it_goes_on_after_its_connection_was_ended(caplog: pytest.LogCaptureFixture) -> None:
    """RELIABILITY 5.6: another connection, the leadership kept or won again."""
    done: list[int] = []

    def tick(limit: int) -> bool:
        done.append(db.rows("SELECT pg_backend_pid()")[0][0])
        return False

    with caplog.at_level(logging.CRITICAL), running(loop("x", tick)):
        until(lambda: done)
        ended = done[-1]
        db.rows("SELECT pg_terminate_backend(%s)", ended)
        until(lambda: done[-1] != ended, 30)


def test_a_gentle_pass_rests_as_long_as_it_works() -> None:
    """E13, DESIGN 5: at most half of the time while there is more, a tenth from pass to pass."""
    answers = iter([True, False])

    def tick(limit: int) -> bool:
        time.sleep(0.2)
        return next(answers)

    here, output = loop("gentle", tick, 0.01, gentle=True), Output(io.StringIO())
    here.run(output)
    assert 0.1 < here.wait_s() <= 0.6
    here.run(output)
    assert here.wait_s() > 9 * 0.4 * 0.8
