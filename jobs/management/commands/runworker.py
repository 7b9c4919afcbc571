"""`manage.py runworker`: claim jobs and run their handlers in this process until told to stop."""

from __future__ import annotations

import argparse
import atexit
import difflib
import os
import signal
import socket
import sys
import threading
from typing import Any, TextIO, cast

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from jobs.conf import conf, registry
from jobs.routing import SYSTEM, UNROUTED
from jobs.worker.logs import logging_to
from jobs.worker.output import Output
from jobs.worker.plan import Plan
from jobs.worker.runner import Worker

SPARE_CONNECTIONS = 4
# How long threads that handlers have made may outlive a drained worker.
LAST_S = 1.0


class Command(BaseCommand):
    """Exit codes: 0 after a drain (or when there was nothing left), 1 when it could not start."""

    help = "Run jobs. SIGTERM or Ctrl-C drains: running jobs may end within the grace, the rest is handed back."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of a worker."""
        parser.add_argument("--slots", type=int, default=None, help=f"jobs at once (default {conf().SLOTS})")
        parser.add_argument("--queues", default=None, help="comma-separated; default all, served by their weights")
        parser.add_argument("--groups", default=None, help="worker groups; default all that have a handler here")
        parser.add_argument("--strict", action="store_true", help="serve the queues strictly in the order given")
        parser.add_argument("--name", default=None, help="shown to people; default host and process id")
        parser.add_argument("--once", action="store_true", help="run what one claim brings, then end")
        parser.add_argument("--until-empty", action="store_true", help="end when nothing is claimable")
        parser.add_argument("--no-listen", action="store_true", help="poll only")
        parser.add_argument("--no-loops", action="store_true", help="leave periodic duties to others (runpump)")
        parser.add_argument("--json", action="store_true", help="one JSON object a line, on a terminal too")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, start, and work until stopped."""
        plan = self._plan(options)
        output = Output(cast("TextIO | None", getattr(self.stdout, "_out", None)),
                        as_json=True if options["json"] else None, level=options["verbosity"])
        try:
            worker = Worker(plan, output)
        except DatabaseError as error:
            raise CommandError(f"The database cannot be used: {str(error).strip().splitlines()[0]}\n"
                               "Is it up, and migrated (manage.py migrate)?") from error
        # The handlers only count and ring: nothing is ever raised into a transaction.
        before = {name: signal.signal(name, lambda *_: worker.ask_stop()) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            with logging_to(output):
                worker.run()
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
            if getattr(self, "_called_from_command_line", False):
                _end_soon()

    def _plan(self, options: dict[str, Any]) -> Plan:
        slots = conf().SLOTS if options["slots"] is None else options["slots"]
        if not 1 <= slots <= 1_000:
            raise CommandError("--slots must be from 1 to 1000.")
        self._check_pool(slots)
        served = [*registry().groups(), UNROUTED]
        return Plan(
            name=options["name"] or f"{socket.gethostname()}:{os.getpid()}", slots=slots,
            # Jobs of unknown agents are everybody's business, and so are the house's own (E7, B34).
            groups=list(dict.fromkeys([*_known("--groups", options["groups"], served), UNROUTED,
                                       *(group for group in served if group == SYSTEM)])),
            queues=_known("--queues", options["queues"], list(conf().QUEUES)),
            strict=options["strict"], once=options["once"], until_empty=options["until_empty"],
            listen=not options["no_listen"], loops=not options["no_loops"])

    def _check_pool(self, slots: int) -> None:
        """Handlers in threads use a connection each; the worker itself needs a few (B22). Children have their own."""
        threaded = any(d.executor == "thread" or (d.executor == "async" and d.publish) for d in registry())
        most = _pool_size(connections["default"].settings_dict.get("OPTIONS", {}).get("pool"))
        needed = (slots if threaded else 1) + SPARE_CONNECTIONS
        if most is not None and most < needed:
            raise CommandError(f"{slots} slots need a database pool of {needed} connections, max_size is {most}. "
                               f"Set DATABASE_POOL_MAX={needed} or take fewer --slots.")


def _pool_size(pool: Any) -> int | None:
    """The most connections of a pool, by psycopg_pool's own defaults; None without a pool."""
    if not pool:
        return None
    given = pool if isinstance(pool, dict) else {}
    return int(given.get("max_size") or given.get("min_size", 4))


def _end_soon() -> None:
    """Handlers' own threads that never end must not keep a drained worker from ending: the interpreter joins them."""
    last = threading.Timer(LAST_S, os._exit, [0 if sys.exc_info()[0] is None else 1])
    last.daemon = True
    # Reached when they have ended: what else there is to do at exit may take its time.
    atexit.register(last.cancel)
    last.start()


def _known(option: str, given: str | None, known: list[str]) -> list[str]:
    """A comma-separated choice out of `known`; a misspelt one is refused, naming the nearest (A30, E7)."""
    if given is None:
        return known
    chosen = [word.strip() for word in given.split(",") if word.strip()]
    for word in chosen:
        if word not in known:
            near = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}."
            raise CommandError(f"{option}: there is no {word!r} here; {hint}")
    if not chosen:
        raise CommandError(f"{option} names nothing.")
    return chosen
