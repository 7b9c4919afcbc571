"""PgBouncer in transaction mode between us and PostgreSQL: no session state, nothing prepared, no LISTEN."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections

from jobs.models import Job, Leader
from jobs.services.intake import Request, enqueue_many
from jobs.services.leaders import Leadership
from tests import database as db
from tests.plugin import skip
from tests.worker.processes import until

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3


def _pgbouncer() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        skip("pgbouncer is not installed")
    return str(found)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def pooler(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a pooler with four server connections on the test's database."""
    at, port = connection.settings_dict, _free_port()
    host = str(at["HOST"] or "/var/run/postgresql")
    # It refuses root; whoever owns a private socket folder is let in there.
    owner = os.stat(host).st_uid if host.startswith("/") else 0
    account = (pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")) if os.getuid() == 0 else None
    password = f" password={at['PASSWORD']}" if at["PASSWORD"] else ""
    config = tmp_path_factory.mktemp("pooler") / "pgbouncer.ini"
    config.write_text(f"""
[databases]
* = host={host} port={at["PORT"] or 5432} user={at["USER"]}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
""")
    # It reads its settings from standard input's place: the folder of a test of root is closed to others.
    server = subprocess.Popen(
        [_pgbouncer(), "/dev/stdin"], stdin=config.open(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        **({"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}))
    try:
        _await(server, port)
        yield port
    finally:
        server.kill()
        server.wait()


def _await(server: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(200):
        try:
            psycopg.connect(f"host=127.0.0.1 port={port} user=jobs dbname={connection.settings_dict['NAME']}").close()
            return
        except psycopg.OperationalError as error:
            last = error
        try:
            server.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(server.stderr.read().decode() if server.stderr else "the pooler has ended")
    pytest.fail(f"the pooler does not answer: {last}")


def test_workers_behind_a_transaction_pooler_run_every_job_once(pooler: int) -> None:
    """case-C05, DESIGN 5: three workers over four server connections; nothing lost, nothing twice, no error."""
    enqueue_many([Request("echo" if n % 2 else "echo-thread", {"value": str(n)}) for n in range(600)])
    at = connection.settings_dict
    env = {**os.environ, "DATABASE_URL": f"postgres://{at['USER']}@127.0.0.1:{pooler}/{at['NAME']}",
           "DATABASE_POOLER": "on", "JOBS_POLL_S": "0.2"}
    argv = [sys.executable, "manage.py", "runworker", "--until-empty", "--no-listen", "--slots", "8"]
    workers = [subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for _ in range(WORKERS)]
    said = [worker.communicate(timeout=120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS, said
    assert not [line for out in said for line in out.splitlines() if "trouble" in line or "Traceback" in line]
    assert set(Job.objects.values_list("state", "claims")) == {("completed", 1)}


@contextmanager
def through(port: int) -> Iterator[None]:
    """Within, this thread's connection goes through the pooler, as DATABASE_POOLER=on has it."""
    direct = connections["default"]
    direct.close()
    pooled = direct.copy()
    pooled.settings_dict.update(HOST="127.0.0.1", PORT=port)
    pooled.settings_dict["OPTIONS"] |= {"prepare_threshold": None}
    pooled.settings_dict["OPTIONS"].pop("pool", None)
    connections["default"] = pooled
    try:
        yield
    finally:
        connections["default"] = direct
        pooled.close()


def test_of_three_candidates_behind_a_transaction_pooler_one_leads_each_tick(pooler: int) -> None:
    """case-C06: a hundred ticks at the same moment for all; every tenth time the leader dies without a word."""
    alive = {n: Leadership({"duty": 10.0}) for n in range(3)}
    tick, done = threading.Barrier(4), threading.Barrier(4)
    ran: list[list[int]] = [[] for _ in range(100)]

    def stand(n: int) -> None:
        with through(pooler):
            for now in ran:
                tick.wait(60)
                alive[n].renew()
                if alive[n].leads("duty"):
                    now.append(n)
                done.wait(60)

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(stand, n) for n in range(3)]
        for number in range(100):
            if number and number % 10 == 0:
                # Another life takes its place, and its lease runs out.
                alive[ran[number - 1][0]] = Leadership({"duty": 10.0})
                db.pass_time(11)
            tick.wait(60)
            done.wait(60)
        for thread in threads:
            thread.result()
    assert [len(now) for now in ran] == [1] * 100
    assert len({now[0] for now in ran}) > 1


def test_loops_run_behind_a_transaction_pooler(pooler: int) -> None:
    """case-C06, DESIGN 5: a pump on four server connections leads, ticks every duty, and gives back in the end."""
    at = connection.settings_dict
    env = {**os.environ, "DATABASE_URL": f"postgres://{at['USER']}@127.0.0.1:{pooler}/{at['NAME']}",
           "DATABASE_POOLER": "on", "JOBS_LEASE_S": "3", "JOBS_RECOVERY_GRACE_S": "1",
           "JOBS_DRAIN_GRACE_S": "1"}
    del env["JOBS_DEFINITIONS"]
    argv = [sys.executable, "manage.py", "runpump"]
    pump = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until(lambda: Leader.objects.exclude(ticked_at=None).count() >= 6, 60)
    finally:
        pump.terminate()
        said, _ = pump.communicate(timeout=60)
    assert pump.returncode == 0, said
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["pump.ready", "pump.stopped"]
    assert not Leader.objects.exclude(holder=None).exists()
