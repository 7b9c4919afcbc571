"""Where a project's embedded server lives, and as whom it runs.

Everything is worked out from the project's path, the file system and who we are; nothing is started, so that two
processes of one user come to the same answer on their own. Directories are made here and nowhere else: only ours
are ever changed, and one that somebody else made is refused.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from .errors import PlaceRefused

# PostgreSQL refuses to run as root: the first of these that the machine has does it then.
SERVICE_USERS = ("postgres", "nobody", "daemon")
PORT = 5432
# A socket's path has 108 bytes on Linux and 104 on macOS, with the closing zero.
LONGEST_SOCKET = 103


@dataclass(frozen=True)
class Account:
    """The system user that runs PostgreSQL's programs."""

    name: str
    uid: int
    gid: int

    @property
    def is_us(self) -> bool:
        return self.uid == os.geteuid()

    def switch(self) -> dict[str, Any]:
        """What subprocess needs to become this user."""
        return {} if self.is_us else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def enters(self, folder: Path) -> bool:
        """Whether this user may pass a folder and all those above it."""
        if self.is_us:
            return os.access(folder, os.X_OK)
        try:
            folder = folder.resolve(strict=True)
            return all(self._may(step, 0o1) for step in (folder, *folder.parents))
        except OSError:
            return False

    def reads(self, path: Path) -> bool:
        """Whether this user may get to a path, and list and enter it or read and run it."""
        if self.is_us:
            return os.access(path, os.R_OK | os.X_OK)
        try:
            path = path.resolve(strict=True)
            return self._may(path, 0o5) and self.enters(path.parent)
        except OSError:
            return False

    def _may(self, path: Path, wanted: int) -> bool:
        info = path.stat()
        shift = 6 if info.st_uid == self.uid else 3 if info.st_gid == self.gid else 0
        return info.st_mode >> shift & wanted == wanted


@dataclass(frozen=True)
class Place:
    """The directories of one project's server."""

    project: Path
    state: Path

    @property
    def socket(self) -> Path:
        """The private directory of the socket; its mode is what keeps other users out."""
        return self.state / "socket"

    @property
    def socket_file(self) -> Path:
        return self.socket / f".s.PGSQL.{PORT}"

    def home(self, account: Account) -> Path:
        """The folder above the data: in the project if that is ours and open to the server, else beside the socket."""
        try:
            ours = self.project.stat().st_uid == os.geteuid() and os.access(self.project, os.W_OK | os.X_OK)
        except OSError:
            ours = False
        return (self.project / ".jobsite" if ours and account.enters(self.project) else self.state) / "postgres"

    def prepare_state(self) -> None:
        """Make the directory of the locks and of the socket."""
        own_directory(self.state.parent, 0o711)
        own_directory(self.state, 0o711)

    def prepare_home(self, account: Account) -> Path:
        """Make the directory above the data."""
        home = self.home(account)
        if home.parent != self.state:
            own_directory(home.parent, 0o711)
            # Whatever the project's own ignore file says.
            (home.parent / ".gitignore").write_text("*\n")
        own_directory(home, 0o711)
        return home

    def prepare_socket(self, account: Account) -> None:
        """Make the socket's directory, which only the server's user may enter."""
        if len(os.fsencode(self.socket_file)) > LONGEST_SOCKET:
            raise PlaceRefused(f"{self.socket_file} is too long for a socket ({LONGEST_SOCKET} bytes at most).")
        own_directory(self.socket, 0o700, account)
        if not account.enters(self.socket):
            raise PlaceRefused(f"User {account.name} cannot get to {self.socket}: a folder above is closed to it.")


def place_of(project: Path | None = None, root: Path | None = None) -> Place:
    """The place of a project: this one if none is named. `root` stands in for our directory under /var/tmp."""
    project = (project or _this_project()).resolve()
    root = (root or Path(f"/var/tmp/jobsite-{os.geteuid()}")).resolve()  # noqa: S108  own_directory refuses traps
    return Place(project, root / blake2b(os.fsencode(project), digest_size=5).hexdigest())


def _this_project() -> Path:
    here = Path(__file__).resolve().parents[2]
    # Installed as a package there is no project around us.
    return here if (here / "manage.py").exists() else Path.cwd()


def account() -> Account:
    """Who runs PostgreSQL: we, or as root an unprivileged user that exists already."""
    if os.geteuid() != 0:
        return _us()
    for name in SERVICE_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise PlaceRefused(f"PostgreSQL refuses to run as root and none of the users {', '.join(SERVICE_USERS)} exists.")


def _us() -> Account:
    return Account(str(os.geteuid()), os.geteuid(), os.getegid())


def owner_of(data: Path, otherwise: Account) -> Account:
    """The user that made the data: as root, one of a better name may have been added to the machine since."""
    try:
        info = data.stat()
    except FileNotFoundError:
        return otherwise
    return Account(str(info.st_uid), info.st_uid, info.st_gid) if os.geteuid() == 0 and info.st_uid else otherwise


def own_directory(path: Path, mode: int, owner: Account | None = None) -> None:
    """Make a directory or take one that is ours already; one that could be somebody else's trap is refused."""
    owner = owner or _us()
    try:
        path.mkdir(mode)
        path.chmod(mode)  # Whatever the umask took away.
    except FileExistsError:
        pass
    except OSError as error:
        raise PlaceRefused(f"{path} cannot be made: {error.strerror}.") from error
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (os.geteuid(), owner.uid) or info.st_mode & 0o022:
        raise PlaceRefused(f"{path} is not a directory that only we can write to. Look who made it, and move it away.")
    if info.st_uid != owner.uid:
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)


def touch(paths: Iterable[Path]) -> None:
    """Make files look used: cleaners of /var/tmp remove single old files, which would leave half a database."""
    for path in paths:
        os.utime(path, follow_symlinks=False)
