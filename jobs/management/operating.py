"""What the commands of operators share: who is at the shell, which job is meant, and refusals in one line."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.db import InterfaceError, OperationalError

from jobs import selectors
from jobs.errors import Invalid, JobsError
from jobs.models import Job
from jobs.services import tenancy


def person() -> str:
    """Whoever is at the shell, as receipts name people."""
    try:
        return f"shell:{getpass.getuser()}"
    except (OSError, KeyError):
        return "shell:somebody"


def named(said: dict[str, Any], name: str) -> Job:
    """An operator's look: an id of ours is found wherever it is, a job_id in `--workspace` and `--tenant`.

    Raises NotFound.
    """
    workspace = tenancy.workspace(said["workspace"])
    return selectors.anywhere(name) or selectors.job(selectors.scope(workspace.pk, said["tenant"]), name)


def days(text: str) -> float:
    """A number of days of the command line."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 36_500:
        raise argparse.ArgumentTypeError("must be a number of days above 0, at most 36500")
    return number


def count(text: str) -> int:
    """A whole number of the command line, 0 to a million."""
    if not (text.isascii() and text.isdigit() and int(text) <= 10**6):
        raise argparse.ArgumentTypeError("must be a whole number from 0 to 1000000")
    return int(text)


@contextmanager
def one_line() -> Iterator[None]:
    """A refusal, and a database that is away, is one line and never a traceback. Raises CommandError."""
    try:
        yield
    except JobsError as error:
        raise CommandError(_line(error)) from None
    except (OperationalError, InterfaceError) as error:
        raise CommandError(f"The database cannot be reached: {str(error).strip().splitlines()[0]}") from None


def _line(error: JobsError) -> str:
    faults = error.faults if isinstance(error, Invalid) else []
    if len(faults) > 1 or (faults and faults[0]["message"] == error.message):
        return "; ".join(f"{fault['field'] or 'input'}: {fault['message']}" for fault in faults)
    return error.message
