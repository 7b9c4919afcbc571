"""Many runners that wait at one server, as plain sockets: `python -m tests.edges.waiters 200` measures it alone."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """One request on a socket of its own, and its answer once there is one."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    at: float = 0.0

    async def answer(self) -> Asked:
        """Read it to its end, or to that of the server."""
        try:
            return await self._read()
        finally:
            # One that is left open warns when it is collected, from wherever that happens to be.
            self.writer.close()

    async def _read(self) -> Asked:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.at = time.monotonic()
        self.status = int(head[0].split()[1])
        self.headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        self.body = json.loads(await self.reader.readexactly(int(self.headers["content-length"])))
        return self

    def vanish(self) -> None:
        """Be gone without a word."""
        self.writer.transport.abort()


async def ask(port: int, secret: str, path: str, body: dict[str, Any], **headers: str) -> Asked:
    """Send a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    told = {"Host": "127.0.0.1", "Authorization": f"Bearer {secret}", "Content-Type": "application/json",
            "Content-Length": str(len(data)), **headers}
    writer.write(f"POST /api/v1{path} HTTP/1.1\r\n".encode()
                 + "".join(f"{n}: {v}\r\n" for n, v in told.items()).encode() + b"\r\n" + data)
    await writer.drain()
    return Asked(reader, writer)


async def claims(port: int, secrets: list[str], **body: Any) -> list[Asked]:
    """A claim with each of these keys."""
    return [await ask(port, secret, "/runtime/claim", {"wait_seconds": 20, **body}) for secret in secrets]


def quantiles(took: list[float]) -> str:
    """p50, p95 and the most, in milliseconds."""
    ordered = sorted(took)
    late = ordered[max(0, int(len(ordered) * 0.95) - 1)]
    named = {"p50": statistics.median(ordered), "p95": late, "max": ordered[-1]}
    return ", ".join(f"{name} {took * 1000:.0f} ms" for name, took in named.items())


def main(count: str = "200") -> None:
    """So many runners with ten keys wait; then as many jobs come, at once; and at last one job for as many runners."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "jobsite.settings"
    os.environ["JOBS_DEFINITIONS"] = "jobsite.definitions,tests.definitions"
    import django

    django.setup()
    from django.db import connection, transaction

    from jobs.services import cancellation, intake
    from tests.database import own_connection, rows
    from tests.edges.caller import Caller
    from tests.pages.site import server

    callers = [Caller(f"waiter-{n}", permissions=["claim"]) for n in range(10)]
    secrets = [callers[n % 10].secret for n in range(int(count))]

    made: list[str] = []

    async def run(port: int, jobs: int) -> tuple[list[float], int]:
        asked = await claims(port, secrets)
        answers = [asyncio.create_task(one.answer()) for one in asked]
        await asyncio.sleep(4)
        busy = await asyncio.to_thread(backends)
        assert not any(one.done() for one in answers), "there was something to claim"
        await asyncio.to_thread(enqueue, jobs)
        began = time.monotonic()
        got, _ = await asyncio.wait(answers, timeout=15, return_when=asyncio.ALL_COMPLETED if jobs == len(secrets)
                                    else asyncio.FIRST_COMPLETED)
        for one in answers:
            one.cancel()
        return [one.result().at - began for one in got if one.result().body["assignments"]], busy

    def enqueue(jobs: int) -> None:
        # In one transaction, so that they come at one moment.
        with own_connection(), transaction.atomic():
            for _ in range(jobs):
                made.append(intake.enqueue("outside", {}).id)

    def backends() -> int:
        try:
            return int(rows("SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('served', 'jobs live')"
                            " AND datname = current_database()")[0][0])
        finally:
            connection.close()

    with server(JOBS_DEFINITIONS="jobsite.definitions,tests.definitions") as (port, _):
        for jobs in (int(count), 1):
            took, busy = asyncio.run(run(port, jobs))
            for job_id in made:
                cancellation.cancel(job_id, by="user:bench")
            made.clear()
            print(f"{count} waiting, {busy} connections; {jobs} job(s): {len(took)} answered, {quantiles(took)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
