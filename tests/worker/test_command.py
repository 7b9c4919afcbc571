"""`manage.py runworker` as a command: its options, its refusals, its output (A30, A64, B22, E7)."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from django.core.management import call_command, get_commands

from jobs.models import Job, Worker
from jobs.services import cancellation, intake
from jobs.services.workers import register
from tests.database import rows
from tests.worker.processes import REPOSITORY, environment, until


@pytest.mark.parametrize(("flags", "env", "code", "said"), [
    (["--groups", "defualt"], {}, 2, "--groups: there is no 'defualt' here; did you mean 'default'?"),
    (["--queues", "chat,colect"], {}, 2, "--queues: there is no 'colect' here; did you mean 'collect'?"),
    (["--groups", ","], {}, 2, "--groups names nothing."),
    (["--slots", "0"], {}, 2, "--slots must be from 1 to 1000."),
    (["--slots", "two"], {}, 2, "argument --slots: invalid int value: 'two'"),
    (["--slotz", "2"], {}, 2, "unrecognized arguments: --slotz"),
    (["--max-jobs", "0"], {}, 2, "--max-jobs must be a number above 0."),
    (["--max-age", "-1"], {}, 2, "--max-age must be a number above 0."),
    (["--max-memory", "nan"], {}, 2, "--max-memory must be a number above 0."),
    (["--autoreload", "--once"], {}, 2, "--autoreload goes on and on: it cannot be used with --once or --until"),
    (["--slots", "100"], {}, 1, "100 slots need a database pool of 104 connections, max_size is 40. Set DATABASE_POOL"),
    ([], {"JOBS_LEASE_S": "2", "JOBS_DRAIN_GRACE_S": "0"}, 1, "A lease of 2 s leaves no room for two heartbeats, 1 s"),
    ([], {"JOBS_LEASE_S": "30", "JOBS_DRAIN_GRACE_S": "20"}, 1,
     "A drain of 20 s and a heartbeat of 10 s are not under the lease of 30 s: set JOBS['DRAIN_GRACE_S'] below 20,"),
    ([], {"JOBS_POLL_S": "0"}, 1, "JOBS['POLL_S'] is 0.0, and must be a number from 0.01 to 60."),
    ([], {"JOBS_SLOTS": "0"}, 1, "JOBS['SLOTS'] is 0, and must be a whole number from 1 to 1000."),
    ([], {"JOBS_SLOTS": "many"}, 1, "JOBS_SLOTS is 'many', and must be a whole number."),
    ([], {"DATABASE_POOL_MAX": "1.5"}, 1, "DATABASE_POOL_MAX is '1.5', and must be a whole number."),
    ([], {"JOBS_LEASE_S": "nan"}, 1, "JOBS_LEASE_S is 'nan', and must be a number of seconds."),
    ([], {"JOBS_DEFINITIONS": "jobsite.definitoins"}, 1, "definitoins"),
])
def test_what_cannot_be_is_refused_in_a_sentence(workers, flags, env, code, said):
    """2 for wrong options, 1 for wrong settings; the nearest name or the numbers, no row (A30, B22, E7)."""
    worker = workers(*flags, ready=False, env=env)
    assert worker.wait() == code
    assert said in worker.log
    # A fault of the site's own settings is raised while they are read, with where.
    assert ("Traceback" in worker.log) == ("ImproperlyConfigured" in worker.log)
    assert rows("SELECT count(*) FROM jobs_worker")[0][0] == 0


def test_an_unreachable_database_is_a_sentence_too(workers):
    """Exit code 1 and no traceback."""
    worker = workers(ready=False, env={"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"})
    assert worker.wait() == 1
    assert "The database cannot be used" in worker.log
    assert "Traceback" not in worker.log


def test_runworker_is_ours_though_channels_ships_one():
    """`jobs` stands before `channels` in INSTALLED_APPS (issue item 6)."""
    assert get_commands()["runworker"] == "jobs"


def test_once_runs_what_one_claim_brings(workers, jobs):
    """Two slots, five jobs: two are run (A28). With nothing to claim it ends too."""
    jobs.add_many("echo", 5)
    worker = workers("--once", slots=2)
    assert worker.wait() == 0
    assert worker.events("stopped", claimed=2, completed=2)
    assert Job.objects.filter(state="queued").count() == 3
    rows("UPDATE jobs_job SET available_at = available_at + interval '1 hour', gate = 'scheduled'"
         " WHERE state = 'queued' RETURNING 1")
    assert workers("--once").wait() == 0
    rows("UPDATE jobs_job SET available_at = created_at, gate = NULL WHERE state = 'queued' RETURNING 1")


def test_until_empty_runs_everything_that_can_be_claimed(workers, jobs):
    """Threads and coroutines, failures whose retry is later; then it ends."""
    jobs.add_many("echo", 20)
    jobs.add_many("echo-thread", 20)
    jobs.add("misbehaves", kind="code")
    assert workers("--until-empty", slots=8).wait() == 0
    assert Job.objects.filter(state="completed").count() == 40
    assert Job.objects.filter(state="failed").count() == 1


@pytest.mark.parametrize("flag", ["--once", "--until-empty"])
def test_what_cannot_be_claimed_keeps_nobody_waiting(workers, jobs, flag):
    """Due tomorrow, paused, of another group, of a switched-off queue: it ends at once and leaves them as they are."""
    held = [intake.enqueue("echo", {}, delay_s=3600).id, jobs.add("outside"), jobs.add("echo")]
    cancellation.pause(held[2], by="user:test")
    before = list(Job.objects.order_by("id").values_list("id", "state", "number"))
    begun = time.monotonic()
    worker = workers(flag, ready=False)
    assert worker.wait() == 0
    assert time.monotonic() - begun < 15
    assert worker.events("stopped", claimed=0)
    assert list(Job.objects.order_by("id").values_list("id", "state", "number")) == before


def test_until_empty_ends_only_once_what_it_runs_has_ended(workers, jobs, tmp_path):
    """Also what its own jobs enqueue meanwhile is run."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    held = jobs.add("gated-thread", path=str(path), gate=str(gate))
    worker = workers("--until-empty")
    until(path.exists)
    later = jobs.add("echo")
    jobs.wait(later, "completed")
    gate.touch()
    assert worker.wait() == 0
    assert jobs.state(held) == "completed"


