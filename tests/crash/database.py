"""Where the test database is, for connections of one's own."""

from __future__ import annotations

import psycopg
from django.db import connection


def dsn() -> str:
    """The test database, for psycopg."""
    at = connection.settings_dict
    return psycopg.conninfo.make_conninfo(host=at["HOST"], port=at["PORT"], user=at["USER"], dbname=at["NAME"],
                                          password=at["PASSWORD"] or None)
