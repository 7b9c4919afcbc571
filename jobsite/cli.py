"""The command line: starts the embedded PostgreSQL for the commands that need a database, then hands over to Django."""

from __future__ import annotations

from django.core.management import execute_from_command_line


def execute(argv: list[str]) -> None:
    """Run a management command."""
    execute_from_command_line(argv)
