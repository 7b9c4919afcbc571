"""The line between jobs and lanes (D6, D13, E14.14, E14.23).

No path of job code writes a lane: while all of them run, whoever writes a table of lanes is refused and counted, though
its transaction is undone. No claim and no end of a job reads one: another session holds all of these tables, so that
whoever looks would wait. And what becomes of a lane is nothing to its jobs.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from jobs.models import Job, Receipt
from jobs.receipts import Kind
from jobs.services import (
    commands,
    erasure,
    intake,
    operations,
    owners,
    recovery,
    tenancy,
    throttles,
    timers,
)
from jobs.services.duties import Duties
from jobs.services.timers import Draft
from jobs.states import MOVES, Verb
from jobs.store import moves
from jobs.store.meant import JobMatch
from jobs.store.sql import durable
from jobs.worker.loops import loops
from jobs.worker.output import Output
from jobs.worker.plan import Plan
from jobs.worker.runner import Worker
from lanes.axes import Standing
from lanes.models import Lane, LaneJob
from lanes.services import lanes
from tests.database import pass_time, row_hash, rows
from tests.driver import Driver
from tests.edges.caller import Caller
from tests.edges.routes import ROUTES, path_of
from tests.edges.test_api_isolation import _things
from tests.lanes import making
from tests.making import in_state, limit, move_of
from tests.services.calling import allowing, url
from tests.sinks import Sink
from tests.store.noise import execute
from tests.worker.processes import database_url as url_of_database

TABLES = sorted(model._meta.db_table for model in apps.get_app_config("lanes").get_models())
AT_WORK = Standing("in_progress")
LEGAL = sorted(pair for pair in MOVES if pair[1] is not Verb.CLAIM)
# Longer than anything is kept.
AGES_S = 40 * 86_400


@contextmanager
def guarded() -> Iterator[Callable[[], int]]:
    """Within, nobody writes a table of lanes but people; how many have tried, which no rollback takes back."""
    execute("""CREATE SEQUENCE attempts_on_lanes;
        CREATE FUNCTION no_lane_is_written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval('attempts_on_lanes');
            RAISE EXCEPTION 'job code writes %', TG_TABLE_NAME; END $$""")
    for table in TABLES:
        execute(f"""CREATE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT WHEN (current_setting('tests.people', true) IS DISTINCT FROM 'on')
            EXECUTE FUNCTION no_lane_is_written()""")
    try:
        yield lambda: int(rows("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM attempts_on_lanes")[0][0])
    finally:
        execute("DROP FUNCTION no_lane_is_written CASCADE; DROP SEQUENCE attempts_on_lanes")


@contextmanager
def out_of_sight() -> Iterator[None]:
    """Within, every look at a table of lanes waits, and fails after three seconds."""
    with psycopg.connect(url_of_database()) as holder:
        holder.execute(f"LOCK TABLE {', '.join(TABLES)} IN ACCESS EXCLUSIVE MODE")
        database = connection.ops.quote_name(connection.settings_dict["NAME"])
        # For sessions that begin meanwhile too, as a worker's own.
        execute(f"SET lock_timeout = '3s'; ALTER DATABASE {database} SET lock_timeout = '3s'")
        try:
            yield
        finally:
            execute(f"RESET lock_timeout; ALTER DATABASE {database} RESET lock_timeout")


def belongs(row: Lane, *job_ids: str) -> None:
    """These jobs are this lane's, as a person has made them."""
    with transaction.atomic():
        execute("SET LOCAL tests.people = 'on'")
        LaneJob.objects.bulk_create([LaneJob(job_id=id_, lane_id=row.pk, by="user:ann") for id_ in job_ids],
                                    ignore_conflicts=True)


def everything_moved(driver: Driver, row: Lane) -> None:
    """Every move that there is, of jobs that are the lane's."""
    for state, verb in LEGAL:
        made = in_state(driver, state)
        belongs(row, made.id)
        [answer] = durable(lambda verb=verb, made=made: moves.apply([move_of(verb, made)]))  # type: ignore[misc]
        assert isinstance(answer, moves.Moved), answer
        if driver.job(made.id).ended_at is None:
            driver.cancel(made.id)


def said_of_jobs(driver: Driver, row: Lane) -> None:
    """What else may be said of a job: stages, checkpoints, commands, answers, other inputs, redaction."""
    made = driver.enqueue("staged")
    belongs(row, made)
    job = driver.claim_one()
    driver.extend(job)
    sent = commands.send(made, "steer", {}, by="test")
    driver.consume(job, str(sent.command))
    driver.send(made, "abort")
    driver.stop(job)
    erasure.redact_job(made, by="test", reason="asked")
    for answer in (driver.requeue, driver.discard):
        made = driver.enqueue()
        belongs(row, made)
        driver.fail(driver.claim_one(), retryable=False)
        answer(made)
        if driver.job(made).ended_at is None:
            driver.cancel(made)


