"""The pool of children: what a job leaves behind, recycling, children that cannot start, and no leaks."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from jobs.conf import registry
from jobs.models import Attempt, Job
from jobs.outcomes import Completed, Failed, Interrupted, Released, Stopped
from jobs.services.assignments import Claimed
from jobs.worker import wire
from jobs.worker.away import Away
from jobs.worker.children import Children
from jobs.worker.echo import Echo
from jobs.worker.executor import PUBLISHED, Spoilt
from jobs.worker.guarding import SCRIPT, believed_s
from jobs.worker.slots import Slots
from tests.database import rows
from tests.worker.living import children, descriptors, guard, in_group, threads, zombies
from tests.worker.processes import ISOLATED, REPOSITORY, until
from tests.worker.test_isolated import value

KILLS = 500 if os.environ.get("JOBSITE_LONG") else 16


def look(jobs):
    """What an isolated handler finds around it."""
    job_id = jobs.add("looks-around")
    jobs.wait(job_id, "completed")
    return json.loads(value(job_id))


def test_what_a_handler_leaves_behind_does_not_reach_the_next_job(isolating, jobs):
    """Folder, environment, signals, timer, umask, streams and connections are put back, in the same child."""
    worker = isolating(slots=1)
    before = look(jobs)
    for what in ("around", "open", "closed", "broken"):
        job_id = jobs.add("leaves-apart", what=what)
        jobs.wait(job_id, "completed")
        assert value(job_id) == before["pid"], what
        assert look(jobs) == before, what
    # The timer that was left would have ended it by now.
    time.sleep(0.6)
    assert look(jobs) == before
    assert before["clean"] is True
    assert before["found"]["path"] == os.environ.get("PYTHONPATH")
    assert not worker.events("child_died")


def test_a_child_with_what_cannot_be_put_back_serves_no_other_job(isolating, jobs):
    """Threads, processes, orphans, limits and forks of a handler: killed with the group, the job is done."""
    worker = isolating(slots=1, verbosity=2)
    before = look(jobs)["pid"]
    for what, word in (("thread", "threads"), ("process", "processes"), ("orphan", "processes"), ("limits", "limits"),
                       ("fork", "processes")):
        job_id = jobs.add("leaves-apart", what=what)
        jobs.wait(job_id, "completed")
        assert value(job_id) == before, what
        found = look(jobs)
        assert found["pid"] != before, what
        assert worker.events("child_recycled", why=[word], pid=before), what
        until(lambda before=before: not in_group(before), 5)
        before = found["pid"]
    assert not worker.events("child_died")


def test_children_are_recycled_by_their_jobs_their_age_and_their_memory(isolating, jobs):
    """Between jobs, and an old one that rests as well; nothing of it is an event of a job (DESIGN 6)."""
    worker = isolating(slots=1, verbosity=2, env={"JOBS_CHILD_MAX_JOBS": "3"})
    pids = [look(jobs)["pid"] for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    assert len(worker.events("child_recycled", why="jobs", jobs=3)) == 2
    assert worker.stop() == 0
    worker = isolating(slots=1, verbosity=2, env={"JOBS_CHILD_MAX_AGE_S": "1"})
    worker.wait_for("child_recycled", why="age")
    assert worker.stop() == 0
    worker = isolating(slots=1, verbosity=2, env={"JOBS_CHILD_MAX_MEMORY_MB": "300"})
    job_id = jobs.add("eats", mb=300)
    jobs.wait(job_id, "completed")
    worker.wait_for("child_recycled", why="memory", pid=value(job_id))
    assert look(jobs)["pid"] != value(job_id)
    assert not worker.events("child_died")


def test_children_that_cannot_start_are_nobodys_failure(isolating, jobs, tmp_path):
    """A half deploy: handed back with a pause and said at times; once it is whole, the same worker runs it (E1)."""
    (tmp_path / "halves.py").write_text(
        "import os\nfrom jobs import job\n"
        "if 'jobs.worker.child' in ' '.join(__import__('sys').orig_argv) and not os.path.exists(__file__ + '.whole'):\n"
        "    raise ImportError('half of it is missing')\n"
        "@job('halved')\ndef halved(run) -> int:\n    return 1\n")
    worker = isolating(slots=2, env={"JOBS_DEFINITIONS": f"{ISOLATED},halves", "PYTHONPATH": str(tmp_path)})
    said = worker.wait_for("child_failed")
    assert "half of it is missing" in said["error"]
    job_id = jobs.add("apart")
    until(lambda: jobs.attempts(job_id) and jobs.attempts(job_id)[0].ended_at)
    [attempt] = jobs.attempts(job_id)
    assert (attempt.outcome, attempt.reason_code) == ("interrupted", "no_child")
    job = jobs.get(job_id)
    assert (job.state, job.failures) == ("queued", 0)
    assert (job.available_at - attempt.ended_at).total_seconds() >= 4
    until(lambda: len(worker.events("child_failed")) >= 2, 30)
    first, second = (datetime.fromisoformat(e["at"]) for e in worker.events("child_failed")[:2])
    assert (second - first).total_seconds() > 4
    (tmp_path / "halves.py.whole").touch()
    assert jobs.wait(job_id, "completed", seconds=60).failures == 0
    assert worker.stop() == 0


def test_a_definition_that_only_the_worker_knows_is_given_back(isolating, jobs, tmp_path, monkeypatch, settings):
    """A child of newer code does not know it: interrupted, not failed (E7)."""
    (tmp_path / "gone.py").write_text(
        "import sys\nfrom jobs import job\n"
        "@job('stays')\ndef stays(run) -> int:\n    return 1\n"
        "if 'jobs.worker.child' not in ' '.join(sys.orig_argv):\n"
        "    @job('goes')\n    def goes(run) -> int:\n        return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    isolating(slots=1, env={"JOBS_DEFINITIONS": f"{ISOLATED},gone", "PYTHONPATH": str(tmp_path)})
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*ISOLATED.split(","), "gone"]}
    job_id = jobs.add("goes")
    until(lambda: jobs.attempts(job_id) and jobs.attempts(job_id)[0].ended_at)
    [attempt] = jobs.attempts(job_id)
    assert (attempt.outcome, attempt.reason_code) == ("interrupted", "unregistered_type")
    assert jobs.get(job_id).failures == 0


def backends():
    return rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'jobs child'")[0][0]


@pytest.mark.timeout(KILLS * 10)
def test_after_many_kills_there_is_no_zombie_descriptor_thread_or_connection_more(isolating, jobs):
    """Deaths and timeouts; 16, with JOBSITE_LONG=1 500 (case-B08)."""
    worker = isolating(slots=2)
    for _ in range(2):
        jobs.wait(jobs.add("apart"), "completed")
    until(lambda: len(children(worker.pid)) == 2)

    def census():
        return len(zombies(worker.pid)), descriptors(worker.pid), threads(worker.pid), len(children(worker.pid))

    before = census()
    jobs.add_many("dies-once", KILLS * 3 // 4, kind="killed")
    jobs.add_many("dies-once", KILLS // 4, kind="timeout")
    until(lambda: Attempt.objects.filter(outcome="failed").count() == KILLS, KILLS * 3)
    assert Job.objects.filter(state="failed").count() == KILLS
    jobs.wait(jobs.add("apart"), "completed")
    until(lambda: all(now <= then + 2 for now, then in zip(census(), before, strict=True)) and not zombies(worker.pid))
    until(lambda: not backends())
    assert guard(worker.pid)
    assert worker.stop() == 0
    assert not Attempt.objects.filter(outcome="lapsed").exists()


def test_isolated_definitions_need_no_connections_of_the_workers_pool(isolating, jobs):
    """Children have connections of their own, one while they need it, outside the pool (B22)."""
    isolating(slots=4, env={"DATABASE_POOL_MAX": "8"})
    made = [jobs.add("queries-apart") for _ in range(4)]
    for job_id in made:
        jobs.wait(job_id, "completed")
        assert value(job_id) == "jobs child"
    until(lambda: not backends())


def test_a_worker_without_isolated_definitions_has_no_children(workers, jobs):
    """Nor a guard: what is not used costs nothing."""
    worker = workers(slots=1)
    jobs.wait(jobs.add("echo"), "completed")
    assert children(worker.pid) == []
    assert guard(worker.pid) is None


def test_what_a_child_prints_and_logs_is_kept_beside_its_attempt(database, monkeypatch, settings):
    """Its own lines, those of programs that it starts, and what it says to `run.log` (DESIGN 6)."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ISOLATED.split(",")}
    monkeypatch.setenv("JOBS_DEFINITIONS", ISOLATED)
    rung = threading.Event()
    slots = Slots(1, "worker:here", rung.set)
    try:
        slots.begin([(claimed(type="prints", input="{}"), registry().find("prints", 1))])
        assert rung.wait(30)
        [(live, result)] = slots.collect()
    finally:
        slots.close()
    assert isinstance(result, Completed), result
    kept = live.run.lines.text().splitlines()
    for said in ('{"event": "worker.forged"}', "to stderr", "raw \\xff", "by another program", "kept"):
        assert said in kept
    assert max(map(len, kept)) <= 2_000


