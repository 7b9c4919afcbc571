"""Dead letters by hand: their clusters, one of them, and one answer to all that match."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import clock
from jobs.errors import NotFound
from jobs.management.bulk import carry_out, place, report, span
from jobs.management.operating import one_line
from jobs.services import letters, operations
from jobs.services.letters import Cluster
from jobs.services.operations import Match, Pace


class Command(BaseCommand):
    """`manage.py deadletters clusters|show|requeue|discard`. Ends with 0, with 3 where some were left alone."""

    help = "Look at dead letters and answer them. Exit code 3: some letters were left alone."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb; the same filter for all of them."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("clusters", help="open letters that failed alike, the most first")
        _filter(listing)
        listing.add_argument("--latest", action="store_true", help="the latest first")
        show = verbs.add_parser("show", help="one letter")
        show.add_argument("id", type=_whole)
        for verb, says in (("requeue", "start the jobs again"), ("discard", "close the letters")):
            answer = verbs.add_parser(verb, help=f"{says}: all that match, and at least one filter or --all")
            _filter(answer)
            answer.add_argument("--id", type=_whole, action="append", dest="ids", help="this letter; may be repeated")
            answer.add_argument("--all", action="store_true", help="every open letter of the site")
            answer.add_argument("--reason", help="why; stands in the receipt of every job")
            answer.add_argument("--dry-run", action="store_true", help="count them and do nothing")
            if verb == "requeue":
                answer.add_argument("--canary", action="store_true", help="one first, the rest when it has completed")
                answer.add_argument("--rate", type=_whole, help="at most so many a second")
                answer.add_argument("--most-failed", type=_whole, metavar="PERCENT",
                                    help="stop when more than so many percent fail again")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, "answer" if options["verb"] in operations.VERBS else options["verb"])(options)

    def clusters(self, said: dict[str, Any]) -> None:
        """A line a cluster."""
        found = letters.clusters(_match(said), "latest" if said["latest"] else "size")
        for cluster in found.shown:
            self.stdout.write(_line(cluster))
        more = f", the largest {len(found.shown)} shown" if found.more else ""
        self.stdout.write(f"{found.letters:,} open letters in {found.clusters:,} clusters{more}"
                          + (", older letters not grouped" if found.cut else ""))

    def show(self, said: dict[str, Any]) -> None:
        """One letter, as JSON."""
        told = letters.one(said["id"])
        if told is None:
            raise NotFound("There is no such dead letter.")
        letter = told.letter
        self.stdout.write(json.dumps({
            "id": letter.pk, "job": str(letter.job_id), "type": f"{letter.type}@{letter.job.version}",
            "tenant": told.tenant.subject, "workspace": told.tenant.workspace.slug, "reason": letter.reason,
            "reason_code": letter.reason_code, "cluster": letter.cluster, "error": letter.error,
            "message": told.message or None, "attempts": letter.attempt_count,
            "opened_at": clock.jsonable(letter.opened_at), "resolution": letter.resolution,
            "resolved_at": clock.jsonable(letter.resolved_at), "resolved_by": letter.resolved_by,
            "resolve_reason": letter.resolve_reason}, indent=2, ensure_ascii=False))

    def answer(self, said: dict[str, Any]) -> None:
        """Requeue or discard all that match, and stay until it is done; another process may help."""
        match = _match(said)
        if match == Match() and not said["all"]:
            raise CommandError("Say which letters: a filter, --id, or --all for every open letter of the site.")
        if said["dry_run"]:
            self.stdout.write(f"{_counted(letters.counted(match))} match; nothing was done.")
            return
        pace = Pace(said.get("canary", False), said.get("rate"), said.get("most_failed"))
        begun = carry_out(self, said, match, pace)
        report(self, begun, f"{begun.done:,} {'requeued' if begun.verb == 'requeue' else 'discarded'}")


def _filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", help="as `clusters` names it")
    parser.add_argument("--type", help="of the job")
    parser.add_argument("--failed-for", metavar="REASON", help="terminal_error, attempts_exhausted, ...")
    parser.add_argument("--workspace", help="slug")
    parser.add_argument("--tenant", help="subject")
    parser.add_argument("--since", type=span, help="opened within so long: 30m, 6h, 7d")
    parser.add_argument("--house", action="store_true", help="letters of the house's own jobs instead")


def _match(said: dict[str, Any]) -> Match:
    workspace, tenant = place(said)
    since = None if said["since"] is None else clock.now() - said["since"]
    cluster = "" if said["cluster"] == "none" else said["cluster"]
    picked = tuple(said["ids"]) if said.get("ids") else None
    return Match(workspace, tenant, said["type"], said["failed_for"], cluster, since,
                 said["house"], picked)


def _line(cluster: Cluster) -> str:
    letter = cluster.sample.letter
    code = f" {letter.reason_code}" if letter.reason_code else ""
    return (f"{cluster.size:>7,}  {cluster.name or 'none':<16}  {letter.type}@{letter.version or '?'}  {letter.reason}"
            f"{code}  {cluster.tenants:,} tenants  last {letter.opened_at:%Y-%m-%d %H:%M:%S}Z  {letter.error or ''}")


def _counted(number: int) -> str:
    return f"over {operations.COUNTED:,}" if number > operations.COUNTED else f"{number:,}"


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return int(text)