def run_by_a_worker(row: Lane, sink: Sink) -> None:
    """A worker's whole way, and a pump's, with jobs that complete, fail, are tried again and tell stages, with
    callbacks, and with the watchdog itself.
    """
    ids = [intake.enqueue("echo", {}, callback_url=url(sink)).id]
    ids += [intake.enqueue(type_, {}).id for type_ in ("echo", "echo-thread", "breaks", "never-retried", "staged")]
    belongs(row, *ids)
    watch = intake.enqueue("lane-watchdog", {}, door=intake.TIMER).id
    plan = Plan("here", 4, ["default", "system", "unrouted"], ["collect"], until_empty=True, loops=False, listen=False)
    Worker(plan, Output(io.StringIO())).run()
    assert Job.objects.get(pk=watch).state == "completed"
    assert [got.told["data"]["id"] for got in sink.got] == ids[:1]
    assert set(Job.objects.filter(pk__in=ids).values_list("state", flat=True)) <= {"completed", "failed", "queued"}


def every_duty(driver: Driver, row: Lane) -> None:
    """Work for each of the loops, and then round after round until there is none left."""
    here = tenancy.workspace()
    doomed = tenancy.tenant(here, "doomed", make=True)
    late = [driver.enqueue(delay_s=60), driver.enqueue(deadline_s=5), driver.enqueue(tenant="doomed")]
    belongs(row, *late)
    owners.put(doomed, "vault/1", by="test", expires_at=None)
    throttles.pause("queue", "chat", by="test", reason="x", for_s=60)
    limit(tenant_concurrency=1)
    timers.put(tenancy.tenant(here, None), "each-minute", Draft("echo", cron="* * * * *"), by="test")
    held = driver.claim_one()
    operations.begin("cancel", JobMatch(tenant_id=doomed.pk), by="test", reason="x")
    erasure.delete(doomed, by="test", reason="x")
    for seconds in (0, 120, AGES_S):
        pass_time(seconds)
        for loop in loops(recovery.Registered.external()):
            for _ in range(50):
                if not loop._tick(loop._limit):
                    break
        for duties in (Duties(), Duties(looped=True)):
            duties.now()
            duties.tick()
    assert held.id not in {str(id_) for id_ in Job.objects.filter(state="leased").values_list("id", flat=True)}
    assert not Job.objects.filter(tenant=doomed.pk).exists()


def asked_of_the_api(row: Lane, caller: Caller, made: dict[str, str]) -> None:
    """Every route that writes, but those of lanes, about things of one tenant whose jobs are the lane's."""
    belongs(row, made["job"], made["done"])
    whole = Caller()
    answers = {route: (whole if entry.whole else caller).send(
        route.partition(" ")[0], path_of(route, made.get(entry.kind, "")), entry.body).status_code
        for route, entry in ROUTES.items() if not route.startswith("GET") and entry.permission != "lanes"}
    assert max(answers.values()) < 500, answers
    assert sum(status < 300 for status in answers.values()) > len(answers) / 2, answers


# --- nothing of a job's moves a lane ---------------------------------------------------------------------------------


