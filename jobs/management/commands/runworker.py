"""`manage.py runworker`: claim jobs and run their handlers in this process until told to stop."""

from __future__ import annotations

import argparse
import atexit
import difflib
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from jobs.checks import pool_fault
from jobs.conf import MAX_SLOTS, conf, lease_faults, registry
from jobs.errors import Invalid
from jobs.logs import asks_json
from jobs.management.metrics import metrics_arguments, serve_metrics
from jobs.routing import SYSTEM, UNROUTED
from jobs.worker import reloading
from jobs.worker.logs import logging_to
from jobs.worker.output import Output
from jobs.worker.plan import Plan
from jobs.worker.runner import Lost, Worker

USAGE = 2
# How long threads that handlers have made may outlive a drained worker.
LAST_S = 1.0


class Command(BaseCommand):
    """Exit codes: see the help. Nothing is ever raised into a transaction: signals only count and ring."""

    help = """Run jobs. SIGTERM or Ctrl-C drains: running jobs may end within the grace, the rest is handed back; a
    second one hands back at once. Exit codes: 0 drained, empty, or recycled by --max-jobs, --max-age or --max-memory;
    1 it could not start, or with --once and --until-empty the database was lost; 2 the options are wrong."""

    # What the database says of the whole site is asked for by the web process or a pump.
    gauges = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of a worker."""
        parser.add_argument("--slots", type=int, default=None, help="jobs at once (default JOBS['SLOTS'])")
        parser.add_argument("--queues", default=None, help="comma-separated; default all, served by their weights")
        parser.add_argument("--groups", default=None, help="worker groups; default all that have a handler here")
        parser.add_argument("--strict", action="store_true", help="serve the queues strictly in the order given")
        parser.add_argument("--name", default=None, help="shown to people; default host and process id")
        parser.add_argument("--once", action="store_true", help="run what one claim brings, then end")
        parser.add_argument("--until-empty", action="store_true", help="end when nothing is claimable")
        parser.add_argument("--max-jobs", type=int, default=None, help="claim so many jobs, let them end, then end")
        parser.add_argument("--max-age", type=float, default=None, metavar="SECONDS",
                            help="claim no more after so long, let what runs end, then end")
        parser.add_argument("--max-memory", type=float, default=None, metavar="MB",
                            help="the same once the process holds more than this")
        parser.add_argument("--autoreload", action="store_true", help="for development: restart when source changes")
        parser.add_argument("--liveness-file", default=None, metavar="PATH",
                            help="touched as long as the claim loop goes round, removed at the end")
        metrics_arguments(parser)
        parser.add_argument("--no-listen", action="store_true", help="poll only")
        parser.add_argument("--no-loops", action="store_true", help="leave periodic duties to others (runpump)")
        parser.add_argument("--json", action="store_true", help="one JSON object a line, on a terminal too")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, start, and work until stopped."""
        plan = self._plan(options)
        output = Output(cast("TextIO | None", getattr(self.stdout, "_out", None)),
                        as_json=True if options["json"] else asks_json(), level=options["verbosity"])
        try:
            if options["autoreload"] and not reloading.is_child():
                code = reloading.supervise(output)
            else:
                code = self._measured(plan, output, options)
        finally:
            output.close()
        if code:
            sys.exit(code)

    def _measured(self, plan: Plan, output: Output, options: dict[str, Any]) -> int:
        end_metrics = serve_metrics(options, gauges=self.gauges)
        try:
            return self._work(plan, output, reloads=options["autoreload"])
        finally:
            end_metrics()

    def _work(self, plan: Plan, output: Output, *, reloads: bool) -> int:
        stops = _Stops()
        # Before there is a row of it: a worker that is told to end while it begins ends as any other.
        before = {name: signal.signal(name, stops.ask) for name in (signal.SIGTERM, signal.SIGINT)}
        changes: reloading.Reloading | None = None
        try:
            worker = self._made(plan, output)
            stops.pass_on(worker.ask_stop)
            changes = reloading.Reloading(worker.ask_stop, output) if reloads else None
            if changes is not None:
                changes.start()
            with logging_to(output):
                worker.run()
        except Lost as error:
            raise CommandError(f"The database was lost: {error}") from error
        finally:
            for name, handler in before.items():
                # A process that is ending is not to be killed by one more of the same.
                signal.signal(name, signal.SIG_IGN if self._is_last else handler)
            if self._is_last:
                _end_soon(changes is not None and changes.changed)
        return reloading.CHANGED if changes is not None and changes.changed else 0

    @staticmethod
    def _made(plan: Plan, output: Output) -> Worker:
        try:
            return Worker(plan, output)
        except DatabaseError as error:
            raise unusable(error) from error
        except OSError as error:
            raise CommandError(f"It cannot start: {error}") from error

    @property
    def _is_last(self) -> bool:
        """Whether this process ends with this command."""
        return bool(getattr(self, "_called_from_command_line", False))

    def _plan(self, options: dict[str, Any]) -> Plan:
        try:
            site, known = conf(), registry()
        except (ImproperlyConfigured, ImportError, Invalid, TypeError) as error:
            raise CommandError(f"The settings cannot be used: {error}") from error
        slots = site.SLOTS if options["slots"] is None else options["slots"]
        if fault := _contradiction(slots, options):
            raise CommandError(fault, returncode=USAGE)
        if faults := [*lease_faults(site, known), *filter(None, [pool_fault(slots)])]:
            raise CommandError("\n".join(faults))
        served = [*known.groups(), UNROUTED]
        return Plan(
            name=options["name"] or f"{socket.gethostname()}:{os.getpid()}", slots=slots,
            # Jobs of unknown agents are everybody's business, and so are the house's own (E7, B34).
            groups=list(dict.fromkeys([*_known("--groups", options["groups"], served), UNROUTED,
                                       *(group for group in served if group == SYSTEM)])),
            queues=_known("--queues", options["queues"], list(site.QUEUES)),
            strict=options["strict"], once=options["once"], until_empty=options["until_empty"],
            listen=not options["no_listen"], loops=not options["no_loops"], max_jobs=options["max_jobs"],
            max_age_s=options["max_age"], max_memory_mb=options["max_memory"],
            liveness_file=options["liveness_file"])


