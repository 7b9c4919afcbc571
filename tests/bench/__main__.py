"""The command line of the bench."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import site, ticks


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds."""
    v = sorted(seconds)
    return {f"p{q}_ms": round(v[min(len(v) - 1, int(q / 100 * len(v)))] * 1000, 2) for q in (50, 95, 99)} if v else {}


def say(bench: str, settings: argparse.Namespace, **figures: Any) -> None:
    """One JSON line."""
    import django
    import psycopg
    from django.db import connection

    connection.ensure_connection()
    versions = {"python": platform.python_version(), "django": django.__version__, "psycopg": psycopg.__version__,
                "postgresql": connection.pg_version}
    said = {k: v for k, v in vars(settings).items() if k != "bench" and v is not None}
    print(json.dumps({"bench": bench, **figures, "load": round(os.getloadavg()[0], 2), "settings": said,
                      "versions": versions}), flush=True)


def fill(n: int, type_: str, chunk: int = 1_000) -> float:
    """Enqueue n jobs in bulk; the seconds it took."""
    from jobs.services.intake import Request, enqueue_many

    began = time.perf_counter()
    for low in range(0, n, chunk):
        numbers = range(low, min(n, low + chunk))
        enqueue_many([Request(type_, {"i": i} if type_ == "tick" else {}) for i in numbers])
    return time.perf_counter() - began


def settle_down() -> None:
    """Vacuum, analyse and checkpoint, so that one measurement does not pay for another."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("CHECKPOINT")


def surround(args: argparse.Namespace) -> None:
    """The noise that the options ask for, around whatever is measured."""
    from tests.bench import noise

    for option, make in (("finished", noise.finished), ("scheduled", noise.scheduled), ("tenants", noise.many)):
        if n := getattr(args, option):
            if option != "tenants":
                noise.tenants(noise.TENANTS, 2)
            make(n)
    if args.finished or args.scheduled or args.tenants:
        noise.lines()


def bench_enqueue(args: argparse.Namespace) -> None:
    """One by one."""
    from jobs import enqueue

    surround(args)
    enqueue("noop")
    took = []
    for _ in range(args.n):
        began = time.perf_counter()
        enqueue("noop")
        took.append(time.perf_counter() - began)
    say("enqueue", args, jobs_s=round(args.n / sum(took), 1), **percentiles(took))


def bench_bulk(args: argparse.Namespace) -> None:
    """A thousand a transaction."""
    surround(args)
    fill(1, "noop")
    say("bulk", args, jobs_s=round(args.n / fill(args.n, "noop", args.batch or 1_000), 1))


def bench_drain(args: argparse.Namespace) -> None:
    """Worker processes over a filled queue."""
    surround(args)
    total = max(args.n, args.backlog or 0)
    fill(total, args.type)
    settle_down()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ticks"
        os.environ[ticks.ENV] = str(path)
        shared = ticks.create(path, total, args.workers)
        with site.workers(args.workers, args.slots) as running:
            _await_drain(args, total, shared, running)
        figures = _tick_rate(shared, args, total) if args.type == "tick" else {}
    say("drain", args, **{**_stored_rate(args), **figures})


def _await_drain(args: argparse.Namespace, total: int, shared: Any, running: list[Any]) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if any(process.poll() is not None for process in running):
            sys.exit("a worker has ended")
        if args.type == "tick":
            stamped = ticks.starts(shared, total)
            if total - stamped.count(0.0) >= args.n and _completed() >= args.n:
                return
        elif _completed() >= args.n:
            return
        time.sleep(0.1)
    sys.exit("the drain did not end in time")


def _completed() -> int:
    from jobs.models import Artifact

    return Artifact.objects.count()


def _stored_rate(args: argparse.Namespace) -> dict[str, float]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("""SELECT extract(epoch FROM max(ended_at) - min(leased_at))::float8, count(*)
            FROM (SELECT leased_at, ended_at FROM jobs_attempt ORDER BY ended_at LIMIT %s) a""", [args.n])
        seconds, n = cursor.fetchone()
    return {"jobs_s": round(n / seconds, 1), "db_jobs_s": round(n / seconds, 1)}


def _tick_rate(shared: Any, args: argparse.Namespace, total: int) -> dict[str, float]:
    stamped = sorted(x for x in ticks.starts(shared, total) if x)[: args.n]
    return {"jobs_s": round((len(stamped) - args.workers) / max(stamped[-1] - ticks.opened(shared), 1e-9), 1)}


def bench_latency(args: argparse.Namespace) -> None:
    """Enqueue to start, in an idle worker."""
    from jobs import enqueue

    n = args.n + 5
    surround(args)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ticks"
        os.environ[ticks.ENV] = str(path)
        shared = ticks.create(path, n, 1)
        with site.workers(1, args.slots):
            returned = [0.0] * n
            for i in range(n):
                enqueue("tick", {"i": i})
                returned[i] = time.time()
                _await_start(shared, i)
                time.sleep(max(0.0, 0.2 - (time.time() - returned[i])))
            started = ticks.starts(shared, n)
    waits = [s - r for s, r in list(zip(started, returned, strict=True))[5:] if s]
    say("latency", args, lost=args.n - len(waits), **percentiles(waits))


def _await_start(shared: Any, i: int) -> None:
    until = time.monotonic() + 20
    while not ticks.starts(shared, i + 1)[i] and time.monotonic() < until:
        time.sleep(0.001)


def bench_claim(args: argparse.Namespace) -> None:
    """Claims of ten under each noise."""
    from tests.bench.claims import measure

    for figures in measure(args.batch or 10, args.scale, args.only):
        say("claim", args, **figures)


def bench_http(args: argparse.Namespace) -> None:
    """Requests to one web process: a probe, a read, an enqueue, a batch of them."""
    from tests.bench.http import measure

    surround(args)
    for figures in measure(args.n, args.clients, args.batch or 1_000, args.only):
        say("http", args, **figures, **percentiles(figures.pop("waits")))


def bench_turns(args: argparse.Namespace) -> None:
    """Shares of starts against the ideal, and what a single job waits behind another tenant's backlog (C4)."""
    from tests.bench.turns import measure

    for figures in measure(args.n, args.backlog or 100_000):
        say("turns", args, **figures)


