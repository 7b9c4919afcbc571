"""What has outlived its time goes, with all that belongs to it, and nothing else; a tick is bounded."""

from __future__ import annotations

import itertools
import json
import re
import threading
from typing import Any

import pytest
from django.core.checks import Error
from django.db import DatabaseError, connection, transaction

from jobs import checks
from jobs.models import Artifact, Attempt, Command, DeadLetter, Job, Receipt, Target
from jobs.services import dead_letters, intake
from jobs.services.retention import LIMIT, Retention, keeps
from jobs.store import due, erase
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, check
from tests.making import default_workspace, statements, tenant_id
from tests.races.threads import elsewhere
from tests.services.kept import HOUR
from tests.store import noise

DAY = 86_400.0
MONTH = 30 * DAY


@pytest.fixture(autouse=True)
def _definitions(settings: Any) -> None:
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.services.kept"]}


def a_pass(limit: int = LIMIT) -> int:
    """One full pass; in how many ticks."""
    here, ticks = Retention(), 1
    while here.tick(limit):
        ticks += 1
    return ticks


def left(*ids: object) -> dict[str, int]:
    """In which tables any of these ids still stands, in whatever column."""
    found = {}
    for table, in db.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'jobs\\_%'"):
        for id_ in ids:
            if n := db.rows(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", f"%{id_}%")[0][0]:
                found[table] = found.get(table, 0) + n
    return found


def ended(driver: Driver, type_: str = "echo", **options: Any) -> str:
    """A completed job."""
    job_id = driver.enqueue(type_, **options)
    driver.complete(driver.claim_one())
    return job_id


def failed(driver: Driver, type_: str = "echo") -> tuple[str, DeadLetter]:
    """A failed job with its open dead letter."""
    job_id = driver.enqueue(type_)
    driver.fail(driver.claim_one(), retryable=False)
    return job_id, DeadLetter.objects.get(job_id=job_id, resolved_at=None)


def remain(*ids: str) -> list[bool]:
    """Which of these jobs are still there."""
    there = {str(pk) for pk in Job.objects.values_list("pk", flat=True)}
    return [i in there for i in ids]


# --- what goes ------------------------------------------------------------------------------------------------------


def test_an_ended_job_goes_after_its_time_with_all_that_is_its(driver: Driver) -> None:
    """E13: 30 days after its end and not before; in no table of ours is anything left of it."""
    done = ended(driver, "echo", idempotency_key="once", target="report:7")
    broken, letter = failed(driver)
    dead_letters.discard(letter, by="user:test")
    stopped = driver.enqueue()
    driver.cancel(stopped)
    Command.objects.create(job_id=done, kind="steer", payload="{}", payload_hash=b"0", by="user:test",
                           tenant_id=tenant_id())
    ids = [done, broken, stopped]
    ids += [str(pk) for pk in Attempt.objects.values_list("pk", flat=True)]
    assert {"jobs_job", "jobs_receipt", "jobs_attempt", "jobs_artifact", "jobs_command", "jobs_dead_letter"} \
        <= left(*ids).keys()
    db.pass_time(MONTH - 60)
    a_pass()
    assert remain(done, broken, stopped) == [True] * 3
    db.pass_time(120)
    a_pass()
    assert left(*ids) == {}
    assert Target.objects.get().generation == 1


def test_a_job_that_has_not_ended_stays_however_old_it_is(driver: Driver) -> None:
    """E13: queued, held, paused."""
    ids = [driver.enqueue() for _ in range(4)]
    driver.start(driver.claim(2)[0])
    driver.pause(ids[3])
    db.pass_time(400 * DAY)
    a_pass()
    assert remain(*ids) == [True] * 4


def test_the_time_counts_from_the_end(driver: Driver) -> None:
    """E13: made long ago, ended yesterday."""
    job_id = driver.enqueue()
    db.pass_time(2 * MONTH)
    driver.complete(driver.claim_one())
    db.pass_time(DAY)
    a_pass()
    assert remain(job_id) == [True]
    db.pass_time(MONTH)
    a_pass()
    assert remain(job_id) == [False]


def test_definitions_have_the_last_word(driver: Driver, settings: Any) -> None:
    """E13: shorter, or never; what the site says is for the others, and it may say never too."""
    never, hour, site = ended(driver, "kept-for-ever"), ended(driver, "kept-for-an-hour"), ended(driver)
    settings.JOBS = {**settings.JOBS, "RETENTION_S": None}
    db.pass_time(HOUR + 60)
    a_pass()
    assert remain(never, hour, site) == [True, False, True]
    db.pass_time(400 * DAY)
    a_pass()
    assert remain(never, site) == [True, True]
    settings.JOBS = {**settings.JOBS, "RETENTION_S": 60}
    a_pass()
    assert remain(never, site) == [True, False]


def test_types_that_this_process_does_not_know_are_kept(driver: Driver) -> None:
    """E7, E13: in another process they may be kept for ever."""
    gone, other = ended(driver), ended(driver)
    db.rows("UPDATE jobs_job SET type = 'gone' WHERE id = %s RETURNING 1", gone)
    db.rows("UPDATE jobs_job SET version = 7 WHERE id = %s RETURNING 1", other)
    db.pass_time(400 * DAY)
    a_pass()
    assert remain(gone, other) == [True, True]


def test_keys_live_as_long_as_the_job(driver: Driver) -> None:
    """E6, E13: known until then, free after."""
    job_id = ended(driver, idempotency_key="once")
    assert intake.enqueue("echo", {}, idempotency_key="once").id == job_id
    db.pass_time(MONTH + 60)
    a_pass()
    assert intake.enqueue("echo", {}, idempotency_key="once").id != job_id


# --- dead letters ---------------------------------------------------------------------------------------------------


def test_a_job_with_an_open_letter_is_never_removed_by_age(driver: Driver) -> None:
    """E13: its time starts when somebody discards it."""
    job_id, letter = failed(driver)
    db.pass_time(400 * DAY)
    a_pass()
    assert remain(job_id) == [True]
    assert DeadLetter.objects.filter(pk=letter.pk).exists()
    dead_letters.discard(letter, by="user:test")
    db.pass_time(MONTH - 60)
    a_pass()
    assert remain(job_id) == [True]
    db.pass_time(120)
    a_pass()
    assert remain(job_id) == [False]


def test_a_requeued_jobs_time_starts_at_its_new_end(driver: Driver) -> None:
    """E13."""
    job_id, letter = failed(driver)
    db.pass_time(40 * DAY)
    dead_letters.requeue(letter, by="user:test")
    driver.complete(driver.claim_one())
    db.pass_time(MONTH - 60)
    a_pass()
    assert remain(job_id) == [True]
    db.pass_time(120)
    a_pass()
    assert remain(job_id) == [False]


def test_an_answered_letter_and_its_attempts_go_though_the_job_lives_on(driver: Driver) -> None:
    """C26: attempts of its chain alone; the job's receipts stay whole."""
    job_id, letter = failed(driver)
    other, open_letter = failed(driver)
    dead_letters.requeue(letter, by="user:test")
    job = driver.claim_one()
    assert job.id == job_id
    driver.release(job)
    job = driver.claim_one()
    db.pass_time(MONTH - 60)
    driver.extend(job)
    a_pass()
    assert Attempt.objects.filter(job_id=job_id).count() == 3
    db.pass_time(120)
    a_pass()
    assert list(Attempt.objects.filter(job_id=job_id).order_by("number").values_list("number", "chain")) == [
        (2, 2), (3, 2)]
    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [open_letter.pk]
    assert Attempt.objects.filter(job_id=other).count() == 1
    assert driver.complete(job).state == "completed"


def test_letters_of_types_that_are_kept_for_ever_are_kept(driver: Driver) -> None:
    """B42, E13: None keeps all of it, as long as its tenant lives."""
    _, letter = failed(driver, "kept-for-ever")
    dead_letters.requeue(letter, by="user:test")
    db.pass_time(400 * DAY)
    a_pass()
    assert DeadLetter.objects.filter(pk=letter.pk).exists()
    assert Attempt.objects.count() == 1


# --- others at work -------------------------------------------------------------------------------------------------


def test_a_job_that_somebody_holds_is_left_for_the_next_pass(driver: Driver) -> None:
    """DESIGN 4: skipped and never waited for; a letter's job too."""
    job_id, other = ended(driver), ended(driver)
    answered, letter = failed(driver)
    dead_letters.requeue(letter, by="user:test")
    db.pass_time(MONTH + 60)
    with elsewhere("SELECT 1 FROM jobs_job WHERE id = ANY(%s::uuid[]) FOR KEY SHARE", [job_id]), \
            elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", answered):
        a_pass()
        assert remain(job_id, other) == [True, False]
        assert DeadLetter.objects.count() == 1
    a_pass()
    assert remain(job_id, answered) == [False, True]
    assert DeadLetter.objects.count() == 0


def test_what_changed_between_the_look_and_the_lock_is_kept(driver: Driver) -> None:
    """E13: judged by what the locked row says."""
    ids = [ended(driver) for _ in range(2)]
    db.pass_time(MONTH + 60)
    found, _ = erase.oldest(keeps(), due.FIRST, "ffffffff-ffff-ffff-ffff-ffffffffffff", 10)
    assert found == ids
    db.rows("UPDATE jobs_job SET ended_at = jobs_now() WHERE id = %s RETURNING 1", ids[0])
    assert durable(lambda: erase.jobs(found, keeps())) == 1
    assert remain(*ids) == [True, False]


def test_an_open_deletion_holds_up_no_claim_settlement_or_enqueue(driver: Driver) -> None:
    """DESIGN 5: it locks jobs that have ended and nothing that they share with others."""
    old = [ended(driver, target="report:1", session_key="s") for _ in range(3)]
    db.pass_time(MONTH + 60)
    held, go, errors = threading.Event(), threading.Event(), []

    def delete() -> None:
        with db.own_connection():
            try:
                with transaction.atomic():
                    assert erase.jobs(old, keeps()) == 3
                    held.set()
                    assert go.wait(60)
            except BaseException as error:
                errors.append(error)
            finally:
                held.set()

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        assert held.wait(60)
        noise.execute("SET lock_timeout = '5s'")
        job_id = driver.enqueue(target="report:1", session_key="s")
        driver.start(driver.claim_one())
        driver.cancel(job_id)
        driver.enqueue(target="report:1")
        assert driver.complete(driver.claim_one()).state == "completed"
        # Another process's pass skips them.
        a_pass()
    finally:
        go.set()
        thread.join(60)
        noise.execute("RESET lock_timeout")
    assert errors == []
    assert remain(*old) == [False] * 3


def test_a_batch_that_takes_too_long_is_halved_from_tick_to_tick(driver: Driver) -> None:
    """E13: a slow table costs a tick one statement's patience, so that other duties and leases have their turns."""
    ids = [ended(driver) for _ in range(16)]
    db.pass_time(MONTH + 60)
    noise.execute("""CREATE FUNCTION slow_row() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.05); RETURN OLD; END $$""")
    noise.execute("CREATE TRIGGER slow_row BEFORE DELETE ON jobs_job FOR EACH ROW EXECUTE FUNCTION slow_row()")
    duty, gone = Retention(), [0]
    try:
        noise.execute("SET statement_timeout = '500ms'")
        while gone[-1] < 16:
            assert duty.tick()
            gone.append(remain(*ids).count(False))
    finally:
        noise.execute("RESET statement_timeout")
        noise.execute("DROP FUNCTION slow_row CASCADE")
    assert gone[1] == 0, "sixteen rows in one statement are too slow"
    assert max(after - before for before, after in itertools.pairwise(gone)) <= 8


def test_receipts_are_still_written_once_after_a_deletion(driver: Driver) -> None:
    """E13, E14.17: the permission ends with the transaction that gave it to itself."""
    ended(driver)
    db.pass_time(MONTH + 60)
    a_pass()
    job_id = ended(driver)
    for model in (Receipt, Artifact):
        with pytest.raises(DatabaseError, match="written once"), transaction.atomic():
            db.rows(f"DELETE FROM {model._meta.db_table} WHERE job_id = %s RETURNING 1", job_id)


def test_a_job_that_a_table_of_the_sites_refers_to_holds_up_no_other(
        driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """case-A20: it stays, with all that is its, and is said; the others of its batch go."""
    ids = [ended(driver) for _ in range(3)]
    noise.execute("CREATE TABLE site_thing (job uuid REFERENCES jobs_job DEFERRABLE INITIALLY DEFERRED)")
    try:
        noise.execute(f"INSERT INTO site_thing VALUES ('{ids[0]}')")
        db.pass_time(MONTH + 60)
        a_pass()
        assert remain(*ids) == [True, False, False]
        check(ids[0])
        assert "1 of 3" in caplog.text
        assert ids[0] in caplog.text
    finally:
        noise.execute("DROP TABLE site_thing")


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_bounded_and_a_pass_finds_all(driver: Driver) -> None:
    """E13: at most 500 jobs a transaction, whatever has gathered; nothing is skipped in between."""
    made = _old_jobs(1_250, "echo")
    ticks: list[int] = []
    here = Retention()
    while True:
        before = Job.objects.count()
        more = here.tick()
        ticks.append(before - Job.objects.count())
        if not more:
            break
    assert sum(ticks) == made
    assert max(ticks) == erase.BATCH


def _old_jobs(count: int, type_: str) -> int:
    """So many completed jobs that were made in 1970."""
    noise.jobs(count, default_workspace().pk, tenant_id(), state="completed", ended="'1970-01-02'", type=type_,
               id="('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid")
    return count


@pytest.mark.slow
def test_many_that_are_kept_in_front_cost_a_tick_nothing(driver: Driver) -> None:
    """E13, DESIGN 5: 200,000 jobs kept for ever: each tick reads a stretch of the primary key, and the pass gets by."""
    _old_jobs(200_000, "kept-for-ever")
    noise.execute("VACUUM ANALYZE jobs_job")
    behind = ended(driver)
    db.pass_time(MONTH + 60)
    here = Retention()
    with statements() as seen:
        assert here.tick()
    [(sql, params)] = [x for x in seen if "FROM jobs_job" in x[0]]
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, params)
        found = cursor.fetchone()[0]
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    nodes = noise._walk(plan)
    assert ("Index Scan", "jobs_job", "jobs_job_pkey") in nodes
    assert "Seq Scan" not in {kind for kind, table, _ in nodes if table == "jobs_job"}
    # The rows that it looked at, a dead letter's probe for none of them, and a few pages of the index.
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 5 * LIMIT
    ticks = 1
    while here.tick():
        ticks += 1
        if ticks % 20 == 0:
            driver.enqueue()
            driver.complete(driver.claim_one())
    assert ticks <= 200_000 / LIMIT + 5
    assert remain(behind) == [False]


# --- promises -------------------------------------------------------------------------------------------------------


def test_every_table_that_names_a_job_or_an_attempt_is_emptied_with_it(database: None) -> None:
    """E13: a table that is made tomorrow must be named in `store.erase` too."""
    named = {t for t, in db.rows("""SELECT DISTINCT table_name FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name LIKE 'jobs\\_%' AND column_name IN ('job_id', 'attempt_id')""")}
    emptied = {re.search(r"DELETE FROM (\w+)", sql)[1] for sql in erase._OF_JOBS}  # type: ignore[index]
    assert named == emptied


@pytest.mark.parametrize(("kept", "fine"), [(None, True), (60, True), (2_592_000.0, True), (0, False), (-1, False),
                                            ("30", False), (59.9, False), (True, False), (float("nan"), False),
                                            (float("inf"), False)])
def test_a_retention_that_is_no_span_is_named(settings: Any, kept: Any, fine: bool) -> None:
    """E13: a system check, with what would be right."""
    settings.JOBS = {**settings.JOBS, "RETENTION_S": kept}
    found = [f for f in checks.check_settings(None) if f.id == "jobs.E002"]
    assert (found == []) is fine
    assert all(isinstance(f, Error) and "None" in f.msg for f in found)
