"""The checker itself: it must see each kind of damage, or its silence proves nothing (RELIABILITY 5.9)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.crash.checker import check
from tests.crash.database import dsn

TAMPER = {
    "I8: still queued": "UPDATE jobs_job SET state = 'queued', ended_at = NULL",
    "I3: attempts": "UPDATE jobs_job SET claims = claims + 1",
    "I6: the receipts say failures": "UPDATE jobs_job SET failures = failures + 1",
    "I7: hash mismatch": "UPDATE jobs_receipt SET body = replace(body, 'to', 'ot') WHERE number = 2",
    "I7: the receipts have gaps": "DELETE FROM jobs_receipt WHERE number = 2",
    "I13: completed with 0 artifacts": "DELETE FROM jobs_artifact",
    "I5: 1 lapses": "UPDATE jobs_job SET lapses = 1",
    "I1: lost": "DELETE FROM jobs_receipt; DELETE FROM jobs_artifact; DELETE FROM jobs_attempt; DELETE FROM jobs_job",
    "I2: an attempt is live": "UPDATE jobs_attempt SET ended_at = NULL, outcome = NULL",
}


@pytest.mark.parametrize("said", TAMPER)
def test_the_checker_sees_what_was_tampered_with(driver: Any, said: str) -> None:
    """RELIABILITY 5.9: a checker that cannot fail proves nothing."""
    job = driver.enqueue("echo")
    driver.complete(driver.claim()[0])
    assert check(dsn(), [job], []) == []
    # As the tables' owner could.
    with psycopg.connect(dsn()) as other:
        for word in ("DISABLE", "ENABLE"):
            for table in ("jobs_receipt", "jobs_artifact"):
                other.execute(f"ALTER TABLE {table} {word} TRIGGER USER")
            for statement in TAMPER[said].split(";") if word == "DISABLE" else ():
                other.execute(statement)
    assert any(fault.startswith(said) for fault in check(dsn(), [job], []))
