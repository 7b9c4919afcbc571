"""Loops in real processes: leaders are killed at their work, pumps come and go, and what lapsed is always found."""

from __future__ import annotations

import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs import clock
from jobs.models import Attempt, Delivery, Firing, Job, Leader, Receipt, Worker
from jobs.services import cancellation, intake, tenancy, timers
from jobs.services.intake import Request
from jobs.services.overview import overview
from jobs.services.timers import Draft
from jobs.store.claim import Claimer, claim
from jobs.store.sql import durable
from tests.database import rows
from tests.services.calling import allowing, url
from tests.sinks import OK, Sink, slowly
from tests.worker.processes import Process, environment, until
from tests.worker.test_atomic import HOOKED
from tests.worker.test_crashes import locked, waiting_for_lock

# Lease 3, grace 1, a pass each second, a poll; the leader's lease (2) has run out before the job's.
BOUND_S = 3 + 1 + 1 + 0.2
# What a machine with two cores and other things to do may take longer.
SLACK_S = 10


class Pump(Process):
    """A `manage.py runpump`."""

    def __init__(self, *flags: str, **env: str) -> None:
        super().__init__(["--skip-checks", *flags], environment(**env), "runpump")

    @property
    def holder(self) -> str:
        """What its leases are held by."""
        return str(until(lambda: self.of("pump.ready") or self._ended_early(), 30)[0]["worker"])

    def of(self, event: str) -> list[dict[str, Any]]:
        return [x for x in list(self.lines) if x["event"] == event]


@pytest.fixture
def pumps(database: None) -> Iterator[Callable[..., Pump]]:
    """Starts pumps; each is ready when it is given, and dead when the test ends."""
    started: list[Pump] = []

    def start(*flags: str, **env: str) -> Pump:
        started.append(Pump(*flags, **env))
        assert started[-1].holder
        return started[-1]

    yield start
    for process in started:
        process.kill()


def leader(duty: str = "recovery") -> str | None:
    """Who holds the lease of this duty now."""
    found = Leader.objects.filter(duty=duty, until__gt=clock.now()).values_list("holder", flat=True).first()
    return str(found) if found else None


def lapsed(count: int, type_: str = "echo") -> list[str]:
    """So many jobs that nobody holds any more, though they are leased."""
    ids = [a.id for a in intake.enqueue_many([Request(type_, {"value": str(n)}) for n in range(count)])]
    by = Claimer([("default", "collect")], by="worker:00000000-0000-4000-8000-000000000000",
                 worker_id="00000000-0000-4000-8000-000000000000")
    assert len(durable(lambda: claim(by, count)).jobs) == count
    Attempt.objects.filter(job_id__in=ids).update(lease_until=clock.now() - timedelta(seconds=60))
    return ids


def test_recovery_outlives_every_leader_that_is_killed_as_it_starts_a_pass(pumps, jobs):
    """case-F06: SIGKILL of whoever recovers, inside its pass, five times in a row; the next one takes over."""
    running = {p.holder: p for p in (pumps() for _ in range(3))}
    job_id = lapsed(1)[0]
    with locked("jobs_attempt"):
        for _ in range(5):
            until(waiting_for_lock, 30)
            holder = until(leader)
            running.pop(holder).kill()
            # The server does not miss its client while it waits for a lock.
            rows("SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE NOT granted AND database ="
                 " (SELECT oid FROM pg_database WHERE datname = current_database())")
            until(lambda: not waiting_for_lock(), 30)
            fresh = pumps()
            running[fresh.holder] = fresh
    began = time.monotonic()
    jobs.wait(job_id, "queued", seconds=30)
    assert time.monotonic() - began < BOUND_S + SLACK_S
    assert jobs.outcomes(job_id) == ["lapsed"]


