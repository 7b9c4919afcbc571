"""The embedded PostgreSQL: what the site uses when DATABASE_URL names no server.

`address` tells where it will listen and starts nothing; `start` starts it or joins those who use it; the last one who
leaves stops it. Where things lie is `places`, whose programs run `binaries`, the postmaster `server`.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from . import binaries, places, processes, server
from .errors import (
    BinariesMissing,
    InUse,
    PlaceRefused,
    PostgresError,
    StartFailed,
    StillBusy,
    VersionMismatch,
)
from .locks import EXCLUSIVE, SHARED, Lock
from .places import Place

__all__ = ["Address", "BinariesMissing", "InUse", "PlaceRefused", "PostgresError", "Server", "StartFailed", "StillBusy",
           "VersionMismatch", "address", "start"]

# Longer than a first start may take: programs copied, data made, server up.
TURN_SECONDS = 300

log = logging.getLogger(__name__)
_mutex = threading.RLock()
_joined: dict[Path, Server] = {}


@dataclass(frozen=True)
class Address:
    """Where a project's server listens, whether it is up or not."""

    host: str
    port: int = places.PORT
    user: str = server.ROLE
    name: str = server.DATABASE

    @property
    def dsn(self) -> str:
        """The address as a URL that psycopg, libpq and django-environ read."""
        return f"postgresql://{self.user}@/{self.name}?host={quote(self.host)}&port={self.port}"

    def django_database(self) -> dict[str, object]:
        """The address as an entry of Django's DATABASES."""
        return {"ENGINE": "django.db.backends.postgresql", "NAME": self.name, "USER": self.user, "PASSWORD": "",
                "HOST": self.host, "PORT": str(self.port)}


class Server:
    """This process's use of a running server. Closing it leaves; the last process to leave stops the server."""

    def __init__(self, place: Place) -> None:
        place.prepare_state()
        self.address = Address(str(place.socket))
        self.pid = 0
        self._place = place
        self._users = Lock(place.state / "users.lock")

    @property
    def dsn(self) -> str:
        """See Address.dsn."""
        return self.address.dsn

    def django_database(self) -> dict[str, object]:
        """See Address.django_database."""
        return self.address.django_database()

    def _bring_up(self) -> None:
        """Use a server that runs, started here if need be. Starts and stops take turns: none stops under a joiner."""
        programs = binaries.find()
        with Lock(self._place.state / "start.lock") as turn:
            if not turn.take(EXCLUSIVE, TURN_SECONDS):
                raise StillBusy(f"Another process starts or stops PostgreSQL for {TURN_SECONDS} s now, or is suspended "
                                f"over it. It has the lock {turn.path}: end it, and try again.")
            alone = self._users.try_take(EXCLUSIVE)
            # Always possible: exclusively it is taken only in turn.
            self._users.try_take(SHARED)
            self.pid = server.ensure_running(self._place, programs, alone=alone)

    def is_up(self) -> bool:
        """Whether the postmaster that this process found or started still runs."""
        return processes.listener(self._place.socket_file) == self.pid

    def close(self) -> None:
        """Leave; stop the server if nobody else uses it. A second call does nothing, and so does one in a fork."""
        with _mutex:
            if _joined.get(self._place.state) is self:
                del _joined[self._place.state]
            if not self._users.is_open:
                return
            try:
                with Lock(self._place.state / "start.lock") as turn:
                    if turn.take(EXCLUSIVE, TURN_SECONDS) and self._users.try_take(EXCLUSIVE):
                        server.stop(self._place)
            except (StillBusy, OSError) as error:
                log.warning("The embedded PostgreSQL may go on: %s", error)
            finally:
                self._users.release()

    stop = close

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def address(project: Path | None = None, *, root: Path | None = None) -> Address:
    """Where the project's server listens once it is started. Worked out from the project's path and our user alone."""
    return Address(str(places.place_of(project, root).socket))


def start(project: Path | None = None, *, root: Path | None = None) -> Server:
    """Start the project's server or join it, until this process closes it or ends.

    A process has one Server a project and gets it again from every call, which also brings a killed server back.
    `root` replaces our directory under /var/tmp. Refusals are the subclasses of PostgresError.
    """
    place = places.place_of(project, root)
    with _mutex:
        ours = _joined.get(place.state) or Server(place)
        if not ours.is_up():
            try:
                ours._bring_up()
            except BaseException:
                _joined.pop(place.state, None)
                ours._users.release()
                raise
        return _joined.setdefault(place.state, ours)


def _leave_all() -> None:
    for ours in list(_joined.values()):
        ours.close()


def _forget() -> None:
    global _mutex
    _mutex = threading.RLock()
    _joined.clear()


atexit.register(_leave_all)
# A fork uses the server only if it joins by itself.
os.register_at_fork(after_in_child=_forget)
