"""A durable job queue for Django on PostgreSQL. `from jobs import job, enqueue` is all that a project needs."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "job": "jobs.registry",
    "Definition": "jobs.registry",
    "Ended": "jobs.registry",
    "JobError": "jobs.errors",
    "RetryPolicy": "jobs.retry",
    "enqueue": "jobs.services.intake",
    "aenqueue": "jobs.services.intake",
    "Options": "jobs.services.intake",
}
__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    # Lazily: importing this package must not touch models before Django is ready.
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'jobs' has no attribute {name!r}")
