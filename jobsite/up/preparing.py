"""What has to be there before the site runs: tables, collected files, somebody who can sign in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, connections

# Among the advisory locks of one database, that of preparing it.
_LOCK: Final = 0x6A6F6273
ADMIN: Final = "admin"


def prepare(*, creates_admin: bool) -> tuple[str | None, bool]:
    """Migrate, collect in production, make the first login: its password or None, and whether nobody can sign in.

    `creates_admin`: whether an administrator may be made if there is no user at all. Several at once take turns.
    Raises CommandError with what is wrong.
    """
    try:
        with _alone():
            call_command("migrate", verbosity=0, interactive=False)
            is_nobodys = _nobody_can_sign_in()
            password = renew_login(ADMIN) if creates_admin and is_nobodys else None
    except (DatabaseError, psycopg.Error) as error:
        raise CommandError(f"The database cannot be used: {str(error).strip().splitlines()[0]}") from None
    finally:
        # Whoever prepares goes on to do other things.
        connections.close_all()
    if settings.PRODUCTION:
        _collect()
    return password, is_nobodys and password is None


def _nobody_can_sign_in() -> bool:
    """Whether there is no user yet."""
    return not get_user_model()._default_manager.exists()


def renew_login(name: str, mark: str = "") -> str | None:
    """An administrator of this name with a new random password, which is stored nowhere but as its hash.

    `mark` is the e-mail address that tells our account from one of the same name that is somebody's: None, then, and
    that one is left alone.
    """
    password = secrets.token_urlsafe(15)
    user, made = get_user_model()._default_manager.get_or_create(username=name, defaults={"email": mark})
    if not made and user.email != mark:
        return None
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


@contextmanager
def _alone() -> Iterator[None]:
    """While no other process prepares this database. The lock is its transaction's, which holds nothing else."""
    with psycopg.connect(**connection.get_connection_params()) as own:
        own.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield


def _collect() -> None:
    try:
        call_command("collectstatic", verbosity=0, interactive=False)
    except OSError as error:
        raise CommandError(f"Static files cannot be collected into {settings.STATIC_ROOT}: {error.strerror}.") from None
