"""`manage.py mcp` as clients start it: a process of its own, the protocol on its pipes and nothing else (D1 to D5)."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from mcp.client.stdio import StdioServerParameters, stdio_client

from jobs import clock
from jobs.models import Attempt, Job, Key
from jobs.services import keys, tenancy
from lanes.mcp import http, stdio
from tests import database as db
from tests.driver import Driver, check
from tests.edges.caller import Caller
from tests.edges.loops import awaited
from tests.lanes.talking import Talk, configured
from tests.worker import processes
from tests.worker.processes import until

# One process for all of them.
pytestmark = pytest.mark.xdist_group("mcp_stdio")
SECRET = "0123456789ab.of-the-test-alone"
ROOT = Path(__file__).parents[2]


def _environment() -> dict[str, str]:
    return {**os.environ, "JOBSITE_KEY": SECRET, "DATABASE_URL": processes.database_url(), "JOBS_POLL_S": "0.2",
            "LOG_LEVEL": "INFO"}


def _said() -> dict[str, Any]:
    """What the README puts into a client's configuration, for this machine."""
    said = configured("command")
    assert said["env"].keys() <= _environment().keys()
    [file, command] = said["args"]
    assert Path(file).name == "manage.py"
    return {"command": sys.executable, "args": [str(ROOT / "manage.py"), command], "env": _environment()}


def agent() -> Key:
    """The key of the processes: always the same row, though each test begins with an empty database."""
    prefix, _, secret = SECRET.partition(".")
    made, _ = keys.make(tenancy.workspace(), "agent", [p.value for p in keys.Permission])
    Key.objects.filter(pk=made.pk).update(id=77, prefix=prefix, digest=keys._digest(secret))
    return Key.objects.get(pk=77)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the process writes to standard error."""
    return tmp_path_factory.mktemp("mcp") / "stderr"


@pytest.fixture(scope="module")
def shared(django_db_setup: Any, django_db_blocker: Any, log: Path) -> Iterator[Talk]:
    """One process and its client, for all tests of this module that leave it alive."""
    with django_db_blocker.unblock():
        db.empty()
        agent()
        db.close()
    held = log.open("w")
    to = StdioServerParameters(**_said())
    talk = Talk(lambda: stdio_client(to, errlog=held))
    yield talk
    talk.close()
    held.close()


@pytest.fixture
def talk(driver: Driver, shared: Talk) -> Talk:
    """That client, its key in the database."""
    agent()
    return shared


class Pipes:
    """A process that a test may kill, and lines to it as a client writes them."""

    def __init__(self, errors: Any) -> None:
        said = _said()
        self.process = subprocess.Popen([said["command"], *said["args"]], stdin=subprocess.PIPE, env=said["env"],
                                        stdout=subprocess.PIPE, stderr=errors)
        self.number = 0
        told = self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                       "clientInfo": {"name": "test", "version": "1"}})
        assert told["result"]["serverInfo"]["name"] == "jobsite"
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message: Any) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def begin(self, method: str, params: Any) -> None:
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})

    def read(self) -> Any:
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: Any) -> Any:
        self.begin(method, params)
        return self.read()

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]["structuredContent"]


@contextmanager
def pipes(tmp_path: Path) -> Iterator[Pipes]:
    """A process of this test's own."""
    with (tmp_path / "stderr").open("w") as errors:
        own = Pipes(errors)
        try:
            yield own
        finally:
            own.process.kill()
            own.process.wait()
            for pipe in (own.process.stdin, own.process.stdout):
                pipe.close()


# --- one process for these -------------------------------------------------------------------------------------------


