"""The site as Django apps: its own commands, and two that would load what most processes never use."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class JobsiteConfig(AppConfig):
    """Holds `manage.py demo` and what else belongs to the site and not to jobs."""

    name = "jobsite"
    verbose_name = "Jobsite"
    default = True


class DaphneConfig(AppConfig):
    """Daphne's `runserver`. Its own config loads the whole server, which workers and their children never use."""

    name = "daphne"
    verbose_name = "Daphne"
    default = False


class AdminConfig(SimpleAdminConfig):
    """Django's admin, its pages looked for where they are served (`urls`) or checked, and nowhere else."""

    default = False

    def ready(self) -> None:
        """As Django's own, but pages are found first by the check that looks at them."""
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_pages, checks.Tags.admin)


def _check_pages(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    found: list[checks.CheckMessage] = check_admin_app(app_configs, **kwargs)
    return found
