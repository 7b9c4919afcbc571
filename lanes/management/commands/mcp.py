"""`manage.py mcp`: jobs and lanes as tools of the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import importlib.util
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from jobs.management.operating import one_line
from jobs.services import keys

HOW = "make one with `manage.py keys create NAME --permission ...` and hand it over as the variable JOBSITE_KEY."


class Command(BaseCommand):
    """Exit codes: 0 when the input has ended or it was told to stop, 1 when it cannot begin or was cut."""

    help = ("Serve jobs and lanes as MCP tools on standard input and output, for a client that starts this command. "
            "The key of the API in the variable JOBSITE_KEY says what it may do; it never stands on the command line.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look at the key, then serve."""
        if importlib.util.find_spec("mcp") is None:
            raise CommandError("The package mcp is not installed: pip install 'jobsite[mcp]'.")
        secret = str(getattr(settings, "MCP_KEY", "")).strip()
        if not secret:
            raise CommandError(f"There is no key: {HOW}")
        if not _lives(secret):
            raise CommandError(f"The key in JOBSITE_KEY is not live, but unknown, revoked or expired: {HOW}")
        # Not above: it needs the package.
        from lanes.mcp import stdio

        stdio.serve(secret)


def _lives(secret: str) -> bool:
    try:
        with one_line():
            return "." in secret and keys.live(secret) is not None
    finally:
        connections.close_all()
