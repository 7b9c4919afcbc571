"""Every log line says within which attempt it was made, and an attempt keeps its last ones (A64, issue 3)."""

from __future__ import annotations

import io
import json
import logging
import threading

import psycopg
import pytest

from jobs.clock import Every
from jobs.logs import Stderr
from jobs.models import Attempt, AttemptLog, Tenant
from jobs.services import attempt_logs, intake
from jobs.worker import context, logs, tenants
from jobs.worker.lines import Lines
from jobs.worker.output import Output
from tests.edges.caller import Caller, everything
from tests.edges.test_commands import say
from tests.worker.processes import database_url, until
from tests.worker.test_atomic import HOOKED
from tests.worker.test_crashes import locked


@pytest.fixture(autouse=True)
def _hooked(settings):
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": HOOKED["JOBS_DEFINITIONS"].split(",")}


def logged(worker, **facts):
    return [x for x in list(worker.lines) if x["event"] == "log" and facts.items() <= x.items()]


def kept(jobs, job_id):
    [attempt] = jobs.attempts(job_id)
    return AttemptLog.objects.filter(attempt=attempt).first()


@pytest.mark.parametrize("type_", ["chats", "chats-thread"])
def test_every_line_that_a_handler_logs_says_whose_it_is(workers, jobs, type_):
    """Job, attempt, type and tenant in each; secrets by name left out, the exception shown, no fence (A64)."""
    worker = workers(slots=2, env=HOOKED)
    job_id = intake.enqueue(type_, {"how": "extra"}, tenant="acme").id
    jobs.wait(job_id, "completed")
    whose = {"job": job_id, "attempt": 1, "type": f"{type_}@1", "tenant": "acme", "logger": "myshop"}
    until(lambda: logged(worker, **whose, level="ERROR"))
    [line] = logged(worker, message="looking at the shelf")
    assert line.items() >= {**whose, "level": "INFO", "shelf": 4, "api_key": "[redacted]"}.items()
    assert line["deep"] == {"password": "[redacted]"}
    assert "ValueError: inside" in logged(worker, message="went wrong")[0]["exception"]
    # What the caller says by `extra` takes no record's place, and no event's.
    [own] = logged(worker, message="own words")
    assert (own["job"], own["type"], own["attempt"], own["event"], own["level"]) == ("mine", "mine", 1, "log", "INFO")
    if type_ == "chats":
        assert logged(worker, message="from a thread of 1", **whose)
    assert not logged(worker, level="DEBUG")
    [fence] = Attempt.objects.values_list("pk", flat=True)
    until(lambda: kept(jobs, job_id))
    assert str(fence) not in json.dumps(worker.lines) + kept(jobs, job_id).lines
    assert "hunter2" not in json.dumps(worker.lines)
    assert worker.plain == []
    assert worker.stop() == 0
    assert worker.log == ""


def test_the_last_two_hundred_lines_are_kept_beside_the_attempt(workers, jobs):
    """In order, storable, with the number of those that had to go; INFO and above (DESIGN 6)."""
    workers(slots=2, env=HOOKED)
    job_id = jobs.add("chats-thread", how="many")
    jobs.wait(job_id, "completed")
    found = until(lambda: kept(jobs, job_id))
    lines = found.lines.split("\n")
    assert len(lines) == 200
    assert lines[-1] == "ValueError: inside"
    assert [x.rpartition(" ")[2] for x in lines if "INFO myshop: line " in x] == [str(n) for n in range(105, 300)]
    # 2 + 300 + 1, and the traceback's 4.
    assert found.dropped == 307 - 200
    few = jobs.add("chats-thread")
    jobs.wait(few, "completed")
    assert "nul  surrogate ? bell" in until(lambda: kept(jobs, few)).lines


def test_lines_are_kept_of_attempts_that_failed_or_timed_out_and_of_none_that_says_no(workers, jobs):
    """`logs=False` keeps nothing, but its lines are on the stream; an end without the handler keeps what there is."""
    worker = workers(slots=4, env=HOOKED)
    failed, hung, silent = jobs.add("chats", how="fails"), jobs.add("chats", how="hangs"), jobs.add("silent")
    jobs.wait(failed, "failed")
    jobs.wait(hung, "failed")
    jobs.wait(silent, "completed")
    for job_id in (failed, hung):
        assert "went wrong" in until(lambda job_id=job_id: kept(jobs, job_id)).lines
    assert jobs.attempts(hung)[0].reason_code == "attempt_timeout"
    until(lambda: logged(worker, message="only on the stream", job=silent))
    assert worker.stop() == 0
    assert kept(jobs, silent) is None


