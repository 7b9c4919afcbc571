"""The console under test: a served site, and a browser that is signed in."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection

from tests import warm


@contextmanager
def serving(**environment: str) -> Iterator[int]:
    """Daphne in a process of its own on the test database; its port."""
    with server(**environment) as (port, _):
        yield port


@contextmanager
def server(*, port: int = 0, **environment: str) -> Iterator[tuple[int, warm.Process]]:
    """The same with its process, on a port that is free or on this one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
    server = warm.start(["-m", "tests.edges.served", str(port), str(connection.settings_dict["NAME"])],
                        {**os.environ, "PGAPPNAME": "served", **environment},
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _await(server, port)
        yield port, server
    finally:
        server.kill()
        server.wait()


def _await(server: warm.Process, port: int) -> None:
    until = time.monotonic() + 60
    while True:
        assert server.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < until, "the server does not answer"
        time.sleep(0.05)


def session_cookie(user: Any) -> str:
    """A session of this user, as a login would have made it."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    assert session.session_key is not None
    return session.session_key


class Console:
    """A browser of one person. `faults` are the errors of scripts and of the content security policy that it saw."""

    def __init__(self, browser: Any, port: int, **context: Any) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.context = browser.new_context(base_url=self.url, **context)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("console", lambda said: self.faults.append(said.text)
                     if said.type == "error" and "Content Security Policy" in said.text else None)

    def sign_in(self, user: Any) -> None:
        """By a session cookie."""
        self.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_cookie(user),
                                   "url": self.url}])

    def open(self, path: str) -> Any:
        """Go there; the page."""
        answer = self.page.goto(path)
        assert answer is not None
        self.status = answer.status
        return self.page

    def close(self) -> None:
        """Close the browser's context; its faults are the test's."""
        self.context.close()
        assert self.faults == []
