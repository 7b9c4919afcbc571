"""The watchdog of lanes (A49): which stand still and why, asked about once, in turn, and by nobody's move."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
import uuid
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.models import F
from django.urls import reverse

from jobs import publish
from jobs.conf import registry
from jobs.errors import Invalid, Refused
from jobs.models import Job, Timer
from jobs.outcomes import Completed
from jobs.services import declared, firing, intake, tenancy, timers
from jobs.services.draft import Options, Request
from jobs.services.timers import Draft
from jobs.worker.context import Run
from jobs.worker.executor import run_sync
from lanes import definitions, standstill, watchdog
from lanes.axes import Standing
from lanes.models import Lane, LaneJob, LaneReceipt
from lanes.services import lane_jobs, lanes
from lanes.standstill import Work
from lanes.store import watching
from tests.database import pass_time, rows
from tests.driver import Driver
from tests.lanes import making
from tests.lanes.test_lanes_admin import LANES, operator
from tests.making import statements
from tests.store import noise
from tests.worker.processes import REPOSITORY

NO_WORK, SUPERSEDED, STALLED = (
    "no_active_objective_work", "phase_supersession_has_active_stale_job", "active_objective_work_stalled")
AT_WORK = Standing("in_progress")
RECONCILE = {"type": "outside", "input": {"about": "the lane"}}
QUARTER = 15 * 60


@pytest.mark.parametrize(("work", "cause"), [
    ([], NO_WORK),
    ([Work(900)], None),
    ([Work(901)], STALLED),
    ([Work(901), Work(10)], None),
    ([Work(901), Work(5_000)], STALLED),
    ([Work(901, current=False), Work(10)], SUPERSEDED),
    ([Work(901, current=False), Work(901)], SUPERSEDED),
    ([Work(10, current=False)], None),
    ([Work(301, patience_s=300)], STALLED),
])
def test_why_work_stands_still(work: list[Work], cause: str | None) -> None:
    """A49: one rule for lanes and objectives; what is quiet for a quarter of an hour is believed no more."""
    assert standstill.cause(work) == cause


def lane(name: str = "lane", reconcile: Any = RECONCILE, **more: Any) -> Lane:
    return making.lane(name, AT_WORK, reconcile=reconcile, **more)


def give(row: Lane, type_: str = "echo", **options: Any) -> str:
    """A job of this lane."""
    return lane_jobs.enqueue(row.pk, Request(type_, {}, Options(**options)), by=making.conductor()).id


def cause_of(row: Lane) -> str | None:
    found = watchdog.standstills([row.pk]).get(row.pk)
    return found.cause if found else None


def asked() -> list[Job]:
    return list(Job.objects.filter(type="outside").order_by("id"))


def test_a_lane_stands_still_without_active_work(driver: Driver) -> None:
    """A49: only in progress; a job that waits, runs or is paused is active, one that has ended is not."""
    row = making.lane()
    assert cause_of(row) is None
    row = making.bring(row, AT_WORK, making.conductor())
    assert cause_of(row) == NO_WORK
    job_id = give(row)
    assert cause_of(row) is None
    driver.pause(job_id)
    assert cause_of(row) is None
    driver.cancel(job_id)
    assert cause_of(row) == NO_WORK
    lanes.set_state(row.pk, "done", by=making.conductor())
    assert cause_of(row) is None


def test_work_is_stalled_a_quarter_of_an_hour_after_its_last_heartbeat_or_receipt(driver: Driver) -> None:
    """A49: claims, heartbeats and progress count; what is not due yet is no standstill."""
    row = lane()
    give(row)
    pass_time(QUARTER - 60)
    job = driver.claim_one()
    pass_time(QUARTER - 60)
    driver.extend(job)
    pass_time(QUARTER - 60)
    assert cause_of(row) is None
    pass_time(120)
    assert cause_of(row) == STALLED
    driver.complete(job)
    assert cause_of(row) == NO_WORK
    give(row, delay_s=QUARTER)
    pass_time(QUARTER + 60)
    assert cause_of(row) is None
    pass_time(QUARTER)
    assert cause_of(row) == STALLED


def test_a_stale_job_of_an_earlier_phase_is_told_though_others_are_at_work(driver: Driver) -> None:
    """A49: the lane has changed since it got the job, and nothing is heard of it."""
    row = lane()
    give(row)
    pass_time(60)
    lanes.review(row.pk, "submit", by=making.conductor())
    lanes.review(row.pk, "request_changes", by=making.conductor())
    assert cause_of(row) is None
    pass_time(QUARTER)
    give(row)
    assert cause_of(row) == SUPERSEDED


def test_a_stale_job_of_an_older_generation_is_of_an_earlier_phase(driver: Driver) -> None:
    """A49: its target has been asked about again, and it is active all the same."""
    row = lane()
    old = give(row, target="thing")
    # By the book the newer one ends it in the same transaction; what a hand has done is what a watchdog is for.
    rows("UPDATE jobs_target SET generation = generation + 1 RETURNING 1")
    give(row)
    pass_time(QUARTER + 1)
    give(row)
    assert cause_of(row) == SUPERSEDED
    driver.cancel(old)
    assert cause_of(row) is None


def test_one_standstill_is_asked_about_once(driver: Driver) -> None:
    """A49: with the lane's own input, the reason and the cause; again when something has changed, and not before."""
    row = lane()
    first = watchdog.round_(10)
    assert (first.looked, first.standing, first.asked, first.after) == (1, 1, 1, None)
    [job] = asked()
    assert json.loads(job.input) == {"about": "the lane", "reason": "reconcile", "cause": NO_WORK}
    assert (job.origin, job.workspace_id, job.tenant.subject) == ("scheduler", row.workspace_id, None)
    assert watchdog.standstills([row.pk])[row.pk].job_id == job.pk
    pass_time(3_600)
    assert watchdog.round_(10).asked == 0
    driver.cancel(str(job.pk))
    assert (watchdog.round_(10).asked, len(asked())) == (0, 1)
    work = give(row)
    assert watchdog.round_(10).standing == 0
    driver.cancel(work)
    assert (watchdog.round_(10).asked, len(asked())) == (1, 2)
    lanes.review(row.pk, "submit", by=making.conductor())
    assert (watchdog.round_(10).asked, len(asked())) == (1, 3)


