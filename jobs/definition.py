"""What a job is allowed to be: definitions `type@version` and their validation (B1, B5, B6).

Rows name a definition and never hold code. How one is declared is `declaration`'s, which of them a site knows
`registry`'s; what retries mean is `jobs.retry`'s.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from jobs import leases
from jobs.callbacks import DELIVERY_TYPE, EVENTS, TERMINAL_EVENTS
from jobs.codecs import MAX_INTEGER, MAX_PAYLOAD_BYTES, printable
from jobs.errors import Invalid
from jobs.leases import DEFAULT_LEASE_S
from jobs.retry import MAX_ATTEMPTS, RetryPolicy
from jobs.routing import SYSTEM, UNROUTED
from jobs.schemas import Codec, Fault, Fields
from jobs.signatures import signature
from jobs.states import State

Input = dict[str, Any]
Executor = Literal["thread", "async", "isolated", "external"]

ORIGINS: Final = frozenset({"user", "planner", "scheduler"})
MAX_SPAN_S: Final = 2_000_000.0
MAX_STAGES: Final = 32
MIN_RETENTION_S: Final = 60
# The job that tells of the ends of others.
ENDED_TYPE: Final = "job-ended"
HOUSE_TYPES: Final = frozenset({ENDED_TYPE, DELIVERY_TYPE})
DEFAULT_TIMEOUT_S: Final = 3_600.0
_TYPE: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_SUBJECT_LENGTH: Final = 200


class Site(Enum):
    """What a definition leaves to the site, as opposed to None, which says never or none."""

    SITE = "site"


SITE: Final = Site.SITE


@dataclass(frozen=True, slots=True)
class Span:
    """A span that depends on the input: `of(input)` seconds, never above `cap_s` (E8, A43).

    With `by_agent` it depends on whom the job is for as well: `of(input, agent)`, where None is nobody (A41, A42).
    """

    of: Callable[..., float]
    cap_s: float
    by_agent: bool = False


# A44's and A46's rules for what a definition does not measure itself: from its lease (`leases`).
ByLease = Literal["lease"]


class Spans(NamedTuple):
    """The spans of one job in seconds; no `max_duration_s` means that only the timeout bounds it."""

    lease_s: float
    timeout_s: float
    max_duration_s: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """What an `on_ended` is told: this chain of this job reached this terminal state (B34).

    `input` is typed as the handler's, None where it cannot be read any more; `artifact` is there for completed jobs.
    `tenant` is the tenant's subject, None for a job without one.
    """

    job_id: str
    type: str
    version: int
    state: State
    reason: str | None
    chain: int
    input: Any
    artifact: Any
    tenant: str | None


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the nearest known one, if any is near."""
    near = difflib.get_close_matches(str(word)[:64], list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else "."


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """The code-owned contract of one `type@version` (B5). Spans are seconds, sizes bytes of UTF-8.

    Raises Invalid invalid_definition with every fault at once (B6). Where SITE or None stands for a span, the site's
    default holds; `timeout_s="lease"` is the lease less a second (A44), `max_duration_s="lease"` the lease and a minute
    (A46); `retry=None` means never retried, `retention=None` kept for ever; a request may ask for at most
    `max_attempts_cap` attempts (C13). `publish(job, artifact, commit)`
    is the freshness gate (B33), `subject(input)` the short text that lists show (B40), `on_ended(ended)` is told of
    each end at least once (B34). `credential="owner"` runs under the tenant's owner, whose secret a runner over HTTP is
    given only with `share_credential` (E10). `atomic`: what the handler writes commits together with its completion or
    not at all.
    """

    type: str
    handler: Callable[..., Any] | None
    input: Codec[Any]
    artifact: Codec[Any]
    _: KW_ONLY
    version: int = 1
    label: str = None  # type: ignore[assignment]  # from the type
    description: str = None  # type: ignore[assignment]  # from the handler's docstring
    isolated: bool = True
    origins: frozenset[str] = ORIGINS
    credential: Literal["none", "owner"] = "none"
    share_credential: bool = False
    worker_group: str = "default"
    queue: str = "collect"
    priority: int = 0
    max_input_bytes: int = 65_536
    max_artifact_bytes: int = 262_144
    max_ai_credits: int = 1
    stages: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy | Site | None = SITE
    lapse_counts: bool = True
    max_lapses: int = 10
    max_claims: int | None = None
    max_attempts_cap: int | None = None
    dead_letter: bool | None = None
    lease_s: float | Span | None = None
    timeout_s: float | Span | ByLease | None = None
    max_duration_s: float | Span | ByLease | None = None
    duration_scope: Literal["attempt", "chain"] = "attempt"
    strict_lease: bool = False
    enabled: bool = True
    runs: bool = True
    publish: Callable[..., Any] | None = None
    subject: Callable[[Input], str | None] | None = None
    on_ended: Callable[[Ended], Any] | None = None
    retention: float | Site | None = SITE
    atomic: bool = False
    logs: bool = True
    callback_events: Collection[str] = TERMINAL_EVENTS
    name: str = field(init=False)
    executor: Executor = field(init=False)
    reads_input: bool = field(init=False)

    def __post_init__(self) -> None:
        if faults := list(_faults(self)):
            raise invalid(f"The definition {self.type!r} is not valid", faults)
        for name, value in _derived(self).items():
            object.__setattr__(self, name, value)

    def spans(self, given: Input, *, agent: str | None = None, lease_s: float = DEFAULT_LEASE_S,
              timeout_s: float = DEFAULT_TIMEOUT_S) -> Spans:
        """The spans of a job with this input, valid and in normal form; the last two are the site's defaults (E8).

        Raises Invalid invalid_span if a function of the definition answers no positive number.
        """
        lease = _seconds("lease_s", self.lease_s, given, agent) or lease_s
        timeout = _seconds("timeout_s", self.timeout_s, given, agent, leases.timeout_s(lease))
        longest = _seconds("max_duration_s", self.max_duration_s, given, agent, leases.duration_s(lease))
        return Spans(lease, timeout or timeout_s, longest)

    def subject_of(self, given: Input) -> str | None:
        """What lists show of a job, at most 200 code points (B40). Raises Invalid invalid_subject if it is no text."""
        said = self.subject(given) if self.subject else None
        if said is not None and not isinstance(said, str):
            raise Invalid(f"The subject of {self.name} is no text.", field="subject", code="invalid_subject")
        return printable(said, _SUBJECT_LENGTH) if said else None


def _seconds(name: str, span: float | Span | ByLease | None, given: Input, agent: str | None,
             by_lease: float = 0.0) -> float | None:
    if span == "lease":
        return by_lease
    if not isinstance(span, Span):
        return span
    seconds = span.of(given, agent) if span.by_agent else span.of(given)
    if not _is_span(seconds, math.inf):
        raise Invalid(f"The definition's {name} is no positive number for this input.", field=name, code="invalid_span")
    return min(seconds, span.cap_s)


def _derived(definition: Definition) -> dict[str, Any]:
    """The fields that a definition states by leaving them out, and the forms that cannot be changed."""
    d = definition
    label = d.label or d.type.replace("-", " ").replace("_", " ").replace(".", " ").capitalize()
    doc = (inspect.getdoc(d.handler) or "") if d.handler else ""
    reads = (d.lease_s, d.timeout_s, d.max_duration_s)
    fitted = d.input.fitted("input", d.max_input_bytes)
    result = d.artifact.fitted("artifact", d.max_artifact_bytes)
    return {
        "name": f"{d.type}@{d.version}",
        "label": label,
        "description": d.description or next((line.strip() for line in doc.splitlines() if line.strip()), label),
        "executor": _executor(d),
        "origins": frozenset(d.origins),
        "stages": MappingProxyType(dict(d.stages)),
        "input": fitted,
        "artifact": result,
        "max_input_bytes": fitted.max_bytes,
        "max_artifact_bytes": result.max_bytes,
        "reads_input": d.subject is not None or any(isinstance(span, Span) for span in reads),
    }


def _executor(definition: Definition) -> Executor:
    if definition.handler is None:
        return "external"
    if definition.isolated:
        return "isolated"
    return "async" if inspect.iscoroutinefunction(definition.handler) else "thread"


# --- validation --------------------------------------------------------------------------------------------------


def invalid(what: str, faults: list[Fault]) -> Invalid:
    """The refusal that names every fault of a definition (B6)."""
    said = "; ".join(f"{fault['field']}: {fault['message']}" for fault in faults)
    return Invalid(f"{what}: {said}", field=faults[0]["field"], code="invalid_definition", faults=faults)


def _is_count(value: object, most: int = MAX_INTEGER) -> bool:
    return type(value) is int and 1 <= value <= most


def _is_span(value: object, most: float = MAX_SPAN_S) -> bool:
    return type(value) in (int, float) and 0 < value <= most and math.isfinite(value)  # type: ignore[operator, arg-type]


def _matches(pattern: re.Pattern[str], value: object, length: int = 64) -> bool:
    return isinstance(value, str) and len(value) <= length and pattern.fullmatch(value) is not None


def _is_line(value: object, length: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= length and printable(value, length) == value


def _faults(d: Definition) -> Iterator[Fault]:
    """Every fault of a definition (B6, E2)."""
    for checks in (_identity, _limits, _choices, _lengths, _handler):
        for name, fine, message in checks(d):
            if not fine:
                yield {"field": name, "message": message}


Check = tuple[str, bool, str]


def _identity(d: Definition) -> Iterator[Check]:
    yield "type", _matches(_TYPE, d.type), "must be at most 64 of a-z 0-9 in words joined by one of . _ -"
    yield "version", _is_count(d.version, 2**31 - 1), "must be a whole number from 1"
    yield "label", d.label is None or _is_line(d.label, 160), "must be one line of 1 to 160 characters"
    told = d.description is None or (isinstance(d.description, str) and bool(d.description.strip()))
    yield "description", told and len(d.description or "") <= 4_000, "must be 1 to 4000 characters, not blank"
    yield "worker_group", _matches(_NAME, d.worker_group), "must be a name of at most 64 of a-z 0-9 _ -"
    yield "worker_group", d.worker_group != UNROUTED, f"{UNROUTED!r} is reserved for jobs of unknown agents"
    house = "is reserved for the house's own jobs"
    yield "worker_group", d.worker_group != SYSTEM or d.type in HOUSE_TYPES, f"{SYSTEM!r} {house}"
    yield "type", d.type not in HOUSE_TYPES or d.worker_group == SYSTEM, f"{d.type!r} {house}"
    yield "queue", _matches(_NAME, d.queue), "must be a name of at most 64 of a-z 0-9 _ -"


def _limits(d: Definition) -> Iterator[Check]:
    for name in ("max_input_bytes", "max_artifact_bytes"):
        yield name, _is_count(getattr(d, name), MAX_PAYLOAD_BYTES), f"must be a whole number up to {MAX_PAYLOAD_BYTES}"
    yield "max_ai_credits", _is_count(d.max_ai_credits), "must be a whole number from 1"
    yield "max_lapses", _is_count(d.max_lapses, 1_000), "must be a whole number from 1 to 1000"
    yield ("max_attempts_cap", d.max_attempts_cap is None or _is_count(d.max_attempts_cap, MAX_ATTEMPTS),
           f"must be None or from 1 to {MAX_ATTEMPTS}")
    yield "max_claims", d.max_claims is None or _is_count(d.max_claims, 10_000), "must be None or from 1 to 10000"
    yield "priority", type(d.priority) is int and -100 <= d.priority <= 100, "must be a whole number from -100 to 100"


def _choices(d: Definition) -> Iterator[Check]:
    known = isinstance(d.origins, Collection) and not isinstance(d.origins, str) and len(d.origins) > 0
    known = known and all(isinstance(origin, str) and origin in ORIGINS for origin in d.origins)
    yield "origins", known, "must be some of user, planner, scheduler"
    yield "credential", d.credential in ("none", "owner"), "must be 'none' or 'owner'"
    shared = d.share_credential is not True
    yield "share_credential", shared or d.credential == "owner", "there is none to share: credential must be 'owner'"
    yield "share_credential", shared or d.handler is None, "only a runner over HTTP is given it: leave it out"
    yield "duration_scope", d.duration_scope in ("attempt", "chain"), "must be 'attempt' or 'chain'"
    yield "retry", d.retry is None or isinstance(d.retry, (RetryPolicy, Site)), "must be a RetryPolicy, None or SITE"
    yield "dead_letter", d.dead_letter is None or isinstance(d.dead_letter, bool), "must be True, False or None"
    for name in ("isolated", "share_credential", "lapse_counts", "strict_lease", "enabled", "runs", "atomic", "logs"):
        yield name, isinstance(getattr(d, name), bool), "must be True or False"
    heard = d.callback_events
    known = isinstance(heard, Collection) and not isinstance(heard, str) and len(heard) > 0
    yield "callback_events", known and all(event in EVENTS for event in heard), f"must be some of {', '.join(EVENTS)}"
    stages = d.stages if isinstance(d.stages, Mapping) else {"": ""}
    yield "stages", len(stages) <= MAX_STAGES, f"must be at most {MAX_STAGES}, or none"
    for key, label in stages.items():
        fine = _matches(_NAME, key) and _is_line(label, 160)
        yield "stages", fine, f"{key!r} must be a lowercase name with a label of 1 to 160 characters"


def _lengths(d: Definition) -> Iterator[Check]:
    for name in ("lease_s", "timeout_s", "max_duration_s"):
        span = getattr(d, name)
        capped = isinstance(span, Span) and callable(span.of) and _is_span(span.cap_s)
        rule = name != "lease_s" and span == "lease"
        yield name, span is None or capped or rule or _is_span(span), (
            f"must be seconds above 0 up to {MAX_SPAN_S:.0f}, or Span(function of the input, cap_s)"
            + ("" if name == "lease_s" else ", or 'lease'"))
    kept = d.retention is None or isinstance(d.retention, Site) or _is_span(d.retention, 1e10)
    long = not isinstance(d.retention, (int, float)) or d.retention >= MIN_RETENTION_S
    yield "retention", kept and long, f"must be seconds from {MIN_RETENTION_S} on, None (for ever) or SITE"


def _handler(d: Definition) -> Iterator[Check]:
    yield "input", isinstance(d.input, Codec) and d.input.is_object, "must be a codec of JSON objects"
    yield "artifact", isinstance(d.artifact, Codec), "must be a codec"
    for name in ("publish", "subject", "on_ended"):
        yield name, getattr(d, name) is None or callable(getattr(d, name)), "must be a function or None"
    on_loop = inspect.iscoroutinefunction(d.handler)
    yield "atomic", d.atomic is not True or not on_loop, "a transaction needs one thread: write a plain def"
    if d.handler is None:
        yield "atomic", d.atomic is not True, "there is no handler whose writes could settle with the job"
        return
    yield "handler", callable(d.handler), "must be a function, or None for external jobs"
    taken = not callable(d.handler) or not isinstance(d.input, Codec) or _takes(d.handler, d.input)
    yield "input", taken, "the handler cannot be called with the run and this input"
    several = inspect.isgeneratorfunction(d.handler) or inspect.isasyncgenfunction(d.handler)
    yield "handler", not several, "must return its artifact, not yield"


def _takes(handler: Callable[..., Any], given: Codec[Any]) -> bool:
    args, names = ((None,), given.names) if isinstance(given, Fields) else ((None, None), ())
    try:
        signature(handler).bind(*args, **dict.fromkeys(names))
    except (TypeError, ValueError):
        return False
    return True