def order(jobs, workers, *flags):
    for _ in range(12):
        for queue in ("collect", "chat"):
            intake.enqueue("stamps", {}, queue=queue)
    assert workers("--until-empty", *flags, slots=1).wait() == 0
    return [q for q, in Job.objects.order_by("started_at").values_list("queue")]


def test_strict_serves_the_queues_in_the_order_given(workers, jobs):
    """All of the first before any of the second (DESIGN 5)."""
    assert order(jobs, workers, "--strict", "--queues", "chat,collect") == ["chat"] * 12 + ["collect"] * 12


def test_by_weight_no_queue_starves(workers, jobs):
    """The default: the lighter queue has its share before the heavier one is empty (DESIGN 5)."""
    queues = order(jobs, workers)
    assert "collect" in queues[: 12 + queues[12:].index("chat") if "chat" in queues[12:] else 12]


def test_a_group_that_is_not_served_waits(workers, jobs):
    """`--groups` narrows; jobs of unknown agents are served by everybody (A26, A28, E7)."""
    other = jobs.add("odd-group")
    lost = jobs.add("echo")
    rows("UPDATE jobs_job SET worker_group = 'unrouted', agent = 'nobody' WHERE id = %s RETURNING 1", lost)
    rows("UPDATE jobs_claim_line SET worker_group = 'unrouted' WHERE worker_group = 'default' RETURNING 1")
    workers("--groups", "default")
    job = jobs.wait(lost, "failed")
    [attempt] = jobs.attempts(lost)
    assert (attempt.reason_code, attempt.message) == ("no_handler", "No handler for agent 'nobody'")
    assert job.claims == 1
    assert jobs.state(other) == "queued"


