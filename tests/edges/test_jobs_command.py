"""`manage.py jobs`: look at jobs and act on them from the shell (A63). A typo is one line and never a traceback."""

from __future__ import annotations

import io
import json
import threading

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from jobs.models import Job
from tests import database as db
from tests.driver import check
from tests.edges.caller import everything


def jobs(*words):
    """What it prints, what it complains of, and how it ends."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("jobs", *map(str, words), stdout=out, stderr=err)
    except CommandError as error:
        code, complaint = error.returncode, str(error)
    else:
        code, complaint = 0, ""
    assert "\n" not in complaint
    return out.getvalue(), err.getvalue() + complaint, code


def said(*words):
    out, _, code = jobs(*words)
    assert code == 0
    return out.strip()


def refused(*words):
    rows = everything()
    out, complaint, code = jobs(*words)
    assert (out, code) == ("", 1), (out, code)
    assert everything() == rows
    return complaint


def test_jobs_are_enqueued_listed_and_shown(driver):
    """A63: newest first, by status, type and queue; one JSON object where that is asked for."""
    first = said("enqueue", "echo", '{"value": "x"}', "--lane", "chat", "--agent", "nobody", "--session-key", "s")
    told = json.loads(said("enqueue", "outside", "--job-id", "mine", "--singleton", "allow", "--json"))
    job = Job.objects.get(pk=first)
    assert (job.queue, job.agent, job.session_key, job.origin) == ("chat", "nobody", "s", "user")
    assert (told["repeated"], told["warnings"]) == (False, [])
    lines = said("list").splitlines()
    assert [line.split()[0] for line in lines] == [told["id"], first]
    assert lines[0].endswith("outside@1  collect  queued  r1  mine")
    assert said("list", "--queue", "chat", "--type", "echo", "--status", "queued").startswith(first)
    assert said("list", "--status", "completed") == ""
    listed = json.loads(said("list", "--json", "--limit", "1"))
    assert [j["job_id"] for j in listed["jobs"]] == ["mine"]
    assert said("list", "--cursor", listed["next_cursor"], "--limit", "1").startswith(first)
    shown = json.loads(said("show", "mine", "--json"))
    assert (shown["id"], shown["status"]) == (told["id"], "queued")
    assert "status           queued" in said("show", first)
    assert "--cursor" in jobs("list", "--limit", "1")[1]


@pytest.mark.parametrize(("words", "hint"), [
    (("enqueue", "ecko"), "'echo'"), (("enqueue", "echo", "--lane", "colect"), "'collect'"),
    (("enqueue", "echo", "--singleton", "stear"), "'steer'"), (("enqueue", "echo", "{"), "JSON"),
    (("enqueue", "echo", '{"nothing": 1}'), "/nothing"), (("enqueue", "echo", "--tenant", "a\nb"), "tenant_subject"),
    (("list", "--status", "runing"), "'running'"), (("list", "--queue", "chatt"), "'chat'"),
    (("list", "--cursor", "x"), "cursor"), (("list", "--workspace", "none"), "workspace"),
    (("list", "--tenant", "nobody"), "tenant"), (("show", "none"), "no such job"), (("wait", "none"), "no such job"),
])
def test_a_wrong_word_is_one_line_that_names_the_nearest(driver, words, hint):
    """A63: an invalid lane or mode is refused, not dropped."""
    assert hint in refused(*words)


@pytest.mark.parametrize("words", [
    ("lst",), (), ("list", "--limit", "0"), ("list", "--limit", "501"), ("wait", "x", "--timeout", "-1"),
    ("wait", "x", "--timeout", "soon"), ("pause", "x", "--revision", "r1"), ("resume", "x", "--at", "tomorrow"),
    ("cancel",), ("show",),
])
def test_wrong_options_are_one_line(driver, words):
    """Exit code 2 from a shell, where argparse ends the process itself."""
    with pytest.raises(CommandError) as caught:
        call_command("jobs", *words)
    assert "Error:" in str(caught.value)


def test_jobs_are_paused_resumed_and_cancelled_by_revision(driver):
    """A63, B28: what is refused is told, the others are done, and the exit code is 1."""
    one, other = driver.enqueue(job_id="mine"), driver.enqueue()
    assert "paused (by hand)  r2" in said("pause", "mine", "--reason", "by hand", "--revision", "1")
    out, complaint, code = jobs("pause", "mine", other)
    assert ([line.split()[0] for line in out.splitlines()], code) == ([other], 1)
    assert "[already_paused]" in complaint
    assert complaint.endswith("1 of 2 refused.")
    assert "[revision_mismatch]" in jobs("resume", "mine", "--revision", "1")[1]
    resumed = json.loads(said("resume", "mine", "--delay", "90", "--json"))
    assert (resumed["state"], resumed["next_attempt_at"] is not None) == ("queued", True)
    said("resume", other, "--at", "2040-01-01T00:00:00Z")
    assert said("cancel", "mine", other, "--reason", "enough").count("cancelled (enough)") == 2
    assert "[job_ended]" in jobs("resume", other)[1]
    for job_id in (one, other):
        check(job_id)
    assert Job.objects.filter(reason="enough").count() == 2


def test_a_wait_ends_with_the_job_and_says_how_by_its_exit_code(driver):
    """A63: 0 completed, 3 not ended in time, 4 ended otherwise."""
    job_id = driver.enqueue()
    held = driver.claim_one()
    out, complaint, code = jobs("wait", job_id, "--timeout", "0.3")
    assert (code, "leased" in out, "within 0.3 s" in complaint) == (3, True, True)

    def end():
        with db.own_connection():
            driver.complete(held)

    timer = threading.Timer(0.5, end)
    timer.start()
    assert "completed" in said("wait", job_id, "--timeout", "30")
    timer.join()
    assert json.loads(said("wait", job_id, "--json"))["result_envelope"]["outcome"] == "completed"
    other = driver.enqueue()
    driver.cancel(other)
    assert jobs("wait", other)[1:] == ("It ended as cancelled.", 4)