BENCHES: dict[str, tuple[Callable[[argparse.Namespace], None], int]] = {
    "enqueue": (bench_enqueue, 2_000), "bulk": (bench_bulk, 20_000), "drain": (bench_drain, 20_000),
    "latency": (bench_latency, 50), "claim": (bench_claim, 100),
    "http": (bench_http, 1_000),
    "turns": (bench_turns, 1_000),
}


def main() -> None:
    """Parse, prepare, measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("--n", type=int, default=None, help="jobs (or claims) that are timed")
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    parser.add_argument("--batch", type=int, default=None, help="jobs a claim or a bulk transaction")
    parser.add_argument("--slots", type=int, default=100, help="slots a worker")
    parser.add_argument("--type", choices=["noop", "tick"], default="noop", help="what is drained")
    parser.add_argument("--backlog", type=int, default=0, help="queued jobs in all, of which n are timed")
    parser.add_argument("--finished", type=int, default=0, help="ended jobs that lie around")
    parser.add_argument("--scheduled", type=int, default=0, help="jobs of tomorrow that lie around")
    parser.add_argument("--tenants", type=int, default=0, help="tenants with one job each that lie around")
    parser.add_argument("--clients", type=int, default=8, help="http: connections that are kept")
    parser.add_argument("--scale", type=float, default=1.0, help="claim: size of the noises")
    parser.add_argument("--only", default=None, help="claim: comma-separated noises; http: kinds of requests")
    args = parser.parse_args()
    bench, n = BENCHES[args.bench]
    args.n = args.n or n
    site.prepare()
    bench(args)


if __name__ == "__main__":
    main()
