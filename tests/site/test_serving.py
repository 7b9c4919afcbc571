"""The web server of `serve` and `up`: a door that closes first, requests that may end, followers that are told."""

from __future__ import annotations

import base64
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from jobsite import serving

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = """
import asyncio, signal, sys
from jobsite import serving

async def site(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    print("asked", flush=True)
    await asyncio.sleep(float(scope["path"][1:]))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})

listening = serving.listen(sys.argv[1], 0)
server = serving.Server(site, listening)
signal.signal(signal.SIGTERM, server.ask_stop)
print(listening.getsockname()[1], flush=True)
server.run()
"""


@contextmanager
def server(host: str = "127.0.0.1") -> Iterator[tuple[subprocess.Popen, int]]:
    """A server on a site of two lines, and its port."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, host], cwd=REPOSITORY, text=True, stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def ask(port: int, path: str, *headers: str, host: str = "127.0.0.1") -> socket.socket:
    """A connection on which this was asked."""
    client = socket.create_connection((host, port), timeout=60)
    client.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode())
    return client


def test_a_server_that_is_told_to_stop_answers_what_it_was_asked() -> None:
    """Nobody new comes in, what is asked is answered, followers hear that we go (1001), and then it ends with 0."""
    with server() as (process, port):
        follower = ask(port, "/", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                       f"Sec-WebSocket-Key: {base64.b64encode(b'0' * 16).decode()}")
        assert follower.recv(4096).startswith(b"HTTP/1.1 101 ")
        asked = ask(port, "/1.5")
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert follower.recv(4096) == b"\x88\x02" + (1001).to_bytes(2, "big")
        until = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)) != errno.ECONNREFUSED:
            assert time.monotonic() < until, "the door is open"
            time.sleep(0.01)
        assert asked.recv(4096).startswith(b"HTTP/1.1 200 ")
        follower.close()
        assert process.wait(30) == 0


def test_a_second_word_does_not_wait() -> None:
    """Also over IPv6, where the machine has it."""
    try:
        serving.listen("::1", 0).close()
        host = "::1"
    except serving.CannotListen:
        host = "127.0.0.1"
    with server(host) as (process, port):
        asked = ask(port, "/60", host=host)
        process.stdout.readline()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - began < serving.GRACE_S
        asked.close()


@pytest.mark.parametrize(("host", "port", "said"), [
    ("127.0.0.1", -1, "-1 is no port"), ("nowhere.invalid", 0, "'nowhere.invalid' is no address of this machine."),
    ("\N{SNOWMAN}" * 80, 0, "is no address of this machine."), ("203.0.113.9", 8000, "cannot be listened on: "),
])
def test_an_address_that_cannot_be_listened_on_is_said_in_words(host: str, port: int, said: str) -> None:
    """A user's typo is a sentence."""
    with pytest.raises(serving.CannotListen, match=said):
        serving.listen(host, port)


def test_a_descriptor_that_is_no_socket_is_refused() -> None:
    """`--fd` is for those who start us."""
    for number in (9_999, 2):
        with pytest.raises(CommandError, match="--fd"):
            call_command("serve", fd=number)
    with socket.socket() as idle, pytest.raises(CommandError, match="does not listen"):
        call_command("serve", fd=os.dup(idle.fileno()))


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"),
                                           ("localhost", "http://")])
def test_the_address_that_is_printed_is_one_to_go_to(host: str, url: str) -> None:
    """A socket on every address is found on this machine's own."""
    with serving.listen(host, 0) as listening:
        assert serving.url_of(listening).startswith(url)
        assert not serving.url_of(listening).endswith(":0/")
