"""A server's data (PostgreSQL says cluster): made whole or not at all, and given to its own version only."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .binaries import Binaries
from .errors import StartFailed, VersionMismatch
from .places import Account

SUPERUSER = "postgres"
INIT_SECONDS = 180

log = logging.getLogger(__name__)


def prepare(programs: Binaries, user: Account, data: Path, kept: list[int]) -> None:
    """Make the data if there are none, and see that the programs fit them.

    `kept` are the descriptors of the server's locks: if we are killed, initdb goes on for a while and has to be waited
    for like a server.
    """
    if not data.exists():
        _initialise(programs, user, data, kept)
    try:
        version = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        version = "unknown"
    if version != str(programs.major):
        raise VersionMismatch(
            f"{data} holds data of PostgreSQL version {version}, and the programs in {programs.bin} are of version "
            f"{programs.major}. Name programs of the data's version in PG_BIN, or move the directory away.")


def environment() -> dict[str, str]:
    """The environment of PostgreSQL's programs: PG* variables are for clients, secrets are not for another user."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}


def _initialise(programs: Binaries, user: Account, data: Path, kept: list[int]) -> None:
    # Under another name first: what has the name is whole.
    for left in data.parent.glob("initdb-*"):
        shutil.rmtree(left, ignore_errors=True)
    if others := sorted(path.parent.name for path in data.parent.glob("[0-9]*/PG_VERSION")):
        log.warning("%s is new and empty; the data of PostgreSQL %s stay beside it, for programs of that version.",
                    data, ", ".join(others))
    made = Path(tempfile.mkdtemp(prefix="initdb-", dir=data.parent))
    os.chown(made, user.uid, user.gid)
    _run_initdb(programs.program("initdb"), user, made, kept)
    made.rename(data)
    _sync(data.parent)


def _run_initdb(program: str, user: Account, made: Path, kept: list[int]) -> None:
    command = [program, "--pgdata", str(made), "--username", SUPERUSER, "--encoding", "UTF8", "--locale", "C",
               "--auth-local", "trust", "--auth-host", "reject"]
    try:
        subprocess.run(command, cwd=made, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace", timeout=INIT_SECONDS, check=True,
                       start_new_session=True, pass_fds=kept, **user.switch())
    except OSError as error:
        raise StartFailed(f"{program} could not be run as user {user.name}: {error}.") from error
    except subprocess.SubprocessError as error:
        said = getattr(error, "output", None) or ""
        raise StartFailed(f"{program} did not make the data: {error}\n{said}") from error


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
