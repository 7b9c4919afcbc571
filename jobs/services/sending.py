"""One POST to an address that a stranger named: looked up once, judged, and connected to by that very address (E11).

No redirects, no proxies, no compression, so much time and so many bytes in all, whatever the other side does. What
counts is the status line; what follows is read for people and forgotten. Knows nothing of jobs.
"""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import httpcore

from jobs import clock
from jobs.callbacks import Endpoint, Policy

TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 64 * 1024
SHOWN: Final = 1_024


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one try. `code` says why it was no success in a stable word; None: delivered."""

    code: str | None
    ms: int
    status: int | None = None
    text: str | None = None
    retry_after_s: int = 0

    @property
    def blames_host(self) -> bool:
        """Whether the host itself is in trouble, rather than this one address or request of ours (4xx)."""
        return self.code is not None and (self.status is None or self.status >= 500 or self.status == 429)


class _Failed(Exception):
    def __init__(self, code: str) -> None:
        self.code = code


def post(target: Endpoint, body: bytes, headers: Mapping[str, str], policy: Policy,
         timeout_s: float = TIMEOUT_S) -> Answer:
    """Send once. Never raises for what the network or the other side does."""
    began = clock.monotonic()
    try:
        addresses = _addresses(target, policy, timeout_s)
        left = timeout_s - (clock.monotonic() - began)
        heard = asyncio.run(_exchange(target, addresses, body, headers, left))
    except _Failed as failed:
        return Answer(failed.code, _ms(began))
    text = bytes(heard.text).decode("utf-8", "replace").replace("\x00", "\ufffd")
    rests = _retry_after(heard.retry_after) if heard.status in (429, 503) else 0
    return Answer(_code(heard.status), _ms(began), heard.status, text, rests)


def _ms(began: float) -> int:
    return int((clock.monotonic() - began) * 1000)


def _code(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    # Where it would lead to was never judged.
    return "redirected" if 300 <= status < 400 else "gone" if status == 410 else f"http_{status}"


def _addresses(target: Endpoint, policy: Policy, timeout_s: float) -> list[str]:
    """Every address of the host, looked up once. Raises _Failed where any of them may not be called (case-I04)."""
    found: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()

    def look() -> None:
        try:
            infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(info[4][0]) for info in infos)))
        except (OSError, UnicodeError):
            found.put(None)

    # A look-up cannot be stopped: left behind in a thread of its own it holds nobody up.
    threading.Thread(target=look, name="jobs-look-up", daemon=True).start()
    try:
        addresses = found.get(timeout=timeout_s)
    except queue.Empty:
        raise _Failed("timeout") from None
    if not addresses:
        raise _Failed("host_not_found")
    if not all(policy.permits(target.host, address) for address in addresses):
        raise _Failed("address_refused")
    return addresses


@lru_cache(maxsize=1)
def trust() -> ssl.SSLContext:
    """The machine's own trust; a certificate must be good and be the host's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class _Judged(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were judged, whatever the host's name leads to by now."""

    def __init__(self, addresses: Sequence[str], left: float) -> None:
        self._addresses, self._share = addresses[:4], left / min(len(addresses), 2)

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None,  # noqa: ASYNC109
                          local_address: str | None = None,
                          socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
                          ) -> httpcore.AsyncNetworkStream:
        """The first that answers."""
        code = "not_connected"
        for address in self._addresses:
            try:
                return await httpcore.AnyIOBackend().connect_tcp(address, port, self._share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                code = "timeout" if isinstance(error, httpcore.ConnectTimeout) else "not_connected"
        raise _Failed(code)


@dataclass(slots=True)
class _Heard:
    status: int = 0
    retry_after: str = ""
    text: bytearray = field(default_factory=bytearray)


async def _exchange(target: Endpoint, addresses: list[str], body: bytes, headers: Mapping[str, str],
                    left: float) -> _Heard:
    heard = _Heard()
    secure = trust() if target.scheme == "https" else None
    try:
        async with asyncio.timeout(max(0.0, left)):
            async with httpcore.AsyncConnectionPool(secure, network_backend=_Judged(addresses, left)) as pool:
                await _told(pool, target, body, headers, heard)
    except (TimeoutError, OSError, httpcore.NetworkError, httpcore.ProtocolError) as error:
        # What breaks off behind the status line is no matter.
        if not heard.status:
            raise _Failed(_why(error)) from None
    return heard


async def _told(pool: httpcore.AsyncConnectionPool, target: Endpoint, body: bytes, headers: Mapping[str, str],
                heard: _Heard) -> None:
    url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    # Closed at once, whatever the other side still has to say.
    said = [(b"Host", target.authority.encode()), (b"Accept", b"*/*"), (b"Accept-Encoding", b"identity"),
            (b"Connection", b"close"), *((name.encode(), value.encode()) for name, value in headers.items())]
    async with pool.stream("POST", url, headers=said, content=body) as response:
        if not response.extensions["http_version"].startswith(b"HTTP/1."):
            raise _Failed("no_answer")
        heard.status = response.status
        heard.retry_after = next((value.decode("latin-1") for name, value in response.headers
                                  if name.lower() == b"retry-after"), "")
        left = MOST_BYTES
        async for part in response.aiter_stream():
            heard.text += part[: SHOWN - len(heard.text)]
            if (left := left - len(part)) <= 0:
                return


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return "tls_certificate" if isinstance(seen, ssl.SSLCertVerificationError) else "tls_failed"
        seen = seen.__cause__ or seen.__context__
    return "no_answer"


def _retry_after(said: str) -> int:
    """How long the host asks to be left alone, in seconds; a date is answered by our own pace."""
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0
