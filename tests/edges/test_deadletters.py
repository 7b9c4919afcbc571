"""`manage.py deadletters`: clusters, one letter, one answer to all that match; refusals are one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from jobs.models import BulkOperation, DeadLetter
from tests import database as db
from tests.driver import Driver, check
from tests.edges.test_commands import refused, say


def failed(driver: Driver, message: str = "upstream 7 is down", **options: Any) -> DeadLetter:
    job = driver.enqueue(**options)
    driver.fail(driver.claim_one(), message=message, retryable=False)
    return DeadLetter.objects.get(job_id=job)


def test_clusters_are_listed_and_one_letter_is_shown(driver: Driver) -> None:
    """DESIGN 7.3."""
    letters = [failed(driver, tenant="acme") for _ in range(3)] + [failed(driver, "other")]
    said = say("deadletters", "clusters").splitlines()
    assert said[0].split()[:2] == ["3", letters[0].cluster]
    assert "upstream <n> is down" in said[0]
    assert said[-1] == "4 open letters in 2 clusters"
    assert "3 open letters in 1 clusters" in say("deadletters", "clusters", "--tenant", "acme", "--since", "1h")
    told = json.loads(say("deadletters", "show", letters[0].pk))
    assert (told["job"], told["message"], told["tenant"]) == (str(letters[0].job_id), "upstream 7 is down", "acme")


@pytest.mark.parametrize(("verb", "state"), [("requeue", "queued"), ("discard", "failed")])
def test_all_that_match_are_answered(driver: Driver, verb: str, state: str) -> None:
    """C27, C29: counted first, then done; no process with loops is needed."""
    mine, other = [failed(driver) for _ in range(3)], failed(driver, "other")
    chosen = ("--cluster", mine[0].cluster)
    assert say("deadletters", verb, *chosen, "--dry-run") == "3 match; nothing was done."
    assert not BulkOperation.objects.exists()
    assert say("deadletters", verb, *chosen, "--reason", "fixed").startswith("3 ")
    for letter in mine:
        letter.refresh_from_db()
        assert (letter.resolve_reason, driver.state(str(letter.job_id))) == ("fixed", state)
        assert letter.resolved_by.startswith("shell:")
        check(letter.job_id)
    other.refresh_from_db()
    assert other.resolved_at is None


def test_the_exit_code_says_that_some_were_left_alone(driver: Driver) -> None:
    """E4."""
    first, second = failed(driver), failed(driver)
    db.rows("UPDATE jobs_job SET version = 99 WHERE id = %s RETURNING 1", first.job_id)
    with pytest.raises(SystemExit) as ended:
        call_command("deadletters", "requeue", "--id", str(first.pk), "--id", str(second.pk), "--reason", "r")
    assert ended.value.code == 3
    assert BulkOperation.objects.get().skipped == {"unregistered_version": 1}


def test_what_makes_no_sense_is_refused_by_one_line(driver: Driver) -> None:
    """Nothing happens by accident: without a filter, a reason or a letter nothing is done."""
    failed(driver)
    assert "--all" in refused("deadletters", "discard", "--reason", "r")
    assert "--reason" in refused("deadletters", "discard", "--all")
    assert "Nothing matches" in refused("deadletters", "discard", "--type", "nothing", "--reason", "r")
    assert "no such workspace" in refused("deadletters", "clusters", "--workspace", "nowhere")
    assert "tenant" in refused("deadletters", "clusters", "--tenant", "nobody")
    assert "no such dead letter" in refused("deadletters", "show", "99")
    assert "reason" in refused("deadletters", "discard", "--all", "--reason", "x" * 513)
    for words in (("show", "x"), ("clusters", "--since", "soon"), ("requeue", "--rate", "0")):
        with pytest.raises(CommandError):
            say("deadletters", *words)
    assert not BulkOperation.objects.exists()


# --- the same for jobs -----------------------------------------------------------------------------------------------


def test_all_jobs_that_match_are_counted_first_and_cancelled_with_yes(driver: Driver) -> None:
    """A63: a look by default; a filter or --all, a reason; what was left alone is told."""
    jobs = [driver.enqueue(tenant="acme") for _ in range(3)]
    other = driver.enqueue("echo-thread", tenant="acme")
    out = say("bulk", "cancel", "--type", "echo", "--tenant", "acme", "--newer", "1h")
    assert "3 match; nothing was done" in out
    assert jobs[0] in out
    assert "--all" in refused("bulk", "cancel", "--yes", "--reason", "r")
    assert "--reason" in refused("bulk", "cancel", "--all", "--yes")
    assert "unknown" in refused("bulk", "cancel", "--tenant", "nobody")
    assert "Nothing matches" in refused("bulk", "resume", "--all", "--yes", "--reason", "r")
    assert "3 of 3 done" in say("bulk", "cancel", "--type", "echo", "--yes", "--reason", "a clean-up")
    assert {driver.state(job) for job in jobs} == {"cancelled"}
    assert driver.state(other) == "queued"
