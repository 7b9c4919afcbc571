"""The console beside a demo: a web process on the usual port, or on any that is free, and a login for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from socket import socket
from types import TracebackType
from typing import Final

from django.conf import settings
from django.contrib.auth import get_user_model

from jobs import clock
from jobs.errors import JobsError
from jobsite import serving
from jobsite.demo import DemoFailed, samples
from jobsite.up import preparing, site

HOST: Final = "127.0.0.1"
LOGIN: Final = "demo"
# No address anywhere: it tells the demo's own account from somebody's that is called the same.
MARK: Final = "demo@jobsite.invalid"
LOG_TAIL: Final = 12


class Console:
    """Entering starts it and waits until it answers; leaving ends it."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def __enter__(self) -> Console:
        with _listen() as listening, self._log.open("wb") as output:
            self.url = serving.url_of(listening)
            self._web = site.web(listening, output.fileno())
            try:
                self._await(listening)
            except BaseException:
                site.ended(self._web, serving.GRACE_S)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        site.ended(self._web, 2 * serving.GRACE_S)

    def _await(self, listening: socket) -> None:
        until = clock.monotonic() + site.START_S
        while not site.answers(listening):
            self.check()
            if clock.monotonic() > until:
                raise DemoFailed(f"The console did not answer within {site.START_S:g} s:\n{self._tail()}")
            clock.sleep(0.05)

    def check(self) -> None:
        """Raise DemoFailed if it ended by itself."""
        if not self._web.runs:
            raise DemoFailed(f"The console ended by itself:\n{self._tail()}")

    def welcome(self, job_ids: Sequence[str] = (), run: str = "") -> Iterator[str]:
        """How to sign in: on a machine of one's own by a login of the demo's, which gets a new password each time.

        And where that finds these jobs in a lane, and a timer.
        """
        password = None if settings.PRODUCTION else preparing.renew_login(LOGIN, MARK)
        if password is None:
            yield "Sign in with an account of this site."
        else:
            yield f"Sign in as {LOGIN} with the password {password}"
            yield from self._samples(job_ids, run)

    def _samples(self, job_ids: Sequence[str], run: str) -> Iterator[str]:
        if not job_ids:
            return
        user = get_user_model()._default_manager.get(**{get_user_model().USERNAME_FIELD: LOGIN})
        try:
            lanes, timer = samples.put(user, job_ids, run)
        except JobsError as error:
            # They are no part of the story.
            yield f"Without lanes and timers: {error.message}"
        else:
            yield f"These jobs in a lane, with a review to answer: {self.url.rstrip('/')}{lanes}"
            yield f"A timer, paused: {self.url.rstrip('/')}{timer}"

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL:])


def _listen() -> socket:
    try:
        return serving.listen(HOST, settings.PORT)
    except serving.CannotListen:
        return serving.listen(HOST, 0)
