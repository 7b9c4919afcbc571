"""The long forms: `python -m tests.crash [--repeats 5] [--point NAME] [--fault NAME]` runs the grid, and
`python -m tests.crash --storm [--jobs 2000] [--faults 200] [--seed N]` workers under fire.

Needs DATABASE_URL of a server on which it may make and drop a database of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.crash.grid import CELLS, FAULTS
from tests.crash.run import FAST, Batch, told
from tests.sinks import Sink
from tests.warm import ROOT

NAME = "test_jobsite_crash"


@contextmanager
def own_database(url: str) -> Iterator[str]:
    """A database of its own beside the one that `url` names, migrated; dropped in the end."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {NAME}")
    own = urlunsplit(urlsplit(url)._replace(path=f"/{NAME}"))
    try:
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, check=True,
                       env={**os.environ, "DATABASE_URL": own})
        yield own
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def main() -> int:
    """Run, print a line for each batch, and answer 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--point", default=None)
    parser.add_argument("--fault", choices=FAULTS, default=None)
    parser.add_argument("--storm", action="store_true")
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    if "DATABASE_URL" not in os.environ:
        parser.error("DATABASE_URL must name a server on which a database may be made")
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with own_database(os.environ["DATABASE_URL"]) as url, Sink() as sink:
        os.environ.update({**FAST, **told(sink), "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "jobsite.settings"})
        import django

        django.setup()
        return _storm(url, given, seed) if given.storm else _batches(url, given, random.Random(seed), sink)


def _storm(url: str, given: argparse.Namespace, seed: int) -> int:
    from tests import database
    from tests.crash.storm import Storm

    database.empty()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        storm = Storm(url, url, Path(folder), jobs=given.jobs, faults=given.faults, seed=seed)
        found = storm.run()
    print(f"{given.jobs} jobs, {dict(storm.done)} in {time.monotonic() - began:.0f} s, {len(found)} violations",
          *found[:20], sep="\n  ")
    return bool(found)


def _batches(url: str, given: argparse.Namespace, chance: random.Random, sink: Sink) -> int:
    from django.db import connections

    from tests import database
    from tests.crash import prepare

    bad = runs = 0
    for repeat in range(given.repeats):
        for fault in [given.fault] if given.fault else FAULTS:
            cells = [c for c in CELLS if c.fault == fault and given.point in (None, c.point)]
            chance.shuffle(cells)
            database.empty()
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                faults = Batch(url, url, Path(folder), cells, prepare.api_key(), sink).run()
            connections.close_all()
            runs += len(cells)
            bad += len(faults)
            print(f"repeat {repeat + 1} {fault}: {len(cells)} cells in {time.monotonic() - began:.0f} s, "
                  f"{len(faults)} violations", *faults, sep="\n  ", flush=True)
    print(f"{runs} runs, {bad} violations")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
