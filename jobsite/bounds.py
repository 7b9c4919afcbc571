"""What a connection may cost the web server before anybody has looked at it: time, bytes, headers, places (6.2).

Twisted collects the whole body of a request before an application hears of it, and has a clock only for silence: a
drop a second would keep a connection for ever. Here a request is complete within its time or is cut, a body that says
that it is too long is refused before it is read, one that does not say so is cut where it becomes too long, and whoever
opens too many connections is told so. A request that is complete may take its time: long polls, streams, websockets.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.internet.protocol import Protocol
from twisted.web.http import HTTPChannel

from jobs import clock

# How long a client may still read its refusal, while what it sends is thrown away.
LINGER_S: Final = 2.0
# As many at once are told that there are too many; further ones find the door shut.
TOLD: Final = 64
TOLD_EVERY_S: Final = 10.0
RETRY_AFTER_S: Final = 5

log = logging.getLogger("jobsite.serving")

WORDS: Final[dict[int, tuple[str, str, str]]] = {
    400: ("Bad Request", "bad_request", "This is no request of HTTP/1.1."),
    408: ("Request Timeout", "request_timeout", "The request was not complete in time."),
    413: ("Content Too Large", "too_large", "This body is too large."),
    431: ("Request Header Fields Too Large", "headers_too_large", "These headers are too many or too long."),
    503: ("Service Unavailable", "too_many_connections", "Too many connections are open: come back later."),
}


class Bounds(NamedTuple):
    """The limits of a server; seconds and numbers. An address is a host of IPv4 or a /64 of IPv6; 0 is no limit."""

    body: int = 1024 * 1024
    request_s: float = 15.0
    idle_s: float = 75.0
    headers: int = 200
    header_bytes: int = 32 * 1024
    connections: int = 4_000
    per_address: int = 500


def refusal(number: int, **more: Any) -> bytes:
    """A whole answer with a problem (RFC 9457), after which the connection ends."""
    phrase, code, detail = WORDS[number]
    body = json.dumps({"type": f"urn:jobs:problem:{code}", "title": detail, "status": number, "detail": detail,
                       "code": code, **more}).encode()
    head = (f"HTTP/1.1 {number} {phrase}\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n"
            f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n")
    if number == 503:
        head += f"Retry-After: {RETRY_AFTER_S}\r\n"
    return head.encode() + b"\r\n" + body


def _part(transport: Any, said: bytes, later: Callable[[float, Callable[[], None]], Any]) -> Any:
    """Say this, and no more; who still sends is not reset at once, so that the last word can be read."""
    transport.write(said)
    transport.loseWriteConnection()
    return later(LINGER_S, transport.abortConnection)


class Request(WebRequest):
    """One whose body has an end, and which only Django reads."""

    taken = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Twisted would read a form's fields on the loop, for nobody: a large one stops every other request meanwhile.
        self._parsePOSTFormSubmission = False

    def gotLength(self, length: int | None) -> None:
        """What the headers say of the body; too much is refused before it is read."""
        if length is not None and length > self.channel.bounds.body:
            self.channel.refuse(413, max_bytes=self.channel.bounds.body)
            length = 0
        super().gotLength(length)

    def handleContentChunk(self, data: bytes) -> None:
        """Keep it, or refuse the body where it becomes too much."""
        self.taken += len(data)
        if self.taken > self.channel.bounds.body:
            self.channel.refuse(413, max_bytes=self.channel.bounds.body)
        else:
            super().handleContentChunk(data)

    def process(self) -> Any:
        """Hand it on; a websocket takes the connection over, and gives its place back when it ends."""
        channel, transport = self.channel, self.channel.transport
        done = super().process()
        upgraded = getattr(transport, "protocol", channel)
        if upgraded is not channel and upgraded is not None:
            ended = upgraded.connectionLost

            def connectionLost(*reason: Any) -> None:
                channel.leave()
                ended(*reason)

            upgraded.connectionLost = connectionLost
        return done


class Channel(HTTPChannel):
    """A connection: its one timer is a request's deadline until that is complete, and a limit to idleness between."""

    requestFactory = Request
    abortTimeout = 1
    bounds = Bounds()
    address = ""
    _idle = False
    _refused = False
    _lingering: Any = None

    def connectionMade(self) -> None:
        """It counts from now on."""
        self.bounds = self.factory.bounds
        self.maxHeaders, self.totalHeadersSize = self.bounds.headers, self.bounds.header_bytes
        self.timeOut = self.bounds.request_s
        super().connectionMade()
        self.transport.setTcpKeepAlive(1)

    def resetTimeout(self) -> None:
        """Never by a sign of life: the deadline is absolute."""

    def dataReceived(self, data: bytes) -> None:
        """The first byte of a request starts its time."""
        if self._refused:
            return
        if self._idle:
            self._idle = False
            self.setTimeout(self.bounds.request_s)
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        """Not once it is refused."""
        if not self._refused:
            super().lineReceived(line)

    def headerReceived(self, line: bytes) -> bool:
        """Twisted's, which breaks at a length of more digits than Python reads."""
        try:
            return bool(super().headerReceived(line))
        except ValueError:
            self.refuse(400)
            return False

    def rawDataReceived(self, data: bytes) -> None:
        """Not once it is refused."""
        if not self._refused:
            super().rawDataReceived(data)

    def allContentReceived(self) -> None:
        """Complete: from now on it is the application's time."""
        if not self._refused:
            super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        """Answered; without the beginning of another one it is idle."""
        super().requestDone(request)
        if not self._handlingRequest and self.persistent and not self._buffer:
            self._idle = True
            self.setTimeout(self.bounds.idle_s)

    def timeoutConnection(self) -> None:
        """Idle for too long, or a request that does not come to its end."""
        if self.requests and not self._idle:
            self.refuse(408)
        elif not self._refused:
            super().timeoutConnection()

    def refuse(self, number: int, **more: Any) -> None:
        """Answer with this problem and end, whatever still comes."""
        if self._refused:
            return
        self._refused = True
        self.setTimeout(None)
        self._networkProducer.unregisterProducer()
        self._lingering = _part(self.transport, refusal(number, **more), self.callLater)

    def _respondToBadRequestAndDisconnect(self) -> None:
        many = self._receivedHeaderCount > self.maxHeaders or self._receivedHeaderSize > self.totalHeadersSize
        self.refuse(431 if many else 400)

    def lineLengthExceeded(self, line: bytes) -> Any:
        """One line that is longer than a line may be."""
        self.refuse(431)

    def _send100Continue(self) -> None:
        if not self._refused:
            super()._send100Continue()

    def leave(self) -> None:
        """Give its place back; again does nothing."""
        self.factory.left(self)

    def connectionLost(self, reason: Any) -> None:
        """Gone; nothing of it stays."""
        if self._lingering is not None and self._lingering.active():
            self._lingering.cancel()
        self.leave()
        super().connectionLost(reason)