def test_a_leading_worker_killed_with_jobs_in_hand_is_recovered_from_in_time(workers, jobs, tmp_path):
    """case-F06, C35: three workers, the leader is killed three times; its job runs again within B."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    running = {}

    def start():
        # One slot: each holds one job.
        fresh = workers(slots=1)
        running[fresh.worker_id] = fresh

    for _ in range(3):
        start()
    made = [jobs.add("gated", path=str(path), gate=str(gate)) for _ in range(3)]
    for _ in range(3):
        holder = until(lambda: leader() in running and leader(), 30)
        attempt = until(lambda holder=holder: Attempt.objects.filter(worker_id=holder, ended_at=None).first(), 30)
        running.pop(holder).kill()
        began = time.monotonic()
        until(lambda attempt=attempt: Attempt.objects.get(pk=attempt.pk).outcome == "lapsed", 40)
        assert time.monotonic() - began < BOUND_S + SLACK_S
        assert until(leader, 30) != holder
        start()
    gate.touch()
    for job_id in made:
        assert jobs.wait(job_id, "completed", seconds=30).lapses <= 3
    assert Receipt.objects.filter(kind="job.lease_expired").count() == 3


def test_thousands_of_lapsed_rows_of_every_sort_are_resolved_by_a_pump_alone(pumps, jobs):
    """case-A19: unknown types and versions, no worker, far past; no claims at all, and batches of 200 at most."""
    ids = lapsed(5_000)
    for fact, until_n in (("type = 'gone'", 1_000), ("version = 7", 2_000)):
        rows(f"UPDATE jobs_job SET {fact} WHERE id = ANY(%s::uuid[]) RETURNING 1", ids[until_n - 1_000 : until_n])
    rows("UPDATE jobs_attempt SET worker_id = NULL, lease_until = '2001-01-01' WHERE job_id = ANY(%s::uuid[])"
         " RETURNING 1", ids[1_500:3_000])
    pumps()
    until(lambda: not Attempt.objects.filter(ended_at=None).exists(), 90)
    assert set(Job.objects.values_list("state", flat=True)) == {"queued"}
    batches = [n for n, in rows("SELECT count(*) FROM jobs_receipt WHERE kind = 'job.lease_expired'"
                                " GROUP BY xmin::text")]
    assert sum(batches) == 5_000
    assert max(batches) <= 200


def test_a_pump_runs_every_duty_and_vouches_for_the_house_s_jobs_alone(pumps, jobs):
    """E2, D13: it leads, promotes what is due, claims nobody's jobs, and gives all back in the end."""
    pump = pumps()
    until(lambda: set(Leader.objects.exclude(ticked_at=None).values_list("duty", flat=True))
          >= {"recovery", "deadlines", "repair", "closing", "retention", "workers"}, 30)
    assert {str(h) for h in Leader.objects.values_list("holder", flat=True)} == {pump.holder}
    job_id = intake.enqueue("echo", {}, delay_s=1).id
    until(lambda: jobs.get(job_id).gate is None, 20)
    row = Worker.objects.get()
    assert row.name.startswith("pump ")
    assert (row.worker_groups, {name.partition("@")[0] for name in row.types}) == (
        ["system"], {"callback-delivery", "job-ended"})
    # On pages it is no worker that would run what waits.
    assert (jobs.state(job_id), overview().workers) == ("queued", 0)
    assert pump.stop() == 0
    assert pump.of("pump.stopped")
    assert pump.log == ""
    assert not Leader.objects.exclude(holder=None).exists()


def test_of_several_pumps_one_sends_and_the_next_sends_again_where_it_was_killed_at_it(pumps, settings):
    """D13, E11, case-I03: callbacks are drained under leases; told again under the same id, no worker is needed."""
    with Sink(slowly(4)) as sink:
        allowing(settings, sink)
        told = {"CALLBACK_HTTP": "on", "CALLBACK_ALLOW": f"127.0.0.1:{sink.port}"}
        job_id = intake.enqueue("echo", {}, callback_url=url(sink)).id
        cancellation.cancel(job_id, by="test")
        running = {p.holder: p for p in (pumps(**told) for _ in range(2))}
        until(lambda: sink.got, 30)
        held = Attempt.objects.get(ended_at=None)
        running.pop(str(held.worker_id)).kill()
        assert len(sink.got) == 1
        sink.answer = OK
        until(lambda: Delivery.objects.filter(job_id=job_id, state="delivered").exists(), 60)
        assert len({(got.headers["webhook-id"], got.body) for got in sink.got}) == 1
        ends = Attempt.objects.filter(job_id=held.job_id).order_by("number").values_list("outcome", "worker_id")
        [other] = running
        assert [(outcome, str(worker)) for outcome, worker in ends] == [
            ("lapsed", str(held.worker_id)), ("completed", other)]


