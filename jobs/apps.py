"""The Django app: registers checks, and makes the default workspace and declared timers after a migration."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_delete, post_migrate


def make_defaults(*, using: str = DEFAULT_DB_ALIAS, **_: Any) -> None:
    """The default workspace, its system tenant and the timers of the settings (E2, D13).

    After each migrate, since a test's flush empties tables. A migrate of another database, or back to before the tables
    were as they are, makes none.
    """
    from jobs.models import Firing, Tenant, Timer, Workspace
    from jobs.services import declared, tenancy

    if using != DEFAULT_DB_ALIAS:
        return
    if all(_is_complete(connections[using], model) for model in (Workspace, Tenant)):
        tenancy.make_defaults()
        # Where there are none, workers remove what was declared before.
        wanted = getattr(settings, "JOBS", {}).get("TIMERS")
        if wanted and all(_is_complete(connections[using], model) for model in (Timer, Firing)):
            declared.sync()


def forget_user(*, instance: Any, **_: Any) -> None:
    """A user that is deleted leaves no grant, which whoever gets its key later would have."""
    from jobs.services import grants

    grants.forget(instance.pk)


def _is_complete(connection: Any, model: Any) -> bool:
    """Whether the table is there with every column that the model writes."""
    with connection.cursor() as cursor:
        if model._meta.db_table not in connection.introspection.table_names(cursor):
            return False
        there = {column.name for column in connection.introspection.get_table_description(cursor, model._meta.db_table)}
    return {field.column for field in model._meta.concrete_fields} <= there


class JobsConfig(AppConfig):
    """The job server."""

    name = "jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Wire the checks and the defaults."""
        from jobs import checks, publish  # noqa: F401
        from jobs.services import callbacks, reconciling, traffic
        from jobs.store.sql import plan_once

        publish.in_transaction(reconciling.note_ends, reconciling.told)
        publish.on_call(callbacks.note)
        traffic.begin()
        connection_created.connect(plan_once)
        post_migrate.connect(make_defaults, sender=self)
        if settings.AUTH_USER_MODEL.partition(".")[0] in apps.app_configs:
            post_delete.connect(forget_user, sender=settings.AUTH_USER_MODEL)
        # Not through the settings as a whole: where something is wrong with them, the checks say so.
        if armed := getattr(settings, "JOBS", {}).get("FAILPOINTS"):
            from jobs import failpoints
            from jobs.store.faults import FAULTS

            failpoints.arm(armed, FAULTS)
