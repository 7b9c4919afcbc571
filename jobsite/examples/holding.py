"""One claimed job in the hands of a runner: it is kept alive, worked on, and ended exactly once.

Two threads share it. The engine's works; the other beats every `heartbeat_after_s`, which is also how the runner
hears that it is to stop, or that the job is no longer its own. Whoever ends it first has ended it.
"""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from jobsite.examples.client import Away, Client, Refused

# The claim is somebody else's, or the job has ended: nothing that we say counts any more.
GONE = ("stale_claim", "job_ended", "duration_exceeded", "not_found", "assignment_not_found")
BACK_OFF_S, MOST_S = 0.5, 30.0
Engine = Callable[["Work"], Any]
Say = Callable[..., None]


class Failure(Exception):
    """What an engine raises to fail with a code of its own; any other exception is `engine_error`."""

    def __init__(self, code: str, message: str = "", *, retryable: bool = True) -> None:
        self.code, self.message, self.retryable = code, message, retryable
        super().__init__(message or code)


class Stopped(Exception):
    """Raised in an engine that asks whether to go on, when it is not to."""


class Work:
    """What an engine is given: the job, and how to report. What it returns is the artifact."""

    def __init__(self, held: Held, claimed: dict[str, Any]) -> None:
        job = claimed["job"]
        self._held = held
        self.type: str = job["type"]
        self.version: int = job["version"]
        self.input: Any = job["input"]
        self.agent: str | None = job["agent"]
        # A number that never falls, and a key for the world outside that is the same in every attempt of a chain.
        self.attempt: int = job["attempt"]
        self.idempotency_key: str = job["idempotency_key"]
        # What people have sent to the job and nobody has dealt with, the oldest first; see `consumed`.
        self.commands: list[dict[str, Any]] = claimed.get("commands", [])
        # What an attempt before this one left for its successor.
        self.last_checkpoint: dict[str, Any] | None = claimed["checkpoint"]

    def check(self) -> None:
        """Raises Stopped when it is time to stop: aborted, drained, out of time, or the claim was lost."""
        if self._held.stopping.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until it is time to stop. Raises Stopped."""
        self._held.stopping.wait(seconds)
        self.check()

    def progress(self, stage: str, event: str = "started") -> None:
        """Tell people where it stands: a stage that the definition declares, `started` or `completed`."""
        self._held.report(progress={"stage": stage, "event": event})

    def consumed(self, command: dict[str, Any]) -> None:
        """Say that a command was dealt with, so that it is not told again."""
        self._held.report(consumed=[command["id"]])

    def checkpoint(self, value: dict[str, Any]) -> None:
        """Keep what a successor needs to go on from here. Raises Stopped where nobody would read it."""
        self._held.report(checkpoint=value)
        self.check()


class Held:
    """An assignment from its claim to its end."""

    def __init__(self, client: Client, claimed: dict[str, Any], engine: Engine | None, say: Say,
                 heartbeat_s: float | None = None) -> None:
        self.id: str = claimed["assignment_id"]
        self.type: str = claimed["job"]["type"]
        self.job: str = claimed["job"]["id"]
        self.stopping = threading.Event()
        # The engine has come back, and the end is told.
        self.over = threading.Event()
        # Nothing we say counts any more; nothing more is to be said, for that or because the end is told.
        self._lost, self._quiet = threading.Event(), threading.Event()
        self._client, self._engine, self._say, self._limit_s = client, engine, say, heartbeat_s
        self._work = Work(self, claimed)
        self._pause_s = self._every(claimed["heartbeat_after_s"])
        self._until = self._deadline(claimed["deadline"])
        self._number: int = claimed["checkpoint_number"]
        self._ending = threading.Lock()
        self._beating = threading.Lock()
        self._news: dict[str, Any] = {}

    def begin(self) -> None:
        """Start both threads; `over` is set once the engine has come back and the end is told."""
        for target in (self._engage, self._beat):
            threading.Thread(target=target, name=f"{target.__name__}-{self.job}", daemon=True).start()

    def give_back(self) -> None:
        """Hand the job back now, whatever its engine does: it is claimable again at once, and nothing is counted."""
        self.stopping.set()
        self._end("release", {})

    # --- heartbeats ------------------------------------------------------------------------------------------------

    def report(self, **news: Any) -> None:
        """Send news with a heartbeat of its own; while the server is away they wait for the next one."""
        with self._beating:
            if "checkpoint" in news:
                self._number += 1
                news["checkpoint"] = {**news["checkpoint"], "seq": self._number}
            if "consumed" in news:
                news["consumed"] = self._news.get("consumed", []) + news["consumed"]
            self._news.update(news)
            self._tell()

    def _beat(self) -> None:
        # The first at once: it says that the job runs.
        while not self._quiet.is_set():
            with self._beating:
                pause = self._tell()
            if self._until is not None and time.monotonic() >= self._until:
                self._time_out()
            self._quiet.wait(pause if self._until is None else max(0.05, min(pause, self._until - time.monotonic())))

    def _tell(self) -> float:
        """One heartbeat; how long until the next."""
        if self._quiet.is_set():
            return 0.0
        try:
            answer = self._client.post(f"/assignments/{self.id}/extend", self._news)
        except Away as away:
            self._say("away", job=self.job, why=str(away))
            return min(1.0, self._pause_s)
        except Refused as refused:
            return self._unheard(refused)
        self._news = {}
        self._pause_s = self._every(answer["heartbeat_after_s"])
        self._work.commands = answer.get("commands", [])
        if answer.get("abort") is not None:
            self.stopping.set()
        return self._pause_s

    def _unheard(self, refused: Refused) -> float:
        if refused.code in GONE:
            self._say("lost", job=self.job, code=refused.code)
            for told in (self._lost, self._quiet, self.stopping):
                told.set()
        elif self._news:
            # The lease must not run out for the sake of a report that the server does not take.
            self._say("report_refused", job=self.job, code=refused.code, reports=sorted(self._news))
            self._news = {}
            return 0.0
        else:
            self._say("beat_refused", job=self.job, code=refused.code)
        return min(1.0, self._pause_s)

    def _every(self, told_s: float) -> float:
        # A setting of our own only lowers it: the lease was made for what the server says.
        return told_s if self._limit_s is None else min(told_s, self._limit_s)

    def _deadline(self, moment: str | None) -> float | None:
        if moment is None:
            return None
        until = datetime.datetime.fromisoformat(moment).timestamp() - self._client.ahead_s
        return time.monotonic() + until - time.time()

    def _time_out(self) -> None:
        self._until = None
        self.stopping.set()
        self._end("fail", {"reason_code": "attempt_timeout", "message": "The engine took too long."})

    # --- the end ---------------------------------------------------------------------------------------------------

    def _engage(self) -> None:
        try:
            self._end(*self._outcome())
        finally:
            self._quiet.set()
            self.over.set()

    def _outcome(self) -> tuple[str, dict[str, Any]]:
        """What the engine has come to, as a verb and its body."""
        if self._engine is None:
            # Another runner may know it; meanwhile it is nobody's failure.
            return "release", {"delay_s": 15}
        try:
            made = self._engine(self._work)
            json.dumps(made, allow_nan=False)
            return "complete", {"artifact": made}
        except Stopped:
            # An aborted job that is handed back is cancelled.
            return "release", {}
        except Failure as failure:
            return _failed(failure.code, failure.message, failure.retryable)
        except Exception as error:
            # Its type alone: messages may hold what nobody else should read.
            return _failed("engine_error", type(error).__name__)

    def _end(self, verb: str, body: dict[str, Any]) -> None:
        """Tell the end, once, until somebody answers: the same words again are a quiet yes."""
        if not self._ending.acquire(blocking=False):
            return
        try:
            self._say_end(verb, body)
        finally:
            self._quiet.set()

    def _say_end(self, verb: str, body: dict[str, Any]) -> None:
        pause = BACK_OFF_S
        while not self._lost.is_set():
            try:
                answer = self._client.post(f"/assignments/{self.id}/{verb}", body)
            except Away as away:
                self._say("away", job=self.job, why=str(away))
                time.sleep(away.after_s or pause)
                pause = min(2 * pause, MOST_S)
            except Refused as refused:
                if refused.code in GONE or verb == "fail":
                    self._say("end_refused", job=self.job, code=refused.code)
                    return
                # An artifact that its definition refuses, or a job that was handed back too often.
                verb, body = _failed(refused.code, refused.detail, False)
            else:
                self._say("ended", job=self.job, type=self.type, by=verb, status=answer["status"])
                return


def _failed(code: str, message: str = "", retryable: bool = True) -> tuple[str, dict[str, Any]]:
    return "fail", {"reason_code": code, "message": message, "retryable": retryable}
