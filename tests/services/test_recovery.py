"""Lapsed leases: found whatever lies before them, believed as long as they beat, and standing still after an outage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from jobs import RetryPolicy, clock
from jobs.conf import conf
from jobs.leases import heartbeat_s
from jobs.models import Attempt, Job, Leader
from jobs.services import leaders, recovery
from jobs.services.intake import Options, Request, enqueue_many
from jobs.services.recovery import BATCH, Recovery
from jobs.store.sql import NotInTransaction, durable
from tests import database as db
from tests.driver import Driver, quiet_recovery
from tests.races.threads import elsewhere


def claim_all(driver: Driver) -> list[Any]:
    from jobs.store.claim import claim

    return durable(lambda: claim(driver.claimer, 10_000)).jobs


@pytest.mark.parametrize(("late_s", "ended"), [(29, 0), (31, 0), (34.5, 0), (35.5, 1), (10**7, 1)])
def test_a_lease_is_recovered_after_its_grace(driver: Driver, late_s: float, ended: int) -> None:
    """C35, E8: lease 30 s + 5 s, also for moments in a far past (case-A19)."""
    job_id = driver.enqueue()
    driver.claim_one()
    driver.pass_time(late_s)
    assert driver.recover() == ended
    assert driver.state(job_id) == ("queued" if ended else "leased")


def test_a_job_that_beats_is_left_alone_however_long_it_runs(driver: Driver) -> None:
    """case-A04: liveness by heartbeats and not by the age of the start; one attempt and no lease_expired receipt."""
    job_id = driver.enqueue()
    job = driver.claim_one()
    driver.start(job)
    for _ in range(30):
        driver.pass_time(20)
        assert driver.extend(job) != {}
        assert driver.recover() == 0
    assert driver.complete(job).state == "completed"
    assert Attempt.objects.filter(job_id=job_id).count() == 1


def test_a_full_batch_that_may_not_be_recovered_hides_nothing(driver: Driver) -> None:
    """case-A20: batch size + 200 live attempts first, ten lapsed ones behind them, found in one pass."""
    fresh = BATCH + 200
    enqueue_many([Request("echo", {"value": str(n)}) for n in range(fresh + 10)])
    assert len(claim_all(driver)) == fresh + 10
    newest = Job.objects.order_by("-id").values_list("id", flat=True)[:10]
    late = {str(i) for i in newest}
    Attempt.objects.filter(job_id__in=late).update(lease_until=clock.now() - timedelta(seconds=60))
    assert quiet_recovery().run() == 10
    assert {str(i) for i in Job.objects.filter(state="queued").values_list("id", flat=True)} == late


def test_ticks_go_on_where_the_last_one_stopped(driver: Driver) -> None:
    """case-A20: bounded batches, round and round."""
    enqueue_many([Request("echo", {"value": str(n)}) for n in range(9)])
    claim_all(driver)
    driver.pass_time(60)
    here = quiet_recovery()
    assert [here.tick(4) for _ in range(3)] == [True, True, False]
    assert Job.objects.filter(state="queued").count() == 9


def test_thousands_of_lapsed_rows_of_every_sort_are_resolved(driver: Driver) -> None:
    """case-A19: unknown types and versions, no worker, no budget left; nothing stays in running."""
    enqueue_many([Request("echo", {"value": str(n)}, Options(retry=RetryPolicy(1) if n % 2 else intake_site()))
                  for n in range(1_000)])
    claim_all(driver)
    db.rows(
        "UPDATE jobs_job SET type = 'gone', version = 7 WHERE id IN (SELECT id FROM jobs_job LIMIT 300) RETURNING 1"
    )
    db.rows("UPDATE jobs_attempt SET worker_id = NULL, lease_until = '2001-01-01' WHERE number > 0 RETURNING 1")
    assert quiet_recovery().run() == 1_000
    assert {
        j.state: j.n
        for j in Job.objects.raw("SELECT min(id::text)::uuid AS id, state, count(*) AS n FROM jobs_job GROUP BY state")
    } == {"failed": 500, "queued": 500}


def intake_site() -> Any:
    from jobs.registry import SITE

    return SITE


def test_a_heartbeat_between_the_look_and_the_lock_saves_the_job(driver: Driver) -> None:
    """E8: an attempt is ended only as far as it is still lapsed when locked."""
    from jobs.store import due

    driver.enqueue()
    job = driver.claim_one()
    driver.pass_time(60)
    found = due.look(0, due.FIRST, 10).lapsed
    assert found == [(job.id, job.fence)]
    driver.extend(job)
    assert durable(lambda: due.lapse(found, 0, "test")) == []
    assert driver.state(job.id) == "leased"


def test_a_job_that_somebody_holds_locked_is_left_for_the_next_round(driver: Driver) -> None:
    """DESIGN 4: recovery skips and never waits."""
    driver.enqueue()
    driver.enqueue()
    jobs = driver.claim(2)
    driver.pass_time(60)
    with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", jobs[0].id):
        assert quiet_recovery().run() == 1
    assert quiet_recovery().run() == 1


@pytest.fixture(autouse=True)
def _usual_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    # Definitions of tests have leases of three seconds, with which every change of leaders is a gap.
    monkeypatch.setattr(recovery, "_leases_s", lambda: [conf().LEASE_S])


@pytest.mark.parametrize("lease", [3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 300.0])
def test_no_outage_that_ends_leases_is_taken_for_a_change_of_leaders(settings: Any, lease: float) -> None:
    """E8: whoever was cut off just before a heartbeat lapses after lease - heartbeat + grace; the hold comes first."""
    settings.JOBS = {**settings.JOBS, "LEASE_S": lease, "DRAIN_GRACE_S": 0.5}
    lapses = lease - heartbeat_s(lease) + conf().RECOVERY_GRACE_S
    assert recovery.every_s() < recovery.gap_s() < max(lapses, 1.6 * recovery.every_s())


@pytest.fixture
def old_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database server that has been up for long."""
    monkeypatch.setattr(recovery, "server_age", lambda: timedelta(days=1))