def unusable(error: DatabaseError) -> CommandError:
    """What is said where nothing can be done without a database."""
    return CommandError(f"The database cannot be used: {str(error).strip().splitlines()[0]}\n"
                        "Is it up, and migrated (manage.py migrate)?")


class _Stops:
    """Counts the signals until there is a worker to be told. Nothing is ever raised into a transaction."""

    def __init__(self) -> None:
        self._early = 0
        self._tell: Callable[[], None] | None = None

    def ask(self, number: int, _: Any) -> None:
        """A signal has come; the second one ends what has not begun yet, since its database may be long in coming."""
        if self._tell is not None:
            self._tell()
            return
        self._early += 1
        if self._early > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def pass_on(self, tell: Callable[[], None]) -> None:
        """From now on it is told; what came before as well."""
        self._tell = tell
        for _ in range(self._early):
            tell()


def _contradiction(slots: int, options: dict[str, Any]) -> str | None:
    """What is wrong with the options by themselves."""
    if not 1 <= slots <= MAX_SLOTS:
        return f"--slots must be from 1 to {MAX_SLOTS}."
    for name in ("max_jobs", "max_age", "max_memory"):
        if options[name] is not None and not 0 < options[name] < math.inf:
            return f"--{name.replace('_', '-')} must be a number above 0."
    if options["autoreload"] and (options["once"] or options["until_empty"]):
        return "--autoreload goes on and on: it cannot be used with --once or --until-empty."
    return None


def _end_soon(changed: bool) -> None:
    """Handlers' own threads that never end must not keep a drained worker from ending: the interpreter joins them."""
    code = 1 if sys.exc_info()[0] is not None else reloading.CHANGED if changed else 0
    last = threading.Timer(LAST_S, os._exit, [code])
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
            raise CommandError(f"{option}: there is no {word!r} here; {hint}", returncode=USAGE)
    if not chosen:
        raise CommandError(f"{option} names nothing.", returncode=USAGE)
    return chosen