def test_no_path_of_job_code_writes_a_lane(driver: Driver, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """E14.14, D10, D13, D6: every move, verb, route and duty, a worker's whole way, the watchdog; lanes stay."""
    settings.ROOT_URLCONF = "tests.edges.urls"
    monkeypatch.setattr(recovery.Recovery, "_stand_still", lambda self: False)
    here = [making.lane(f"lane-{n}", at) for n, at in enumerate((
        AT_WORK, Standing("open"), Standing("done", "approved"), Standing("in_progress", "submitted")))]
    before = [making.snapshot(row) for row in here]
    mine = Caller(tenant="mine")
    things = _things(mine, "default")
    with guarded() as attempts, Sink() as sink:
        allowing(settings, sink)
        asked_of_the_api(here[0], mine, things)
        for job_id, in Job.objects.filter(ended_at=None).values_list("pk"):
            driver.cancel(job_id)
        everything_moved(driver, here[0])
        said_of_jobs(driver, here[1])
        run_by_a_worker(here[2], sink)
        every_duty(driver, here[3])
        assert attempts() == 0
    assert [making.snapshot(row) for row in here] == before
    assert set(Receipt.objects.values_list("kind", flat=True).distinct()) <= set(Kind)


def test_whoever_writes_a_lane_behind_the_line_is_seen(driver: Driver) -> None:
    """The guard itself: refused, and counted though it is swallowed and undone."""
    row = making.lane()
    with guarded() as attempts:
        for number, write in enumerate((
                lambda: Lane.objects.filter(pk=row.pk).update(title="x"), lambda: LaneJob.objects.all().delete(),
                lambda: lanes.set_state(row.pk, "cancelled", by=making.conductor())), 1):
            with pytest.raises(DatabaseError, match="job code writes lanes_"), transaction.atomic():
                write()
            assert attempts() == number
        belongs(row, driver.enqueue())
        assert attempts() == 3


# --- nothing of a claim reads one ------------------------------------------------------------------------------------


def test_jobs_are_claimed_run_and_settled_while_nobody_can_see_a_lane(driver: Driver,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """D6, E14.14: claim checks the lease, not the org chart. Enqueue, a worker, each end, recovery, promotion."""
    monkeypatch.setattr(recovery.Recovery, "_stand_still", lambda self: False)
    row = making.lane("lane", AT_WORK)
    ids = [driver.enqueue() for _ in range(8)]
    belongs(row, *ids)
    with out_of_sight():
        held = driver.claim(5)
        driver.start(held[0])
        driver.extend(held[0])
        for job, end in zip(held, (driver.complete, driver.fail, driver.release, driver.interrupt, driver.stop),
                            strict=True):
            end(job)
        lapsed = driver.claim_one()
        driver.enqueue(target="thing", delay_s=1)
        driver.enqueue(target="thing")
        pass_time(60)
        assert (driver.recover(), driver.state(lapsed.id)) == (1, "queued")
        Worker(Plan("here", 4, ["default"], ["collect"], until_empty=True, loops=False, listen=False),
               Output(io.StringIO())).run()
        execute("SET lock_timeout = '50ms'")
        with pytest.raises(DatabaseError, match="lock timeout"):
            Lane.objects.count()
    assert set(Job.objects.values_list("state", flat=True)) <= {"completed", "superseded", "cancelled", "queued"}
    assert Job.objects.filter(state="completed").count() >= 7


def test_no_row_of_jobs_and_no_trigger_on_them_knows_a_lane(database: None) -> None:
    """D6: foreign keys lead from lanes to workspaces and nowhere else; none leads to a lane but a lane's own."""
    keys = rows("SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint WHERE contype = 'f'"
                " AND (conrelid::regclass::text LIKE 'lanes\\_%') <> (confrelid::regclass::text LIKE 'lanes\\_%')")
    assert {(a.partition("_")[0], b) for a, b in keys} == {("lanes", "jobs_workspace")}
    assert rows("""SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE t.tgrelid::regclass::text LIKE 'jobs\\_%' AND p.prosrc ~ 'lanes?_'""") == []


# --- and what becomes of a lane is nothing to its jobs ---------------------------------------------------------------


@pytest.mark.parametrize("at", [Standing("open"), AT_WORK, Standing("done", "approved", "merged"),
                                Standing("failed"), Standing("cancelled")], ids=str)
def test_jobs_of_a_lane_are_claimed_wherever_it_stands_and_a_job_needs_none(driver: Driver, at: Standing) -> None:
    """D6, D15, E14.23: in the order of the queue, as those without a lane."""
    row = making.lane("lane", at)
    ids = [driver.enqueue() for _ in range(3)]
    belongs(row, ids[0], ids[2])
    before = making.snapshot(row)
    held = driver.claim(3)
    assert [job.id for job in held] == ids
    driver.complete(held[0])
    driver.complete(held[1])
    driver.fail(held[2], retryable=False)
    assert making.snapshot(row) == before


def test_lanes_that_move_or_go_change_no_claim(driver: Driver) -> None:
    """E14.23: a held job goes on and a waiting one is claimed, though their lane is given up, and then is gone."""
    row = making.lane("lane", AT_WORK)
    held_id, waiting = driver.enqueue(), driver.enqueue()
    belongs(row, held_id, waiting)
    held = driver.claim_one()
    seen = [row_hash(held_id), row_hash(waiting)]
    lanes.review(row.pk, "submit", by=making.conductor())
    lanes.set_state(row.pk, "cancelled", by=making.conductor())
    with transaction.atomic():
        execute("SET LOCAL jobs.erasing = 'on'")
        execute("DELETE FROM lanes_receipt; DELETE FROM lanes_job; DELETE FROM lanes_lane; DELETE FROM lanes_quorum")
    assert [row_hash(held_id), row_hash(waiting)] == seen
    assert driver.extend(held)
    driver.complete(held)
    driver.complete(driver.claim_one())
    assert set(Job.objects.values_list("state", flat=True)) == {"completed"}
