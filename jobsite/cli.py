"""The command line: starts the embedded PostgreSQL for the commands that need a database, and else is Django's own.

A command that needs it joins the project's server, and the last process that leaves stops it; with DATABASE_URL set,
nothing is started. `python -m jobsite` is the same command line where there is no manage.py.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from django.core.exceptions import ImproperlyConfigured
from django.core.management import ManagementUtility
from django.core.management.base import BaseCommand

# All others get a database, those of other apps and of later Django versions too.
WITHOUT_DATABASE = frozenset({
    "help", "version", "startapp", "startproject", "diffsettings", "makemessages", "compilemessages", "collectstatic",
    "findstatic", "sendtestemail",
})
INTERRUPTED = 130


def execute(argv: Sequence[str]) -> None:
    """Run a management command; Ctrl-C and a closed pipe end it without a traceback."""
    _before_settings(argv)
    # What is imported stays: looking through it for garbage, again and again and at the exit, is a third of a start.
    gc.disable()
    try:
        with ExitStack() as until_the_end:
            _Utility(list(argv), until_the_end).execute()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ImproperlyConfigured as error:
        # A wrong value of the environment, mostly: what is wrong stands in the message, and nowhere in a traceback.
        print(f"The settings cannot be used: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read us has seen enough; nothing may be written any more, not even at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        gc.enable()


class _Utility(ManagementUtility):
    """Django's, which begins to use a database once it has found the command: a misspelt one starts nothing."""

    def __init__(self, argv: list[str], until_the_end: ExitStack) -> None:
        super().__init__(argv)
        self._until_the_end = until_the_end

    def fetch_command(self, subcommand: str) -> BaseCommand:
        """The command, with a database to run on if it needs one."""
        command = super().fetch_command(subcommand)
        gc.freeze()
        gc.enable()
        if needs_database(self.argv):
            self._until_the_end.enter_context(database())
        return command


def needs_database(argv: Sequence[str]) -> bool:
    """Whether a command line is of a command that uses the database."""
    name, rest = argv[1:2], argv[2:]
    if not name or "DJANGO_AUTO_COMPLETE" in os.environ or {"-h", "--help"} & set(rest):
        return False
    if name[0] == "check":
        return any(word.startswith("--database") for word in rest)
    return name[0] not in WITHOUT_DATABASE


@contextmanager
def database() -> Iterator[None]:
    """The embedded server, if the site uses it; its refusal ends the process with a message of its own."""
    from django.conf import settings

    if not getattr(settings, "EMBEDDED_DATABASE", False):
        yield
        return
    from jobsite import postgres

    try:
        server = postgres.start(settings.PROJECT_DIR)
    except postgres.PostgresError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(1)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        # From here on nothing may stop us from leaving the server: it would go on with nobody to stop it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _disconnect()
        server.close()


def _terminated(number: int, frame: FrameType | None) -> None:
    # Python would end here and now, and the server would never be left.
    sys.exit(128 + number)


def _disconnect() -> None:
    """Give our connections back first, so that PostgreSQL does not log that they broke."""
    from django.db import connections

    for connection in connections.all(initialized_only=True):
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()


def _before_settings(argv: Sequence[str]) -> None:
    """The demo's environment: it is read when the settings are, by us and by the workers that it starts."""
    if list(argv[1:2]) == ["demo"]:
        from jobsite.demo import ENVIRONMENT

        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