def test_a_pump_of_a_profile_does_the_house_s_jobs_of_its_workspaces_alone(pumps, settings, tmp_path):
    """D13, E2: timers and ends of other workspaces are left to others; what is the site's is led all the same."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": HOOKED["JOBS_DEFINITIONS"].split(",")}
    for slug in ("mine", "also", "theirs"):
        place = tenancy.make_workspace(slug)
        timers.put(tenancy.tenant(place, None), "tick", Draft("echo", every_s=1), by="test")
        job_id = intake.enqueue("watched", {"path": str(tmp_path / slug)}, workspace=slug).id
        cancellation.cancel(job_id, by="test")
    pump = pumps("--workspace", "mine", "--workspace", "also", **HOOKED)
    until(lambda: Job.objects.filter(type="job-ended", state="completed").count() == 2, 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["also", "mine"]
    until(lambda: leader("recovery") == pump.holder, 30)
    until(lambda: Firing.objects.values("timer").distinct().count() == 2, 30)
    assert set(Job.objects.filter(type="echo").values_list("workspace__slug", flat=True)) == {"mine", "also"}
    assert not Leader.objects.filter(duty="timers").exists()
    later = pumps(**HOOKED)
    until(lambda: (tmp_path / "theirs").exists(), 30)
    assert Attempt.objects.get(job__workspace__slug="theirs").worker_id == uuid.UUID(later.holder)
    until(lambda: Job.objects.filter(type="echo", workspace__slug="theirs").exists(), 30)


def test_a_pump_ends_at_once_on_ctrl_c(pumps):
    """E2: exit 0."""
    pump = pumps()
    pump.signal(signal.SIGINT)
    assert pump.wait() == 0


def test_a_pump_refuses_what_it_does_not_know(database):
    """A30: exit 2 for an option, 1 where there is no database."""
    wrong = Pump("--groups", "default")
    assert wrong.wait() == 2
    assert "unrecognized arguments: --groups default" in wrong.log
    for said, words in ((("--workspace", "defualt"), "no workspace 'defualt'; did you mean 'default'?"),
                        (("--workspace", ""), "names no workspace"),
                        (("--slots", "0"), "--slots must be from 1 to")):
        with pytest.raises(CommandError, match=re.escape(words)) as refused:
            call_command("runpump", *said)
        assert refused.value.returncode == 2
    lost = Pump(DATABASE_URL="postgres://nobody@127.0.0.1:9/nothing")
    assert lost.wait() == 1
    assert "The database cannot be used" in lost.log
    assert "Traceback" not in lost.log


def test_a_worker_without_loops_leads_nothing_and_keeps_its_claims_honest(workers, jobs):
    """E2, E8, C35: recovery goes with its claims."""
    job_id = lapsed(1)[0]
    workers("--no-loops")
    assert jobs.wait(job_id, "completed", seconds=30).lapses == 1
    assert not Leader.objects.exclude(holder=None).exists()


def test_a_worker_gives_its_leadership_back_when_it_drains(workers, jobs):
    """E2: the next one need not wait for leases to run out."""
    worker = workers()
    until(lambda: leader("retention") == worker.worker_id, 20)
    assert worker.stop() == 0
    assert not Leader.objects.exclude(holder=None).exists()


def test_jobs_paused_for_want_of_their_type_are_resumed_by_a_worker_that_knows_it(workers, jobs):
    """E7: every such process by itself, and soon after its start; a pump does not know it and leaves it."""
    job_id = jobs.add("echo")
    cancellation.pause(job_id, by="test", reason="unregistered_type")
    assert jobs.state(job_id) == "paused"
    workers()
    jobs.wait(job_id, "completed", seconds=20)
