"""One verb for all jobs that match a filter, from the shell: a look at it first, done with --yes (A63)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import clock
from jobs.management.bulk import carry_out, place, report, span
from jobs.management.operating import one_line
from jobs.services import operations
from jobs.services.operations import JOB_VERBS, JobMatch, Pace
from jobs.states import State

SAMPLE = 20
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
        begun = carry_out(self, said, match, Pace(rate=said["rate"]), allow_archived=True)
        report(self, begun, f"{begun.done:,} of {begun.total or begun.gathered:,} done")


def _match(said: dict[str, Any]) -> JobMatch:
    workspace, tenant = place(said)
    return JobMatch(workspace, tenant, said["type"], None, said["queue"], said["worker_group"],
                    tuple(sorted(said["state"] or ())), said["failed_for"], said["agent"], said["exclusive_group"],
                    said["session_key"], since=said["newer"], until=said["older"])


def _ago(text: str) -> datetime:
    return clock.now() - span(text)
