"""A runner: `python -m jobsite.examples.runner --url http://localhost:8000 --groups receipt-codex,research`.

1. `POST /runtime/claim` with free slots and a wait answers assignments, or none; errors are waited out, ever longer,
   and the same claim is asked again under its `request_id`: what an answer brought that was lost is not.
2. `POST /assignments/{id}/extend` at once and then every `heartbeat_after_s`; its answer may ask for an abort.
3. `complete`, `fail` or `release` ends it; without an answer the same words are said again until there is one.
4. `stale_claim` means that it is another's by now: stop, and say nothing more.
5. SIGTERM: claim no more, let what runs end within the grace, hand back the rest, exit 0; a second one hands back now.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobsite.examples.client import Away, Client, Refused
from jobsite.examples.holding import BACK_OFF_S, MOST_S, Engine, Held

# With these an answer is final: another key or other groups are needed.
HOPELESS = (400, 401, 403, 404)


def say(event: str, **told: Any) -> None:
    """One JSON line on stderr; inputs and artifacts never stand in it."""
    sys.stderr.write(json.dumps({"event": event, **told}) + "\n")
    sys.stderr.flush()


class Runner:
    """Slots, what they hold, and the loop that fills them."""

    def __init__(self, client: Client, engines: Mapping[str, Engine], *, groups: list[str] | None = None,
                 slots: int = 1, wait_s: int = 10, grace_s: float = 10.0, heartbeat_s: float | None = None) -> None:
        self._client, self._engines, self._groups = client, engines, groups
        self._slots, self._wait_s, self._grace_s, self._heartbeat_s = slots, wait_s, grace_s, heartbeat_s
        self._held: list[Held] = []
        # The claim that nobody has answered yet.
        self._asked: dict[str, Any] | None = None
        self._stop, self._hurry = threading.Event(), threading.Event()

    def stop(self, *_: Any) -> None:
        """Drain; the second time hand back at once. A signal handler."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    def run(self) -> int:
        """Work until told to stop; the exit code: 0 drained, 2 where the server will never have us."""
        pause = BACK_OFF_S
        while not self._stop.is_set():
            self._held = [held for held in self._held if not held.over.is_set()]
            free = self._slots - len(self._held)
            if free <= 0:
                self._stop.wait(0.1)
                continue
            try:
                self._claim(free)
                pause = BACK_OFF_S
            except (Away, Refused) as error:
                if isinstance(error, Refused):
                    # An answer, if none that we wanted: the next claim is another one.
                    self._asked = None
                if isinstance(error, Refused) and error.status in HOPELESS:
                    say("refused", code=error.code, detail=error.detail)
                    self._drain()
                    return 2
                say("away", why=str(error))
                # Not all runners at the same moment.
                self._stop.wait(getattr(error, "after_s", None) or pause * random.uniform(0.5, 1))
                pause = min(2 * pause, MOST_S)
        self._drain()
        return 0

    def _claim(self, free: int) -> None:
        """Wait for work and begin it. A poll is waited for even when we are to stop: what it brings must be known."""
        if self._asked is None:
            self._asked = {"slots": free, "wait_seconds": self._wait_s, "request_id": str(uuid.uuid4())}
            if self._groups is not None:
                self._asked["worker_groups"] = self._groups
        answer = self._client.post("/runtime/claim", self._asked, patience_s=self._wait_s)
        self._asked = None
        for claimed in answer["assignments"]:
            held = Held(self._client, claimed, self._engines.get(claimed["job"]["type"]), say, self._heartbeat_s)
            say("claimed", job=held.job, type=held.type, attempt=claimed["job"]["attempt"])
            self._held.append(held)
            held.begin()

    def _drain(self) -> None:
        until = time.monotonic() + self._grace_s
        say("draining", jobs=len(self._held))
        while any(not held.over.is_set() for held in self._held) and time.monotonic() < until:
            if self._hurry.wait(0.05):
                break
        left = [held for held in self._held if not held.over.is_set()]
        # Side by side, and no longer than this: what cannot be told runs out by its lease.
        telling = [threading.Thread(target=held.give_back, daemon=True) for held in left]
        for thread in telling:
            thread.start()
        for thread in telling:
            thread.join(5)
        say("drained", handed_back=len(left))


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jobsite.examples.runner", description="Runs jobs over HTTP.",
                                     epilog="The key comes from JOBSITE_KEY, or from the file JOBSITE_KEY_FILE names.")
    parser.add_argument("--url", default=os.environ.get("JOBSITE_URL", "http://127.0.0.1:8000"))
    parser.add_argument("--groups", help="worker groups, comma-separated; all that the key may serve")
    parser.add_argument("--engines", default="jobsite.examples.engines:ENGINES", help="MODULE:NAME of a mapping")
    parser.add_argument("--slots", type=int, default=1, choices=range(1, 101), metavar="N", help="1 to 100 at a time")
    parser.add_argument("--wait", type=int, default=10, help="seconds that a claim waits for work")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds to end in after SIGTERM")
    parser.add_argument("--heartbeat", type=float, help="seconds between heartbeats, if fewer than the server asks for")
    return parser.parse_args(given)


def _key() -> str:
    if path := os.environ.get("JOBSITE_KEY_FILE"):
        return Path(path).read_text().strip()
    return os.environ.get("JOBSITE_KEY", "").strip()


def main(given: list[str] | None = None) -> int:
    """The program."""
    said = _arguments(given)
    key = _key()
    if not key:
        sys.stderr.write("Set JOBSITE_KEY to a key that may claim: manage.py keys create NAME --permission claim\n")
        return 2
    module, _, name = said.engines.partition(":")
    engines = getattr(importlib.import_module(module), name)
    try:
        client = Client(said.url, key)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    runner = Runner(client, engines, groups=said.groups.split(",") if said.groups else None,
                    slots=said.slots, wait_s=said.wait, grace_s=said.grace, heartbeat_s=said.heartbeat)
    signal.signal(signal.SIGTERM, runner.stop)
    signal.signal(signal.SIGINT, runner.stop)
    return runner.run()


if __name__ == "__main__":
    sys.exit(main())
