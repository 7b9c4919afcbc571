"""`manage.py demo` as a stranger runs it: real processes, a real kill -9, and nothing of it left behind (E14.21)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from jobsite import cli
from jobsite.demo import proof
from jobsite.demo.console import Console
from jobsite.demo.screen import printable
from tests.site.own import Visitor, ask, gone

REPOSITORY = Path(__file__).resolve().parents[2]
TEXTS = {
    "README.md": "# Falcon\n\nFalcon is a small framework for web services.\n",
    "docs/plan.md": "# Plan for the move\n\nWe move the office in the first week of May.\n",
    "docs/rfc.md": "# RFC 7: Shorter leases\n\nA dead worker should be noticed within a minute.\n",
    "docs/blank.md": "\n", ".hidden/no.md": "# No\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@contextmanager
def demo(url: str, *arguments: str, temporary: Path,
         program: tuple[str, ...] = ("manage.py",)) -> Iterator[subprocess.Popen]:
    """A running demo with a place of its own for its private folder."""
    temporary.mkdir(exist_ok=True)
    env = {**os.environ, "DATABASE_URL": url, "TMPDIR": str(temporary), "JOBS_DEFINITIONS": "jobsite.definitions"}
    process = subprocess.Popen([sys.executable, *program, "demo", *arguments], cwd=REPOSITORY, env=env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read(process: subprocess.Popen, until: str) -> str:
    """What it said up to a line with this word."""
    said = ""
    for line in process.stdout:
        said += line
        if until in line:
            return said
    pytest.fail(f"it never said {until!r}: {said}")


def drained(url: str) -> bool:
    """One worker was killed; the others said good-bye. What they had is queued again or done, but never held."""
    silent = ask(url, "SELECT count(*) FROM jobs_worker WHERE stopped_at IS NULL")[0][0]
    held = ask(url, "SELECT count(*) FROM jobs_attempt a JOIN jobs_worker w ON w.id = a.worker_id"
                    " WHERE a.ended_at IS NULL AND w.stopped_at IS NOT NULL")
    return silent <= 1 and held == [(0,)]


@pytest.mark.slow
def test_the_demo_kills_a_worker_and_loses_nothing(url: str, folder: Path, tmp_path_factory) -> None:
    """A3, B44, C27, E12, E14.21: documents described, a lapse, a dead letter requeued, books that are right."""
    temporary = tmp_path_factory.mktemp("private")
    with demo(url, str(folder), "--exit", temporary=temporary) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert re.search(r"kill -9: demo-\d+-\d \(process \d+\) is dead, with [12] jobs? in its hands: \S+\.md", said), said
    assert "terminal_error after 1 attempt, source_missing: lost.md is not there." in said
    assert "Nothing was lost: " in said
    assert "README for Falcon: a small framework for web services." in said
    assert "docs/blank.md  Empty document" in said
    assert ".hidden" not in said
    assert ask(url, "SELECT state, count(*) FROM jobs_job GROUP BY 1")[0][0] == "completed"
    assert ask(url, "SELECT count(*) FROM jobs_attempt WHERE outcome = 'lapsed'")[0][0] >= 1
    assert ask(url, "SELECT resolution, reason_code FROM jobs_dead_letter") == [("requeued", "source_missing")]
    assert ask(url, "SELECT count(*) FROM jobs_worker WHERE stopped_at IS NULL")[0][0] == 1
    gone(url)
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_second_demo_of_the_same_folder_has_jobs_of_its_own(url: str, folder: Path, tmp_path_factory) -> None:
    """B15, B16: each run asks for the next revision, which supersedes what an aborted one left."""
    temporary = tmp_path_factory.mktemp("private")
    with demo(url, str(folder), temporary=temporary) as process:
        read(process, "takes its place")
        process.kill()
    gone(url)
    # They drain by themselves when nobody is there any more to tell them.
    assert drained(url)
    left = {row[0] for row in ask(url, "SELECT id FROM jobs_job WHERE ended_at IS NULL")}
    known = ask(url, "SELECT count(*) FROM jobs_job")[0][0]
    assert left
    with demo(url, str(folder), "--exit", temporary=temporary, program=("-m", "jobsite")) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert ask(url, "SELECT count(*) FROM jobs_job")[0][0] > known
    # The new workers may have run some of them before the new requests took their place.
    ends = dict(ask(url, "SELECT id, state FROM jobs_job"))
    assert {ends[id_] for id_ in left} <= {"superseded", "completed", "failed"}


@pytest.mark.slow
def test_a_demo_that_is_terminated_drains_its_workers_and_leaves_no_process(url: str, folder: Path,
                                                                            tmp_path_factory) -> None:
    """In the middle of its story; how it ends when it is killed is told below, and by Ctrl-C at its end."""
    temporary = tmp_path_factory.mktemp("private")
    with demo(url, str(folder), temporary=temporary) as process:
        read(process, "takes its place")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert "Traceback" not in said
    gone(url)
    assert drained(url)


@pytest.mark.slow
def test_ctrl_c_ends_a_demo_that_stays(url: str, folder: Path, tmp_path_factory) -> None:
    """Without --exit it stays, with the console, a login, lanes and a timer to see, and Ctrl-C is its proper end."""
    with demo(url, str(folder), temporary=tmp_path_factory.mktemp("private")) as process:
        said = read(process, "Ctrl-C ends them")
        [address] = re.findall(r"Or in the console: (http://127\.0\.0\.1:\d+/)jobs/\S+/$", said, re.MULTILINE)
        assert '"level"' not in said, "a line of the log stands in the story"
        login = re.search(r"Sign in as (demo) with the password (\S+)$", said, re.MULTILINE)
        assert login is not None
        visitor = Visitor(address)
        assert visitor.sign_in(*login.groups()) == 200
        for name, words in (("lanes/", "Describe the documents"), ("timers/", "it only shows what a timer is")):
            [path] = re.findall(rf": {address}({name}\S+)$", said, re.MULTILINE)
            assert words in visitor.get(path)[2]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
    job = re.search(r"python manage\.py explain (\S+)", said)
    assert job is not None
    assert ask(url, f"SELECT chain FROM jobs_job WHERE id = '{uuid.UUID(job[1])}'") == [(2,)]
    assert ask(url, "SELECT name, execution, review FROM lanes_lane ORDER BY name") == [
        ("describe", "done", "submitted"), ("read", "open", "none")]
    # Nothing of it works on in somebody's database.
    assert ask(url, "SELECT count(*) FROM jobs_timer WHERE paused_at IS NULL OR paused_until IS NOT NULL") == [(0,)]
    gone(url)


@pytest.mark.parametrize(("arguments", "said"), [
    (("/nowhere/at/all",), "There is no folder /nowhere/at/all."), (("manage.py",), "manage.py is not a folder."),
    (("jobsite/postgres",), "There are no Markdown files below"),
    ((".", "--limit", "0"), "--limit must be at least 1."),
])
def test_a_wrong_argument_is_refused_in_one_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """A user's typo is no traceback, and touches no database."""
    with demo("postgres://nobody@127.0.0.1:9/none", *arguments, temporary=tmp_path) as process:
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.startswith(f"CommandError: {said}")
    assert len(told.splitlines()) == 1


