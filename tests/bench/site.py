"""A database of the bench's own on the site's server, emptied and migrated, and worker processes on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = "jobs_bench"


def prepare() -> None:
    """Start the embedded server if no DATABASE_URL is set, make an empty database and set Django up on it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    os.environ["JOBS_DEFINITIONS"] = "jobsite.definitions,tests.bench.definitions"
    os.environ.setdefault("DATABASE_POOL_MAX", "150")
    if not os.environ.get("DATABASE_URL"):
        from jobsite import postgres

        os.environ["DATABASE_URL"] = postgres.start(ROOT).dsn
    os.environ["DATABASE_URL"] = _fresh(os.environ["DATABASE_URL"])
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _fresh(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        name = sql.Identifier(NAME)
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        current = connection.info.dbname
    head, _, tail = url.rpartition(f"/{current}")
    return f"{head}/{NAME}{tail}"


@contextmanager
def workers(count: int, slots: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many `runworker` processes, stopped at the end."""
    argv = [sys.executable, str(ROOT / "manage.py"), "runworker", "--slots", str(slots), "-v", "0",
            "--groups", "default"]
    running = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(timeout=30)