def ticks(driver: Driver, *steps: float, beats: Any = None) -> list[int]:
    """How many attempts each full pass ended, so many seconds of the database's clock apart; a holder may beat."""
    answers = []
    for step in steps:
        driver.pass_time(step)
        # Another process each time: what it knows of outages is the fleet's.
        answers.append(Recovery().run())
        if beats:
            driver.extend(beats)
    return answers


def test_recovery_stands_still_while_the_server_is_young(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """E8: for one heartbeat interval and the grace after the database's start, also the very first time."""
    driver.enqueue()
    driver.claim_one()
    driver.pass_time(60)
    monkeypatch.setattr(recovery, "server_age", lambda: timedelta(seconds=14))
    assert Recovery().run() == 0
    monkeypatch.setattr(recovery, "server_age", lambda: timedelta(seconds=16))
    assert Recovery().run() == 1


def test_recovery_stands_still_after_a_gap_in_the_fleets_ticks(driver: Driver, old_server: None) -> None:
    """E8: an outage must not lapse the whole fleet; after it has watched for a while it goes on."""
    Recovery().run()
    driver.enqueue()
    driver.claim_one()
    assert ticks(driver, 60, 5, 5, 4, 2) == [0, 0, 0, 0, 1]


def test_a_change_of_leaders_is_no_gap(driver: Driver, old_server: None) -> None:
    """E8, case-F06: the leader died right after a pass, and its lease had to run out."""
    Recovery().run()
    driver.enqueue()
    driver.claim_one()
    dead_s = recovery.every_s() + leaders.lease_s(recovery.every_s()) + leaders.RENEW_S
    assert ticks(driver, 10, 10, dead_s) == [0, 0, 1]


def test_a_forward_jump_of_the_databases_clock_lapses_no_fleet(driver: Driver, old_server: None) -> None:
    """E8: it holds as after a gap, time enough for every holder to beat; who does not is recovered after that."""
    for _ in range(2):
        driver.enqueue()
    alive, dead = driver.claim(2)
    assert ticks(driver, 5, 5, 3_600, 5, 5, 4, 2, beats=alive) == [0, 0, 0, 0, 0, 0, 1]
    assert (driver.state(alive.id), driver.state(dead.id)) == ("leased", "queued")


def test_a_jump_while_it_stands_still_is_another_one(driver: Driver, old_server: None) -> None:
    """E8: a machine that was paused finds a gap, and then its clock is set right."""
    Recovery().run()
    driver.enqueue()
    alive = driver.claim_one()
    assert ticks(driver, 60, 5, 3_600, 5, 5, 5, 5, beats=alive) == [0] * 7
    assert Leader.objects.get().holds == 0


def test_a_clock_that_was_set_back_neither_holds_nor_lapses(driver: Driver, old_server: None) -> None:
    """E8: bounded by the quiet span, also where it had been standing still until a moment that is far away now."""
    Recovery().run()
    driver.enqueue()
    job = driver.claim_one()
    assert ticks(driver, 60, beats=job) == [0]
    assert ticks(driver, -10_000, 5, 5, 4, 2) == [0] * 5
    assert Leader.objects.get().hold_until is None
    assert ticks(driver, *[15] * 2) == [0, 0]
    assert Leader.objects.get().hold_until is None


def test_who_ticks_rarely_still_recovers(driver: Driver, old_server: None) -> None:
    """C35, E8: after a gap it stands still and waits the gap out; the tick after that is good, however late it is."""
    def goes(*steps: float) -> list[bool]:
        answers = []
        for step in steps:
            driver.pass_time(step)
            answers.append(not Recovery()._stand_still())
        return answers

    assert goes(0, 20, 20, 20, 20) == [True, False, True, False, True]
    assert goes(3_600, 3_600, 3_600, 3_600) == [False, False, True, False]


def test_one_process_at_a_time_notes_a_round(driver: Driver, old_server: None) -> None:
    """E8: who meets another at the row waits for nothing and leaves the round to that one."""
    driver.enqueue()
    driver.claim_one()
    assert ticks(driver, 12, 12) == [0, 0]
    driver.pass_time(12)
    with elsewhere("SELECT 1 FROM jobs_leader WHERE duty = 'recovery' FOR NO KEY UPDATE"):
        assert Recovery().run() == 0
    assert Recovery().run() == 1


def test_a_claim_leaves_recovery_to_a_leader_that_is_at_it(driver: Driver, old_server: None) -> None:
    """C35, E8: and does it itself as soon as no leader has been at it, or none is believed any more."""
    leader = leaders.Leadership({"recovery": 10.0})
    driver.enqueue()
    driver.claim_one()
    assert ticks(driver, 12, 12) == [0, 0]
    driver.pass_time(12)
    leader.renew()
    assert Recovery(aside=True).run() == 0
    assert Recovery().run() == 1
    driver.claim_one()
    answers = []
    for _ in range(3):
        driver.pass_time(12)
        answers.append(Recovery(aside=True).run())
    assert answers == [0, 0, 1]


def test_the_servers_age_is_its_own(database: None) -> None:
    """E8."""
    assert recovery.server_age() > timedelta(0)


def test_recovery_refuses_to_hide_in_a_transaction(driver: Driver) -> None:
    """DESIGN 4: it is durable."""
    with transaction.atomic(), pytest.raises(NotInTransaction):
        Recovery().tick()