def test_a_type_that_this_worker_does_not_know_is_handed_back_for_a_while(workers, jobs):
    """Uncounted, for 15 s, while some live worker has it; another version counts as unknown too (E7)."""
    job_id = jobs.add("echo")
    register("elsewhere", 1, ["default"], ["chat"], ["echo@9"])
    rows("UPDATE jobs_job SET version = 9 WHERE id = %s RETURNING 1", job_id)
    workers()
    until(lambda: jobs.outcomes(job_id) == ["interrupted"])
    job, [attempt] = jobs.get(job_id), jobs.attempts(job_id)
    assert (job.state, job.reason, job.failures, job.interruptions) == ("queued", "unregistered_type", 0, 1)
    assert (job.available_at - attempt.ended_at).total_seconds() == 15


def test_a_type_that_no_live_worker_knows_waits_paused_for_one_that_does(workers, jobs):
    """E1, E7: `unregistered_type`; who registers it resumes that, and no other pause, when it starts."""
    unknown, known, other = jobs.add("echo"), jobs.add("echo"), jobs.add("echo")
    rows("UPDATE jobs_job SET version = 9 WHERE id = %s RETURNING 1", unknown)
    gone = register("gone", 1, ["default"], ["collect"], ["echo@9"])
    rows("UPDATE jobs_worker SET seen_at = seen_at - interval '61 seconds' WHERE id = %s RETURNING 1", gone.pk)
    cancellation.pause(other, by="user:test", reason="by hand")
    workers(slots=1)
    job = jobs.wait(unknown, "paused")
    assert (job.reason, job.failures, job.interruptions, job.pauses) == ("unregistered_type", 0, 0, 1)
    jobs.wait(known, "completed")
    # What a deploy does: a worker that has the version starts.
    rows("UPDATE jobs_job SET version = 1 WHERE id = %s RETURNING 1", unknown)
    workers(slots=1)
    assert jobs.wait(unknown, "completed").claims == 2
    assert jobs.state(other) == "paused"


def test_events_are_json_lines_on_a_pipe(workers, jobs):
    """One object a line, with a stable name and a moment; nothing else (A64)."""
    worker = workers("--until-empty", verbosity=2)
    assert worker.wait() == 0
    assert worker.plain == []
    assert [x["event"] for x in worker.lines if x["event"] in ("worker.ready", "worker.stopped")] == [
        "worker.ready", "worker.stopped"]
    assert all(x["at"].endswith("Z") for x in worker.lines)


def on_a_terminal(*flags):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "manage.py", "runworker", "--until-empty", "--skip-checks", *flags],
                               cwd=REPOSITORY, env=environment(LANG="C", PYTHONIOENCODING="ascii"), stdout=theirs,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:
        pass  # the other side has been closed
    finally:
        os.close(ours)
        assert process.wait(20) == 0
    return said.decode()


def test_people_on_a_terminal_get_plain_lines(database, jobs):
    """And one that cannot show every letter ends no worker; `--json` holds there too (A64)."""
    jobs.add("misbehaves", kind="text")
    lines = on_a_terminal("--name", "Wörker").splitlines()
    assert any("ready" in line and r"name=W\xf6rker" in line for line in lines), lines
    assert not any(line.startswith("{") for line in lines)
    assert json.loads(on_a_terminal("--json").splitlines()[-1])["event"] == "worker.stopped"


def test_a_reader_that_goes_away_does_not_stop_the_work(database, jobs):
    """A closed pipe is no trouble with the database and no end."""
    process = subprocess.Popen([sys.executable, "manage.py", "runworker", "--skip-checks", "--verbosity", "2"],
                               cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while b"worker.ready" not in process.stdout.readline():
            pass
        process.stdout.close()
        for _ in range(3):
            jobs.wait(jobs.add("echo"), "completed")
        process.terminate()
        assert process.wait(10) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_worker_that_is_told_to_end_while_it_begins_ends_as_any_other(database, monkeypatch, capsys):
    """DESIGN 6: between its row and its first claim too; nothing is left open, and no handler of a signal behind."""
    before = signal.getsignal(signal.SIGTERM)
    def registered(*args, **more):
        row = register(*args, **more)
        os.kill(os.getpid(), signal.SIGTERM)
        return row

    monkeypatch.setattr("jobs.services.workers.register", registered)
    call_command("runworker", "--json", "--no-loops", skip_checks=True)
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == [
        "worker.ready", "worker.stopped"]
    [row] = Worker.objects.all()
    assert row.stopped_at is not None
    assert signal.getsignal(signal.SIGTERM) == before
