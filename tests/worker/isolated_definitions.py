"""Isolated handlers that end in every bad way, leave things behind, or look at what they find."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction

from jobs import RetryPolicy, job
from jobs.errors import JobsError
from tests.definitions import trace
from tests.worker.definitions import misbehave, obey, value

QUICK = RetryPolicy(max_attempts=3, base_delay_s=1, max_delay_s=1)


def hold_gil(seconds: float) -> None:
    """As native code does that never lets go of it."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def beget(path: str) -> subprocess.Popen[bytes]:
    """A grandchild that ignores SIGTERM; its number is traced."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
    made = subprocess.Popen([sys.executable, "-S", "-c", code])
    trace(path, f"grandchild {made.pid}")
    return made


class Wordy(Exception):
    """Cannot be made again from its own arguments."""

    def __init__(self, *, needed: int) -> None:
        super().__init__("with its own words")
        self.needed = needed

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


class Endless(Exception):
    def __str__(self) -> str:
        while True:
            time.sleep(0.01)


class Deep:
    def __repr__(self) -> str:
        return f"<{self!r}>"


class Key:
    def __lt__(self, other: Any) -> bool:
        return sorted([self, other]) is None


def fail(kind: str) -> None:
    """Fails in the ways that only a process of its own survives, or that no pickle does."""
    match kind:
        case "group-large":
            raise ExceptionGroup("many", [ValueError(n) for n in range(10_000)])
        case "recursion-sorted":
            sorted([Key(), Key()])
        case "recursion-repr":
            raise ValueError(repr(Deep()))
        case "wordy":
            raise Wordy(needed=1)
        case "local":
            class Local(Exception):
                pass
            raise Local("of this call", lambda: None)
        case "open-file":
            with Path(os.devnull).open() as file:
                raise ValueError(file)
        case "memory":
            resource.setrlimit(resource.RLIMIT_AS, (2**30, resource.RLIM_INFINITY))
            bytearray(2**31)
        case "on-commit":
            with transaction.atomic():
                transaction.on_commit(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        case _:
            misbehave(kind)


@job("fails", retry=None)
def fails(run: Any, kind: str) -> None:
    """Raises."""
    fail(kind)


@job("fails-async", retry=None)
async def fails_async(run: Any, kind: str) -> None:
    """The same in a coroutine."""
    await asyncio.sleep(0)
    fail(kind)


@job("answers", retry=None)
def answers(run: Any, kind: str) -> str:
    """What no artifact can be."""
    made = {"lambda": lambda: None, "generator": (n for n in ())}.get(kind)
    if kind == "circular":
        made = []  # type: ignore[assignment]
        made.append(made)  # type: ignore[union-attr, attr-defined]
    return made or value(kind)  # type: ignore[return-value]


@job("dies", retry=QUICK)
def dies(run: Any, kind: str, path: str = "") -> None:
    """Takes its process with it."""
    trace(path, f"start {run.claims} {time.time()}")
    print("last words")
    match kind:
        case "exit":
            sys.stdout.flush()
            os._exit(3)
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wire":
            os.closerange(3, 256)


@job("dies-once", timeout_s=0.2, retry=None)
def dies_once(run: Any, kind: str) -> None:
    """Is killed, by itself or by its timeout, with a connection open and a grandchild running."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    beget("")
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@job("queries-apart")
def queries_apart(run: Any) -> str:
    """As whom it speaks with the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        return str(cursor.fetchone()[0])


@job("hangs", timeout_s=2, lease_s=3, retry=RetryPolicy(max_attempts=2, base_delay_s=1, max_delay_s=1))
def hangs(run: Any, kind: str, path: str) -> None:
    """Never ends by itself, each in another way; with a grandchild."""
    trace(path, f"start {run.claims} {os.getpid()} {time.time()}")
    beget(path)

    def write() -> None:
        while True:
            trace(path, f"line {run.claims} {time.time()}")
            time.sleep(0.1)

    match kind:
        case "gil":
            hold_gil(120)
        case "thread":
            threading.Thread(target=write).start()
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    continue
        case "socket":
            here, _there = socket.socketpair()
            here.recv(1)
        case "process":
            beget(path).wait()
        case "bare":
            while True:
                try:
                    run.wait(0.1)
                    time.sleep(0.1)
                    run.check()
                except:  # noqa: E722
                    pass
        case "str":
            raise Endless


@job("holds-gil", lease_s=3)
def holds_gil(run: Any, seconds: float, path: str = "") -> str:
    """Lets nothing else of its process run."""
    trace(path, f"start {run.claims} {os.getpid()}")
    if path:
        beget(path)
    hold_gil(seconds)
    return "done"


@job("gated-apart", lease_s=3)
def gated_apart(run: Any, path: str, gate: str) -> str:
    """Ends once the file `gate` is there, deaf to its stop; with a grandchild."""
    grandchild = beget(path)
    trace(path, f"start {run.claims} {os.getpid()}")
    while not Path(gate).exists():
        time.sleep(0.02)
    grandchild.kill()
    grandchild.wait()
    trace(path, f"end {run.claims} {os.getpid()}")
    return "done"


@job("attentive-apart", lease_s=3)
def attentive_apart(run: Any, path: str) -> None:
    """Tells when its stop came."""
    trace(path, "start")
    run.wait(60)
    trace(path, f"stopped {run.stop_reason} {time.time()}")
    run.check()


@job("attentive-apart-async", lease_s=3)
async def attentive_apart_async(run: Any, path: str) -> None:
    """Tells when its cancellation came."""
    trace(path, "start")
    try:
        await asyncio.sleep(60)
    finally:
        trace(path, f"stopped {run.stop_reason} {time.time()}")


@job("deaf-apart", lease_s=3)
async def deaf_apart(run: Any, path: str) -> None:
    """Swallows its cancellation."""
    trace(path, f"start {run.claims} {os.getpid()}")
    while True:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            trace(path, "cancelled")


@job("apart")
def apart(run: Any, path: str = "") -> str:
    """Where and when it ran."""
    trace(path, f"start {time.time()}")
    return json.dumps({"pid": os.getpid(), "parent": os.getppid(), "at": time.time(), "session": os.getsid(0)})


@job("apart-async")
async def apart_async(run: Any, threads: int = 0) -> int:
    """Uses the database as async code does, and the loop's threads."""
    from jobs.models import Job

    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.01) for _ in range(threads)))
    if await Job.objects.acount() < 1:
        raise AssertionError
    return os.getpid()


