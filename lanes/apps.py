"""The Django app of lanes."""

from __future__ import annotations

from django.apps import AppConfig


class LanesConfig(AppConfig):
    """Named streams of jobs that people coordinate."""

    name = "lanes"
    verbose_name = "Lanes"
    default_auto_field = "django.db.models.BigAutoField"
