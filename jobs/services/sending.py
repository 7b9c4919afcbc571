"""One POST to an address that a stranger named: looked up once, judged, and connected to by that very address (E11).

No redirects, no proxies, no compression, so much time and so many bytes in all, whatever the other side does. What
counts is the status line; what follows is read for people and forgotten. Knows nothing of jobs.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from jobs import clock
from jobs.callbacks import Endpoint, Policy

TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 64 * 1024
HEAD_BYTES: Final = 16 * 1024
SHOWN: Final = 1_024
INTERIM: Final = 4


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
        status, head, text = asyncio.run(_exchange(target, addresses, _request(target, body, headers), left))
    except _Failed as failed:
        return Answer(failed.code, _ms(began))
    return Answer(_code(status), _ms(began), status, text, _retry_after(head) if status in (429, 503) else 0)


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


def _request(target: Endpoint, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.authority}", "Accept: */*", "Accept-Encoding: identity",
             "Connection: close", f"Content-Length: {len(body)}",
             *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@lru_cache(maxsize=1)
def trust() -> ssl.SSLContext:
    """The machine's own trust; a certificate must be good and be the host's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


async def _exchange(target: Endpoint, addresses: list[str], request: bytes, left: float) -> tuple[int, bytes, str]:
    status, head, text = 0, b"", bytearray()
    try:
        async with asyncio.timeout(max(0.0, left)):
            reader, writer = await _connect(target, addresses, left)
            try:
                writer.write(request)
                await _drained(writer)
                status, head = await _head(reader)
                await _rest(reader, head, text)
            finally:
                # At once: whoever never closes is not waited for.
                writer.transport.abort()
    except TimeoutError:
        if not status:
            raise _Failed("timeout") from None
    except ssl.SSLCertVerificationError:
        raise _Failed("tls_certificate") from None
    except ssl.SSLError:
        raise _Failed("tls_failed") from None
    except (OSError, EOFError, ValueError, http.client.HTTPException):
        if not status:
            raise _Failed("no_answer") from None
    return status, head, bytes(text[:SHOWN]).decode("utf-8", "replace").replace("\x00", "\ufffd")


async def _connect(target: Endpoint, addresses: list[str],
                   left: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secure = trust() if target.scheme == "https" else None
    last: OSError | None = None
    for address in addresses[:4]:
        try:
            return await asyncio.wait_for(asyncio.open_connection(
                address, target.port, limit=HEAD_BYTES, ssl=secure,
                server_hostname=target.host if secure else None), left / min(len(addresses), 2))
        except ssl.SSLError:
            raise
        except OSError as error:
            last = error
    if isinstance(last, TimeoutError):
        raise _Failed("timeout")
    raise _Failed("not_connected")


async def _drained(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.drain()
    except ConnectionError:
        # It may have answered before it hung up on a body that it did not want.
        return


async def _head(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the headers of the final answer; interim ones are passed over."""
    for _ in range(INTERIM):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _Failed("no_answer") from None
        answer = http.client.HTTPResponse(_Said(head))  # type: ignore[arg-type]
        version, status, _ = answer._read_status()  # type: ignore[attr-defined]
        if not version.startswith("HTTP/1."):
            raise _Failed("no_answer")
        if status >= 200:
            return status, head
    raise _Failed("no_answer")


class _Said:
    """Bytes as `http.client` reads them from a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        """All there is."""
        return io.BytesIO(self._raw)


async def _rest(reader: asyncio.StreamReader, head: bytes, text: bytearray) -> None:
    """Up to 64 KiB of the body, as it comes; only its beginning is kept."""
    announced = _header(head, "content-length")
    left = min(MOST_BYTES, int(announced)) if announced and announced.isascii() and announced.isdigit() else MOST_BYTES
    while left > 0 and (part := await reader.read(min(left, 8 * 1024))):
        left -= len(part)
        if len(text) < SHOWN:
            text += part


def _header(head: bytes, name: str) -> str | None:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()[:100]
    return None


def _retry_after(head: bytes) -> int:
    """How long the host asks to be left alone, in seconds; a date is answered by our own pace."""
    said = _header(head, "retry-after") or ""
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0
