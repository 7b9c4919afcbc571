"""Many who tick the same timers at the same moment: each moment once, no deadlock, nobody's change lost (D13)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from jobs.models import Firing, Job, Timer
from jobs.services import firing, tenancy, timers
from jobs.services.firing import Timers
from jobs.services.timers import Draft
from tests import database as db
from tests.driver import check
from tests.races.threads import LONG, deadlocks, elsewhere, together

TICKERS, TIMERS = 8, 50
ROUNDS = 200 if LONG else 3
BY = "user:ann"


def put(n: int, **said: object) -> Timer:
    tenant = tenancy.tenant(tenancy.workspace(), f"t{n % 7}", make=True)
    return timers.put(tenant, f"timer-{n}", Draft("echo", {"value": "x"}, every_s=60, **said), by=BY)  # type: ignore[arg-type]


@pytest.mark.timeout(900 if LONG else 180)
def test_eight_tickers_of_fifty_timers_make_one_job_a_moment(database: None) -> None:
    """case-E06, D13: the same second, in rounds; one in three supersedes, with targets that others lock too."""
    made = [put(n, overlap=("allow", "skip", "supersede")[n % 3]) for n in range(TIMERS)]
    before = deadlocks()

    def ticker() -> None:
        duty = Timers()
        while duty.tick():
            pass

    for _ in range(ROUNDS):
        db.pass_time(60)
        together([ticker] * TICKERS)
    # What another had locked was left alone, and is done by whoever ticks next.
    ticker()
    found = Counter(Firing.objects.values_list("timer_id", flat=True))
    # The rounds take their time too.
    assert ROUNDS <= min(found.values()) <= max(found.values()) <= min(found.values()) + 1
    assert found.keys() == {t.pk for t in made}
    assert Firing.objects.filter(outcome="refused").count() == 0
    assert Job.objects.count() == Firing.objects.filter(outcome="enqueued").count()
    assert Job.objects.exclude(ended_at=None).exclude(state="superseded").count() == 0
    for job in Job.objects.order_by("?")[:10]:
        check(job.pk)
    assert deadlocks() == before


def test_tickers_small_batches_leave_nothing_due(database: None) -> None:
    """D13: whatever the batch; each takes what the others have not."""
    for n in range(20):
        put(n)
    db.pass_time(60)

    def some() -> None:
        duty = Timers()
        while duty.tick(3):
            pass

    together([some] * 4)
    some()
    assert Job.objects.count() == 20


def test_people_and_tickers_do_not_lose_each_others_changes(database: None) -> None:
    """D13: put, paused, resumed, run and removed while it fires."""
    made = [put(n) for n in range(4)]
    ends = threading.Event()

    def ticks() -> None:
        duty = Timers()
        while not ends.is_set():
            duty.tick()

    def people() -> None:
        try:
            for n in range(10 if LONG else 5):
                for timer in made[:3]:
                    timers.pause(timer, by=BY, reason="x")
                    timers.resume(timer, by=BY)
                    timers.run_now(timer, by=BY, key=str(n))
                    # The same said again would change nothing.
                    put(int(timer.name.removeprefix("timer-")), catch_up=("last", "skip")[n % 2])
                db.pass_time(60)
            timers.remove(made[0], by=BY)
        finally:
            ends.set()

    before = deadlocks()
    together([people, ticks, ticks])
    assert not Timer.objects.filter(pk=made[0].pk).exists()
    assert all(t.paused_at is None and t.revision == 1 + 3 * (10 if LONG else 5)
               for t in Timer.objects.filter(pk__in=[t.pk for t in made[1:3]]))
    assert Firing.objects.filter(manual=True, timer__in=made[:3]).count() == 3 * (10 if LONG else 5)
    assert Job.objects.count() == Firing.objects.filter(outcome="enqueued").count()
    assert deadlocks() == before


def test_a_timer_that_somebody_holds_waits_and_the_others_fire(database: None) -> None:
    """D13: skip locked; a person in a long transaction stops one timer for so long."""
    held, free = put(0), put(1)
    db.pass_time(60)
    with elsewhere("SELECT id FROM jobs_timer WHERE id = %s FOR NO KEY UPDATE", held.pk):
        Timers().tick()
        assert list(Firing.objects.values_list("timer_id", flat=True)) == [free.pk]
    Timers().tick()
    assert Job.objects.count() == 2


def test_a_leader_that_wakes_late_finds_its_moment_made(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """case-E05: it has read what is due, another takes over and fires, and then it goes on."""
    timer = put(0)
    db.pass_time(60)
    looked, go = threading.Event(), threading.Event()
    right: Callable[[], tuple[bool, bool]] = firing.store.look

    def late() -> tuple[bool, bool]:
        found = right()
        if threading.current_thread().name == "race-0":
            looked.set()
            assert go.wait(60)
        return found

    monkeypatch.setattr(firing.store, "look", late)

    def other() -> bool:
        assert looked.wait(60)
        try:
            return Timers().tick()
        finally:
            go.set()

    together([Timers().tick, other])
    assert Job.objects.count() == 1 == Firing.objects.filter(timer=timer).count()
