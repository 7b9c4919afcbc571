"""A TCP proxy before a database, with the faults of a network: latency, silence, resets, answers that are lost."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable


class Pair:
    """One client and its connection to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.said = b""
        self.commits = False

    def close(self, *, reset: bool = False) -> None:
        """Both ways; by a reset, which the client sees as an error and not as an end."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
                end.close()


class Proxy:
    """Forwards to a server's Unix socket or port. `commit_delay_s` is how long answers to COMMIT are held."""

    def __init__(self, target: str | tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.latency_s = self.commit_delay_s = 0.0
        # Asked with what a transaction has said: whether its client is cut off once the server has committed.
        self.cuts: Callable[[bytes], bool] = lambda said: False
        self.committing = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: list[Pair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Half-open: everything is taken and acknowledged, and nothing arrives."""
        self._flows.clear()

    def resume(self) -> None:
        """What was held arrives, late."""
        self._flows.set()

    def reset(self) -> int:
        """Break every connection; how many there were."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.close(reset=True)
        return len(pairs)

    def close(self) -> None:
        """End it and all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.resume()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                server.close()
                continue
            pair = Pair(client, server)
            self._pairs.append(pair)
            for upward in (True, False):
                threading.Thread(target=self._pump, args=[pair, upward], daemon=True).start()

    def _pump(self, pair: Pair, upward: bool) -> None:
        source, target = (pair.client, pair.server) if upward else (pair.server, pair.client)
        with contextlib.suppress(OSError):
            while chunk := source.recv(65_536):
                self._flows.wait()
                if self.latency_s:
                    time.sleep(self.latency_s)
                if upward:
                    self._listen_to(pair, chunk)
                elif pair.commits and not self._answer(pair):
                    return
                target.sendall(chunk)
        pair.close()
        with contextlib.suppress(ValueError):
            self._pairs.remove(pair)

    def _listen_to(self, pair: Pair, chunk: bytes) -> None:
        pair.said = (b"" if b"BEGIN" in chunk else pair.said) + chunk
        pair.commits = b"COMMIT" in chunk
        if pair.commits:
            self.committing.set()

    def _answer(self, pair: Pair) -> bool:
        """The server has committed; whether its client may know."""
        pair.commits = False
        if self.commit_delay_s:
            time.sleep(self.commit_delay_s)
        if self.cuts(pair.said):
            pair.close(reset=True)
            return False
        return True
