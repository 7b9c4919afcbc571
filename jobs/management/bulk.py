"""What the commands share that do one verb to all that matches: the place and the span of a filter, and the doing."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jobs import clock
from jobs.errors import Invalid, NotFound
from jobs.management.operating import person
from jobs.models import BulkOperation
from jobs.services import letters, operations
from jobs.services.operations import JobMatch, Match, Pace
from jobs.services.triage import Triage

# The exit code where some were left alone, or it was stopped.
SKIPPED = 3
PAUSE_S = 0.2
UNITS = {"m": 60, "h": 3_600, "d": 86_400}


def span(text: str) -> timedelta:
    """A span of the command line: 30m, 6h, 7d."""
    if len(text) < 2 or text[-1] not in UNITS or not text[:-1].isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError("must be a span like 30m, 6h or 7d")
    return timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])


def place(said: dict[str, Any]) -> tuple[int | None, int | None]:
    """The ids of what `--workspace` and `--tenant` name. Raises NotFound, and Invalid where that is not one tenant."""
    found, tenants = letters.places(said["workspace"], said["tenant"])
    if said["workspace"] and found is None:
        raise NotFound("There is no such workspace.", field="workspace")
    if said["tenant"] and len(tenants) != 1:
        raise Invalid("is in several workspaces; name one" if tenants else "is unknown", field="tenant")
    return found, tenants[0] if tenants else None


def carry_out(command: BaseCommand, said: dict[str, Any], match: JobMatch | Match, pace: Pace,
              **options: Any) -> BulkOperation:
    """Do `verb` to all that match for `reason`, and stay until it is done or Ctrl-C; another process may help."""
    if not said["reason"]:
        raise CommandError("Say why with --reason.")
    begun = operations.begin(said["verb"], match, by=person(), reason=said["reason"], pace=pace, **options)
    try:
        _carry_on(begun)
    except KeyboardInterrupt:
        operations.stop(begun.pk, by=person())
        command.stderr.write("Stopped.")
    begun.refresh_from_db()
    return begun


def report(command: BaseCommand, begun: BulkOperation, done: str) -> None:
    """What was done, and what was left alone, by its code; that ends the command with its own exit code."""
    command.stdout.write(done + ("" if begun.end == "finished" else f", then {begun.end}"))
    for code, number in sorted(begun.skipped.items()):
        command.stdout.write(f"{number:,} left alone: {code}")
    if begun.skipped or begun.end != "finished":
        raise SystemExit(SKIPPED)


def _carry_on(begun: BulkOperation) -> None:
    duty = Triage()
    while not begun.ended:
        if not duty.carry_on(begun.pk):
            clock.sleep(PAUSE_S)
        begun.refresh_from_db()
