"""A websocket client of our own, so that a test decides every byte; many at once, spoken to from a test's thread."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 20.0


class Refused(Exception):
    """The handshake was answered by this HTTP status."""

    def __init__(self, status: int, answer: bytes) -> None:
        super().__init__(f"{status} {answer[:300]!r}")
        self.status, self.answer = status, answer


class Client:
    """One websocket: frames that came, and the code of its close."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames: list[dict[str, Any]] = []
        self.code: int | None = None
        self.news = asyncio.Condition()
        self.reading = asyncio.ensure_future(self._read())
        self.taken = 0

    async def _read(self) -> None:
        try:
            while await self._frame():
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        async with self.news:
            self.code = self.code or 1006
            self.news.notify_all()

    async def _frame(self) -> bool:
        head = await self.reader.readexactly(2)
        length = head[1] & 127
        if length == 126:
            length = struct.unpack(">H", await self.reader.readexactly(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", await self.reader.readexactly(8))[0]
        body = await self.reader.readexactly(length)
        match head[0] & 15:
            case 1:
                async with self.news:
                    self.frames.append(json.loads(body))
                    self.news.notify_all()
            case 8:
                self.code = struct.unpack(">H", body[:2])[0] if body else 1005
                return False
            case 9:
                await self.write(body, 10)
        return True

    async def write(self, body: bytes, kind: int = 1) -> None:
        mask, n = os.urandom(4), len(body)
        size = bytes([128 | n]) if n < 126 else bytes([254]) + struct.pack(">H", n) if n < 65536 else (
            bytes([255]) + struct.pack(">Q", n))
        self.writer.write(bytes([128 | kind]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(body)))
        await self.writer.drain()

    async def take(self, *types: str) -> dict[str, Any]:
        """The next frame that was not taken yet, of these types if named."""
        while True:
            async with self.news:
                await self.news.wait_for(lambda: len(self.frames) > self.taken or self.code is not None)
            if len(self.frames) <= self.taken:
                raise AssertionError(f"closed with {self.code}")
            frame = self.frames[self.taken]
            self.taken += 1
            if not types or frame["type"] in types:
                return frame

    async def end(self) -> int:
        await self.reading
        assert self.code is not None
        return self.code

    def reset(self) -> None:
        """Gone without a word: the other side gets an RST."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def connect(port: int, path: str, **headers: str) -> Client:
    """A handshake. Raises Refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    told = {"Host": f"127.0.0.1:{port}", "Upgrade": "websocket", "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Version": "13",
            **{name.replace("_", "-"): value for name, value in headers.items()}}
    writer.write("".join([f"GET {path} HTTP/1.1\r\n", *(f"{k}: {v}\r\n" for k, v in told.items()), "\r\n"]).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status != 101:
        writer.close()
        raise Refused(status, head)
    return Client(reader, writer)


class Net:
    """A loop in a thread; every call waits, and gives up by name."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.clients: list[Client] = []

    def run(self, work: Coroutine[Any, Any, Any], patience_s: float = PATIENCE_S) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, patience_s), self.loop).result(patience_s + 5)

    def connect(self, path: str, **headers: str) -> Client:
        client = self.run(connect(self.port, path, **headers))
        self.clients.append(client)
        return client

    def take(self, client: Client, *types: str) -> dict[str, Any]:
        return self.run(client.take(*types))

    def send(self, client: Client, message: Any) -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.run(client.write(body))

    def end(self, client: Client) -> int:
        return self.run(client.end())

    def close(self) -> None:
        async def all_off() -> None:
            for client in self.clients:
                client.writer.transport.abort()
            await asyncio.gather(*(client.reading for client in self.clients), return_exceptions=True)

        self.run(all_off())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


@contextmanager
def net(port: int) -> Iterator[Net]:
    """Websockets to this port, aborted at the end."""
    made = Net(port)
    try:
        yield made
    finally:
        made.close()
