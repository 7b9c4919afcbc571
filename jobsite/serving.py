"""The web server: daphne with the limits of this site, on a socket that is ours before anything is started.

The one place where web processes begin: `manage.py serve`, and with it `manage.py up` and `demo`. It ends in order: a
first signal closes the door and lets requests end, a second one does not wait.
"""

from __future__ import annotations

import errno
import resource
import signal
import socket
from contextlib import suppress
from typing import Any, Final

# The first of Twisted's to be imported: it chooses the reactor.
from daphne.server import Server as Daphne  # isort: split

from daphne.http_protocol import HTTPFactory
from daphne.ws_protocol import WebSocketProtocol
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from twisted.internet import reactor

from jobs import clock
from jobsite.bounds import Bounds, Factory

BACKLOG: Final = 512
# How long requests may take to end once we were asked to; a long poll or a stream is cut then.
GRACE_S: Final = 5.0
PING_S: Final = 20
# Of a message of a follower, who has little to say.
LONGEST_MESSAGE: Final = 128 * 1024
# Of a body where the site sets no limit of its own.
LONGEST_BODY: Final = 64 * 1024 * 1024
# Files that a process needs beside its connections.
OTHER_FILES: Final = 200
# Browsers close with it as they do when a page is left: they come back by themselves.
GOING_AWAY: Final = 1001
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class CannotListen(Exception):
    """The address cannot be listened on; the message says why, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one. Raises CannotListen."""
    if not 0 <= port <= 65_535:
        raise CannotListen(f"{port} is no port: choose one from 1 to 65535, or 0 for any that is free.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise CannotListen(f"{host!r} is no address of this machine.") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(_why(host, port, error)) from None


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (f"Port {port} of {host} is taken, perhaps by another one of us. "
                f"Choose another: --port {port + 1}, or --port 0 for any that is free.")
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} of {host} is not open to us: choose one from 1024 on, as --port 8000."
    return f"{host} port {port} cannot be listened on: {error.strerror}."


def url_of(listening: socket.socket) -> str:
    """The address at which this machine finds us."""
    host, port = listening.getsockname()[:2]
    host = WILDCARDS.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class Server(Daphne):
    """Daphne on one socket, which ends its requests before it ends itself."""

    def __init__(self, application: Any, listening: socket.socket, bounds: Bounds | None = None) -> None:
        super().__init__(application, [f"fd:fileno={listening.fileno()}"], signal_handlers=False,
                         ping_interval=PING_S, server_name="", verbosity=1, websocket_max_message_size=LONGEST_MESSAGE,
                         websocket_max_frame_size=LONGEST_MESSAGE)
        self.connections: dict[Any, dict[str, Any]] = {}
        self._bounds = bounds or Bounds()
        self._doors: list[Any] = []
        self._asked = 0
        self._until = 0.0

    def ask_stop(self, *_: Any) -> None:
        """End in order; asked again, at once. Safe in a signal handler."""
        self._asked += 1
        reactor.callFromThread(self._close if self._asked == 1 else self.stop)

    @property
    def http_factory(self) -> HTTPFactory:
        """What makes a request of each connection."""
        return self._factory

    @http_factory.setter
    def http_factory(self, daphnes: HTTPFactory) -> None:
        # Daphne makes one of its own when it runs; ours takes its place.
        self._factory = Factory(self, self._bounds)

    def listen_success(self, port: Any) -> None:
        """Remember the door that will have to be closed."""
        super().listen_success(port)
        self._doors.append(port)

    def _close(self) -> None:
        for door in self._doors:
            door.stopListening()
        for protocol in list(self.connections):
            if isinstance(protocol, WebSocketProtocol) and protocol.state == protocol.STATE_OPEN:
                # Not sendClose, which knows only the codes of applications.
                protocol.sendCloseFrame(code=GOING_AWAY, isReply=False)
        if apps.ready:
            # Not above: it needs the settings, which whoever serves something else does not have.
            from jobs.live import room

            # Runners that wait are let go at once; they ask again, elsewhere.
            room.close_all()
        self._until = clock.monotonic() + GRACE_S
        self._wait()

    def _wait(self) -> None:
        if not self._busy() or clock.monotonic() > self._until:
            self.stop()
        else:
            reactor.callLater(0.05, self._wait)

    def _busy(self) -> bool:
        running = (details.get("application_instance") for details in self.connections.values())
        return any(application is not None and not application.done() for application in running)

    def kill_all_applications(self) -> Any:
        """Daphne's, which stumbles over connections that have no application yet or any more."""
        self.connections = {protocol: details for protocol, details in self.connections.items()
                            if "application_instance" in details}
        return super().kill_all_applications()


def bounds_of(settings: Any) -> Bounds:
    """What the site's settings allow a connection; as many connections as this process may have files."""
    own = Bounds()
    most = int(getattr(settings, "MOST_CONNECTIONS", own.connections))
    per_address = int(getattr(settings, "MOST_CONNECTIONS_PER_ADDRESS", own.per_address))
    return Bounds(
        body=settings.DATA_UPLOAD_MAX_MEMORY_SIZE or LONGEST_BODY,
        request_s=float(getattr(settings, "REQUEST_TIMEOUT_S", own.request_s)),
        idle_s=float(getattr(settings, "IDLE_TIMEOUT_S", own.idle_s)), connections=_places(most),
        # A proxy is one address for everybody.
        per_address=0 if getattr(settings, "BEHIND_PROXY", False) else per_address)


def _places(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft == resource.RLIM_INFINITY:
        hard = max(soft, wanted + OTHER_FILES)
    if wanted and soft != resource.RLIM_INFINITY and soft < wanted + OTHER_FILES:
        soft = min(hard, wanted + OTHER_FILES)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(min(wanted, soft - OTHER_FILES), 1)
    return wanted


def serve(listening: socket.socket) -> None:
    """Serve the site on this socket until told to stop by SIGTERM or SIGINT."""
    from django.conf import settings

    if not settings.ASGI_APPLICATION:
        raise ImproperlyConfigured("ASGI_APPLICATION names no application.")
    server = Server(import_string(settings.ASGI_APPLICATION), listening, bounds_of(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.ask_stop)
    server.run()
