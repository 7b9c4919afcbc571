"""Requests to one web process, by clients that keep their connections: enqueues, beside what the server does for none.

The same clients ask for a probe (`/livez`, answered by the first middleware) and for a job, in turns with the enqueues
and in the same run: ratios to the probe mean the same on any machine.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.site import ROOT

Call = tuple[str, str, bytes | None]
ROUNDS = 3


def measure(n: int, clients: int, batch: int, only: str | None = None) -> Iterator[dict[str, Any]]:
    """The figures of each kind of request: how many a second, the waits, and the ratio to the probe."""
    from jobs.models import Key
    from jobs.services import keys, tenancy

    Key.objects.all().delete()
    _, secret = keys.make(tenancy.workspace(), "bench", ["enqueue", "read"])
    with _served() as (port, pid):
        one = json.loads(_asked(port, secret, ("POST", "/api/v1/jobs", b'{"type": "noop"}')))["id"]
        many = json.dumps({"jobs": [{"type": "noop"}] * batch}).encode()
        kinds: dict[str, tuple[Call, int]] = {
            "probe": (("GET", "/livez", None), n), "read": (("GET", f"/api/v1/jobs/{one}", None), n),
            "enqueue": (("POST", "/api/v1/jobs", b'{"type": "noop", "input": {}}'), n),
            "batch": (("POST", "/api/v1/jobs/batch", many), max(clients, n // batch))}
        kinds = {kind: call for kind, call in kinds.items() if only is None or kind in ("probe", *only.split(","))}
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        spent = dict.fromkeys(kinds, 0.0)
        for _ in range(ROUNDS):
            for kind, (call, times) in kinds.items():
                before = _cpu_s(pid)
                seconds, waits = _run(port, secret, call, times, clients)
                spent[kind] += _cpu_s(pid) - before
                took[kind] += waits
                rates[kind].append(len(waits) / seconds)
    for kind in kinds:
        best = max(rates[kind])
        more = {"jobs_s": round(best * batch, 1)} if kind == "batch" else {}
        yield {"request": kind, "per_s": round(best, 1), "of_probe": round(best / max(rates["probe"]), 3), **more,
               "cpu_ms": round(1_000 * spent[kind] / len(took[kind]), 2),
               "waits": took[kind]}


def _cpu_s(pid: int) -> float:
    """What the server has computed so far, which neighbours on the machine do not change much."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _run(port: int, secret: str, call: Call, n: int, clients: int) -> tuple[float, list[float]]:
    """So many requests by so many threads; the seconds that it took, and each one's."""
    waits: list[float] = []
    left = iter(range(n))

    def client() -> None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in left:
            began = time.perf_counter()
            _asked(port, secret, call, line)
            waits.append(time.perf_counter() - began)
        line.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, waits


def _asked(port: int, secret: str, call: Call, line: http.client.HTTPConnection | None = None) -> bytes:
    method, path, body = call
    on = line or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    on.request(method, path, body, {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"})
    answer = on.getresponse()
    said = answer.read()
    if answer.status >= 300:
        sys.exit(f"{method} {path}: {answer.status} {said[:500]!r}")
    return said


@contextmanager
def _served() -> Iterator[tuple[int, int]]:
    """One web process on the bench's database."""
    from django.db import connection

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    argv = [sys.executable, "-m", "tests.edges.served", str(port), str(connection.settings_dict["NAME"])]
    server = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL,
                              env={**os.environ, "DATABASE_POOL_MAX": "20"})
    try:
        _until(lambda: _open(port))
        yield port, server.pid
    finally:
        server.terminate()
        server.wait(timeout=30)


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(met: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not met():
        if time.monotonic() > until:
            sys.exit("the server did not come up")
        time.sleep(0.1)
