"""The Django app: registers checks, and makes the default workspace after a migration."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate


def make_defaults(**_: Any) -> None:
    """The default workspace and its system tenant; after each migrate, since a test's flush empties tables (E2)."""
    from jobs.services import tenancy

    tenancy.make_defaults()


class JobsConfig(AppConfig):
    """The job server."""

    name = "jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Wire the checks and the defaults."""
        from jobs import checks  # noqa: F401

        from jobs.store.sql import plan_once

        connection_created.connect(plan_once)
        post_migrate.connect(make_defaults, sender=self)
