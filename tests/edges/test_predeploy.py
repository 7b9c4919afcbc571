"""`manage.py predeploy` refuses a code that does not know what rows name (E7, E15)."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection

from jobs.services import deploying
from jobs.store import deployed
from tests.database import rows


def predeploy(*words):
    """What it prints, and how it ends."""
    out = io.StringIO()
    try:
        call_command("predeploy", *words, stdout=out, stderr=io.StringIO())
    except CommandError as error:
        return out.getvalue(), error.returncode, str(error)
    return out.getvalue(), 0, ""


def older(job_id, version=9):
    """The job of a version that this code does not register."""
    rows("UPDATE jobs_job SET version = %s WHERE id = %s RETURNING 1", version, job_id)


def test_a_version_that_is_removed_while_rows_name_it_is_refused(driver):
    """E15: queued, scheduled, running, paused, and a dead letter that would need it; each place is counted."""
    assert predeploy() == ("Every row names a version that this code registers.\n", 0, "")
    ended = driver.enqueue()
    driver.complete(driver.claim_one())
    failed = driver.enqueue()
    driver.fail(driver.claim_one(), retryable=False)
    running = driver.enqueue()
    driver.claim_one()
    paused = driver.enqueue()
    driver.pause(paused)
    others = [driver.enqueue(), driver.enqueue(delay_s=60)]
    driver.enqueue("touches", {"path": "/tmp/x"})
    for job_id in (ended, failed, running, paused, *others):
        older(job_id)
    said, code, why = predeploy()
    assert said == "echo@9: queued 1, scheduled 1, paused 1, running 1, dead letters 1\n"
    assert code == 1
    assert why.startswith("Versions with rows would be gone: 1.")
    [told] = json.loads(predeploy("--json")[0])["versions"]
    assert (told["type"], told["version"], told["active"], told["dead_letters"]) == ("echo", 9, 4, 1)


def test_ended_jobs_and_answered_letters_hold_no_deploy_up(driver):
    """E7: history needs no code."""
    done = driver.enqueue()
    driver.complete(driver.claim_one())
    failed = driver.enqueue()
    driver.fail(driver.claim_one(), retryable=False)
    driver.discard(failed)
    for job_id in (done, failed):
        older(job_id)
    assert predeploy()[1] == 0
    assert json.loads(predeploy("--json")[0]) == {"ok": True, "capped": False, "versions": []}


def test_counts_stop_at_a_cap_and_say_so(driver, monkeypatch):
    """Never O(backlog) for a number that nobody needs."""
    monkeypatch.setattr(deploying, "CAP", 2)
    for _ in range(3):
        older(driver.enqueue())
    assert predeploy()[0] == "echo@9: queued 2 or more\n"
    assert json.loads(predeploy("--json")[0])["capped"] is True


def test_a_database_that_does_not_answer_is_no_yes(driver, monkeypatch):
    """Exit code 2: whoever asks must not go on."""
    def late(*_):
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(deployed, "strange", late)
    said, code, why = predeploy()
    assert (said, code) == ("", 2)
    assert "statement timeout" in why


@pytest.mark.parametrize("place", [p for p in deployed.PLACES if p != "running"])
def test_ended_jobs_are_not_read(driver, place):
    """The looks go along indexes that hold active rows alone."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            sql = deployed._STRANGE.format(rows=deployed._PLACES[place], cap=100)
            cursor.execute(f"EXPLAIN {sql}", ["echo", "1"])
            plan = "\n".join(line for line, in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan")
    assert "Seq Scan" not in plan, plan
    assert any(name in plan for name in ("job_claim", "job_scheduled", "job_held", "job_spent", "job_paused",
                                         "dead_letter_")), plan
