"""`manage.py up` as a stranger runs it: real processes, real signals, and nothing of it left behind."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobsite import postgres
from jobsite.postgres import places
from jobsite.up.site import MOST_FAILURES, Ended, Kept
from tests.site.own import Visitor, ask, gone

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


class Up:
    """A running `up`: what it says to people, and its log."""

    def __init__(self, *arguments: str, folder: Path, program: tuple[str, ...] = ("manage.py",),
                 cwd: Path = REPOSITORY, **environment: str) -> None:
        self.log = folder / f"log-{time.monotonic_ns()}"
        env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "LOG_LEVEL")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "up", *arguments], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=log,
                env={**env, "JOBS_DEFINITIONS": "jobsite.definitions", **environment})

    def read(self, until: str) -> str:
        """What it said up to a line with this word."""
        said = ""
        for line in self.process.stdout or ():
            said += line
            if until in line:
                return said
        pytest.fail(f"it never said {until!r}: {said}\n{self.log.read_text()}")

    def wait(self) -> tuple[int, str]:
        """Its code and the rest of what it said."""
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """The same after a signal."""
        self.process.send_signal(number)
        return self.wait()

    def children(self) -> dict[str, int]:
        """Its processes by their command."""
        found = subprocess.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(self.process.pid)], text=True,
                               capture_output=True, check=False).stdout
        return {line.split("attended ")[1].split()[0]: int(line.split()[0])
                for line in found.splitlines() if "attended " in line}

    def lines(self) -> list[dict[str, Any]]:
        """Its log, each line of which is one JSON object with an event (A64)."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        assert all(line["event"] for line in found)
        return found


@contextmanager
def up(*arguments: str, **options: Any) -> Iterator[Up]:
    started = Up(*arguments, **options)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def until(condition: Callable[[], Any]) -> Any:
    """What it says once it says anything."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, "that never came"
        time.sleep(0.05)
    return found


def answers(address: str) -> bool:
    try:
        return Visitor(address).get("/livez")[0] == 200
    except OSError:
        return False


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_up_brings_everything_keeps_it_going_and_ends_it_in_order(url: str, tmp_path: Path) -> None:
    """Issue 4: first login, pages and files; a taken port, a second one beside it; what is killed comes back."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    with up("--port", str(port), folder=tmp_path, DATABASE_URL=url) as site:
        said = site.read("Ctrl-C ends it.")
        assert said.startswith(f"Jobsite is up: {address}\n")
        password = re.search(r"Sign in as admin with the password (\S{20})\n", said)
        assert password is not None
        visitor = Visitor(address)
        assert visitor.sign_in("admin", "wrong") == 0
        assert visitor.sign_in("admin", password[1]) == 200
        assert visitor.get("/admin/")[0] == 200
        files = {file for page in ("/", "/admin/") for file in re.findall(r'"(/static/[^"]+)"', visitor.get(page)[2])}
        assert {"/static/jobs/jobsite.css", "/static/jobs/live.js", "/static/admin/css/base.css"} <= files
        assert {file: visitor.get(file)[0] for file in files} == dict.fromkeys(files, 200)
        _refused_for_the_port(port, tmp_path, url)
        _a_second_one_shares_the_database(tmp_path, url)
        _what_is_killed_comes_back(site, address, url)
        children = site.children()
        assert children.keys() == {"serve", "runworker"}
        code, said = site.end(signal.SIGINT)
        assert (code, said) == (0, "Stopped.\n")
        assert not any(map(alive, children.values()))
        gone(url)
        assert ask(url, "SELECT count(*) FROM jobs_worker WHERE stopped_at IS NULL") == [(1,)]
        logged = site.lines()
    assert {"request", "worker.ready", "worker.stopped"} <= {line["event"] for line in logged}
    assert not [line for line in logged if line.get("level") in ("ERROR", "CRITICAL")]
    assert password[1] not in site.log.read_text()


def _refused_for_the_port(port: int, folder: Path, url: str) -> None:
    with up("--port", str(port), folder=folder, DATABASE_URL=url) as second:
        assert second.wait() == (1, "")
        assert second.log.read_text() == (
            f"CommandError: Port {port} of 127.0.0.1 is taken, perhaps by another one of us. Choose another: "
            f"--port {port + 1}, or --port 0 for any that is free.\n")


def _a_second_one_shares_the_database(folder: Path, url: str) -> None:
    """No second login is made; SIGTERM, as a service manager sends it, is a proper end too."""
    with up("--port", "0", "--workers", "0", folder=folder, DATABASE_URL=url) as second:
        said = second.read("Ctrl-C ends it.")
        assert "password" not in said
        assert answers(said.split()[3])
        assert second.end(signal.SIGTERM) == (0, "Stopped.\n")