def test_a_job_that_is_heard_of_again_and_falls_silent_is_another_standstill(driver: Driver) -> None:
    """A49: what was heard last is part of what was seen; of an earlier phase, not what the others say."""
    row = lane()
    give(row)
    job = driver.claim_one()
    for n in (1, 2):
        driver.extend(job)
        pass_time(QUARTER + 60)
        assert (watchdog.round_(10).asked, watchdog.round_(10).asked, len(asked())) == (1, 0, n)
    lanes.review(row.pk, "submit", by=making.conductor())
    give(row)
    assert (watchdog.round_(10).asked, asked()[-1].input.count(SUPERSEDED)) == (1, 1)
    other = driver.claim_one()
    pass_time(60)
    driver.extend(other)
    assert (watchdog.round_(10).standing, watchdog.round_(10).asked) == (1, 0)


def test_many_that_look_at_once_ask_once(driver: Driver) -> None:
    """A49: four rounds at the same moment over the same lanes."""
    for n in range(5):
        lane(f"lane-{n}")
    start, found = threading.Barrier(4), []

    def look() -> None:
        try:
            start.wait(10)
            found.append(watchdog.round_(10).asked)
        finally:
            connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sum(found), len(found), len(asked())) == (5, 4, 5)


def test_it_writes_jobs_and_never_a_lane(driver: Driver) -> None:
    """A49, E14.14: not its job either: nothing of a lane, its receipts or its jobs is another than before."""
    row = lane()
    before = (making.snapshot(row), LaneJob.objects.count(), LaneReceipt.objects.count())
    with statements() as said:
        assert watchdog.round_(10).asked == 1
    assert (making.snapshot(row), LaneJob.objects.count(), LaneReceipt.objects.count()) == before
    assert not [sql for sql, _ in said if "lanes_" in sql and not sql.lstrip().startswith(("SELECT", "WITH seen"))]


