"""Keys of the API: make one (its secret is printed this once), list them, revoke one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs import clock
from jobs.management.operating import count, days, one_line
from jobs.models import Key
from jobs.services import keys, rates, tenancy
from jobs.services.keys import Kind, Permission


class Command(BaseCommand):
    """`manage.py keys create|list|revoke`."""

    help = "Make, list and revoke keys of the API."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a key and print it, once")
        create.add_argument("name", help="who will use it")
        create.add_argument("--kind", choices=["runner", "planner"], type=str,
                            help="runner: claims, and sees only what it holds; planner: enqueues as the planner")
        create.add_argument("--permission", action="append", choices=[p.value for p in Permission], dest="permissions",
                            help="may be given more than once; default: enqueue, read and control")
        create.add_argument("--workspace", help="slug; default: the site's own")
        create.add_argument("--tenant", help="the key sees this tenant only; it is made if it is new")
        create.add_argument("--groups", help="worker groups it may claim from, with commas; default: any")
        create.add_argument("--expires-days", type=days, help="days until it ends; default: never")
        _add_rate(create)
        limit = verbs.add_parser("limit", help="say how many requests a key may make; neither option: as the site says")
        limit.add_argument("prefix", help="the part before the dot")
        _add_rate(limit)
        listing = verbs.add_parser("list", help="every key, without secrets")
        listing.add_argument("--workspace", help="slug; default: all")
        revoke = verbs.add_parser("revoke", help="end a key at once")
        revoke.add_argument("prefix", help="the part before the dot")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options)

    def create(self, said: dict[str, Any]) -> None:
        """Make a key."""
        workspace = tenancy.workspace(said["workspace"])
        tenant = tenancy.tenant(workspace, said["tenant"], make=True) if said["tenant"] is not None else None
        until = None if said["expires_days"] is None else clock.now() + timedelta(days=said["expires_days"])
        groups = None if said["groups"] is None else [g.strip() for g in said["groups"].split(",") if g.strip()]
        kind = None if said["kind"] is None else Kind(said["kind"])
        usual = [Permission.CLAIM] if kind is Kind.RUNNER else [Permission.ENQUEUE, Permission.READ, Permission.CONTROL]
        permissions = said["permissions"] or usual
        _, secret = keys.make(workspace, said["name"][:200], permissions, tenant=tenant, worker_groups=groups,
                              expires_at=until, kind=kind, requests_per_s=said["requests_per_s"],
                              request_burst=said["burst"])
        self.stderr.write("This is shown once; keep it:")
        self.stdout.write(secret)

    def limit(self, said: dict[str, Any]) -> None:
        """Limit a key's requests."""
        key = keys.limit(said["prefix"], requests_per_s=said["requests_per_s"], request_burst=said["burst"])
        self.stdout.write(f"{key.prefix} ({key.name}): {_rate(key)}.")

    def list(self, said: dict[str, Any]) -> None:
        """A line a key."""
        found = Key.objects.select_related("workspace", "tenant").order_by("pk")
        if said["workspace"] is not None:
            found = found.filter(workspace=tenancy.workspace(said["workspace"]))
        now = clock.now()
        for key in found:
            self.stdout.write("  ".join((key.prefix, _state(key, now), key.workspace.slug, _tenant(key), keys.kind(key),
                                         ",".join(key.permissions), _groups(key), _rate(key), key.name)))

    def revoke(self, said: dict[str, Any]) -> None:
        """End a key."""
        key = keys.revoke(said["prefix"])
        self.stdout.write(f"{key.prefix} ({key.name}) is revoked.")


def _add_rate(parser: Any) -> None:
    parser.add_argument("--requests-per-s", type=count, help="requests a second; 0: as many as it likes; default: the "
                                                             "site's KEY_REQUESTS_PER_S")
    parser.add_argument("--burst", type=count, help="requests at once; default: those of two seconds")


def _rate(key: Key) -> str:
    limit = rates.limit_of(key)
    return "any rate" if limit is None else f"{limit[0]:g} requests/s, {limit[1]} at once"


def _state(key: Key, now: Any) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "live"


def _tenant(key: Key) -> str:
    return "all tenants" if key.tenant is None else f"tenant {key.tenant.subject or '(none)'}"


def _groups(key: Key) -> str:
    return "any group" if key.worker_groups is None else "groups " + ",".join(key.worker_groups)
