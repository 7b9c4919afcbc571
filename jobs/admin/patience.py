"""How long a page of the admin may ask the database: beyond it a person reads a notice and never an error (G02)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction

LIST_MS = 2_000
SECTION_MS = 500
QUERY_CANCELED = "57014"


class OutOfPatience(Exception):
    """The database takes too long to find this."""


@contextmanager
def within(milliseconds: int) -> Iterator[None]:
    """A transaction whose statements may take so long each; raises OutOfPatience.

    Inside another transaction it is a savepoint, and the former limit holds again afterwards.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('statement_timeout')")
            before = cursor.fetchone()[0]
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
            yield
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED:
            raise OutOfPatience() from error
        raise