_before: dict[str, Any] = {}


def surroundings() -> dict[str, Any]:
    """What a handler finds around it."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "cwd": os.getcwd(), "environment": sorted(f"{k}={v}" for k, v in os.environ.items()), "umask": umask,
        "handlers": [str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0], "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "stdout": os.fstat(1).st_ino, "stderr": os.fstat(2).st_ino, "real": sys.stdout is sys.__stdout__,
        "path": os.environ.get("PYTHONPATH"),
    }


@job("looks-around", retry=None)
def looks_around(run: Any) -> str:
    """What it finds; and whether its connection is as new."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_class WHERE relname = 'left_behind'")
        clean = cursor.fetchone() is None
    return json.dumps({"pid": os.getpid(), "clean": clean, "found": surroundings()})


@job("leaves-apart", retry=None)
def leaves_apart(run: Any, what: str) -> int:
    """Leaves its process in some state."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    match what:
        case "open":
            transaction.atomic().__enter__()
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE left_behind ()")
        case "closed":
            connection.close()
        case "broken":
            connection.connection.close()
        case "around":
            os.chdir("/")
            os.environ["LEFT"] = "x"
            os.environ.pop("HOME", None)
            os.umask(0o077)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            sys.stdout = sys.stderr
            os.dup2(0, 1)
        case "thread":
            threading.Thread(target=time.sleep, args=[120], daemon=True).start()
        case "process":
            subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"])
        case "orphan":
            os.system("sleep 120 &")
        case "limits":
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        case "fork":
            # Forgets to end the other one.
            os.fork()
    return os.getpid()


@job("prints")
def prints(run: Any) -> None:
    """Writes to everything there is."""
    print('{"event": "worker.forged"}')
    print("to stderr", file=sys.stderr)
    os.write(1, b"raw \xff\n" + b"x" * 100_000 + b"\n")
    subprocess.run([sys.executable, "-S", "-c", "print('by another program')"], check=True)
    run.log("kept")
    assert sys.stdin.read() == ""


@job("eats", retry=None)
def eats(run: Any, mb: int) -> int:
    """Keeps so much memory."""
    _before["kept"] = bytearray(b"x") * (mb * 2**20)
    return os.getpid()


def _hook(run: Any, artifact: str, commit: Any) -> None:
    mode, path = run.input["mode"], run.input["path"]
    commit()
    trace(path, "committed")
    if mode == "hangs":
        time.sleep(60)
    if mode == "dies":
        os._exit(1)
    if mode == "waits":
        run.wait(3)
        trace(path, f"stopping {run.stopping}")
    if mode == "twice":
        try:
            commit()
        except JobsError as error:
            trace(path, error.reason_code)


@job("published-apart", publish=_hook, timeout_s=5, retry=None)
def published_apart(run: Any, mode: str, path: str) -> str:
    """Settled by its hook, in a child."""
    return mode


@job("staged-apart", stages={"read": "Reading"})
def staged_apart(run: Any) -> int:
    """Reports a stage and keeps a checkpoint."""
    run.progress("read")
    seen = (run.last_checkpoint or {"runs": 0})["runs"]
    run.checkpoint({"runs": seen + 1})
    run.progress("read", "completed")
    if seen == 0:
        os._exit(1)
    return int(seen)


@job("obeys-apart", retry=None)
def obeys_apart(run: Any, path: str, count: int = 1) -> list[str]:
    """Waits in a child to be told something."""
    return obey(run, path, count)
