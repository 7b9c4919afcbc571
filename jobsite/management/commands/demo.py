"""`manage.py demo [FOLDER]`: describe the Markdown files of a folder by jobs, with a worker killed on the way."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from jobs import clock
from jobsite.demo import DemoFailed
from jobsite.demo.console import Console
from jobsite.demo.fleet import Fleet
from jobsite.demo.screen import Screen, screen
from jobsite.demo.story import Demo, server
from jobsite.documents import sources


class Command(BaseCommand):
    """Exit codes with --exit: 0 when every job is completed and told by its receipts, else 1."""

    help = ("Describe the Markdown files of a folder: two workers, one of them killed -9 in the middle, and a dead "
            "letter that is requeued. Stays up until Ctrl-C.")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The folder, and how it ends."""
        parser.add_argument("folder", nargs="?", default=None, help="default: the project's own")
        parser.add_argument("--exit", action="store_true", help="end when everything has been shown")
        parser.add_argument("--limit", type=int, default=200, help="most documents (default 200)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Tell the story; whatever goes wrong is one message."""
        folder = _folder(options["folder"])
        if options["limit"] < 1:
            raise CommandError("--limit must be at least 1.")
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminated)
        shown = screen(cast("TextIO", getattr(self.stdout, "_out", self.stdout)))
        try:
            with _without_log_lines():
                fine = self._run(Demo(folder, shown, options["limit"]), shown, stays=not options["exit"])
        except DemoFailed as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database: {str(error).strip().splitlines()[0]}") from None
        if not fine:
            raise CommandError("Not everything ended as it must; see above.")

    def _run(self, demo: Demo, shown: Screen, *, stays: bool) -> bool:
        call_command("migrate", verbosity=0, interactive=False)
        embedded = " (embedded)" if settings.EMBEDDED_DATABASE else ""
        shown.say(f"Jobsite on {server()}{embedded}, documents of {demo.folder}")
        with demo.workers() as fleet:
            fine = demo.tell(fleet)
            if stays:
                _stay(demo, fleet, shown)
        return fine


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """A story is for people: what this process does to tell it is not told twice, unless a level was asked for."""
    log = logging.getLogger("jobs")
    before = log.level
    if not settings.LOG_LEVEL:
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)


def _stay(demo: Demo, fleet: Fleet, shown: Screen) -> None:
    """With the console, until Ctrl-C, or until one of the processes ends by itself."""
    with suppress(KeyboardInterrupt), Console(demo.private / "web.log") as console:
        shown.say(f"\nThe story of a job: {_program()} explain {demo.lost}")
        shown.say(f"Or in the console: {console.url}jobs/{demo.lost}/")
        for line in console.welcome(demo.ids, f"demo-{demo.revision}"):
            shown.say(line)
        shown.say("The workers stay; Ctrl-C ends them.")
        while True:
            fleet.check()
            console.check()
            clock.sleep(0.5)
    shown.say("\nDraining.")


def _program() -> str:
    return "python manage.py" if (Path(settings.BASE_DIR) / "manage.py").exists() else "python -m jobsite"


def _terminated(number: int, frame: FrameType | None) -> None:
    # As Ctrl-C does: the workers are drained, and the private folder goes.
    sys.exit(128 + number)


def _folder(given: str | None) -> Path:
    """An existing folder with something to describe.

    Without one the project's own, or the current one where the site is an installed package.
    """
    if given is None:
        project = Path(settings.PROJECT_DIR)
        return _with_documents(project if (project / "manage.py").exists() else Path.cwd())
    try:
        folder = Path(given).expanduser().resolve(strict=True)
    except (OSError, RuntimeError):
        raise CommandError(f"There is no folder {given}.") from None
    if not folder.is_dir():
        raise CommandError(f"{given} is not a folder.")
    return _with_documents(folder)


def _with_documents(folder: Path) -> Path:
    if next(sources.documents(folder), None) is None:
        raise CommandError(f"There are no Markdown files below {folder}.")
    return folder