class TooMany(Protocol):
    """A connection beyond the limit: it hears so, and ends."""

    _lingering: Any = None

    def connectionMade(self) -> None:
        """Say it."""
        self._lingering = _part(self.transport, refusal(503), self.factory.reactor.callLater)

    def connectionLost(self, reason: Any = None) -> None:
        """Gone."""
        if self._lingering.active():
            self._lingering.cancel()
        self.factory.told -= 1


class Factory(HTTPFactory):
    """Connections of ours, and as many of them as there may be."""

    protocol = Channel

    def __init__(self, server: Any, bounds: Bounds) -> None:
        super().__init__(server)
        self.bounds = bounds
        self.here: Counter[str] = Counter()
        self.inside: set[Any] = set()
        self.told = 0
        self._say = clock.Every(TOLD_EVERY_S)

    def buildProtocol(self, addr: Any) -> Any:
        """A connection, or the word that there are too many; None, which closes it at once, beyond that too."""
        address, bounds = whose(addr), self.bounds
        if (bounds.connections and len(self.inside) >= bounds.connections) or (
                bounds.per_address and self.here[address] >= bounds.per_address):
            return self._too_many(address)
        channel = super().buildProtocol(addr)
        channel.requestFactory = Request
        channel.address = address
        self.inside.add(channel)
        self.here[address] += 1
        return channel

    def log(self, request: Any) -> None:
        """Nothing: requests are logged by their ids (`jobs.requests`), and Twisted's line would go nowhere."""

    def _too_many(self, address: str) -> Any:
        if not self.here[address]:
            del self.here[address]
        if self._say.due():
            log.warning("connections are refused: %d are open, %d of them from %s", len(self.inside),
                        self.here.get(address, 0), address)
        if self.told >= TOLD:
            return None
        self.told += 1
        refusing = TooMany()
        refusing.factory = self
        return refusing

    def left(self, channel: Any) -> None:
        """A connection has ended."""
        if channel in self.inside:
            self.inside.discard(channel)
            self.here[channel.address] -= 1
            if not self.here[channel.address]:
                del self.here[channel.address]


def whose(addr: Any) -> str:
    """Whose connection it is: the address, of IPv6 the network that one customer has."""
    host = str(getattr(addr, "host", ""))
    if ":" not in host:
        return host
    try:
        found = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))
