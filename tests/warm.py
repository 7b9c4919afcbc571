"""Processes of the product that begin as fast as they end: forked from one that has imported everything.

Most of what a process of a test costs is importing Django, psycopg and pydantic once more. What `start` gives is a
process like any other, with its own signals, descriptors, settings and end; only its modules were imported before.
A process whose environment may change how Python or Django begin is started the ordinary way, and so are those of
`site` and the ones that tests start with `sys.executable`: the beginning itself is proven there.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from django.core.exceptions import ImproperlyConfigured

ROOT = Path(__file__).resolve().parents[1]
# Read before any settings are, or decide which modules there are.
COLD = ("PYTHON", "LD_", "DJANGO_", "DEBUG", "SECRET_KEY")
PRELOADED = ["jobsite.cli", "jobsite.urls", "jobs.management.commands.runworker", "jobs.management.commands.runpump"]
MOST = 1024 * 1024

Stream = int | IO[Any] | None


class Warm:
    """What `subprocess.Popen` is, for a process that was forked by our own server."""

    def __init__(self, args: Sequence[str], pid: int, told: socket.socket) -> None:
        self.args, self.pid, self._told = list(args), pid, told
        self.returncode: int | None = None
        self.stdin: None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None

    def poll(self) -> int | None:
        """Its exit code once it has ended; until then it is a zombie that nobody else's process can be taken for."""
        return self._hear(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises TimeoutExpired."""
        code = self._hear(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _hear(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._told.settimeout(seconds)
            with suppress(TimeoutError, BlockingIOError):
                said = self._told.recv(64)
                # Nothing: our server has died, and nobody will ever know.
                self.returncode = int(said) if said else -signal.SIGKILL
                self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = Warm | subprocess.Popen[Any]


def start(arguments: Sequence[str], env: dict[str, str], *, stdout: Stream, stderr: Stream, text: bool = False,
          start_new_session: bool = False) -> Process:
    """`python *arguments` with this environment; its stdin is empty. `arguments` begin with manage.py or with -m."""
    assert (stdout, stderr) != (subprocess.PIPE, subprocess.STDOUT), "a pipe for each"
    if _may_change_the_beginning(env) or not hasattr(os, "pidfd_open"):
        return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=env, text=text, stdin=subprocess.DEVNULL,
                                stdout=stdout, stderr=stderr, start_new_session=start_new_session)
    told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (theirs, _end_of(stdout) as (out, read_out),
          _end_of(stdout if stderr == subprocess.STDOUT else stderr) as (errors, read_errors)):
        said = json.dumps({"arguments": list(arguments), "env": env, "session": start_new_session}).encode()
        socket.send_fds(_server(), [said], [theirs.fileno(), out, errors])
    pid = told.recv(64)
    assert pid, "the server of warm processes did not come up: its stderr says why"
    made = Warm(arguments, int(pid), told)
    mode = "r" if text else "rb"
    made.stdout, made.stderr = (None if x is None else os.fdopen(x, mode) for x in (read_out, read_errors))
    return made


def _may_change_the_beginning(env: dict[str, str]) -> bool:
    names = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)}
    return any(name.startswith(COLD) and (name, env.get(name)) != ("DJANGO_SETTINGS_MODULE", "jobsite.settings")
               for name in names)


@contextmanager
def _end_of(stream: Stream) -> Iterator[tuple[int, int | None]]:
    """The descriptor that the process writes to, ours no longer afterwards if it is a pipe's, and where we read."""
    if stream == subprocess.PIPE:
        read, write = os.pipe()
        try:
            yield write, read
        finally:
            os.close(write)
    elif stream == subprocess.DEVNULL:
        with open(os.devnull, "wb") as nothing:
            yield nothing.fileno(), None
    else:
        yield (stream if isinstance(stream, int) else stream.fileno()), None  # type: ignore[union-attr]


_servers: dict[int, socket.socket] = {}


def _server() -> socket.socket:
    """The one of this process, which lives as long as we hold our end of the socket."""
    ours = _servers.get(os.getpid())
    if ours is None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            made = subprocess.Popen([sys.executable, "-m", "tests.warm", str(theirs.fileno())], cwd=ROOT,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                                    env={**os.environ, "DJANGO_SETTINGS_MODULE": "jobsite.settings"})
        _servers.clear()
        _servers[os.getpid()] = ours
        atexit.register(_end, ours, made)
    return ours


def _end(ours: socket.socket, server: subprocess.Popen[bytes]) -> None:
    ours.close()
    server.wait(10)


# -- the server -----------------------------------------------------------------------------------------------


class Server:
    """Forks what it is asked for, and tells whoever asked how each has ended."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._selector = selectors.DefaultSelector()
        self._selector.register(asked, selectors.EVENT_READ)

    def run(self) -> None:
        """Until nobody can ask any more."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._asked:
                    said, descriptors, *_ = socket.recv_fds(self._asked, MOST, 3)
                    if not said:
                        return
                    self._fork(json.loads(said), *descriptors)
                elif isinstance(key.fileobj, int):
                    self._tell(key.fileobj, *key.data)
                else:
                    self._bury(key.fileobj, key.data)  # type: ignore[arg-type]

    def _fork(self, said: dict[str, Any], told: int, out: int, errors: int) -> None:
        pid = os.fork()
        if pid == 0:
            for descriptor, place in ((out, 1), (errors, 2)):
                os.dup2(descriptor, place)
            for descriptor in {told, out, errors} - {1, 2}:
                os.close(descriptor)
            for key in list(self._selector.get_map().values()):
                if isinstance(key.fileobj, int):
                    os.close(key.fileobj)
                    key.data[1].close()
                else:
                    key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            raise Forked(said)
        for descriptor in (out, errors):
            os.close(descriptor)
        teller = socket.socket(fileno=told)
        with suppress(OSError):
            teller.send(str(pid).encode())
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, teller))

    def _tell(self, pidfd: int, pid: int, teller: socket.socket) -> None:
        """It stays a zombie until it is heard that it has ended, as with anybody's own child."""
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._selector.unregister(pidfd)
        os.close(pidfd)
        with suppress(OSError):
            teller.send(str(code).encode())
        # Readable once the other end is closed.
        self._selector.register(teller, selectors.EVENT_READ, pid)

    def _bury(self, teller: socket.socket, pid: int) -> None:
        self._selector.unregister(teller)
        teller.close()
        os.waitpid(pid, 0)