def test_a_client_over_pipes_does_a_job_from_end_to_end(talk: Talk, log: Path) -> None:
    """D1 to D5, D14: create, claim with a wait, keep, give back, claim again, end; and what it logs is no protocol."""
    waiting = talk.begin("job_claim", wait_seconds=20)
    made = talk.good("job_create", type="outside", input={"text": "Zoë"})
    [one] = waiting.result(60).structured_content["assignments"]
    assert one["job"]["input"] == {"text": "Zoë"}
    talk.good("job_extend", assignment_id=one["assignment_id"])
    assert talk.good("job_release", assignment_id=one["assignment_id"])["state"] == "queued"
    [two] = talk.good("job_claim")["assignments"]
    assert (two["job"]["id"], two["job"]["attempt"]) == (made["id"], 2)
    for repeated in (False, True):
        end = talk.good("job_complete", assignment_id=two["assignment_id"], artifact={"n": 1})
        assert end["repeated"] is repeated
    talk.refused("job_complete", "stale_claim", assignment_id=two["assignment_id"], outcome="failed", reason_code="x")
    check(made["id"])
    # Before them stand the warnings of the system checks.
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert ("job_claim", "ok") in [(one["tool"], one["code"]) for one in lines if one["event"] == "tool"]
    assert SECRET not in log.read_text()


def test_a_claim_that_is_given_up_gives_its_job_back(talk: Talk) -> None:
    """D3, case-H05: the client cancels while it waits; what comes then is for who stands behind it in the line."""
    waiting = talk.begin("job_claim", wait_seconds=20)
    # What was said before this has been heard.
    talk.refused("job_get", "job_not_found", id="x")
    waiting.cancel()
    behind = talk.begin("job_claim", wait_seconds=20)
    talk.refused("job_get", "job_not_found", id="x")
    job = talk.good("job_create", type="outside")["id"]
    [one] = behind.result(60).structured_content["assignments"]
    assert one["job"]["id"] == job


def test_a_key_that_is_revoked_is_over_for_the_process_that_runs(talk: Talk) -> None:
    """C25: within the half second that a process believes what it has read."""
    assert talk.good("job_claim") == {"assignments": [], "again": False}
    keys.revoke(Key.objects.get().prefix)
    until(lambda: talk.said("job_claim").is_error)
    told = talk.refused("job_claim", "unauthenticated")
    assert talk.refused("job_create", "unauthenticated", type="outside") == told
    assert Job.objects.count() == 0


# --- a process of their own ------------------------------------------------------------------------------------------


def test_a_client_that_is_gone_loses_its_lease_and_nothing_else(talk: Talk, driver: Driver, tmp_path: Path) -> None:
    """D3, E14.21: its end is the end of the input, and an orderly one; the job goes to the next when its lease ends.

    Hostile lines before that change nothing, and get no traceback.
    """
    job = driver.enqueue("outside")
    with pipes(tmp_path) as own:
        for line in (b"", b"{", b"[]", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b"[" * 5_000, b'"' + b"x" * 100_000 + b'"',
                     b'{"jsonrpc":"2.0","id":9,"method":"no/such"}'):
            own.write(line)
        assert own.read()["error"]["code"] == -32601
        [one] = own.call("job_claim")["assignments"]
        assert one["job"]["id"] == job
        own.process.stdin.close()
        assert own.process.wait(20) == 0
        assert own.process.stdout.read() == b""
    assert "Traceback" not in (tmp_path / "stderr").read_text()
    assert talk.good("job_claim")["assignments"] == []
    driver.pass_time(100)
    driver.recover()
    driver.pass_time(10)
    [two] = talk.good("job_claim")["assignments"]
    assert (two["job"]["id"], two["job"]["attempt"]) == (job, 2)
    talk.refused("job_complete", "stale_claim", assignment_id=one["assignment_id"], artifact={})
    assert Attempt.objects.filter(ended_at=None).count() == 1
    check(job)


