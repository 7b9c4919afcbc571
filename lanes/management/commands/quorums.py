"""Quorums by hand: list, make and close them (D7)."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs.management.operating import one_line
from lanes import selectors
from lanes.api import shapes
from lanes.management import naming
from lanes.models import Quorum
from lanes.services import quorums


class Command(BaseCommand):
    """`manage.py quorums list|create|close --as USER`."""

    help = "Look at quorums, make and close them, as a user whose grants decide."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help="newest first")
        listing.add_argument("--limit", type=naming.whole, default=selectors.LIMIT, help="default: %(default)s")
        listing.add_argument("--cursor", help="goes on where a list ended")
        making = verbs.add_parser("create", help="make one")
        making.add_argument("quorum", metavar="NAME", help="once in its workspace")
        making.add_argument("--title", default="", help="for people")
        closing = verbs.add_parser("close", help="let it take no new lanes")
        closing.add_argument("quorum", metavar="QUORUM", help="its name or id")
        closing.add_argument("--reason", default="", help="why")
        for parsed in (listing, making, closing):
            naming.acting(parsed)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options, naming.actor(options))

    def list(self, said: dict[str, Any], by: Any) -> None:
        """A line a quorum."""
        found = quorums.listing(by=by, workspace_id=naming.place(said).pk, cursor=said["cursor"], limit=said["limit"])
        if said["json"]:
            told = [shapes.quorum(row) for row in found.items]
            self.stdout.write(json.dumps({"quorums": told, "next_cursor": found.next}))
            return
        for row in found.items:
            self._say(row, said)
        if found.next is not None:
            self.stderr.write(f"There are more: --cursor {found.next}")

    def create(self, said: dict[str, Any], by: Any) -> None:
        """One more."""
        self._say(quorums.create(naming.place(said), said["quorum"], said["title"], by=by), said)

    def close(self, said: dict[str, Any], by: Any) -> None:
        """No new lanes."""
        self._say(quorums.close(naming.quorum(said), by=by, reason=said["reason"]), said)

    def _say(self, row: Quorum, said: dict[str, Any]) -> None:
        if said["json"]:
            self.stdout.write(json.dumps(shapes.quorum(row), ensure_ascii=False))
            return
        closed = f"  closed by {row.closed_by}" if row.closed_at is not None else ""
        title = f"  {row.title}" if row.title else ""
        self.stdout.write(f"{row.pk}  {row.name}{title}  by {row.by}{closed}")
