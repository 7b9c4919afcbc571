"""What a connection may cost our own web server (RELIABILITY 6.2 "Oversize / slow bodies", 6.5.7)."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobsite.bounds import whose

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT = 1024 * 1024
PROGRAM = """
import asyncio, json, os, resource, sys
from jobsite import serving
from jobsite.bounds import Bounds
from twisted.internet import reactor

async def site(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    taken, more = 0, True
    while more:
        message = await receive()
        taken, more = taken + len(message.get("body", b"")), message.get("more_body")
    if scope["path"] == "/state":
        status = open("/proc/self/status").read()
        body = json.dumps({
            "inside": len(server.http_factory.inside), "here": sum(server.http_factory.here.values()),
            "requests": len(server.connections), "timers": len(reactor.getDelayedCalls()),
            "files": len(os.listdir("/proc/self/fd")),
            "rss": int(status.partition("VmRSS:")[2].split()[0]) * 1024}).encode()
    else:
        await asyncio.sleep(float(scope["path"][1:]))
        body = str(taken).encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})

listening = serving.listen("127.0.0.1", 0)
server = serving.Server(site, listening, Bounds(**json.loads(sys.argv[1])))
print(listening.getsockname()[1], flush=True)
server.run()
"""


@contextmanager
def server(**bounds: Any) -> Iterator[int]:
    """A server with these bounds, by its port."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(bounds)], cwd=REPOSITORY, text=True,
                               stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def bounded() -> Iterator[int]:
    """One server for many short questions."""
    with server(body=10_000) as port:
        yield port


def dial(port: int) -> socket.socket:
    """A connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def head(path: str = "/0", *headers: str, method: str = "GET") -> bytes:
    """A request without its body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def rest(client: socket.socket) -> bytes:
    """All that still comes until the end."""
    said = b""
    with suppress(ConnectionError):
        while part := client.recv(65_536):
            said += part
    return said


def one(client: socket.socket) -> tuple[int, Any]:
    """One answer: its number and its JSON."""
    file = client.makefile("rb")
    number, length = int(file.readline().split()[1]), 0
    while (line := file.readline().strip()):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return number, json.loads(file.read(length))


def state(port: int) -> dict[str, int]:
    """What the server holds at this moment."""
    with dial(port) as client:
        client.sendall(head("/state"))
        return one(client)[1]


def refused(said: bytes, number: int, code: str) -> dict[str, Any]:
    """The problem that this must be, and the only answer."""
    top, _, body = said.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 %d " % number), said[:300]
    assert b"application/problem+json" in top
    assert b"Connection: close" in top
    told = json.loads(body)
    assert (told["status"], told["code"]) == (number, code)
    return told


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_read() -> None:
    """6.2: 413 with `too_large` at once, nothing collected; one byte less is read."""
    with server(body=LIMIT) as port:
        for length in (LIMIT + 1, 200 * LIMIT, 10**18):
            with dial(port) as client:
                client.sendall(head("/0", f"Content-Length: {length}", "Expect: 100-continue", method="POST"))
                assert refused(rest(client), 413, "too_large")["max_bytes"] == LIMIT
        with dial(port) as client:
            client.sendall(head("/0", f"Content-Length: {LIMIT}", method="POST") + b"x" * LIMIT)
            assert one(client) == (200, LIMIT)