def _what_is_killed_comes_back(site: Up, address: str, url: str) -> None:
    before = site.children()
    os.kill(before["serve"], signal.SIGKILL)
    site.read(f"web (process {before['serve']}) ended by SIGKILL; another one takes its place.")
    until(lambda: answers(address))
    until(lambda: ask(url, "SELECT count(*) FROM jobs_worker") == [(1,)])
    os.kill(before["runworker"], signal.SIGKILL)
    site.read(f"worker (process {before['runworker']}) ended by SIGKILL; another one takes its place.")
    until(lambda: ask(url, "SELECT count(*) FROM jobs_worker") == [(2,)])


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A folder of a site that is installed as packages: its embedded database and its collected files lie there."""
    for package in ("jobs", "jobsite", "lanes", "templates"):
        shutil.copytree(REPOSITORY / package, tmp_path / "packages" / package,
                        ignore=shutil.ignore_patterns("__pycache__"))
    made = tmp_path / "project"
    made.mkdir()
    yield made
    with suppress(postgres.PostgresError):
        postgres.start(made).close()
    shutil.rmtree(places.place_of(made).state, ignore_errors=True)


@pytest.mark.slow
def test_nothing_outlives_a_killed_up_and_production_serves_collected_files(project: Path) -> None:
    """E14.21, issue 4: with the embedded server: web, worker and PostgreSQL end by themselves; then in production."""
    start: dict[str, Any] = {"folder": project.parent, "program": ("-m", "jobsite"), "cwd": project,
                             "PYTHONPATH": str(project.parent / "packages")}
    server = places.place_of(project).socket_file
    with up("--port", "0", **start) as site:
        said = site.read("Ctrl-C ends it.")
        password, address = said.split()[said.split().index("password") + 1], said.split()[3]
        until(lambda: any(line["event"] == "worker.ready" for line in site.lines()))
        children = site.children()
        assert len(children) == 2
        assert server.exists()
        site.process.kill()
        until(lambda: not any(map(alive, children.values())))
        until(lambda: not server.exists())
        assert not answers(address)
    with up("--port", "0", **start, SECRET_KEY="s3cret-" * 10, ALLOWED_HOSTS="127.0.0.1",
            SECURE_SSL_REDIRECT="off") as site:
        said = site.read("Ctrl-C ends it.")
        visitor = Visitor(said.split()[3])
        page = visitor.get("/login/")[2]
        [sheet] = re.findall(r'href="(/static/jobs/jobsite\.[0-9a-f]{12}\.css)"', page)
        status, headers, _ = visitor.get(sheet)
        assert (status, headers["Cache-Control"]) == (200, "max-age=315360000, public, immutable")
        # Over plain HTTP a secure cookie comes back to nobody: the login of the first run is tried where it is kept.
        assert "password" not in said
        with psycopg.connect(postgres.address(project).dsn) as asked:
            assert asked.execute("SELECT username FROM auth_user").fetchall() == [("admin",)]
        assert password not in site.log.read_text()
        assert site.end(signal.SIGINT) == (0, "Stopped.\n")
        assert not server.exists()


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (("--port", "many"), 2, "up: error: argument --port: invalid int value: 'many'"),
    (("--wokers", "2"), 2, "up: error: unrecognized arguments: --wokers 2"),
    (("--workers", "-1"), 2, "CommandError: --workers must be from 0 to 64."),
    (("--port", "70000"), 1, "CommandError: 70000 is no port"),
    (("--port", "0", "--host", "203.0.113.9"), 1, "CommandError: 203.0.113.9 port 0 cannot be listened on"),
    (("--port", "0"), 1, "CommandError: The database cannot be used: "),
])
def test_a_wrong_option_and_a_database_that_is_away_are_said_in_words(arguments: tuple[str, ...], code: int, said: str,
                                                                      tmp_path: Path) -> None:
    """A user's typo is no traceback."""
    with up(*arguments, folder=tmp_path, DATABASE_URL="postgres://nobody@127.0.0.1:9/none") as site:
        assert site.wait() == (code, "")
    told = [line for line in site.log.read_text().splitlines() if not line.startswith("{")]
    assert said in told[-1]
    assert not [line for line in told if "Traceback" in line]


class Brief:
    """A process that has ended already."""

    pid = 1

    def __init__(self, code: int) -> None:
        self.code = code

    def end(self) -> None:
        pass


@pytest.mark.parametrize(("code", "starts"), [(1, MOST_FAILURES), (0, MOST_FAILURES), (-9, MOST_FAILURES), (2, 1)])
def test_a_process_that_ends_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch, code: int,
                                                         starts: int) -> None:
    """With growing pauses; wrong options at once. What ends cleanly without having worked is a failure too."""
    passed, started, told = [0.0], [], []
    monkeypatch.setattr("jobs.clock.monotonic", lambda: passed[0])
    kept = Kept("worker", lambda: started.append(passed[0]) or Brief(code), told.append)

    def look_on() -> None:
        for _ in range(1_000):
            kept.look()
            passed[0] += 0.05

    with pytest.raises(Ended, match=r"worker \(process 1\) ended .* times in a row"):
        look_on()
    assert len(started) == starts
    assert len(told) == starts - 1
    pauses = [round(later - earlier, 1) for earlier, later in itertools.pairwise(started)]
    assert pauses == sorted(pauses)


def test_one_that_worked_for_long_is_started_again_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that recycles ends with 0 and is replaced at once; one that crashes now and then has a clean record."""
    passed, started = [0.0], []
    monkeypatch.setattr("jobs.clock.monotonic", lambda: passed[0])
    for code in (0, 1):
        kept = Kept("worker", lambda code=code: started.append(passed[0]) or Brief(code), lambda _: None)
        for _ in range(40):
            kept.look()
            passed[0] += 31.0
    assert len(started) == 40