class Forked(Exception):
    """Raised through the server's loop in a process that it has forked: its stack is left behind."""


def _become(said: dict[str, Any]) -> None:
    """What Python and Django do first, with the settings of this environment."""
    os.environ.clear()
    os.environ.update({"DJANGO_SETTINGS_MODULE": "jobsite.settings", **said["env"]})
    if said["session"]:
        os.setsid()
    sys.warnoptions.append("error::ResourceWarning")
    warnings.filterwarnings("error", category=ResourceWarning)
    # Settings that cannot be used are refused by whoever reads them next.
    with suppress(ImproperlyConfigured):
        _read_settings()
    first, *rest = said["arguments"]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        from jobsite.cli import execute

        execute(sys.argv)


def _read_settings() -> None:
    from django.conf import settings
    from django.core.signals import setting_changed
    from django.db import connections
    from django.utils.functional import empty
    from django.utils.log import configure_logging

    import jobsite

    before = {name: getattr(settings, name) for name in dir(settings) if name.isupper()}
    del sys.modules["jobsite.settings"], jobsite.settings  # type: ignore[attr-defined]
    settings._wrapped = empty
    for name in dir(settings):
        if name.isupper() and name != "DATABASES" and (value := getattr(settings, name)) != before.get(name):
            setting_changed.send(sender=None, setting=name, value=value, enter=True)
    connections.__dict__.pop("settings", None)
    connections._settings = None
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    if armed := settings.JOBS["FAILPOINTS"]:
        from jobs import failpoints
        from jobs.store.faults import FAULTS

        failpoints.arm(armed, FAULTS)


def main() -> None:
    """Import everything, and serve."""
    import gc
    import threading

    gc.disable()
    import django

    django.setup()
    for name in PRELOADED:
        importlib.import_module(name)
    from django.db import connections

    from jobs.conf import conf

    assert not conf.cache_info().misses, "something was read of the settings that a process has of its own"
    for made in connections.all(initialized_only=True):
        assert made.connection is None
        del connections[made.alias]
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    gc.enable()
    said: dict[str, Any] | None = None
    try:
        Server(socket.socket(fileno=int(sys.argv[1]))).run()
    except Forked as forked:
        said = forked.args[0]
    except KeyboardInterrupt:
        return
    if said is not None:
        _become(said)


if __name__ == "__main__":
    main()
