"""Markdown files of a folder: which there are, what one holds now, and the hash that tells one state from another.

Nothing outside the named folder is read, whatever links lie in it; how much is read is bounded.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from jobs.errors import JobError

ENDINGS: Final = (".md", ".markdown")
# Of the text a description needs the beginning; the hash needs all of it.
READ_BYTES: Final = 1024 * 1024
MAX_BYTES: Final = 64 * 1024 * 1024
_CHUNK: Final = 256 * 1024
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "env"})


class Source(NamedTuple):
    """A document as it is now: the beginning of its text, and the sha256 of all its bytes in hex."""

    text: str
    hash: str


def is_relative(document: str) -> bool:
    """Whether this names a Markdown file inside a folder: parts joined by "/", none empty or of dots alone."""
    parts = document.split("/")
    plain = all(part not in ("", ".", "..") for part in parts)
    return plain and document.isprintable() and "\\" not in document and document.lower().endswith(ENDINGS)


def read(root: str | Path, document: str, check: Callable[[], None] = lambda: None) -> Source:
    """The document as it is now; `check` is called between chunks and may raise.

    Raises JobError: source_missing, source_outside, source_unfit (no file, or too large), none of them retryable;
    source_unreadable is: a disk or a share may be back.
    """
    path = _inside(Path(root), document)
    try:
        # Without waiting: a pipe that took a file's name would be waited for until somebody writes.
        with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return _read(file, document, check)
    except FileNotFoundError:
        raise _missing(document) from None
    except OSError as error:
        raise _unreadable(document, error) from None


def _inside(root: Path, document: str) -> Path:
    try:
        top = root.resolve(strict=True)
        path = (top / document).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(document) from None
    except (OSError, RuntimeError) as error:
        raise _unreadable(document, error) from None
    if not path.is_relative_to(top):
        raise JobError("source_outside", f"{document} leads out of its folder.", retryable=False)
    return path


def _read(file: BinaryIO, document: str, check: Callable[[], None]) -> Source:
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
        raise JobError("source_unfit", f"{document} is no file, or larger than {MAX_BYTES} bytes.", retryable=False)
    digest = hashlib.sha256()
    kept = bytearray()
    while chunk := file.read(_CHUNK):
        check()
        digest.update(chunk)
        kept += chunk[: READ_BYTES - len(kept)]
    return Source(kept.decode("utf-8", "replace"), digest.hexdigest())


def _missing(document: str) -> JobError:
    return JobError("source_missing", f"{document} is not there.", retryable=False)


def _unreadable(document: str, error: Exception) -> JobError:
    why = getattr(error, "strerror", None) or type(error).__name__
    return JobError("source_unreadable", f"{document} cannot be read: {why}.")


def documents(root: Path) -> Iterator[str]:
    """The Markdown files below a folder, sorted within each; no hidden or foreign folders, no links that lead out."""
    top = root.resolve()
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if _is_ours(Path(folder, name)))
        for name in sorted(files):
            path = Path(folder, name)
            document = path.relative_to(top).as_posix()
            if is_relative(document) and path.is_file() and path.resolve().is_relative_to(top):
                yield document


def _is_ours(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in _SKIPPED
    return not hidden and not folder.is_symlink() and not (folder / "pyvenv.cfg").exists()