@pytest.mark.parametrize("chunked", [False, True])
def test_two_hundred_megabytes_cost_the_server_nothing(chunked: bool) -> None:
    """6.5.7: by length and chunked, RSS + < 20 MB, and the refusal can still be read by who reads it."""
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {200 * LIMIT}"
    part = b"100000\r\n" + b"x" * LIMIT + b"\r\n" if chunked else b"x" * LIMIT
    with server(body=LIMIT) as port:
        before, sent = state(port)["rss"], 0
        with dial(port) as client:
            client.sendall(head("/0", framing, method="POST"))
            with suppress(ConnectionError):
                for _ in range(200):
                    client.sendall(part)
                    sent += 1
            if sent == 200:
                refused(rest(client), 413, "too_large")
        assert state(port)["rss"] - before < 20 * LIMIT
        with dial(port) as client:
            client.sendall(head("/0", "Transfer-Encoding: chunked", method="POST")
                           + b"80000\r\n" + b"x" * (LIMIT // 2) + b"\r\n0\r\n\r\n")
            assert one(client) == (200, LIMIT // 2)
        with dial(port) as client:
            client.sendall(head("/0", "Transfer-Encoding: chunked", method="POST"))
            client.sendall(b"100001\r\n" + b"x" * (LIMIT + 1))
            refused(rest(client), 413, "too_large")


def test_fifty_connections_that_drip_are_cut_in_time_and_disturb_nobody() -> None:
    """6.5.7: a byte now and then keeps nobody; each is cut at the deadline, and others are answered meanwhile."""
    deadline = 2.0
    with server(request_s=deadline) as port:
        begins = [head("/0", "Content-Length: 1000", method="POST"), b"GET /0 HT", head()[:-2] + b"X-Drip: ", b""]
        drips = [dial(port) for _ in range(50)]
        began, cut, asked = time.monotonic(), {}, []
        for n, drip in enumerate(drips):
            drip.sendall(begins[n % 4])
            drip.setblocking(False)
        with dial(port) as client:
            while len(cut) < len(drips):
                assert time.monotonic() - began < deadline + 20, "some were not cut"
                for n, drip in enumerate(drips):
                    if n in cut:
                        continue
                    with suppress(ConnectionError, BlockingIOError):
                        drip.send(b"x")
                    try:
                        said = drip.recv(4096)
                    except BlockingIOError:
                        continue
                    except ConnectionError:
                        said = b""
                    cut[n] = time.monotonic() - began
                    assert not said or b"408 Request Timeout" in said
                at = time.monotonic()
                client.sendall(head())
                assert one(client) == (200, 0)
                asked.append(time.monotonic() - at)
                time.sleep(0.02)
        assert min(cut.values()) > deadline * 0.9
        assert sorted(cut.values())[25] < deadline + 1
        assert sorted(asked)[int(len(asked) * 0.95)] < 0.25
        for drip in drips:
            drip.close()


def test_each_request_of_a_connection_has_its_own_time_and_an_idle_one_is_closed() -> None:
    """6.2: the deadline begins again with the first byte of the next request; between them idleness has its end."""
    with server(request_s=1.0, idle_s=3.0) as port:
        with dial(port) as client:
            for _ in range(2):
                client.sendall(head())
                assert one(client) == (200, 0)
                time.sleep(1.5)
            client.sendall(head()[:20])
            refused(rest(client), 408, "request_timeout")
        with dial(port) as client:
            client.sendall(head() + head()[:20])
            said = rest(client)
            assert said.count(b"HTTP/1.1 200 ") == said.count(b"HTTP/1.1 408 ") == 1
        with dial(port) as client:
            client.sendall(head())
            assert one(client) == (200, 0)
            began = time.monotonic()
            assert rest(client) == b""
            assert 2.0 < time.monotonic() - began < 20


def test_what_is_asked_completely_may_take_its_time() -> None:
    """6.2: long polls, streams and websockets are exempt from the deadline once the request is complete."""
    with server(request_s=0.5, idle_s=0.5) as port:
        with dial(port) as follower, dial(port) as poll:
            follower.sendall(head("/", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                                  f"Sec-WebSocket-Key: {base64.b64encode(b'0' * 16).decode()}"))
            assert follower.recv(4096).startswith(b"HTTP/1.1 101 ")
            poll.sendall(head("/2.5"))
            assert one(poll) == (200, 0)
            follower.settimeout(0.2)
            with pytest.raises(TimeoutError):
                follower.recv(4096)
            assert state(port)["inside"] >= 2
        until = time.monotonic() + 20
        while state(port)["inside"] > 1:
            assert time.monotonic() < until, "a websocket that is gone keeps its place"
            time.sleep(0.05)


@pytest.mark.parametrize("headers", [["X-A: b"] * 2_000, ["X-A: " + "b" * 70_000], [f"X-{n}: b" for n in range(300)],
                                     ["X-A: " + "b" * 10_000] * 8])
def test_headers_are_bounded_in_number_and_size(headers: list[str]) -> None:
    """6.5.7: 2,000 headers are 431, told as a problem, and what is no HTTP is 400."""
    with server() as port:
        with dial(port) as client:
            with suppress(ConnectionError):
                client.sendall(head("/0", *headers))
            refused(rest(client), 431, "headers_too_large")
        with dial(port) as client:
            client.sendall(b"nonsense\r\n\r\n")
            refused(rest(client), 400, "bad_request")


POST, CHUNKED = "POST /0 HTTP/1.1\r\nHost: a\r\n", "Transfer-Encoding: chunked\r\n"
SMUGGLED = "GET /0 HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("said", [
    f"{POST}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", f"{POST}Content-Length: 5, 5\r\n\r\nhello",
    f"{POST}Content-Length: 5\r\n{CHUNKED}\r\n0\r\n\r\n{SMUGGLED}",
    f"{POST}{CHUNKED}Content-Length: 5\r\n\r\n0\r\n\r\n{SMUGGLED}", f"{POST}{CHUNKED}{CHUNKED}\r\n0\r\n\r\n{SMUGGLED}",
    f"{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    f"{POST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    f"{POST}Content-Length : 5\r\n\r\nhello", f"{POST}Content-Length: +5\r\n\r\nhello",
    f"{POST}Content-Length: -5\r\n\r\nhello", f"{POST}Content-Length: 0x5\r\n\r\nhello",
    f"{POST}Content-Length: {'9' * 5_000}\r\n\r\nhello", f"{POST}{CHUNKED}\r\nzz\r\nhello\r\n0\r\n\r\n",
    f"{POST}{CHUNKED}\r\n-5\r\nhello\r\n0\r\n\r\n", f"{POST}{CHUNKED}\r\n5\r\nhelloXX0\r\n\r\n",
    f"{POST}{CHUNKED}\r\n5;{'a' * 5_000}\r\nhello\r\n0\r\n\r\n",
    f"{POST}{CHUNKED}\r\n5\r\nhello\r\n0\r\n{'X-A: b' * 20_000}\r\n\r\n",
    "GET /0 HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", "GET /0 HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "GET /0\r\n\r\n", "GET /0 HTTP/9.9\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET /0?\xff HTTP/1.1\r\nHost: a\r\n\r\n",
])
def test_what_two_servers_could_read_in_two_ways_is_read_by_none(bounded: int, said: str) -> None:
    """6.2: no request hides behind another one: 400 once, and the connection ends, whatever follows."""
    with dial(bounded) as client:
        with suppress(ConnectionError):
            client.sendall(said.encode("latin-1"))
        refused(rest(client), 400, "bad_request")


def test_what_is_framed_well_is_read(bounded: int) -> None:
    """6.2: extensions and trailers of chunks, a pipeline in its order; half of an end gives the place back."""
    behind = f"{POST}Content-Length: 3\r\n\r\nabc{SMUGGLED}"
    for said, taken in ((f"{POST}{CHUNKED}\r\n5;a=b\r\nhello\r\n0;x\r\n\r\n", [5]),
                        (f"{POST}{CHUNKED}\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n", [5]),
                        (f"GET /0.5 HTTP/1.1\r\nHost: a\r\n\r\n{behind}", [0, 3, 0])):
        with dial(bounded) as client:
            client.sendall(said.encode())
            file = client.makefile("rb")
            for length in taken:
                assert file.readline().startswith(b"HTTP/1.1 200 ")
                while file.readline().strip():
                    pass
                assert file.read(1) == str(length).encode()
            client.shutdown(socket.SHUT_WR)
    until = time.monotonic() + 20
    while state(bounded)["inside"] > 1:
        assert time.monotonic() < until, "a place was not given back"
        time.sleep(0.05)


@pytest.mark.parametrize(("kind", "body"), [
    ("multipart/form-data", b"--x"), ("multipart/form-data; boundary=x", b"--x\r\nnothing"),
    ("application/x-www-form-urlencoded", b"&=%" * 3_000), ("text/\tplain;;", b"{}"),
])
def test_what_a_form_says_is_for_the_site_and_not_for_the_server(bounded: int, kind: str, body: bytes) -> None:
    """RELIABILITY 6.2: fields that are read on the loop, or found to be none, would be the server's answer."""
    with dial(bounded) as client:
        client.sendall(head("/0", f"Content-Type: {kind}", f"Content-Length: {len(body)}", method="POST") + body)
        assert one(client) == (200, len(body))


def test_connections_are_capped_in_all_and_by_address() -> None:
    """6.2: beyond the cap one hears 503 with a time to come back; a place that is given back is free again."""
    for bounds in ({"connections": 5}, {"per_address": 5}):
        with server(**bounds) as port:
            open_ = [dial(port) for _ in range(5)]
            for client in open_:
                client.sendall(head())
                assert one(client) == (200, 0)
            with dial(port) as client:
                said = rest(client)
                assert b"Retry-After: " in said
                refused(said, 503, "too_many_connections")
            open_.pop().close()
            until = time.monotonic() + 20
            while True:
                with dial(port) as client:
                    client.sendall(head())
                    if one(client)[0] == 200:
                        break
                assert time.monotonic() < until, "the place was not given back"
            for client in open_:
                client.close()


def test_thousands_of_connections_leave_nothing_behind() -> None:
    """6.2: no timer, no file, no place and no request stays, however a connection ended."""
    with server(request_s=0.3, body=1_000) as port:
        for _ in range(20):
            dial(port).close()
        before = state(port)
        kinds = (head(), head()[:30], head("/0", "Content-Length: 5000", method="POST"), b"", b"x\r\n\r\n",
                 head("/0", "Content-Length: 500", method="POST"))
        for n in range(5_000 if os.environ.get("JOBSITE_LONG") else 1_500):
            with dial(port) as client:
                client.sendall(kinds[n % len(kinds)])
                if n % 6 == 0:
                    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        until = time.monotonic() + 30
        while True:
            after = state(port)
            if all(after[name] <= before[name] for name in ("inside", "here", "requests", "timers", "files")):
                break
            assert time.monotonic() < until, (before, after)
            time.sleep(0.1)
        assert after["rss"] - before["rss"] < 20 * LIMIT


def test_an_address_is_a_host_or_a_network_of_one_customer() -> None:
    """6.2: nobody has a /64 of addresses to open connections from."""
    said = [whose(SimpleNamespace(host=host)) for host in
            ("192.0.2.1", "2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1", "::ffff:192.0.2.1", "fe80::1%eth0", "x:y")]
    assert said == ["192.0.2.1", "2001:db8::/64", "2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.1", "fe80::/64", "x:y"]
