"""What tests of whole sites share: an empty database of their own, and a visitor without a browser."""

from __future__ import annotations

import http.cookiejar
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
from django.db import connection
from psycopg import sql

QUIET_S = 60


@contextmanager
def own_database(name: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped afterwards."""
    at = connection.settings_dict
    server = {"host": at["HOST"], "port": at["PORT"], "user": at["USER"], "password": at["PASSWORD"]}
    with psycopg.connect(**{k: v for k, v in server.items() if v}, dbname="postgres", autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield _url(name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _url(name: str) -> str:
    at = connection.settings_dict
    user = quote(at["USER"] or "", safe="") + (f":{quote(at['PASSWORD'], safe='')}" if at["PASSWORD"] else "")
    if (at["HOST"] or "").startswith("/"):
        return f"postgres://{user}@/{name}?host={quote(at['HOST'], safe='')}&port={at['PORT']}"
    return f"postgres://{user}@{at['HOST']}:{at['PORT'] or 5432}/{name}"


def ask(url: str, statement: str) -> list[tuple]:
    """Plain SQL there."""
    with psycopg.connect(url) as asked:
        return asked.execute(statement).fetchall()


def gone(url: str) -> None:
    """Wait until no process of a site has a connection to its database."""
    until = time.monotonic() + QUIET_S
    others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while ask(url, others):
        assert time.monotonic() < until, "a process is still connected"
        time.sleep(0.05)


class Visitor:
    """Somebody with cookies and forms."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def get(self, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text; with a form it is posted."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        asked = urllib.request.Request(urllib.parse.urljoin(self.url, path), data, headers)
        try:
            with self._opener.open(asked, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    def sign_in(self, name: str, password: str) -> int:
        """Through the login's form; what the page behind it answers. 0 when the login refused."""
        page = self.get("/login/?next=/workers/")[2]
        token: Any = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        status, _, page = self.get("/login/", {"csrfmiddlewaretoken": token[1], "username": name,
                                               "password": password, "next": "/workers/"})
        return 0 if "do not match" in page else status
