"""What a site says in `JOBS = {...}`, with defaults, read once, and the registry of its definitions.

Unknown keys are refused with the nearest known one (the system check words it); nothing else reads the setting.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from jobs.callbacks import Policy, events_of
from jobs.definition import MAX_SPAN_S, Span
from jobs.errors import Invalid
from jobs.leases import heartbeat_s
from jobs.registry import Definition, Registry, load
from jobs.retry import MAX_ATTEMPTS, RetryPolicy
from jobs.routing import SYSTEM, UNROUTED, Rule

MAX_SLOTS = 1_000
LEAST_TOKEN = 16


@dataclass(frozen=True)
class Conf:
    """The settings of a site. Spans are seconds; queue weights are relative shares of a worker's claims.

    `PLATFORM_LIMITS` says by their names the most that may be set of limits; its ceilings, retry budget and caps of
    requests hold too where nobody has set one (C36, C37). `RETENTION_S` None keeps ended jobs for ever, `RETRY` None
    never retries. `CANCELED_WITH_ONE_L` is the spelling of the agents' endpoints alone (E1). `KEY_REQUESTS_PER_S`
    None lets keys ask as often as they like. `API_MIDDLEWARE` stands around the API under ASGI in place of
    MIDDLEWARE (`jobs.api.straight`).
    """

    DEFINITIONS: tuple[str, ...] = ()
    QUEUES: dict[str, int] = field(default_factory=lambda: {"chat": 4, "collect": 2, "steer": 4, "follow_up": 2})
    RETRY: RetryPolicy | None = field(default_factory=RetryPolicy)
    LEASE_S: float = 30.0
    TIMEOUT_S: float = 3600.0
    RECOVERY_GRACE_S: float = 5.0
    ROUTING: tuple[Rule, ...] = ()
    ROUTING_ACKNOWLEDGED: tuple[str, ...] = ()
    AGENTS: tuple[str, ...] = ()
    UNKNOWN_AGENT_GROUP: str = UNROUTED
    WORKSPACE: str = "default"
    POLL_S: float = 1.0
    DRAIN_GRACE_S: float = 10.0
    SLOTS: int = 2
    LISTEN_DSN: str | None = None
    MAX_DEADLINE_S: int = 7 * 86_400
    MIN_BASE_DELAY_S: float = 1.0
    MAX_ATTEMPTS: int = MAX_ATTEMPTS
    PLATFORM_LIMITS: dict[str, Any] = field(default_factory=dict)
    RETRY_WINDOW_S: int = 3600
    FAILPOINTS: str = ""
    MIDDLEWARE: tuple[str, ...] = ()
    PUBLISH_S: float = 10.0
    CREDENTIAL_RESOLVER: str | None = None
    OWNER_CONCURRENCY: int = 1
    RETENTION_S: float | None = 30 * 86_400.0
    CHILD_MAX_JOBS: int = 1_000
    CHILD_MAX_AGE_S: float = 3_600.0
    CHILD_MAX_MEMORY_MB: int = 512
    METRICS_TOKEN: str | None = None
    LIVE_PING_S: float = 20.0
    LIVE_CHECK_S: float = 30.0
    LIVE_PER_HOLDER: int = 20
    LIVE_MOST: int = 2_000
    WAITS_PER_KEY: int = 100
    ASSIGNMENTS_PER_KEY: int = 1_000
    TIMERS_PER_TENANT: int = 1_000
    TIMERS: dict[str, Any] = field(default_factory=dict)
    BLOCKS_DELETION: tuple[str, ...] = ()
    CANCELED_WITH_ONE_L: bool = False
    KEY_REQUESTS_PER_S: int | None = None
    BATCH_MAX_BYTES: int = 8 * 1024 * 1024
    API_MIDDLEWARE: tuple[str, ...] = (
        "jobs.requests.identified", "django.middleware.security.SecurityMiddleware")
    CALLBACKS: bool = False
    CALLBACK: dict[str, Any] | None = None
    CALLBACK_ALLOW: tuple[str, ...] = ()
    CALLBACK_HTTP: bool = False

    @property
    def callbacks(self) -> bool:
        """Whether this site sends any."""
        return self.CALLBACKS or self.CALLBACK is not None


# Numbers, and what they may be: seconds unless said otherwise.
_NUMBERS: dict[str, tuple[float, float]] = {
    "LEASE_S": (1, 86_400), "TIMEOUT_S": (0.001, MAX_SPAN_S), "RECOVERY_GRACE_S": (0, 86_400), "POLL_S": (0.01, 60),
    "DRAIN_GRACE_S": (0, 86_400), "MIN_BASE_DELAY_S": (0, 86_400), "PUBLISH_S": (0.1, 3_600),
    "CHILD_MAX_AGE_S": (1, MAX_SPAN_S), "LIVE_PING_S": (0.1, 300), "LIVE_CHECK_S": (0.1, 60),
}
_WHOLE: dict[str, tuple[int, int]] = {
    "SLOTS": (1, MAX_SLOTS), "MAX_DEADLINE_S": (1, int(MAX_SPAN_S)), "CHILD_MAX_JOBS": (1, 10**9),
    "MAX_ATTEMPTS": (1, MAX_ATTEMPTS), "RETRY_WINDOW_S": (1, 366 * 86_400),
    "OWNER_CONCURRENCY": (1, 10**6),
    "CHILD_MAX_MEMORY_MB": (1, 10**7), "LIVE_PER_HOLDER": (1, 10**6), "LIVE_MOST": (1, 10**6),
    "WAITS_PER_KEY": (1, 10**6), "ASSIGNMENTS_PER_KEY": (1, 10**6), "TIMERS_PER_TENANT": (1, 10**6),
    "BATCH_MAX_BYTES": (1, 2**30)}
# As of a definition.
_RETENTION = (60, 1e10)
_LISTS = ("DEFINITIONS", "ROUTING", "ROUTING_ACKNOWLEDGED", "AGENTS", "MIDDLEWARE", "BLOCKS_DELETION", "CALLBACK_ALLOW",
          "API_MIDDLEWARE")


def value_faults(given: dict[str, Any]) -> list[str]:
    """A sentence for every setting of `JOBS` that has a wrong type or lies outside of what works (B22)."""
    faults = [f"JOBS[{name!r}] is {given[name]!r}, and must be a number from {low:g} to {high:g}."
              for name, (low, high) in _NUMBERS.items() if name in given and not _is_number(given[name], low, high)]
    faults += [f"JOBS[{name!r}] is {given[name]!r}, and must be a whole number from {low} to {high}."
               for name, (low, high) in _WHOLE.items()
               if name in given and not (isinstance(given[name], int) and _is_number(given[name], low, high))]
    faults += [f"JOBS[{name!r}] is {given[name]!r}, and must be a list." for name in _LISTS
               if name in given and not isinstance(given[name], (list, tuple, set, frozenset))]
    kept = given.get("RETENTION_S")
    if kept is not None and not _is_number(kept, *_RETENTION):
        faults.append(f"JOBS['RETENTION_S'] is {kept!r}, and must be a number from 60 to 1e+10, or None: for ever.")
    rate = given.get("KEY_REQUESTS_PER_S")
    if rate is not None and not (isinstance(rate, int) and _is_number(rate, 1, 10**6)):
        faults.append(f"JOBS['KEY_REQUESTS_PER_S'] is {rate!r}, and must be a whole number from 1 to 1000000, or None.")
    spelling = given.get("CANCELED_WITH_ONE_L", False)
    if not isinstance(spelling, bool):
        faults.append(f"JOBS['CANCELED_WITH_ONE_L'] is {spelling!r}, and must be True or False.")
    faults += _callback_faults(given)
    token = given.get("METRICS_TOKEN")
    if token is not None and not (isinstance(token, str) and len(token) >= LEAST_TOKEN and token.isascii()):
        faults.append(f"JOBS['METRICS_TOKEN'] must be text of at least {LEAST_TOKEN} ASCII characters, or None.")
    routing = given.get("ROUTING", ())
    rules = [rule.worker_group if isinstance(rule, Rule) else rule.get("worker_group")
             for rule in (routing if isinstance(routing, (list, tuple, set, frozenset)) else ())
             if isinstance(rule, (Rule, dict))]
    if SYSTEM in [*rules, given.get("UNKNOWN_AGENT_GROUP")]:
        faults.append(f"The worker group {SYSTEM!r} is reserved for the house's own jobs: route to another.")
    faults += _platform_faults(given.get("PLATFORM_LIMITS", {}))
    timers = given.get("TIMERS", {})
    if not (isinstance(timers, dict) and all(isinstance(said, dict) for said in timers.values())):
        faults.append("JOBS['TIMERS'] must give each timer's name what it says: a type, and cron or every_s.")
    queues = given.get("QUEUES", {"": 1})
    if not (isinstance(queues, dict) and queues and all(
            isinstance(name, str) and isinstance(weight, int) and _is_number(weight, 1, 1_000)
            for name, weight in queues.items())):
        faults.append(f"JOBS['QUEUES'] is {queues!r}, and must give each queue's name a whole weight from 1 to 1000.")
    return faults


def _callback_faults(given: dict[str, Any]) -> list[str]:
    faults = [f"JOBS[{name!r}] is {given[name]!r}, and must be True or False."
              for name in ("CALLBACKS", "CALLBACK_HTTP") if not isinstance(given.get(name, False), bool)]
    if faults or not isinstance(given.get("CALLBACK_ALLOW", ()), (list, tuple, set, frozenset)):
        return faults
    try:
        policy = Policy(tuple(map(str, given.get("CALLBACK_ALLOW", ()))), given.get("CALLBACK_HTTP", False))
        policy.check()
    except Invalid as error:
        return [f"JOBS['CALLBACK_ALLOW']: {error.message}"]
    return [*faults, *_site_faults(given.get("CALLBACK"), policy)]


def _site_faults(said: Any, policy: Policy) -> list[str]:
    """Never with the token in it."""
    if said is None:
        return []
    if not isinstance(said, dict) or "url" not in said or said.keys() - {"url", "token", "events"}:
        return ["JOBS['CALLBACK'] must be None, or have a url and, if wanted, a token and events."]
    token = said.get("token")
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and token.strip()):
        return ["JOBS['CALLBACK']['token'] must be printable ASCII, or None."]
    try:
        policy.target(said["url"], "url")
        if said.get("events") is not None:
            events_of(said["events"], "events")
    except Invalid as error:
        return [f"JOBS['CALLBACK'][{error.field!r}] {error.message}."]
    return []


# The limits that a platform may bound (C37); the words of `services.limits`.
PLATFORM_NAMES = frozenset({
    "tenant_concurrency", "exclusive_group_max", "tenant_ceiling", "workspace_ceiling", "max_attempts_cap",
    "retry_budget", "retry_budget_window_s", "claim_max_wait_s", "release_max_delay_s", "max_cost_usd_cap"})


def _platform_faults(said: Any) -> list[str]:
    if not isinstance(said, dict):
        return [f"JOBS['PLATFORM_LIMITS'] is {said!r}, and must give limits by their names."]
    faults = []
    for name, value in said.items():
        if name not in PLATFORM_NAMES:
            near = difflib.get_close_matches(str(name), PLATFORM_NAMES, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(PLATFORM_NAMES))}."
            faults.append(f"JOBS['PLATFORM_LIMITS'] names {name!r}, and there is no such limit: {hint}")
        elif not (type(value) is int or (isinstance(value, Decimal) and name == "max_cost_usd_cap")) or value < 0:
            faults.append(f"JOBS['PLATFORM_LIMITS'][{name!r}] is {value!r}, and must be a whole number, or of "
                          "max_cost_usd_cap a Decimal.")
    return faults


def _is_number(value: Any, low: float, high: float) -> bool:
    # A bool is an int to Python, and True seconds are a mistake.
    return (isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            and low <= value <= high)


def lease_faults(site: Conf, known: Iterable[Definition] = ()) -> list[str]:
    """Why leases could run out on a worker that is well, with the numbers (B22, E8)."""
    beat, drain = heartbeat_s(site.LEASE_S), heartbeat_s(site.LEASE_S) + site.DRAIN_GRACE_S
    faults = []
    if 2 * beat >= site.LEASE_S:
        faults.append(f"A lease of {site.LEASE_S:g} s leaves no room for two heartbeats, {beat:g} s apart: "
                      "JOBS['LEASE_S'] must be more than 2.")
    elif drain >= site.LEASE_S:
        faults.append(f"A drain of {site.DRAIN_GRACE_S:g} s and a heartbeat of {beat:g} s are not under the lease of "
                      f"{site.LEASE_S:g} s: set JOBS['DRAIN_GRACE_S'] below {site.LEASE_S - beat:g}, or a longer "
                      "JOBS['LEASE_S'].")
    for definition in known:
        lease = definition.lease_s.cap_s if isinstance(definition.lease_s, Span) else definition.lease_s
        if lease is not None and 2 * heartbeat_s(lease) >= lease:
            faults.append(f"{definition.name} has a lease of {lease:g} s, which leaves no room for two heartbeats, "
                          f"{heartbeat_s(lease):g} s apart: its lease_s must be more than 2.")
    return faults


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
    if faults := unknown_keys(given) or value_faults(given):
        raise ImproperlyConfigured(" ".join(faults))
    if "RETRY" in given:
        given["RETRY"] = _retry(given["RETRY"])
    if "ROUTING" in given:
        given["ROUTING"] = tuple(Rule(**r) if isinstance(r, dict) else r for r in given["ROUTING"])
    return Conf(**given)


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The definitions that this site registers, loaded from the modules that `DEFINITIONS` names (B1, B11).

    Where one of them wants to be told of ends, the job that tells is among them (B34); where the site sends callbacks,
    the one that sends them (E11).
    """
    found = load(conf().DEFINITIONS)
    if found.told:
        # By name: its handler stands layers above.
        telling = importlib.import_module("jobs.services.reconciling")
        found.add(telling.definition(list(conf().QUEUES), [d for d in found if d.on_ended]))
    if conf().callbacks:
        found.add(importlib.import_module("jobs.services.callbacks").definition(list(conf().QUEUES)))
    return found