def test_explain_and_the_api_show_what_was_logged(workers, jobs, settings):
    """The end of the latest attempt's lines, escaped; all that is kept by `?include=log` (B40)."""
    workers(slots=2, env=HOOKED)
    job_id = jobs.add("chats-thread", how="many")
    jobs.wait(job_id, "completed")
    until(lambda: kept(jobs, job_id))
    told = say("explain", job_id)
    assert "log of attempt 1, 287 earlier lines left out:" in told
    assert "myshop: line 299" in told
    assert "myshop: line 280" not in told
    few = jobs.add("chats-thread")
    jobs.wait(few, "completed")
    until(lambda: kept(jobs, few))
    assert "bell \\x07" in say("explain", few)
    assert len(json.loads(say("explain", job_id, "--json"))["log"]["lines"]) == 200
    caller = Caller(everything())
    [attempt] = caller.get(f"/jobs/{job_id}/attempts?include=log").json()["attempts"]
    assert (len(attempt["log"]["lines"]), attempt["log"]["dropped"]) == (200, 107)
    [attempt] = caller.get(f"/jobs/{job_id}/attempts").json()["attempts"]
    assert "log" not in attempt
    refused = caller.get(f"/jobs/{job_id}/attempts?include=input")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_include")


def test_lines_that_cannot_be_kept_cost_nothing_but_themselves(workers, jobs):
    """A table that is locked: the settlement has committed, the next job runs within the patience (A64)."""
    worker = workers(slots=2, env=HOOKED)
    with psycopg.connect(database_url()) as holder:
        holder.execute("LOCK TABLE jobs_attempt_log IN ACCESS EXCLUSIVE MODE")
        job_id = jobs.add("chats-thread")
        jobs.wait(job_id, "completed")
        jobs.wait(jobs.add("echo"), "completed")
        until(lambda: [x for x in logged(worker) if "are lost" in x["message"]])
    assert kept(jobs, job_id) is None
    assert not worker.events("database_trouble")
    assert worker.stop() == 0


def test_lines_of_whatever_text_and_attempt_are_taken_once(driver):
    """An attempt that is erased leaves none, one that is said twice its first; text that no database takes."""
    driver.enqueue("echo")
    fence = driver.claim_one().fence
    gone = "00000000-0000-4000-8000-000000000000"
    attempt_logs.keep([(gone, "nobody's", 0), (fence, "a\x00\ud800", 0)])
    attempt_logs.keep([(fence, "b", 1)])
    assert AttemptLog.objects.values_list("lines", "dropped").get() == ("a?", 0)


def test_lines_that_cannot_be_kept_are_let_go_for_a_while_and_hold_up_nobody(driver, monkeypatch):
    """Somebody alters the table: a tenth of a second once, then nothing is tried for half a minute (A64)."""
    driver.enqueue("echo")
    fence = driver.claim_one().fence
    monkeypatch.setattr(attempt_logs, "_rest", Every(30.0))
    with locked("jobs_attempt_log"):
        for _ in range(50):
            attempt_logs.keep([(fence, "lost", 0)])
    attempt_logs.keep([(fence, "lost too", 0)])
    assert not AttemptLog.objects.exists()
    attempt_logs._rest.now()
    attempt_logs.keep([(fence, "kept", 0)])
    assert AttemptLog.objects.get().lines == "kept"


def test_a_record_that_the_collector_makes_while_a_line_is_kept_is_no_deadlock(settings):
    """A finalizer may log in the very moment in which a line is kept."""
    with context._making:
        done = threading.Event()
        threading.Thread(target=done.set).start()
        assert done.wait(5)
        with context._making:
            lines = Lines()
            with lines._guard:
                lines.add("inside")
    assert lines.text() == "inside"


def test_a_worker_leaves_the_loggers_as_it_found_them():
    """`call_command("runworker")` in a test or a shell changes nothing for good."""
    root = logging.getLogger()
    own = logging.StreamHandler()
    logging.getLogger("some.shop").addHandler(own)
    before = (root.level, list(root.handlers), list(own.filters))
    with logs.logging_to(Output(io.StringIO())):
        # The site's own, which asked for nothing, gives way to the worker's.
        assert len([h for h in before[1] if isinstance(h, Stderr)]) == 1
        assert not any(isinstance(h, Stderr) for h in root.handlers)
        assert own.filters != before[2]
    assert (root.level, list(root.handlers), list(own.filters)) == before
    logging.getLogger("some.shop").removeHandler(own)


def test_tenants_are_looked_up_once_and_never_by_a_log_line(jobs, django_assert_num_queries):
    """A claim brings numbers; what is known costs no statement (DESIGN 5)."""
    intake.enqueue("echo", {}, tenant="acme")
    number = Tenant.objects.get(subject="acme").pk
    tenants._known.clear()
    with django_assert_num_queries(1):
        tenants.learn({number})
    with django_assert_num_queries(0):
        tenants.learn({number})
        assert tenants.subject(number) == "acme"
        assert tenants.subject(-1) is None


def test_a_line_that_is_logged_while_a_line_is_written_does_not_wait_for_itself():
    """What the collector ends in the middle of a write may log: the stream's lock knows its own thread."""
    output = Output(io.StringIO())
    done = threading.Event()

    def twice():
        with output._lock:
            output("worker.inner", level=0)
        done.set()

    threading.Thread(target=twice, daemon=True).start()
    assert done.wait(5)
