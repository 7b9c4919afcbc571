"""Runs cells of the grid side by side: arm, let it happen, look, repeat what a client would repeat, let healthy
workers finish, and check. Each cell has a worker group of its own, so that cells do not meet.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests import warm
from tests.crash.checker import check
from tests.crash.grid import GROUPS, Cell
from tests.crash.recorder import recorded
from tests.sinks import Sink

# Short, so that a lapse is seen soon.
FAST = {"JOBS_LEASE_S": "5", "JOBS_RECOVERY_GRACE_S": "1", "JOBS_POLL_S": "0.2", "JOBS_DRAIN_GRACE_S": "1",
        "JOBS_DEFINITIONS": "tests.crash.definitions"}
PATIENCE_S = 60.0
# Cells whose processes begin together: of dozens the last one is long in coming, on a machine with other things to do.
AT_ONCE = 8


def until(look: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """What `look` answers once that is true."""
    end = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


def told(sink: Sink) -> dict[str, str]:
    """The environment in which callbacks may go there, and where no address is a stranger's."""
    return {"CALLBACK_HTTP": "on", "CALLBACK_ALLOW": f"127.0.0.1:{sink.port}"}


@dataclass
class Actor:
    """One process of ours, and what it said."""

    process: warm.Process
    out: Path
    errors: Path

    def said(self) -> list[dict[str, Any]]:
        """The JSON lines on its stdout."""
        return [json.loads(x) for x in self.out.read_text().splitlines() if x.startswith("{")]

    def fired(self, point: str) -> bool:
        """Whether its failpoint was met."""
        return f"failpoint {point}\n" in self.errors.read_text()

    def ready(self) -> bool:
        """Whether it is a worker that claims."""
        return any(line.get("event") == "worker.ready" for line in self.said())

    def end(self) -> int:
        """Drain it, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return -1


@dataclass
class Case:
    """A cell in the making: its group, its job, and its processes."""

    cell: Cell
    n: int
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    job: str | None = None
    actor: Actor | None = None
    url: str = ""
    assignment: str | None = None

    @property
    def type(self) -> str:
        """The type of its job, in its own group."""
        return f"{self.cell.kind}-{self.n}"

    @property
    def group(self) -> str:
        """The worker group of its job."""
        return f"apart{self.n}" if self.cell.kind == "apart" else f"crash{self.n}"

    @property
    def name(self) -> str:
        """For sentences about it."""
        return f"{self.cell.point}={self.cell.fault}"


class Batch:
    """Some cells at once, on a database that is empty but for the default workspace."""

    def __init__(self, url: str, dsn: str, folder: Path, cells: Sequence[Cell], api_key: str, sink: Sink) -> None:
        self.dsn, self.folder, self.api_key, self.sink = dsn, folder, api_key, sink
        self.path = str(folder / "executions.jsonl")
        self.env = {**os.environ, **FAST, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "jobsite.settings",
                    "ALLOWED_HOSTS": "localhost,127.0.0.1", **told(sink)}
        self.cases = [Case(cell, n) for n, cell in enumerate(cells)]
        self.actors: list[Actor] = []
        self.healthy: list[Actor] = []
        self.faults: list[str] = []

    def run(self) -> list[str]:
        """All of it; the violations and broken expectations."""
        assert len(self.cases) <= GROUPS
        self.sink.got.clear()
        try:
            self._prepare()
            # Workers and claims over HTTP have duties of their own: what is armed in a duty comes before them. And all
            # of them send callbacks: whoever is armed for that comes next.
            first = ("recover", "promote", "fire"), ("sender",)
            for actors in first:
                self._let_it_happen([case for case in self.cases if case.cell.actor in actors])
            rest = [case for case in self.cases if not any(case.cell.actor in actors for actors in first)]
            for n in range(0, len(rest), AT_ONCE):
                self._let_it_happen(rest[n:n + AT_ONCE])
            self._repeat()
            self._finish()
        finally:
            for actor in self.actors:
                if actor.process.poll() is None:
                    actor.process.kill()
                    actor.process.wait()
        self._judge()
        return self.faults

    # -- processes ---------------------------------------------------------------------------------------

    def _start(self, name: str, *arguments: str, armed: str = "") -> Actor:
        out, errors = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with out.open("wb") as stdout, errors.open("wb") as stderr:
            process = warm.start(arguments, {**self.env, "JOBS_FAILPOINTS": armed}, stdout=stdout, stderr=stderr)
        self.actors.append(Actor(process, out, errors))
        return self.actors[-1]

    def _worker(self, name: str, groups: str, slots: int, *flags: str, armed: str = "") -> Actor:
        return self._start(name, "manage.py", "runworker", "--skip-checks", "--json", "--slots", str(slots), "--groups",
                           groups, *flags, armed=armed)

    def _serve(self, name: str, armed: str = "") -> tuple[Actor, str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return self._start(name, "-m", "tests.crash.act", "serve", str(port), armed=armed), f"http://127.0.0.1:{port}"

    def _act(self, name: str, *words: str, armed: str = "") -> Actor:
        return self._start(name, "-m", "tests.crash.act", *words, armed=armed)

    # -- the steps ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Jobs that must be there before the fault, made by the product as anybody would."""
        from tests.crash import prepare

        prepare.empty_domain()
        for case in self.cases:
            if case.cell.actor == "fire":
                prepare.timer(case.type, {"path": self.path})
            elif case.cell.actor not in ("enqueue", "api"):
                case.job = prepare.job(case.cell.actor, case.type, {"path": self.path}, case.group,
                                       f"http://127.0.0.1:{self.sink.port}/")

    def _let_it_happen(self, cases: Sequence[Case]) -> None:
        for case in cases:
            self._begin(case)
        for case in cases:
            if case.url:
                until(lambda case=case: _answers(case.url), f"{case.name}: the server")
                self._call(case, case.url)
        for case in cases:
            point, actor = case.cell.point, case.actor
            assert actor is not None
            until(lambda actor=actor, point=point: actor.fired(point), f"{case.name} was never met")
            # A child that is killed takes no worker along.
            if case.cell.fault == "kill" and case.cell.kind != "apart":
                until(lambda actor=actor: actor.process.poll() is not None, f"{case.name}: its death")
                if actor.process.returncode != -signal.SIGKILL:
                    self.faults.append(f"{case.name}: ended with {actor.process.returncode}, not by the kill")
            elif case.cell.actor not in ("worker", "sender", "api", "runner"):
                until(lambda actor=actor: actor.process.poll() is not None, f"{case.name}: its end")
        for case in cases:
            self._look_after(case)

    def _begin(self, case: Case) -> None:
        armed = f"{case.cell.point}={case.cell.fault}"
        name = f"{case.n}-{case.cell.point}"
        match case.cell.actor:
            case "worker":
                case.actor = self._worker(name, case.group, 1, armed=armed)
            case "sender":
                # Where it lives on, it takes no bulk operation away from those that are armed for one.
                case.actor = self._worker(name, case.group, 1, "--no-loops", armed=armed)
            case "api" | "runner":
                case.actor, case.url = self._serve(name, armed)
            case "enqueue":
                case.actor = self._act(name, "enqueue", case.type, case.key, self.path, armed=armed)
            case "fire":
                case.actor = self._act(name, "fire", case.type, armed=armed)
            case role:
                case.actor = self._act(name, role, str(case.job), armed=armed)

    def _call(self, case: Case, url: str) -> None:
        """What the client of an HTTP cell says; an answer may be lost."""
        if case.cell.actor == "api":
            code, body = self._post(url, "/jobs", {"type": case.type, "input": {"path": self.path}}, case.key)
            self._known(case, body.get("id") if code in (200, 202) else None)
            return
        if case.assignment is None:
            code, body = self._post(url, "/runtime/claim", {"worker_groups": [f"outside{case.n}"]})
            found = body.get("assignments") or [{}]
            case.assignment = found[0].get("assignment_id")
        if case.assignment is not None:
            self._post(url, f"/assignments/{case.assignment}/complete", {"artifact": {"done": True}})

    def _known(self, case: Case, id_: str | None) -> None:
        if id_ is not None and case.job not in (None, id_):
            self.faults.append(f"{case.name}: I11: the same key made {case.job} and {id_}")
        case.job = case.job or id_

    def _post(self, url: str, path: str, body: Mapping[str, Any], key: str = "") -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"{url}/api/v1{path}", json.dumps(body).encode(), {
            "Content-Type": "application/json", "Authorization": f"Bearer {self.api_key}",
            **({"Idempotency-Key": key} if key else {})})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, {}
        except OSError:
            return 0, {}

    def _look_after(self, case: Case) -> None:
        """What the database says before anybody mends anything."""
        rows = self._rows("SELECT state FROM jobs_job WHERE type = %s", case.type)
        state = rows[0]["state"] if rows else "none"
        seen = "made" if rows and case.cell.after == "made" else state
        if case.cell.after and seen not in case.cell.after.split("|"):
            self.faults.append(f"{case.name}: right after the fault {seen}, expected {case.cell.after}")

    def _repeat(self) -> None:
        """Healthy processes: workers for everything, and every client says again what it is not sure of."""
        unsure = [case for case in self.cases if case.cell.actor in ("enqueue", "cancel", "steer", "requeue", "bulk",
                                                                                  "redact", "erase", "fire")]
        for case, actor in [(case, self._again(case)) for case in unsure]:
            actor.process.wait(PATIENCE_S)
            # What is requeued already has no open letter any more, and says so.
            if actor.process.returncode != 0 and (case.cell.after != "queued" or case.cell.actor in ("bulk", "steer")):
                self.faults.append(f"{case.name}: the repeat failed: {actor.errors.read_text()[-500:]}")
            for known in [*(case.actor.said() if case.actor else []), *actor.said()]:
                self._known(case, known.get("id"))
        # A job that must fail is left to its armed worker: a healthy one would complete it.
        groups = ",".join(case.group for case in self.cases
                          if case.cell.kind != "outside" and case.cell.state != "failed")
        self.healthy = [self._worker(f"healthy{n}", groups, 8) for n in range(2)]
        over_http = [case for case in self.cases if case.url]
        url = self._serve("healthy-server")[1] if over_http else ""
        for case in over_http:
            until(lambda: _answers(url), "the healthy server")
            until(lambda case=case: self._done_by(case, url), f"{case.name}: its end over HTTP")

    def _again(self, case: Case) -> Actor:
        """The same request by another process."""
        if case.cell.actor == "enqueue":
            return self._act(f"{case.n}-again", "enqueue", case.type, case.key, self.path)
        return self._act(f"{case.n}-again", case.cell.actor, case.type if case.cell.actor == "fire" else str(case.job))

    def _done_by(self, case: Case, url: str) -> bool:
        self._call(case, url)
        return case.job is not None if case.cell.actor == "api" else self._state(case) == "completed"

    def _finish(self) -> None:
        until(lambda: not self._rows("SELECT 1 AS n FROM jobs_job WHERE ended_at IS NULL"), "all jobs at their ends",
              90)
        # The others may have done it all before these had begun: one that is only just starting would die of its drain.
        until(lambda: all(x.ready() or x.process.poll() is not None for x in self.healthy), "the healthy workers")
        for actor in self.actors:
            if "runworker" in actor.process.args and actor.process.poll() is None:  # type: ignore[operator]
                code = actor.end()
                if code != 0:
                    self.faults.append(f"{actor.out.stem}: a drained worker ended with {code}: "
                                       f"{actor.errors.read_text()[-800:]}")

    def _judge(self) -> None:
        lines = recorded(self.path)
        wanted = [case.job for case in self.cases if case.job is not None]
        tellers = self._rows("SELECT id::text FROM jobs_job WHERE type = 'job-ended'")
        wanted += [row["id"] for row in tellers]
        wanted += [row["id"] for case in self.cases if case.cell.actor == "sender"
                   for row in self._rows("SELECT id::text FROM jobs_job WHERE type = %s", case.type)]
        for what, seen, expected in (
                ("jobs that tell of an end", len(tellers), self._count("told")),
                ("tellings", len({x["job"] for x in lines if x["what"] == "told"}), self._count("told")),
                ("callbacks", len({got.told["id"] for got in self.sink.got}), self._acting("sender")),
                ("rows of the domain", len(self._rows("SELECT name FROM auth_group")), self._count("atomic"))):
            if seen != expected:
                self.faults.append(f"{seen} {what}, expected {expected}")
        if any(case.job is None for case in self.cases):
            self.faults.append(f"{[c.name for c in self.cases if c.job is None]} have no job")
        self.faults += check(self.dsn, wanted, lines)
        for case in self.cases:
            rows = self._rows("SELECT outcome FROM jobs_attempt WHERE job_id = %s ORDER BY number", case.job)
            outcomes = tuple(row["outcome"] for row in rows)
            starts = tuple(x["claims"] for x in lines if x["job"] == case.job and x["what"] == "start")
            found = (("outcomes", outcomes, case.cell.outcomes), ("starts", starts, case.cell.starts),
                     ("state", self._state(case), case.cell.state))
            for what, seen, expected in found:
                if seen != expected:
                    self.faults.append(f"{case.name}: {what} {seen}, expected {expected}")

    def _acting(self, actor: str) -> int:
        return sum(case.cell.actor == actor for case in self.cases)

    def _count(self, kind: str) -> int:
        return sum(case.cell.kind == kind for case in self.cases)

    def _state(self, case: Case) -> str | None:
        rows = self._rows("SELECT state FROM jobs_job WHERE id = %s", case.job)
        return str(rows[0]["state"]) if rows else None

    def _rows(self, sql: str, *params: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row, autocommit=True) as connection:
            return connection.execute(sql, params or None).fetchall()  # type: ignore[arg-type]


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/api/v1/jobs", timeout=5)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
