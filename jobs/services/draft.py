"""What a request is, and the row it becomes: every option said, or the refusal that names it (REQUIREMENTS E3.3).

Asks the registry and the site's settings; knows no other rows. Who writes it, and in which order, is `intake`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from jobs import clock, codecs
from jobs.conf import conf, registry
from jobs.errors import Invalid, Refused
from jobs.ids import uuid7
from jobs.receipts import body_text
from jobs.registry import SITE, Definition
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM, route
from jobs.services import continuing, tenancy, words
from jobs.services.words import Place
from jobs.states import SingletonMode

MS = 1_000


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say beside type and input. Spans in seconds, `priority` -100 to 100 (higher first).

    `job_id` and `idempotency_key` make a repeat harmless; `target` supersedes older jobs of the same thing;
    `exclusive_group` runs at most N at once where the site sets a limit; `retry=None` means never. `max_cost_usd` is
    the most that it may cost over all its attempts, by what its holders report (C12). `singleton` says what becomes of
    active jobs of the same `session_key`: `allow`, `cancel` or `steer`, or `{"key", "mode"}` (A14). `callback_url` is
    told of `callback_events`, out of dispatched, completed, failed and cancelled (E11).
    """

    queue: str | None = None
    priority: int | None = None
    agent: str | None = None
    version: int | None = None
    job_id: str | None = None
    idempotency_key: str | None = None
    session_key: str | None = None
    singleton: Any = None
    exclusive_group: str | None = None
    target: str | None = None
    delay_s: float | None = None
    available_at: datetime | None = None
    deadline_s: float | None = None
    deadline_at: datetime | None = None
    retry: Any = SITE
    max_cost_usd: Any = None
    callback_url: str | None = None
    callback_events: Any = None
    workspace: str | None = None
    tenant: str | None = None


@dataclass(slots=True)
class Request:
    """One thing to enqueue. `sent` is the request as the caller wrote it, for the fingerprint (E6).

    `clamps`: a retry policy beyond a cap of its tenant is cut to it instead of refused (A19).
    """

    type: str
    input: Any = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    sent: dict[str, Any] | None = None
    clamps: bool = False


@dataclass(frozen=True, slots=True)
class Door:
    """Through which door requests come: it stamps the origin, which a request never names (B13)."""

    endpoint: str = "python"
    origin: str = "user"
    by: str = "python"


def as_sent(request: Request) -> dict[str, Any]:
    """A request in process as its caller wrote it: what was left out does not stand in it (E6)."""
    said: dict[str, Any] = {"type": request.type, "input": request.input}
    for f in fields(Options):
        value = getattr(request.options, f.name)
        if (value is None and f.name != "retry") or value is SITE or f.name in ("workspace", "tenant"):
            continue
        said[f.name] = _plain(value)
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return clock.jsonable(value)
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(value, key=str)
    if isinstance(value, SingletonMode):
        return value.value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, RetryPolicy):
        said = {"max_attempts": value.max_attempts, "base_delay_s": value.base_delay_s,
                "max_delay_s": value.max_delay_s, "retry_on": None if value.retry_on is None else list(value.retry_on)}
        ends = {"deadline_s": value.deadline_s, "deadline_at": clock.jsonable(value.deadline_at)}
        return said | {name: end for name, end in ends.items() if end is not None}
    return value


def normal_hash(request: Request, door: Door, text: str) -> bytes:
    """The second hash of a request in process: as its caller wrote it, but with the input in normal form (B15, E6)."""
    said = {**as_sent(request), "input": text}
    return codecs.fingerprint({"endpoint": door.endpoint, "origin": door.origin, "request": said})


def row_of(request: Request, spot: Place, door: Door, fingerprint: bytes) -> dict[str, Any]:
    """The row that a request becomes; raises every refusal that does not depend on other rows (E3.3)."""
    options = request.options
    definition = _definition(request, door)
    if spot.deleting:
        raise tenancy.TenantDeleting("This tenant is being deleted and takes no jobs.", field="tenant_subject")
    if spot.archived and not continuing.of(spot.tenant_id):
        raise Refused("This tenant is archived and takes no new jobs.", code="tenant_archived", field="tenant_subject")
    text = definition.input.normal(request.input)
    given = json.loads(text) if definition.reads_input else {}
    spans = definition.spans(given, agent=options.agent, lease_s=conf().LEASE_S, timeout_s=conf().TIMEOUT_S)
    session_key, singleton = words.singleton(options.session_key, options.singleton)
    callback_url, callback_events = words.callback(options.callback_url, options.callback_events, definition)
    row: dict[str, Any] = {
        **_template(definition), "id": str(uuid7()), "workspace_id": spot.workspace_id, "tenant_id": spot.tenant_id,
        "queue": words.queue(options.queue, definition.queue), "worker_group": _group(definition, options.agent),
        "agent": options.agent, "origin": door.origin, "priority": _priority(options.priority, definition.priority),
        "subject": definition.subject_of(given), "input": text, "input_hash": codecs.digest(text),
        "fingerprint": fingerprint, "normal_hash": _normal_hash(request, door, text),
        "external_id": words.external_id(options.job_id),
        "idempotency_key": words.key(options.idempotency_key, "idempotency_key"),
        "session_key": session_key, "singleton": singleton.value,
        "exclusive_group": words.key(options.exclusive_group, "exclusive_group"),
        "target_id": None, "generation": None, "held": None,
        "lease_ms": words.span_ms(spans.lease_s, "lease_s"), "timeout_ms": words.span_ms(spans.timeout_s, "timeout_s"),
        "max_duration_ms": words.span_ms(spans.max_duration_s, "max_duration_s"),
        "callback_url": callback_url, "callback_events": callback_events,
        "max_cost_usd": words.max_cost_usd(options.max_cost_usd),
        **_retry(definition, request), **_times(options), **_deadline(definition, options)}
    if options.target is not None:
        words.target(options.target)
    else:
        row["body"] = body(row, door)
    return row


