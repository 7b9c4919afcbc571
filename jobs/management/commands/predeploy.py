"""Refuse a deploy whose code does not register what rows still name (E7, E15)."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError

from jobs.conf import registry
from jobs.errors import Invalid
from jobs.services import deploying
from jobs.services.deploying import Left

UNKNOWN = 2
PATIENCE_S = 60.0


class Command(BaseCommand):
    """`manage.py predeploy`. Ends with 0, with 1 where rows name a version that is gone, with 2 where it cannot say."""

    help = ("Run with the new code before it takes over: refuses while active jobs or open dead letters name a version"
            " that it does not register. Exit codes: 0 go on; 1 do not; 2 the database did not answer.")

    def add_arguments(self, parser: CommandParser) -> None:
        """How to say it."""
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, and say a line a version."""
        try:
            registry()
        except (ImproperlyConfigured, ImportError, Invalid, TypeError) as error:
            raise CommandError(f"The settings cannot be used: {error}", returncode=UNKNOWN) from error
        try:
            left, capped = deploying.left(PATIENCE_S)
        except (OperationalError, InterfaceError) as error:
            raise CommandError(f"The database did not say: {str(error).strip().splitlines()[0]}",
                               returncode=UNKNOWN) from error
        if options["json"]:
            self.stdout.write(json.dumps({"ok": not left, "capped": capped, "versions": [_told(one) for one in left]}))
        else:
            for one in left:
                self.stdout.write(_line(one))
        if left:
            raise CommandError(f"Versions with rows would be gone: {len(left)}. Keep them registered until their jobs"
                               " have ended and their dead letters are answered.")
        if not options["json"]:
            self.stdout.write("Every row names a version that this code registers.")


def _told(one: Left) -> dict[str, Any]:
    return {"type": one.type, "version": one.version, "active": one.active, "dead_letters": one.letters,
            "rows": one.rows}


def _line(one: Left) -> str:
    where = ", ".join(f"{place.replace('_', ' ')} {_count(n)}" for place, n in one.rows.items())
    return f"{one.type}@{one.version}: {where}"


def _count(number: int) -> str:
    return f"{number:,} or more" if number >= deploying.CAP else f"{number:,}"
