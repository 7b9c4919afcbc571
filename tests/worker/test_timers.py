"""Timers in real processes: pumps that freeze, are killed and lose the database make one job of each moment (D13)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta

import pytest

from jobs.models import Firing, Job
from jobs.services import tenancy, timers
from jobs.services.timers import Draft
from jobs.worker.loops import loops
from tests.races.threads import LONG
from tests.worker.processes import until
from tests.worker.test_crashes import locked
from tests.worker.test_loops import Pump, leader, pumps  # noqa: F401

MOMENTS = 200 if LONG else 20
SECOND = timedelta(seconds=1)


def test_every_process_with_loops_fires_timers() -> None:
    """D13, E2: once a second, by one leader."""
    mine = next(loop for loop in loops() if loop.duty == "timers")
    assert (mine.led, mine._interval_s) == (True, 1.0)


def made() -> int:
    return Firing.objects.filter(outcome="enqueued").count()


def frozen(running: dict[str, Pump]) -> None:
    """The one that fires stands still until another has taken over, and goes on."""
    holder = until(lambda: found if (found := leader("timers")) in running else None, 30)
    assert holder is not None
    running[holder].signal(signal.SIGSTOP)
    until(lambda: leader("timers") not in (None, holder), 30)
    n = made()
    running[holder].signal(signal.SIGCONT)
    until(lambda: made() > n, 30)


def killed(running: dict[str, Pump], start: Callable[..., Pump]) -> None:
    """The one that fires dies, and another comes."""
    holder = until(lambda: found if (found := leader("timers")) in running else None, 30)
    assert holder is not None
    running.pop(holder).kill()
    fresh = start()
    running[fresh.holder] = fresh
    n = made()
    until(lambda: made() > n, 30)


def stalled() -> None:
    """The database takes no firing for some seconds."""
    with locked("jobs_firing"):
        until(lambda: _waits(), 30)
    n = made()
    until(lambda: made() > n, 30)


def _waits() -> bool:
    from tests.database import rows

    return bool(rows("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'jobs_firing'::regclass"))


@pytest.mark.slow
@pytest.mark.timeout(900 if LONG else 180)
def test_three_pumps_make_one_job_a_moment_whatever_befalls_them(
        pumps: Callable[..., Pump], record_property: Callable) -> None:  # noqa: F811
    """case-E04, case-E05, D13: each second exactly one, none left out and none doubled."""
    tenant = tenancy.tenant(tenancy.workspace(), "acme", make=True)
    running = {pump.holder: pump for pump in (pumps() for _ in range(3))}
    timer = timers.put(tenant, "tick", Draft("echo", {"value": "x"}, every_s=1, catch_up="all", catch_up_most=1_000),
                       by="user:ann")
    until(lambda: made() > 2, 30)
    while True:
        frozen(running)
        killed(running, pumps)
        stalled()
        if made() >= MOMENTS or not LONG:
            break
    until(lambda: made() >= MOMENTS, 60)
    timers.pause(timer, by="user:ann", reason="enough")
    found = list(Firing.objects.order_by("moment"))
    assert [f.moment for f in found] == [found[0].moment + n * SECOND for n in range(len(found))]
    assert found[0].moment == timer.next_at
    assert {f.outcome for f in found} == {"enqueued"}
    jobs = set(Job.objects.values_list("pk", flat=True))
    assert len(found) == len(jobs) == Job.objects.count()
    assert {f.job_id for f in found} == jobs
    late = sorted((f.made_at - f.moment).total_seconds() for f in found)
    record_property("median lateness", late[len(late) // 2])
    # In health a moment is made within a tick: the best of them say so, whatever else this machine does.
    assert late[0] < 10
