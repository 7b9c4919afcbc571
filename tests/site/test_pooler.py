"""PgBouncer in transaction mode between us and PostgreSQL: no session state, nothing prepared, no LISTEN."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from jobs.models import Job
from jobs.services.intake import Request, enqueue_many
from tests.plugin import skip

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
