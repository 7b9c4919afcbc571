"""What the database itself refuses: by named constraints and by triggers, whoever writes."""

from __future__ import annotations

import uuid

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from tests import database as db
from tests.driver import Driver

ERASING = "SET LOCAL jobs.erasing = 'on'"


@pytest.fixture
def job_id(driver: Driver) -> str:
    """A completed job, with receipts, an attempt and an artifact."""
    job_id = driver.enqueue("echo", {"value": "x"}, idempotency_key="k", job_id="mine")
    driver.complete(driver.claim_one(), "x")
    return job_id


def execute(sql: str, *params: object, erasing: bool = False) -> int:
    """One statement in a transaction of its own; the rows it touched."""
    with transaction.atomic(), connection.cursor() as cursor:
        if erasing:
            cursor.execute(ERASING)
        cursor.execute(sql, params)
        return cursor.rowcount


# What to write over a completed job, and the constraint that must speak.
BROKEN = [
    ("state = 'asleep'", "job_state_known"),
    ("state = 'leased', ended_at = NULL", "job_live_attempt_iff_held"),
    ("attempt_id = gen_random_uuid()", "job_live_attempt_iff_held"),
    ("ended_at = NULL", "job_terminal_iff_ended"),
    ("state = 'queued'", "job_terminal_iff_ended"),
    ("gate = 'scheduled'", "job_gate_only_queued"),
    ("state = 'queued', ended_at = NULL, gate = 'other'", "job_gate_only_queued"),
    ("target_id = 1, generation = NULL", "job_target_with_generation"),
    ("priority = 101", "job_priority_range"),
    ("singleton = 'maybe'", "job_singleton_known"),
    ("failures = -1", "job_counters_not_negative"),
    ("lapses = -1", "job_counters_not_negative"),
    ("chain_claims = claims + 1", "job_counters_not_negative"),
    ("chain = 0", "job_chain_positive"),
    ("number = revision - 1", "job_chain_positive"),
]


@pytest.mark.parametrize(("change", "constraint"), BROKEN)
def test_a_row_that_contradicts_itself_is_refused_by_name(job_id: str, change: str, constraint: str) -> None:
    """DESIGN 4: the database keeps the promise."""
    with pytest.raises(IntegrityError, match=f'"{constraint}"'):
        execute(f"UPDATE jobs_job SET {change} WHERE id = %s", job_id)


def test_a_job_has_one_live_attempt_and_one_of_each_number(driver: Driver) -> None:
    """E14.1."""
    driver.enqueue()
    job = driver.claim_one()
    copy = ("INSERT INTO jobs_attempt (id, job_id, number, chain, leased_at, lease_until, ended_at, outcome)"
            " SELECT %s, job_id, number + %s, chain, leased_at, lease_until, {} FROM jobs_attempt WHERE id = %s")
    with pytest.raises(IntegrityError, match="attempt_one_live"):
        execute(copy.format("NULL, NULL"), uuid.uuid4(), 1, job.fence)
    with pytest.raises(IntegrityError, match="attempt_number_once"):
        execute(copy.format("jobs_now(), 'failed'"), uuid.uuid4(), 0, job.fence)
    with pytest.raises(IntegrityError, match="attempt_ended_iff_outcome"):
        execute(copy.format("jobs_now(), NULL"), uuid.uuid4(), 1, job.fence)


@pytest.mark.parametrize("column", ["external_id", "idempotency_key"])
def test_a_key_names_one_job_of_a_tenant(driver: Driver, job_id: str, column: str) -> None:
    """A18, B15, E14.5: even for somebody who goes past the services."""
    other = driver.enqueue()
    with pytest.raises(IntegrityError, match=f"job_{column}_once"):
        execute(
            f"UPDATE jobs_job SET {column} = (SELECT {column} FROM jobs_job WHERE id = %s) WHERE id = %s", job_id, other
        )


@pytest.mark.parametrize("erasing", [False, True])
@pytest.mark.parametrize("table", ["jobs_receipt", "jobs_artifact"])
def test_a_history_is_deleted_by_the_eraser_alone(job_id: str, table: str, erasing: bool) -> None:
    """E13, E14.17, E14.20: the triggers let DELETE through only while the transaction is erasing."""
    sql = f"DELETE FROM {table} WHERE job_id = %s"
    if erasing:
        assert execute(sql, job_id, erasing=True) > 0
    else:
        with pytest.raises(DatabaseError, match=r"DELETE of \w+ refused"):
            execute(sql, job_id)
        assert db.rows(f"SELECT 1 FROM {table} WHERE job_id = %s", job_id)


@pytest.mark.parametrize("erasing", [False, True])
@pytest.mark.parametrize("column", ["body", "kind", "number", "at", "hash"])
def test_no_receipt_is_ever_changed(job_id: str, column: str, erasing: bool) -> None:
    """E14.20: the eraser deletes and does not change."""
    new = {"body": "'{}'", "kind": "'job.failed'", "number": "9", "at": "jobs_now()", "hash": "'\\x00'"}[column]
    with pytest.raises(DatabaseError, match="UPDATE of jobs_receipt refused"):
        execute(f"UPDATE jobs_receipt SET {column} = {new} WHERE job_id = %s AND number = 1", job_id, erasing=erasing)


@pytest.mark.parametrize(
    ("change", "erasing", "passes"),
    [
        ("value = ''", False, False),
        ("value = ''", True, True),
        ("hash = '\\x00'", True, False),
        ("created_at = jobs_now()", True, False),
        ("hash = '\\x00'", False, False),
        ("job_id = gen_random_uuid()", True, False),
    ],
)
def test_an_artifact_is_written_once(job_id: str, change: str, erasing: bool, passes: bool) -> None:
    """B29, E13, E14.17: redaction empties the value and keeps the hash."""
    sql = f"UPDATE jobs_artifact SET {change} WHERE job_id = %s"
    if passes:
        assert execute(sql, job_id, erasing=erasing) == 1
    else:
        with pytest.raises(DatabaseError, match="UPDATE of jobs_artifact refused"):
            execute(sql, job_id, erasing=erasing)


def test_the_erasing_setting_ends_with_its_transaction(job_id: str) -> None:
    """E13: afterwards it reads '' and not NULL, and the triggers refuse again."""
    execute("DELETE FROM jobs_receipt WHERE job_id = %s AND number = 1", job_id, erasing=True)
    assert db.rows("SELECT current_setting('jobs.erasing', true)")[0][0] in ("", None)
    with pytest.raises(DatabaseError, match="refused"):
        execute("DELETE FROM jobs_receipt WHERE job_id = %s", job_id)


def test_no_column_that_a_heartbeat_changes_is_indexed(database: None) -> None:
    """DESIGN 5: the lease moves without a new index entry."""
    found = db.rows("SELECT indexname FROM pg_indexes WHERE tablename IN ('jobs_attempt', 'jobs_job')"
                    " AND (indexdef LIKE '%%lease_until%%' OR indexdef LIKE '%%seen_at%%')")
    assert found == []


def test_every_check_and_unique_constraint_has_a_name_of_ours(database: None) -> None:
    """DESIGN 4: constraints by name, never by message."""
    found = db.rows("SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype IN ('c')"
                    " AND conrelid::regclass::text LIKE 'jobs\\_%%'")
    unnamed = [name for _, name in found if name.startswith("jobs_") and not name.endswith("_check")]
    assert found
    assert unnamed == []