def test_where_orphans_come_to_the_worker_they_are_reaped():
    """Process 1 of a container is its own init: a killed group leaves no zombies there (case-B08)."""
    code = """if True:
        import ctypes, os, signal, subprocess, sys, time
        sys.path.insert(0, sys.argv[1])
        ctypes.CDLL(None).prctl(36, 1)
        import django
        django.setup()
        from jobs.worker.process import reap_orphans
        from tests.worker.living import processes
        inner = "import subprocess; subprocess.run(['sleep', '60'])"
        leader = subprocess.Popen([sys.executable, '-S', '-c', inner], start_new_session=True)
        mine = lambda: [pid for pid, (_, _, group) in processes().items() if group == leader.pid]
        while len(mine()) < 2:
            time.sleep(0.01)
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
        end = time.monotonic() + 10
        while reap_orphans(leader.pid) and time.monotonic() < end:
            time.sleep(0.01)
        print(mine())
    """
    ran = subprocess.run([sys.executable, "-c", code, str(REPOSITORY)], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[]\n", ran.stderr


# -- the parts ---------------------------------------------------------------------------------------------


def claimed(**more):
    kinds = {"id": "a", "fence": "b", "type": "x", "version": 1, "input": '{"ü":"\\u2028"}', "claims": 1, "chain": 1,
             "lease_ms": 3000, "timeout_ms": None, "max_duration_ms": None, "deadline_at": None, "checkpoint": None,
             "checkpoint_number": 0, "workspace_id": 1, "tenant_id": 1, "worker_group": "default", "queue": "collect",
             "agent": None, "target_id": None, "generation": None, "leased_us": 5, **more}
    return Claimed(**kinds)


def sent(message):
    """A message after its way over the wire, byte by byte."""
    frames = wire.Frames()
    [got] = [m for byte in wire.encoded(message) for m in frames.feed(bytes([byte]))]
    return got


def test_jobs_and_outcomes_come_over_the_wire_as_they_were():
    """Moments and digests included."""
    job = claimed(deadline_at=datetime(2030, 1, 2, 3, 4, 5, 6, UTC), checkpoint="[1]", target_id=7, generation=2)
    assert wire.claimed(sent(wire.claimed_words(job))) == job
    assert wire.claimed(sent(wire.claimed_words(claimed()))) == claimed()
    for outcome in (Completed('"\ud800ü"', b"\x00\xff"), Failed("code", "told", False), Interrupted("x", 5),
                    Stopped("why"), Released(3, None)):
        assert wire.result(sent(wire.result_words(outcome))) == outcome
    assert wire.result(sent(wire.result_words(PUBLISHED))) is PUBLISHED
    assert str(wire.result(sent(wire.result_words(Spoilt("told"))))) == "told"


@pytest.mark.parametrize("data", [b"x\n", b"[]\n", b"[" * 100_000 + b"\n", b"x" * 101])
def test_what_is_no_message_is_refused(data):
    """Too long, not JSON, no object: whoever wrote into the wire."""
    with pytest.raises(wire.Garbled):
        wire.Frames(100).feed(data)
    with pytest.raises(wire.Garbled):
        wire.result({"is": "Failed", "nonsense": 1})


def sleeper():
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)


