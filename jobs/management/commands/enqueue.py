"""Enqueue one job by hand; prints its id."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs.management.enqueuing import enqueue_arguments, enqueued


class Command(BaseCommand):
    """`manage.py enqueue TYPE [INPUT]`."""

    help = "Enqueue one job and print its id."

    def add_arguments(self, parser: CommandParser) -> None:
        """The options of a request."""
        enqueue_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Enqueue; a refusal is one line."""
        self.stdout.write(enqueued(self, options).id)