def _definition(request: Request, door: Door) -> Definition:
    version = request.options.version
    known = registry()
    definition = known.current(request.type) if version is None else known.exact(request.type, version)
    if door.origin not in definition.origins:
        raise Refused(f"{definition.name} may not be enqueued by a {door.origin}.", code="origin_forbidden",
                      field="type")
    if not definition.enabled:
        raise Refused(f"{definition.name} is disabled on this site.", code="definition_disabled", field="type")
    return definition


def _normal_hash(request: Request, door: Door, text: str) -> bytes | None:
    # Without a key nothing is compared, and a request over HTTP is compared as it was sent.
    if request.options.idempotency_key is None or request.sent is not None:
        return None
    return normal_hash(request, door, text)


def _template(definition: Definition) -> dict[str, Any]:
    return {"type": definition.type, "version": definition.version, "lapse_counts": definition.lapse_counts,
            "max_lapses": definition.max_lapses, "max_claims": definition.max_claims,
            "duration_scope": definition.duration_scope, "strict_lease": definition.strict_lease,
            "credential": definition.credential}


def _group(definition: Definition, agent: str | None) -> str:
    if definition.worker_group == SYSTEM:
        return SYSTEM
    if agent is None:
        return route(conf().ROUTING, None, definition.type, definition.worker_group)
    words.agent(agent)
    routed = route(conf().ROUTING, agent, definition.type, definition.worker_group)
    return routed if agent in conf().AGENTS else conf().UNKNOWN_AGENT_GROUP


def _priority(asked: Any, own: int) -> int:
    value = own if asked is None else asked
    if isinstance(value, bool) or not isinstance(value, int) or not -100 <= value <= 100:
        raise Invalid("must be a whole number from -100 to 100", field="priority", code="invalid_priority")
    return value


def _policy(definition: Definition, options: Options) -> RetryPolicy | None:
    """The effective policy: the request's, else the definition's, else the site's (E4)."""
    found = next((p for p in (options.retry, definition.retry) if p is not SITE), conf().RETRY)
    return found if isinstance(found, RetryPolicy) else None


def _retry(definition: Definition, request: Request) -> dict[str, Any]:
    options = request.options
    if not (options.retry is SITE or options.retry is None or isinstance(options.retry, RetryPolicy)):
        raise Invalid("must be a retry policy or null", field="retry", code="invalid_retry_policy")
    policy = _policy(definition, options)
    keeps = definition.dead_letter if definition.dead_letter is not None else policy is not None
    timing = policy or conf().RETRY or RetryPolicy()
    return {"max_attempts": _attempts(definition, request, policy), "base_delay_ms": int(timing.base_delay_s * MS),
            "max_delay_ms": int(timing.max_delay_s * MS), "retry_on": timing.retry_on if policy else None,
            "dead_letter": keeps}


def _times(options: Options) -> dict[str, Any]:
    if options.delay_s is not None and options.available_at is not None:
        raise Invalid("Say delay_s or available_at, not both.", field="delay_s", code="invalid_availability")
    return {"after_us": words.delay_us(options.delay_s),
            "at_us": clock.micros(words.moment(options.available_at, "available_at"))}


def _attempts(definition: Definition, request: Request, policy: RetryPolicy | None) -> int | None:
    """At most the definition's cap: refused where the request itself asks for more, cut where it does not (C13)."""
    if policy is None:
        return None
    most = definition.max_attempts_cap
    if most is None or policy.max_attempts <= most:
        return policy.max_attempts
    if policy is request.options.retry and not request.clamps:
        raise Invalid(f"must be at most {most} for {definition.name}", field="retry.max_attempts",
                      code="retry_policy_exceeds_cap")
    return most


def _deadline(definition: Definition, options: Options) -> dict[str, Any]:
    """The job's own deadline, else its policy's (C15)."""
    if options.deadline_s is not None and options.deadline_at is not None:
        raise Invalid("Say deadline_s or deadline_at, not both.", field="deadline_s", code="invalid_deadline")
    policy = _policy(definition, options)
    if options.deadline_s is None and options.deadline_at is None and policy is not None:
        return words.policy_deadline(policy)
    asked = options.retry
    if isinstance(asked, RetryPolicy) and (asked.deadline_s is not None or asked.deadline_at is not None):
        raise Invalid("The request and its retry policy say a deadline each.", field="retry", code="invalid_deadline")
    return {"deadline_ms": words.deadline_ms(options.deadline_s),
            "deadline_at": words.deadline_at(options.deadline_at)}


def body(row: dict[str, Any], door: Door) -> str:
    """The body of the first receipt: what was asked for, by hashes (E12)."""
    when = {"available_at": row["at_us"]} if row["at_us"] is not None else {"after": row["after_us"] or None}
    return body_text(by=door.by, generation=row["generation"], input=row["input_hash"].hex(), origin=door.origin,
                     to="queued", type=f"{row['type']}@{row['version']}", **when)