@pytest.fixture
def watching():
    made = subprocess.Popen([sys.executable, "-I", "-S", str(SCRIPT)], stdin=subprocess.PIPE, start_new_session=True,
                            bufsize=0)
    yield made
    made.kill()
    made.wait()
    made.stdin.close()


def test_a_guard_kills_what_it_knows_when_its_worker_is_gone_or_silent_and_nothing_else(watching):
    """By the end of its input, by a missing ping; not by SIGTERM, and not what was taken from it (E14.21)."""
    ended, silent, kept = sleeper(), sleeper(), sleeper()
    # Its signals are set by then.
    until(lambda: os.readlink(f"/proc/{watching.pid}/cwd") == "/")
    try:
        watching.stdin.write(f"+{silent.pid}\n+{kept.pid}\n!60\n-{kept.pid}\n!".encode())
        watching.send_signal(signal.SIGTERM)
        watching.stdin.write(b"0.3\n")
        assert silent.wait(10) == -signal.SIGKILL
        watching.stdin.write(f"!60\n+{ended.pid}\n".encode())
        assert ended.poll() is None
        watching.stdin.close()
        assert ended.wait(10) == -signal.SIGKILL
        assert watching.wait(10) == 0
        assert kept.poll() is None
    finally:
        for made in (ended, silent, kept):
            made.kill()
            made.wait()