def test_a_lane_without_a_job_for_it_is_reported(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A49: a line, and what reads tell; nothing is made."""
    row = lane(reconcile=None)
    with caplog.at_level(logging.WARNING, "lanes.watchdog"):
        told = watchdog.round_(10)
    assert (told.standing, told.alone, told.asked) == (1, 1, 0)
    assert f"lane {row.pk} stands still ({NO_WORK})" in caplog.text
    assert watchdog.standstills([row.pk])[row.pk].job_id is None
    assert not Job.objects.exists()


def test_a_type_without_fields_for_reason_and_cause_gets_the_lane_s_own_input(driver: Driver) -> None:
    """A49: a lane may name any job that there is."""
    lane(reconcile={"type": "echo", "input": {"value": "look"}})
    assert watchdog.round_(10).asked == 1
    assert json.loads(Job.objects.get(type="echo").input) == {"value": "look", "path": ""}


def test_what_refuses_one_lane_s_job_stops_no_other(driver: Driver, settings: Any,
                                                      caplog: pytest.LogCaptureFixture) -> None:
    """A49: a refusal, and a hook of the site's that raises; both come again in the next round."""
    first = lane("first")
    # Disabled since: a lane made now would not be given it.
    Lane.objects.filter(pk=first.pk).update(reconcile_type="disabled", reconcile_input="{}", version=F("version") + 1)
    lane("second", {"type": "secretive", "input": {}})
    lane("third")

    def hook(news: Any) -> None:
        if Job.objects.filter(pk__in=[n[0] for n in news], type="secretive").exists():
            raise Refused("not today")

    publish.in_transaction(hook)
    try:
        told = watchdog.round_(10)
    finally:
        publish.forget(hook)
    assert (told.refused, told.asked, [j.type for j in Job.objects.all()]) == (2, 1, ["outside"])
    assert "definition_disabled" in caplog.text
    assert watchdog.round_(10).asked == 1


def test_each_lane_has_its_turn_however_many_there_are(driver: Driver, settings: Any) -> None:
    """A49: a scan limit below their number; rounds go on where the one before ended, and a lost one costs a round."""
    made = [lane(f"lane-{n}") for n in range(7)]
    timer = timers.put(tenancy.tenant(tenancy.workspace(), None), "lane-watchdog",
                       Draft("lane-watchdog", {"scan_limit": 3}, every_s=60, overlap="skip"), by="test")
    seen: list[set[str]] = []
    for n in range(4):
        pass_time(60)
        firing.Timers().tick()
        job = driver.claim_one()
        if n == 1:
            # Its process is gone: nobody knows how far it came.
            driver.fail(job, retryable=False)
            continue
        definition = registry().find(job.type, job.version)
        outcome = run_sync(definition, job, Run(job, definition, "test"), "test")
        assert isinstance(outcome, Completed)
        driver.settle(job, outcome)
        told = json.loads(outcome.artifact)
        seen.append({str(row.pk) for row in made if watchdog.standstills([row.pk])[row.pk].job_id is not None})
        assert (told["after"] is None) == (n == 3)
    assert [len(one) for one in seen] == [3, 6, 7]
    assert watchdog.went_on_from(str(Timer.objects.get(pk=timer.pk).last_job_id)) is not None
    assert watchdog.went_on_from(str(uuid.uuid4())) is None


def test_a_round_looks_at_so_many_and_no_more(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A49: 200 unless it is said, 1 to 2,000, by two statements a look of at most 200."""
    for n in range(3):
        lane(f"lane-{n}", None)
    monkeypatch.setattr(watchdog, "TOGETHER", 2)
    assert watchdog.round_(0).looked == 1
    with statements() as said:
        assert watchdog.round_(5_000).looked == 3
    assert len(said) == 4
    assert [standstill.clamped(n) for n in (-1, 200, 2_000, 2_001)] == [1, 200, 2_000, 2_000]


@pytest.mark.parametrize(("said", "timeout_s"), [({}, 60), ({"WATCHDOG_TIMEOUT_S": 1.0}, 10)])
def test_a_round_may_take_so_long_and_is_never_tried_again(said: dict[str, Any], timeout_s: float) -> None:
    """A49: a timeout of 60 s, never below 10; the next round is due in a minute anyway."""
    made = definitions.definition(said)
    assert (made.name, made.timeout_s, made.retry, made.dead_letter) == ("lane-watchdog@1", timeout_s, None, False)


@pytest.mark.parametrize(("env", "crons"), [
    ({"LANES_WATCHDOG": "on"}, {"lane-watchdog": "* * * * *"}), ({"LANES_WATCHDOG": "off"}, {}),
    ({"LANES_WATCHDOG": "on", "LANES_WATCHDOG_CRON": "*/5 * * * *", "FACTORY_WATCHDOG_CRON": "* * * * *"},
     {"lane-watchdog": "*/5 * * * *", "factory-watchdog": "* * * * *"}),
    ({"LANES_WATCHDOG": "off", "FACTORY_WATCHDOG_CRON": "* * * * *", "FACTORY_WATCHDOG": "off"}, {})], ids=str)
def test_the_site_s_timers_run_its_watchdogs(env: dict[str, str], crons: dict[str, str]) -> None:
    """A49, D13, E9: each minute, one round at a time, and each can be switched off."""
    code = "from jobsite import settings; import json; print(json.dumps(settings.JOBS['TIMERS']))"
    said = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, cwd=REPOSITORY, check=True,
                          capture_output=True, text=True).stdout
    told = json.loads(said)
    assert {name: one["cron"] for name, one in told.items()} == crons
    assert {one["overlap"] for one in told.values()} <= {"skip"}


def test_the_declared_timer_fires_a_round(driver: Driver, settings: Any) -> None:
    """A49, D13: from the settings to the reconcile job, as any process with loops does it."""
    settings.JOBS = {**settings.JOBS, "TIMERS": {"lane-watchdog": {
        "type": "lane-watchdog", "cron": "* * * * *", "overlap": "skip"}}}
    declared.sync()
    lane()
    pass_time(60)
    firing.Timers().tick()
    job = driver.claim_one()
    definition = registry().find(job.type, job.version)
    driver.settle(job, run_sync(definition, job, Run(job, definition, "test"), "test"))
    assert [(one.type, one.origin) for one in asked()] == [("outside", "scheduler")]


@pytest.mark.parametrize("most", [0, 2_001, True, "200"])
def test_a_scan_limit_that_cannot_be_is_said(most: Any) -> None:
    """A49."""
    with pytest.raises(ImproperlyConfigured, match="1 to 2000"):
        definitions.definition({"WATCHDOG_SCAN_LIMIT": most})


@pytest.mark.parametrize(("said", "words"), [
    ({"WATCHDOG_SCAN_LIMITS": 5}, "did you mean 'WATCHDOG_SCAN_LIMIT'"), ({"CRON": "x"}, "is no setting"),
    ({"WATCHDOG_TIMEOUT_S": "60"}, "must be a number of seconds"),
    ({"WATCHDOG_TIMEOUT_S": float("nan")}, "must be a number of seconds")])
def test_a_word_of_the_settings_that_means_nothing_is_said(said: dict[str, Any], words: str) -> None:
    """A49, E14: it would else be the default without a word."""
    with pytest.raises(ImproperlyConfigured, match=words):
        definitions.definition(said)


def test_nobody_but_the_site_asks_for_a_round(driver: Driver) -> None:
    """A49: its door is the timers'; and a payload's limit is bounded."""
    with pytest.raises(Refused, match="may not be enqueued by a user"):
        intake.enqueue("lane-watchdog")
    for bad in (0, 2_001):
        with pytest.raises(Invalid) as refused:
            intake.enqueue("lane-watchdog", {"scan_limit": bad}, door=intake.TIMER)
        assert [fault["field"] for fault in refused.value.faults] == ["/scan_limit"]


def test_a_look_reads_neither_the_other_lanes_nor_their_history(driver: Driver) -> None:
    """A49: 5,000 lanes that are open, and one in progress with 10,000 jobs behind it, of which 200 are looked at; and
    beside it one without any, for which not all of these are looked through.
    """
    row, small, quorum = lane(), lane("small"), making.quorum()
    noise.execute(f"""INSERT INTO lanes_lane (id, quorum_id, workspace_id, name, title, branch, task, assignee,
            assignee_user, execution, review, merge, version, by)
        SELECT gen_random_uuid(), '{quorum.pk}', {row.workspace_id}, 'n-' || n, '', 'n/' || n, 't', 'user:x', '1',
            'open', 'none', 'none', 1, 'test' FROM generate_series(1, 5000) n""")
    noise.jobs(10_000, row.workspace_id, tenancy.tenant(tenancy.workspace(), None).pk, state="completed",
               ended="jobs_now()")
    noise.execute(f"""INSERT INTO lanes_job (job_id, lane_id, by)
        SELECT id, '{row.pk}', 'test' FROM jobs_job ORDER BY id""")
    noise.execute("ANALYZE lanes_lane, lanes_job, jobs_job")
    with statements() as said:
        seen = watching.after(watching.FIRST, 200)
    assert [one.id for one in seen] == [row.pk, small.pk]
    [(sql, params)] = said
    plan = noise._explain(sql, params)
    # By keys, and not one of the rest.
    read = {(kind, table) for kind, table, _ in noise._walk(plan)}
    assert not {("Seq Scan", table) for table in ("lanes_lane", "lanes_job", "jobs_job")} & read
    assert "lanes_job_pkey" not in str(plan)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 4_000


def test_a_lane_s_page_in_the_admin_says_why_it_stands_still(driver: Driver) -> None:
    """A49: what is only reported is seen where operators look, and so is the job that looks into the others."""
    client, alone, helped = operator(), lane("alone", None), lane("helped")
    watchdog.round_(10)

    def said(row: Lane) -> str:
        return str(client.get(f"{LANES}{row.pk}/change/").content.decode())

    assert re.search(r"none of its jobs is active since [-:0-9 ]{19}: no job looks into it", said(alone))
    assert f"none of its jobs is active since {asked()[0].created_at:%Y}" in said(helped)
    assert reverse("admin:jobs_job_change", args=[asked()[0].pk]) in said(helped)
    give(helped)
    assert "none of its jobs is active" not in said(helped)
