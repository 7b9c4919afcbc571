"""Owners of tenants: put or rotate one, revoke one, list them. References go in, only hints come out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs import clock
from jobs.management.operating import days, one_line, person
from jobs.models import Owner
from jobs.services import owners, tenancy


class Command(BaseCommand):
    """`manage.py owners put|revoke|list`."""

    help = "Put, revoke and list the owners whose credentials run jobs."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        put = verbs.add_parser("put", help="make a tenant's owner, or say it anew; another reference rotates")
        put.add_argument("reference", help="names the secret in the resolver's store")
        put.add_argument("--label", default="", help="what people call it")
        put.add_argument("--expires-days", type=days, help="days until it ends; default: never")
        put.add_argument("--concurrency", type=int, help="most jobs at once; default: the site's")
        put.add_argument("--rotate", action="store_true", help="the same reference, another secret")
        revoke = verbs.add_parser("revoke", help="end an owner and what runs under it at once")
        for parsed in (put, revoke):
            parsed.add_argument("--tenant", help="its subject; default: the workspace's own")
        listing = verbs.add_parser("list", help="every owner, without references")
        for parsed in (put, revoke, listing):
            parsed.add_argument("--workspace", help="slug; default: the site's own" if parsed is not listing
                                else "slug; default: all")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options)

    def put(self, said: dict[str, Any]) -> None:
        """Make or rotate."""
        until = None if said["expires_days"] is None else clock.now() + timedelta(days=said["expires_days"])
        self._say(owners.put_for(
            tenancy.workspace(said["workspace"]), said["tenant"], said["reference"], by=person(), label=said["label"],
            expires_at=until, concurrency=said["concurrency"], rotate=said["rotate"]))

    def revoke(self, said: dict[str, Any]) -> None:
        """End one."""
        self._say(owners.revoke(tenancy.tenant(tenancy.workspace(said["workspace"]), said["tenant"]).pk, by=person()))

    def list(self, said: dict[str, Any]) -> None:
        """A line an owner."""
        found = Owner.objects.select_related("workspace", "tenant").order_by("pk")
        if said["workspace"] is not None:
            found = found.filter(workspace=tenancy.workspace(said["workspace"]))
        for owner in found.iterator():
            self._say(owner)

    def _say(self, owner: Owner) -> None:
        ends = "never ends" if owner.expires_at is None else f"ends {clock.jsonable(owner.expires_at)}"
        self.stdout.write("  ".join((
            owners.state(owner), owner.workspace.slug, f"tenant {owner.tenant.subject or '(none)'}",
            f"generation {owner.generation}", f"{len(owners.running(owner))} of {owners.most(owner)} run",
            owners.hint(owner), ends, owner.label)).rstrip())