def test_told_to_stop_it_ends_at_once_and_takes_nothing_along(driver: Driver, tmp_path: Path) -> None:
    """D3: SIGTERM while a claim waits; what it does not tell its client it does not take."""
    agent()
    with pipes(tmp_path) as own:
        own.begin("tools/call", {"name": "job_claim", "arguments": {"wait_seconds": 20}})
        assert own.ask("ping", {})["result"] == {}
        own.process.send_signal(signal.SIGTERM)
        assert own.process.wait(15) == 0, (tmp_path / "stderr").read_text()
        job = driver.enqueue("outside")
        told = [json.loads(line) for line in own.process.stdout.readlines()]
    assert [one["error"]["code"] for one in told] == [-32000]
    assert driver.state(job) == "queued"
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_a_client_that_only_talks_waits_and_keeps_nothing_alive(driver: Driver, tmp_path: Path) -> None:
    """6.2: what it does not read is bounded; what it has sent is answered once it reads, and its end is ours."""
    agent()
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"cursor": "x" * 4_000}}).encode()
    line += b"\n"
    # Two pipes, what is read of them at once, the lines that are taken, and those whose answers wait.
    most = 4 * 65_536 + 32 * len(line)
    with pipes(tmp_path) as own:
        talking = own.process.stdin.fileno()
        os.set_blocking(talking, False)
        sent, quiet = 0, clock.Every(3.0, 3.0)
        while sent < most and not quiet.due():
            try:
                sent += os.write(talking, line[sent % len(line):])
                quiet = clock.Every(3.0, 3.0)
            except BlockingIOError:
                select.select((), (talking,), (), 1.0)
        assert sent < most
        for _ in range(sent // len(line)):
            assert own.read()["id"] == 7
        own.process.stdin.close()
        assert own.process.wait(20) == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize(("said", "why"), [
    ("", "There is no key"), ("nonsense", "is not live"), ("a.b", "is not live"), ("revoked", "is not live")])
def test_it_does_not_begin_without_a_live_key(driver: Driver, settings: Any, said: str, why: str) -> None:
    """A12 of the commands: one sentence that says what to do, and never the key."""
    if said == "revoked":
        caller = Caller()
        keys.revoke(caller.key.prefix)
        said = caller.secret
    settings.MCP_KEY = said
    with pytest.raises(CommandError) as refused:
        call_command("mcp")
    assert why in str(refused.value)
    assert "keys create" in str(refused.value)
    assert not said or said == "a.b" or said not in str(refused.value)


def test_a_site_without_the_package_goes_without_the_tools(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `mcp` is one: else there is no such route, and the command says what to install."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "mcp" else found(name, *more))
    application = runpy.run_module("jobsite.asgi")["application"]
    assert _asked(application)["status"] == 404
    with pytest.raises(CommandError, match="is not installed"):
        call_command("mcp")


def old(get_response: Any) -> Any:
    """Middleware that knows no coroutines."""

    def answer(request: Any) -> Any:
        response = get_response(request)
        response["X-Old"] = f"{response.status_code}"
        return response

    return answer


def test_a_sites_own_middleware_stands_around_the_tools(driver: Driver, settings: Any) -> None:
    """`API_MIDDLEWARE`, as around the API, whether it knows coroutines or not."""
    settings.JOBS = {**settings.JOBS, "API_MIDDLEWARE": ["tests.lanes.test_mcp_stdio.old", "jobs.requests.identified"]}
    http._chain.cache_clear()
    try:
        told = _asked(http.beside(lambda *_: None))
    finally:
        http._chain.cache_clear()
    headers = dict(told["headers"])
    assert (told["status"], headers[b"X-Old"], len(headers[b"X-Request-ID"])) == (401, b"401", 32)


def _asked(application: Any) -> Any:
    """How an application begins its answer to a call without a key."""
    sent: list[Any] = []
    said = [{"type": "http.request", "body": b"{}"}]

    async def receive() -> Any:
        return said.pop() if said else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "query_string": b"",
             "scheme": "http", "headers": [(b"host", b"localhost")], "asgi": {"version": "3.0"}, "http_version": "1.1"}
    awaited(application(scope, receive, send))
    return sent[0]


def test_lines_are_read_as_they_come_and_an_endless_one_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.2: bounded, whatever a client sends; what it sends ahead waits."""
    monkeypatch.setattr(stdio, "limit", lambda: 1_000)
    reading, writing = os.pipe()
    monkeypatch.setattr(stdio.sys, "stdin", os.fdopen(reading))

    async def read() -> list[str]:
        return [line async for line in stdio.Lines()]

    said = b'{"a": 1}\n' + "Zoë\n".encode() + b"\xff\n" + b"\n" * 50 + b"x" * 60_000 + b"\nlost\n"
    os.write(writing, said)
    os.close(writing)
    lines = awaited(read())
    assert lines[:3] == ['{"a": 1}', "Zoë", "\ufffd"]
    assert lines[3:53] == [""] * 50
    assert lines[53:] == []
