"""Receivers of callbacks on loopback: one that answers as it is told, and hostile ones; and a test's own authority."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def status(number: int, *headers: str, body: bytes = b"") -> bytes:
    """An answer."""
    lines = [f"HTTP/1.1 {number} Told", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Got:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.body)


Answering = Callable[[socket.socket, Got], None]


@dataclass
class Sink:
    """Accepts connections and answers each in a thread of its own; counts how many were under way at once."""

    answer: bytes | Answering = OK
    context: ssl.SSLContext | None = None
    got: list[Got] = field(default_factory=list)
    connections: int = 0
    most: int = 0
    now: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            one.settimeout(10)
            if self.context is not None:
                one = self.context.wrap_socket(one, server_side=True)
            asked = _read(one)
            self.got.append(asked)
            if callable(self.answer):
                self.answer(one, asked)
            else:
                one.sendall(self.answer)
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self.now -= 1
            one.close()


def _read(one: socket.socket) -> Got:
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = one.recv(65_536)
        if not part:
            raise ValueError("gone")
        raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    while len(body) < int(headers["content-length"]):
        body += one.recv(65_536)
    return Got(lines[0], headers, body)


def slowly(seconds: float, then: bytes = OK) -> Answering:
    """Answers after a while."""
    def answer(one: socket.socket, _: Got) -> None:
        time.sleep(seconds)
        one.sendall(then)
    return answer


def dripping(first: bytes, part: bytes = b"x", every_s: float = 0.2) -> Answering:
    """Never finishes, and never pauses for long either."""
    def answer(one: socket.socket, _: Got) -> None:
        one.sendall(first)
        while True:
            one.sendall(part)
            time.sleep(every_s)
    return answer


def flooding(first: bytes) -> Answering:
    """Sends for as long as somebody reads."""
    def answer(one: socket.socket, _: Got) -> None:
        one.sendall(first)
        while True:
            one.sendall(b"\x00" * 65_536)
    return answer


def authority(folder: Path, name: str = "127.0.0.1") -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for `name` alone, and the file with what signed it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    now = datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256()))
    certificate, secret = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                         serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, secret)
    return context, certificate