def test_a_worker_is_believed_no_longer_than_its_jobs_are_its_own(settings):
    """Until the first moment at which recovery may take them: lease less a heartbeat's age, and the grace."""
    settings.JOBS = {**settings.JOBS, "RECOVERY_GRACE_S": 5.0}
    assert believed_s(30) == 30 - 10 + 5 - 0.5
    assert believed_s(3) == 3 - 1 + 5 - 0.5


def test_lines_that_nobody_reads_hold_up_nobody(monkeypatch):
    """Dropped and counted; what follows is written when somebody reads again."""
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stderr", stream)
    echo = Echo()
    echo.start()
    begun = time.monotonic()
    for n in range(5_000):
        echo.say(f"line {n} {'x' * 100}")
    assert time.monotonic() - begun < 5
    read = io.BytesIO()

    def drain():
        while select.select([reading], [], [], 0.5)[0]:
            if not (data := os.read(reading, 65536)):
                return
            read.write(data)

    drain()
    echo.say("again")
    drain()
    echo.ask_end()
    echo.join(5)
    assert not echo.is_alive()
    stream.close()
    os.close(reading)
    assert b"lines of isolated handlers were dropped" in read.getvalue()
    assert b"again" in read.getvalue()


def test_what_to_leave_out_of_the_output_of_a_child_is_heard_before_its_lines_are_kept(owned_site):
    """E10: it comes by the wire and the lines by a pipe, which may be looked at first."""
    definition = registry().exact("owned-apart", 1)
    run = Away(claimed(), definition, "worker:test")
    shown: list[str] = []
    pool = Children(1, "worker:test", lambda *_: None)
    pool._echo = SimpleNamespace(say=shown.append)
    child = SimpleNamespace(live=SimpleNamespace(run=run), mute=False, kept_back=[],
                            printed=lambda: (["have s3cr3t"], False), hear=lambda: ([{"masks": ["s3cr3t"]}], False))
    pool._read(child, select.POLLIN)
    assert (shown, run.lines.text()) == (["have [credential]"], "have [credential]")