Middleware = Callable[[Any], AbstractContextManager[Any]]


@lru_cache(maxsize=1)
def middleware() -> tuple[Middleware, ...]:
    """What `MIDDLEWARE` names, in order. Raises ImproperlyConfigured for what is not there or cannot be called."""
    return tuple(_named("MIDDLEWARE", path) for path in conf().MIDDLEWARE)


@lru_cache(maxsize=1)
def api_middleware() -> tuple[Any, ...]:
    """What `API_MIDDLEWARE` names, the outermost first. Raises ImproperlyConfigured as `middleware` does."""
    return tuple(_named("API_MIDDLEWARE", path) for path in conf().API_MIDDLEWARE)


Blocker = Callable[[Any], Iterable[str]]


@lru_cache(maxsize=1)
def blockers() -> tuple[Blocker, ...]:
    """What `BLOCKS_DELETION` names: each takes a tenant and says why it cannot be deleted, if so (B38).

    Raises ImproperlyConfigured as `middleware` does.
    """
    return tuple(_named("BLOCKS_DELETION", path) for path in conf().BLOCKS_DELETION)


def _named(setting: str, path: Any) -> Any:
    try:
        found = import_string(path)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"JOBS[{setting!r}] names {path!r}, which cannot be imported: {error}") from error
    if not callable(found):
        raise ImproperlyConfigured(f"JOBS[{setting!r}] names {path!r}, which cannot be called.")
    return found


@lru_cache(maxsize=1)
def callback_policy() -> Policy:
    """Where callbacks of this site may go (E11)."""
    return Policy(tuple(map(str, conf().CALLBACK_ALLOW)), conf().CALLBACK_HTTP)


Resolver = Callable[..., Any]


@lru_cache(maxsize=1)
def credential_resolver() -> Resolver | None:
    """What `CREDENTIAL_RESOLVER` names: `resolve(reference, *, tenant, job_id)` answers an owner's secret (E10).

    None where there is none. Raises ImproperlyConfigured for what is not there or cannot be called.
    """
    path = conf().CREDENTIAL_RESOLVER
    return None if path is None else _named("CREDENTIAL_RESOLVER", path)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "JOBS":
        conf.cache_clear()
        registry.cache_clear()
        middleware.cache_clear()
        api_middleware.cache_clear()
        blockers.cache_clear()
        credential_resolver.cache_clear()
        callback_policy.cache_clear()


setting_changed.connect(_forget)
