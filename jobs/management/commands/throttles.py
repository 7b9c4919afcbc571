"""Caps and pauses of queues, worker groups and types, pauses of tenants: list, pause, resume, cap."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs import clock
from jobs.management.operating import one_line, person
from jobs.models import Throttle, Workspace
from jobs.models.throttle import KINDS
from jobs.services import tenancy, throttles


def _most(text: str) -> int | None:
    return None if text == "none" else int(text)


class Command(BaseCommand):
    """`manage.py throttles list|pause|resume|cap`."""

    help = "Cap and pause queues, worker groups and types; pause tenants. What runs goes on."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        pause = verbs.add_parser("pause", help="let no job of it begin")
        pause.add_argument("--reason", required=True, help="why; shown wherever the pause is")
        pause.add_argument("--for", dest="for_s", type=float, metavar="SECONDS",
                           help="ends by itself after so many seconds; default: when somebody resumes it")
        resume = verbs.add_parser("resume", help="end a pause")
        cap = verbs.add_parser("cap", help="let at most so many of its jobs run at once")
        listing = verbs.add_parser("list", help="everything that is paused or has a cap")
        for parsed in (pause, resume, cap):
            parsed.add_argument("kind", choices=KINDS)
            parsed.add_argument("name", help="of the queue, worker group or type, or a tenant's subject")
        cap.add_argument("most", type=_most, help="a whole number, or none to take the cap away")
        for parsed in (pause, resume, cap, listing):
            parsed.add_argument("--workspace", help="slug; default: the whole site, of a tenant the site's own")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options)

    def pause(self, said: dict[str, Any]) -> None:
        """Pause it."""
        self._say(throttles.pause(said["kind"], said["name"], by=person(), reason=said["reason"],
                                  workspace=self._place(said), for_s=said["for_s"]))

    def resume(self, said: dict[str, Any]) -> None:
        """End its pause."""
        throttles.resume(said["kind"], said["name"], by=person(), workspace=self._place(said))
        self.stdout.write("resumed")

    def cap(self, said: dict[str, Any]) -> None:
        """Set or take away its cap."""
        row = throttles.cap(said["kind"], said["name"], said["most"], by=person(), workspace=self._place(said))
        if row is None:
            self.stdout.write("no cap any more")
        else:
            self._say(row)

    def list(self, said: dict[str, Any]) -> None:
        """A line a throttle."""
        place = tenancy.workspace(said["workspace"]) if said["workspace"] is not None else None
        for row in throttles.listed(place):
            self._say(row)

    @staticmethod
    def _place(said: dict[str, Any]) -> Workspace | None:
        if said["workspace"] is None and said["kind"] != "tenant":
            return None
        return tenancy.workspace(said["workspace"])

    def _say(self, row: Throttle) -> None:
        name = row.name or (row.tenant.subject if row.tenant else None) or "(untenanted)"
        where = "site" if row.workspace is None else row.workspace.slug
        words = [row.kind, name, where]
        if row.most is not None:
            words.append(f"{throttles.used_of(row)[0]} of {row.most} run")
        if throttles.paused(row, clock.now()):
            ends = "until resumed" if row.paused_until is None else f"until {clock.jsonable(row.paused_until)}"
            words.append(f"paused by {row.paused_by} ({row.pause_reason}) {ends}")
        self.stdout.write("  ".join(words))
