"""One verb for all jobs that match a filter, from the shell: a look at it first, done with --yes (A63)."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import clock
from jobs.errors import Invalid, NotFound
from jobs.management.operating import one_line, person
from jobs.models import BulkOperation
from jobs.services import letters, operations
from jobs.services.operations import JOB_VERBS, JobMatch, Pace
from jobs.services.triage import Triage
from jobs.states import State

SKIPPED = 3
PAUSE_S = 0.2
SAMPLE = 20
UNITS = {"m": 60, "h": 3_600, "d": 86_400}
_WORDS = (("type", "of the job"), ("queue", ""), ("worker-group", ""), ("failed-for", "the reason of its latest move"),
          ("agent", ""), ("exclusive-group", ""), ("session-key", ""), ("workspace", "slug"), ("tenant", "subject"))


class Command(BaseCommand):
    """`manage.py bulk cancel|pause|resume`. Ends with 0, with 3 where some were left alone or it was stopped."""

    help = ("Cancel, pause or resume all jobs that match. Without --yes they are counted, and nothing is done. Exit"
            " code 3: some were left alone. For dead letters see `deadletters`.")

    def add_arguments(self, parser: CommandParser) -> None:
        """A verb and a filter."""
        parser.add_argument("verb", choices=list(JOB_VERBS))
        for name, says in _WORDS:
            parser.add_argument(f"--{name}", help=says or None)
        parser.add_argument("--state", action="append", choices=[s.value for s in State], help="may be repeated")
        parser.add_argument("--older", type=_ago, metavar="SPAN", help="made longer ago than 30m, 6h, 7d")
        parser.add_argument("--newer", type=_ago, metavar="SPAN", help="made within so long")
        parser.add_argument("--all", action="store_true", help="every job of the site that it can be done to")
        parser.add_argument("--reason", help="why; stands in the receipt of each")
        parser.add_argument("--rate", type=int, help="at most so many a second")
        parser.add_argument("--yes", action="store_true", help="do it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, or do it and stay until it is done; another process may help."""
        with one_line():
            match = _match(options)
            if match == JobMatch() and not options["all"]:
                raise CommandError("Say which jobs: a filter, or --all for every job of the site.")
            if options["yes"]:
                self._do(options, match)
            else:
                self._look(options["verb"], match)

    def _look(self, verb: str, match: JobMatch) -> None:
        found = operations.preview(verb, match, SAMPLE)
        many = "many" if found.expected is None else (
            f"over {operations.COUNTED:,}" if found.expected > operations.COUNTED else f"{found.expected:,}")
        for id_ in found.sample:
            self.stdout.write(str(id_))
        self.stdout.write(f"{many} match; nothing was done. Say --yes to {verb} them.")

    def _do(self, said: dict[str, Any], match: JobMatch) -> None:
        if not said["reason"]:
            raise CommandError("Say why with --reason.")
        begun = operations.begin(said["verb"], match, by=person(), reason=said["reason"], pace=Pace(rate=said["rate"]),
                                 allow_archived=True)
        try:
            _carry_on(begun)
        except KeyboardInterrupt:
            operations.stop(begun.pk, by=person())
            self.stderr.write("Stopped.")
        begun.refresh_from_db()
        ended = "" if begun.end == "finished" else f", then {begun.end}"
        self.stdout.write(f"{begun.done:,} of {begun.total or begun.gathered:,} done{ended}")
        for code, number in sorted(begun.skipped.items()):
            self.stdout.write(f"{number:,} left alone: {code}")
        if begun.skipped or begun.end != "finished":
            raise SystemExit(SKIPPED)


def _carry_on(begun: BulkOperation) -> None:
    duty = Triage()
    while not begun.ended:
        if not duty.carry_on(begun.pk):
            clock.sleep(PAUSE_S)
        begun.refresh_from_db()


def _match(said: dict[str, Any]) -> JobMatch:
    place, tenants = letters.places(said["workspace"], said["tenant"])
    if said["workspace"] and place is None:
        raise NotFound("There is no such workspace.", field="workspace")
    if said["tenant"] and len(tenants) != 1:
        raise Invalid("is in several workspaces; name one" if tenants else "is unknown", field="tenant")
    return JobMatch(place, tenants[0] if tenants else None, said["type"], None, said["queue"], said["worker_group"],
                    tuple(sorted(said["state"] or ())), said["failed_for"], said["agent"], said["exclusive_group"],
                    said["session_key"], since=said["newer"], until=said["older"])


def _ago(text: str) -> datetime:
    if len(text) < 2 or text[-1] not in UNITS or not text[:-1].isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError("must be a span like 30m, 6h or 7d")
    return clock.now() - timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])
