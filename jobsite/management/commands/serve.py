"""`manage.py serve`: the web part of the site alone."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobsite import serving


class Command(BaseCommand):
    """Exit codes: 0 when it was told to stop, 1 when it cannot listen, 2 for options that it does not know."""

    help = ("Serve pages and API by daphne, where database and workers are others' business. SIGTERM or Ctrl-C lets "
            "requests end; a second one ends them.")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Where to listen."""
        add_address(parser)
        parser.add_argument("--fd", type=int, default=None, metavar="NUMBER",
                            help="an open socket that listens already, instead of --host and --port")

    def handle(self, *args: Any, **options: Any) -> None:
        """Listen and serve."""
        try:
            listening = serving.listen(options["host"], options["port"]) if options["fd"] is None else \
                _given(options["fd"])
        except serving.CannotListen as error:
            raise CommandError(str(error)) from None
        if options["fd"] is None:
            self.stdout.write(f"Serving {serving.url_of(listening)}")
            self.stdout.flush()
        serving.serve(listening)


def add_address(parser: argparse.ArgumentParser) -> None:
    """The options that say where to listen."""
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1, this machine alone")
    parser.add_argument("--port", type=int, default=settings.PORT,
                        help=f"default {settings.PORT}; 0 is any that is free")


def _given(number: int) -> socket.socket:
    try:
        listening = socket.socket(fileno=number)
        is_listening = bool(listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as error:
        raise serving.CannotListen(f"--fd {number} is no socket: {error.strerror}.") from None
    if not is_listening:
        raise serving.CannotListen(f"--fd {number} does not listen.")
    return listening