def test_the_proof_finds_what_is_not_right(driver) -> None:
    """E12: a job that is missing, not completed, or differs from its receipts is named."""
    job_id, other = driver.enqueue("noop"), str(uuid.uuid4())
    found = proof.faults([job_id, other])
    assert sorted(found) == sorted([f"job {job_id}: it is queued, not completed", f"job {other}: it is not there"])
    driver.complete(driver.claim_one())
    assert proof.faults([job_id]) == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET claims = 7 WHERE id = %s", [job_id])
    assert proof.faults([job_id]) == [
        f"job {job_id}: fold differs in claims: the receipts say 1, the row says 7"]


def test_a_name_of_a_file_cannot_command_the_terminal() -> None:
    """Control characters of names and texts are shown as marks."""
    assert printable("a\x1b[31mb\x07\ud800\nc ü🚀") == "a?[31mb??\nc ü🚀"


@pytest.mark.parametrize(("line", "needs"), [
    ("migrate", True), ("demo", True), ("runworker", True), ("shell", True), ("check --database default", True),
    ("makemigrations --check", True), ("", False), ("help", False), ("version", False), ("check", False),
    ("startproject x", False), ("migrate --help", False), ("collectstatic", False),
])
def test_the_command_line_knows_which_commands_need_a_database(line: str, needs: bool) -> None:
    """The embedded server is started for these alone, once Django has found the command."""
    assert cli.needs_database(["manage.py", *line.split()]) is needs


def test_an_account_of_somebodys_that_is_called_demo_is_left_alone(database):
    """Its password stays; the demo's own gets a new one each time."""
    somebody = get_user_model().objects.create_user("demo", "ann@example.org", "hers")
    said = list(Console(Path("log")).welcome())
    somebody.refresh_from_db()
    assert said == ["Sign in with an account of this site."]
    assert somebody.check_password("hers")
    assert not somebody.is_superuser
    somebody.delete()
    first, second = (next(iter(Console(Path("log")).welcome())) for _ in range(2))
    assert first.startswith("Sign in as demo")
    assert first != second
    get_user_model().objects.all().delete()
