"""What a site says in `JOBS = {...}`, with defaults, read once, and the registry of its definitions.

Unknown keys are refused with the nearest known one (the system check words it); nothing else reads the setting.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from jobs.registry import Registry, load
from jobs.retry import RetryPolicy
from jobs.routing import UNROUTED, Rule


@dataclass(frozen=True)
class Conf:
    """The settings of a site. Spans are seconds; queue weights are relative shares of a worker's claims.

    `RETENTION_S` None keeps ended jobs for ever, `RETRY` None never retries.
    """

    DEFINITIONS: tuple[str, ...] = ()
    QUEUES: dict[str, int] = field(default_factory=lambda: {"chat": 4, "collect": 2, "steer": 4, "follow_up": 2})
    RETRY: RetryPolicy | None = field(default_factory=RetryPolicy)
    LEASE_S: float = 30.0
    TIMEOUT_S: float = 3600.0
    RECOVERY_GRACE_S: float = 5.0
    ROUTING: tuple[Rule, ...] = ()
    AGENTS: tuple[str, ...] = ()
    UNKNOWN_AGENT_GROUP: str = UNROUTED
    WORKSPACE: str = "default"
    POLL_S: float = 1.0
    DRAIN_GRACE_S: float = 10.0
    SLOTS: int = 2
    LISTEN_DSN: str | None = None
    MAX_DEADLINE_S: int = 7 * 86_400
    MIN_BASE_DELAY_S: float = 1.0
    FAILPOINTS: str = ""
    MIDDLEWARE: tuple[str, ...] = ()
    PUBLISH_S: float = 10.0
    RETENTION_S: float | None = 30 * 86_400.0
    CHILD_MAX_JOBS: int = 1_000
    CHILD_MAX_AGE_S: float = 3_600.0
    CHILD_MAX_MEMORY_MB: int = 512


def unknown_keys(given: dict[str, Any]) -> list[str]:
    """A sentence for every key of `JOBS` that means nothing, with the nearest one that does."""
    known = [f.name for f in fields(Conf)]
    faults = []
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            faults.append(f"JOBS[{key!r}] is not a setting" + (f"; did you mean {near[0]!r}?" if near else "."))
    return faults


def _retry(value: Any) -> RetryPolicy | None:
    return RetryPolicy(**value) if isinstance(value, dict) else value


@lru_cache(maxsize=1)
def conf() -> Conf:
    """The settings of this site."""
    given = dict(getattr(settings, "JOBS", {}))
    if faults := unknown_keys(given):
        raise ImproperlyConfigured(" ".join(faults))
    if "RETRY" in given:
        given["RETRY"] = _retry(given["RETRY"])
    if "ROUTING" in given:
        given["ROUTING"] = tuple(Rule(**r) if isinstance(r, dict) else r for r in given["ROUTING"])
    return Conf(**given)


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The definitions that this site registers, loaded from the modules that `DEFINITIONS` names (B1, B11).

    Where one of them wants to be told of ends, the job that tells is among them (B34).
    """
    found = load(conf().DEFINITIONS)
    if found.told:
        # By name: its handler stands layers above.
        found.add(importlib.import_module("jobs.services.reconciling").definition(list(conf().QUEUES)))
    return found


Middleware = Callable[[Any], AbstractContextManager[Any]]


@lru_cache(maxsize=1)
def middleware() -> tuple[Middleware, ...]:
    """What `MIDDLEWARE` names, in order. Raises ImproperlyConfigured for what is not there or cannot be called."""
    return tuple(_middleware(path) for path in conf().MIDDLEWARE)


def _middleware(path: Any) -> Middleware:
    try:
        found = import_string(path)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"JOBS['MIDDLEWARE'] names {path!r}, which cannot be imported: {error}") from error
    if not callable(found):
        raise ImproperlyConfigured(f"JOBS['MIDDLEWARE'] names {path!r}, which cannot be called.")
    return found  # type: ignore[no-any-return]


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "JOBS":
        conf.cache_clear()
        registry.cache_clear()
        middleware.cache_clear()


setting_changed.connect(_forget)
