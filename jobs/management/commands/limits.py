"""Limits of a workspace or of one tenant: what is set and what holds, and setting some."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs.errors import Invalid
from jobs.management.operating import one_line, person
from jobs.models import Tenant, Workspace
from jobs.money import shown
from jobs.services import limits, tenancy

NOTHING = "null"


class Command(BaseCommand):
    """`manage.py limits show|set`."""

    help = "Show and set the limits of a workspace or of one tenant."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        show = verbs.add_parser("show", help="each limit: as it is set here, and as it holds in the end")
        change = verbs.add_parser("set", help="set some, all of them or none")
        change.add_argument("limits", nargs="+", metavar="NAME=VALUE",
                            help=f"`{NOTHING}` takes one away; names: {', '.join(limits.NAMES)}")
        for one in (show, change):
            one.add_argument("--workspace", help="slug; default: the site's own")
            one.add_argument("--tenant", help="of this tenant alone; set makes it if it is new")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options)

    def show(self, said: dict[str, Any]) -> None:
        """A line a limit."""
        workspace = tenancy.workspace(said["workspace"])
        tenant = None if said["tenant"] is None else tenancy.tenant(workspace, said["tenant"])
        self._tell(workspace, tenant)

    def set(self, said: dict[str, Any]) -> None:
        """Set, and show what holds now."""
        workspace = tenancy.workspace(said["workspace"])
        row = limits.set_for(workspace, said["tenant"], by=person(), **_parsed(said["limits"]))
        self._tell(workspace, row.tenant)

    def _tell(self, workspace: Workspace, tenant: Tenant | None) -> None:
        row, holds = limits.of(workspace, tenant), limits.effective(workspace, tenant)
        for name in limits.NAMES:
            self.stdout.write(f"{name:<22} {_word(getattr(row, name)):>14}   holds: {_word(holds[name])}")


def _parsed(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, is_there, text = word.partition("=")
        if not is_there or name in found:
            raise Invalid("Say each limit once, as NAME=VALUE.", field=name, code="invalid_limit")
        found[name] = None if text == NOTHING else int(text) if text.isascii() and text.isdecimal() else text
    return found


def _word(value: Any) -> str:
    return "-" if value is None else str(shown(value) if isinstance(value, Decimal) else value)
