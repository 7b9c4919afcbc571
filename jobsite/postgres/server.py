"""The postmaster of one place: find it, start it, stop it.

A server is alive as long as the lock on the state directory is held: the postmaster and all its children inherit
that descriptor. Numbers in `postmaster.pid` prove nothing, since they outlive a crash and go to other processes.
Whoever calls this has the place's start lock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psycopg

from . import cluster, processes
from .binaries import Binaries
from .errors import InUse, StartFailed, StillBusy
from .locks import EXCLUSIVE, POLL_SECONDS, Lock
from .places import PORT, Account, Place, account, owner_of, touch

ROLE = DATABASE = "jobs"
SETTLE_SECONDS = 60
# A server's last process gives its two locks back one after the other.
GUARD_SECONDS = 1
LOG_LIMIT = 10 * 1024 * 1024
LOG_TAIL = 20
SETTINGS: dict[str, object] = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "max_connections": 200,
    "shared_buffers": "256MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "checkpoint_timeout": "15min",
    "max_wal_size": "2GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    # Statements carry the inputs of jobs.
    "log_min_error_statement": "panic",
}


@dataclass(frozen=True)
class Started:
    """A postmaster that does not answer yet, and where its part of the log begins."""

    pid: int
    log: Path
    log_start: int


def data_of(place: Place, programs: Binaries) -> Path:
    """The data directory of a place for programs of this version."""
    return place.home(account()) / str(programs.major)


def ensure_running(place: Place, programs: Binaries, *, alone: bool) -> int:
    """Find the postmaster or start one, and see to its role and database. `alone`: no other process uses it."""
    data = data_of(place, programs)
    pid = processes.listener(place.socket_file)
    if pid is not None and not _serves(pid, data):
        if not alone:
            raise InUse(f"Other processes use a server of {place.project} (process {pid}) that does not serve {data}: "
                        "PostgreSQL's version changed meanwhile, or the files were moved. End them first.")
        stop(place)
    found = settle(place)
    if isinstance(found, Lock):
        found = _start(place, programs, data, found)
    _create_database(place)
    return found


def _start(place: Place, programs: Binaries, data: Path, alive: Lock) -> int:
    """Start a postmaster and wait until it answers; interrupted before that, end it."""
    before = set(processes.children)
    try:
        with alive:
            started = _launch(place, programs, owner_of(data, account()), data, alive)
        return _await(place, started)
    except (KeyboardInterrupt, SystemExit):
        # Nobody uses it yet, and it does not hear the terminal.
        for pid in processes.children - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        raise


def settle(place: Place) -> int | Lock:
    """Wait until a postmaster accepts connections, or no process of one is left: then the answer is its lock, held."""
    lock = Lock(place.state)
    deadline = time.monotonic() + SETTLE_SECONDS
    try:
        while not isinstance(answer := _ask(place), int):
            if lock.try_take(EXCLUSIVE):
                return lock
            if time.monotonic() > deadline:
                raise StillBusy(f"PostgreSQL neither accepted connections nor ended in {SETTLE_SECONDS} s ({answer}). "
                                f"It recovers, or a killed server's processes go on: try again. {_logs(place)}")
            time.sleep(POLL_SECONDS)
    except BaseException:
        lock.close()
        raise
    lock.close()
    return answer


def stop(place: Place) -> None:
    """Shut down fast and wait for the last process; if that takes long at once, which recovery makes good."""
    for request in (signal.SIGINT, signal.SIGQUIT):
        if pid := processes.listener(place.socket_file):
            with suppress(ProcessLookupError):
                os.kill(pid, request)
        with Lock(place.state) as lock:
            ended = lock.take(EXCLUSIVE, SETTLE_SECONDS)
        processes.reap()
        if ended:
            return
    raise StillBusy(f"PostgreSQL did not end. {_logs(place)}")


def _serves(pid: int, data: Path) -> bool:
    # A server whose files were removed, or moved, goes on for a while.
    try:
        return (data / "postmaster.pid").read_text().split("\n")[0] == str(pid)
    except FileNotFoundError:
        return False


def _ask(place: Place) -> int | str:
    """The postmaster that accepts connections, or why there is none."""
    pid = processes.listener(place.socket_file)
    if pid is None:
        return "nothing listens"
    try:
        _superuser(place).close()
    except psycopg.OperationalError as error:
        return str(error)
    return pid


def _await(place: Place, started: Started) -> int:
    found = settle(place)
    if isinstance(found, int):
        return found
    found.close()
    raise StartFailed(f"PostgreSQL ended while it started. {_tail(started)}")


def _launch(place: Place, programs: Binaries, user: Account, data: Path, alive: Lock) -> Started:
    """Start a postmaster that keeps the lock `alive`."""
    processes.reap()
    place.prepare_home(user)
    _refuse_stranger(data)
    with Lock(data.with_suffix(".lock")) as guard:
        # It lies with the data, and so is seen from containers that share nothing else.
        if not guard.take(EXCLUSIVE, GUARD_SECONDS):
            raise InUse(f"A server that we cannot see, in another container perhaps, serves {data}.")
        programs = programs.read_by(user, place.state)
        kept = [alive.fd, guard.fd]
        cluster.prepare(programs, user, data, kept)
        _clear_stale(place, data)
        place.prepare_socket(user)
        touch(place.state.rglob("*"))
        return _spawn(place, programs, user, data, kept)


def _refuse_stranger(data: Path) -> None:
    """Leave a server alone that is not behind our socket: started by hand, or robbed of its directory."""
    with suppress(FileNotFoundError, ValueError):
        pid = int((data / "postmaster.pid").read_text().partition("\n")[0])
        if processes.is_postmaster(pid, data):
            raise InUse(f"Process {pid} serves {data}, but not where we would find it. Stop it: kill -INT {pid}")


def _clear_stale(place: Place, data: Path) -> None:
    """Remove what a killed server left. None of ours lives, and PostgreSQL itself refuses shared memory in use."""
    socket_lock = place.socket_file.with_name(place.socket_file.name + ".lock")
    for left in (data / "postmaster.pid", place.socket_file, socket_lock):
        left.unlink(missing_ok=True)


def _spawn(place: Place, programs: Binaries, user: Account, data: Path, kept: list[int]) -> Started:
    command = [programs.program("postgres"), "-D", str(data), "-k", str(place.socket)]
    for name, value in SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    with _open_log(_log_file(data)) as log:
        log_start = log.seek(0, os.SEEK_END)
        # An interrupt between the start and our knowing of it would leave a server to nobody.
        with processes.uninterrupted():
            try:
                process = subprocess.Popen(
                    command, cwd=data, env=cluster.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    umask=0o077, start_new_session=True, pass_fds=kept, **user.switch())
            except OSError as error:
                raise StartFailed(f"{command[0]} could not be run as user {user.name}: {error}.") from error
            processes.children.add(process.pid)
            process.returncode = 0  # Made to outlive this process, of which Popen would warn.
        return Started(process.pid, _log_file(data), log_start)


def _create_database(place: Place) -> None:
    try:
        with _superuser(place) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone():
                connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
    except psycopg.Error as error:
        raise StartFailed(f"The database {DATABASE} could not be made: {error}.") from error


def _superuser(place: Place) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(host=str(place.socket), hostaddr="", port=PORT, user=cluster.SUPERUSER, dbname="postgres",
                           connect_timeout=5, autocommit=True)


def _log_file(data: Path) -> Path:
    return data.with_suffix(".log")


def _logs(place: Place) -> str:
    return f"Its logs are in {place.home(account())}."


def _open_log(path: Path) -> BinaryIO:
    """The log to append to, emptied first if it has grown too long."""
    log = open(path, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))  # noqa: SIM115
    if log.tell() > LOG_LIMIT:
        log.truncate(0)
    return log


def _tail(started: Started) -> str:
    with started.log.open("rb") as file:
        file.seek(started.log_start)
        lines = file.read().decode(errors="replace").splitlines()[-LOG_TAIL:]
    return "\n".join([f"The end of its log, {started.log}:", *lines])
