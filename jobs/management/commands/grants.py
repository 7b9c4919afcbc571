"""Grants: give users and keys a role in a workspace, take it away, list them, and demand conductors for enqueue."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandParser

from jobs.errors import NotFound
from jobs.management.operating import one_line, person
from jobs.models import Grant, Key
from jobs.services import grants, tenancy
from jobs.services.grants import Role


class Command(BaseCommand):
    """`manage.py grants give|take|list|demand`."""

    help = "Give and take roles in workspaces: to Django users, who act over the API by them, and to keys."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, means in (("give", "give a role"), ("take", "take it away")):
            one = verbs.add_parser(verb, help=means)
            if verb == "give":
                one.add_argument("role", choices=[role.value for role in Role])
            whose = one.add_mutually_exclusive_group(required=True)
            whose.add_argument("--user", help="a username")
            whose.add_argument("--key", help="the part of a key before the dot")
            one.add_argument("--workspace", help="slug; default: the site's own, or the key's")
        listing = verbs.add_parser("list", help="every grant")
        listing.add_argument("--workspace", help="slug; default: all")
        demand = verbs.add_parser("demand", help="whether only conductors may enqueue in a workspace")
        demand.add_argument("demanded", choices=["on", "off"])
        demand.add_argument("--workspace", help="slug; default: the site's own")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options)

    def give(self, said: dict[str, Any]) -> None:
        """Give a role."""
        workspace, whose = _named(said)
        row = grants.give(workspace, said["role"], by=person(), **whose)
        self.stdout.write(f"{said['user'] or said['key']} is {row.role} of {workspace.slug}.")

    def take(self, said: dict[str, Any]) -> None:
        """Take it away."""
        workspace, whose = _named(said)
        done = grants.take(workspace, **whose)
        self.stdout.write(f"{said['user'] or said['key']} {'is' if done else 'was'} nothing in {workspace.slug}"
                          f"{' any more' if done else ''}.")

    def list(self, said: dict[str, Any]) -> None:
        """A line a grant."""
        found = Grant.objects.select_related("workspace", "key").order_by("pk")
        if said["workspace"] is not None:
            found = found.filter(workspace=tenancy.workspace(said["workspace"]))
        for row in found:
            self.stdout.write("  ".join((row.workspace.slug, row.role, _principal(row), f"by {row.by}")))

    def demand(self, said: dict[str, Any]) -> None:
        """Say whether enqueue demands a conductor."""
        workspace = tenancy.workspace(said["workspace"])
        tenancy.demand_grant(workspace, said["demanded"] == "on", by=person())
        self.stdout.write(f"{workspace.slug}: " + (
            "only conductors enqueue." if said["demanded"] == "on" else "whoever has the permission enqueues."))


def _named(said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if said["key"] is not None:
        key = Key.objects.select_related("workspace").filter(prefix=said["key"].partition(".")[0]).first()
        if key is None:
            raise NotFound("There is no such key.", field="key", code="key_not_found")
        return tenancy.workspace(said["workspace"] or key.workspace.slug), {"key": key}
    return tenancy.workspace(said["workspace"]), {"user": _user(said["user"])}


def _user(name: str) -> Any:
    found = None
    if apps.is_installed("django.contrib.auth"):
        User = get_user_model()
        found = User._default_manager.filter(**{User.USERNAME_FIELD: name}).first()
    if found is None:
        raise NotFound("There is no such user.", field="user", code="user_not_found")
    return found


def _principal(row: Grant) -> str:
    if row.key is not None:
        return f"key {row.key.prefix} ({row.key.name})"
    if row.user_id is not None and apps.is_installed("django.contrib.auth"):
        User = get_user_model()
        found = User._default_manager.filter(pk=row.user_id).values_list(User.USERNAME_FIELD, flat=True).first()
        return f"user {found or row.user_id}"
    return f"user {row.user_id}"
