"""`manage.py up`: the whole site in one process tree: database, migrations, static files, web, workers."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobsite import postgres, serving
from jobsite.management.commands.serve import add_address
from jobsite.up import preparing
from jobsite.up.site import Ended, Site

MOST_WORKERS = 64


class Command(BaseCommand):
    """Exit codes: 0 when it was told to stop, 1 when it cannot start or go on, 2 for options that it does not know.

    What it says to people goes to stdout, the logs of its processes to stderr.
    """

    help = ("Run everything: the database (embedded without DATABASE_URL), migrations, static files, web, and workers. "
            "Makes a login when there is no user yet, and prints its password once. Ctrl-C ends all in order, a second "
            "one at once.")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Where to listen, and how many workers."""
        add_address(parser)
        parser.add_argument("--workers", type=int, default=1, help="worker processes (default 1)")
        parser.add_argument("--create-admin", action="store_true",
                            help="make the first login in production too, where SECRET_KEY is set")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare, start, and go on until told to stop."""
        if not 0 <= options["workers"] <= MOST_WORKERS:
            raise CommandError(f"--workers must be from 0 to {MOST_WORKERS}.", returncode=2)
        try:
            listening = serving.listen(options["host"], options["port"])
        except serving.CannotListen as error:
            raise CommandError(str(error)) from None
        with listening:
            creates = options["create_admin"] or not settings.PRODUCTION
            password, is_nobodys = preparing.prepare(creates_admin=creates)
            site = Site(listening, options["workers"], say=self._say, output=sys.stderr.fileno(),
                        keep_database=_keep_database)
            try:
                site.run(lambda: self._greet(serving.url_of(listening), options["host"], password, is_nobodys))
            except Ended as error:
                raise CommandError(str(error)) from None
        self._say("Stopped.")

    def _greet(self, url: str, host: str, password: str | None, is_nobodys: bool) -> None:
        self._say(f"Jobsite is up: {url}")
        if password is not None:
            self._say(f"Sign in as {preparing.ADMIN} with the password {password}\n"
                      "It is shown this once; manage.py changepassword makes another.")
        elif is_nobodys:
            self._say("Nobody can sign in yet: manage.py createsuperuser, or up --create-admin.")
        if settings.PRODUCTION and not settings.BEHIND_PROXY and settings.SECURE_SSL_REDIRECT:
            self._say("Pages lead to HTTPS: a proxy in front has to speak it, and BEHIND_PROXY=on has to say so.")
        elif not settings.PRODUCTION and not _is_local(host):
            self._say(f"Asked from other machines it refuses: it answers for {', '.join(settings.ALLOWED_HOSTS)} "
                      "until SECRET_KEY and ALLOWED_HOSTS are set.")
        self._say("Ctrl-C ends it.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keep_database() -> None:
    """Bring the embedded server back if it was killed; a server of somebody else's is theirs to start."""
    if settings.EMBEDDED_DATABASE:
        try:
            postgres.start(settings.PROJECT_DIR)
        except postgres.PostgresError as error:
            raise Ended(str(error)) from None
