"""Enqueue: what a request becomes, in the order of REQUIREMENTS E3. Joins the caller's transaction.

A job exists if and only if the caller's transaction commits. Every refusal comes before the first write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async

from jobs import clock, codecs
from jobs.conf import conf, registry
from jobs.errors import Conflict, Invalid, Refused
from jobs.ids import uuid7
from jobs.receipts import body_text
from jobs.registry import SITE, Definition
from jobs.retry import RetryPolicy
from jobs.routing import UNROUTED, route
from jobs.services import words
from jobs.services.words import Place
from jobs.states import Verb
from jobs.store import admission, enqueue as store, lookup
from jobs.store.moves import apply
from jobs.store.sql import joining
from jobs.store.verbs import Move

MS = 1_000
BATCH = 1_000


class KeyReused(Refused):
    """This key already names another request."""

    code = "idempotency_key_reused"


class KeyMismatch(Conflict):
    """The job_id and the idempotency key belong to two different jobs."""

    code = "key_mismatch"


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say beside type and input. Spans in seconds, `priority` -100 to 100 (higher first).

    `job_id` and `idempotency_key` make a repeat harmless; `target` supersedes older jobs of the same thing;
    `exclusive_group` runs at most N at once where the site sets a limit; `retry=None` means never.
    """

    queue: str | None = None
    priority: int | None = None
    agent: str | None = None
    version: int | None = None
    job_id: str | None = None
    idempotency_key: str | None = None
    session_key: str | None = None
    exclusive_group: str | None = None
    target: str | None = None
    delay_s: float | None = None
    available_at: datetime | None = None
    deadline_s: float | None = None
    deadline_at: datetime | None = None
    retry: Any = SITE
    workspace: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer: the job's id, whether an earlier request had already made it, and what the caller should know."""

    id: str
    repeated: bool = False
    warnings: tuple[dict[str, str], ...] = ()


@dataclass(slots=True)
class Request:
    """One thing to enqueue. `sent` is the request as the caller wrote it, for the fingerprint (E6)."""

    type: str
    input: Any = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    sent: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Door:
    """Through which door requests come: it stamps the origin, which a request never names (B13)."""

    endpoint: str = "python"
    origin: str = "user"
    by: str = "python"


PYTHON = Door()
TIMER = Door("timer", "scheduler", "loop:timers")


def enqueue(type: str | Any, input: Any = None, /, *, door: Door = PYTHON, **options: Any) -> Enqueued:  # noqa: A002
    """Enqueue one job of `type` with `input`; keywords are the fields of Options.

    Raises Invalid (unknown type, bad input, bad option), Refused (disabled, key reused, archived tenant) and
    Conflict (keys of two jobs). Nothing is written when it raises.
    """
    return enqueue_many([Request(_type_name(type), {} if input is None else input, _options(options))], door=door)[0]


aenqueue = sync_to_async(enqueue)


def enqueue_many(requests: Iterable[Request], *, door: Door = PYTHON) -> list[Enqueued]:
    """Enqueue all or none; requests with a target go one by one, the others in one insert a thousand (E3)."""
    requests = list(requests)
    answers: list[Enqueued] = []
    with joining():
        for batch in _batches(requests):
            answers += _Intake(batch, door).run()
    return answers


def _batches(requests: Sequence[Request]) -> Iterable[list[Request]]:
    batch: list[Request] = []
    for request in requests:
        if request.options.target is not None:
            if batch:
                yield batch
            yield [request]
            batch = []
            continue
        batch.append(request)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _type_name(type_: Any) -> str:
    definition = getattr(type_, "definition", type_)
    return getattr(definition, "type", definition)


_OPTION_NAMES = {f.name for f in fields(Options)}


def _options(given: dict[str, Any]) -> Options:
    unknown = given.keys() - _OPTION_NAMES
    if unknown:
        name = min(unknown)
        raise Invalid(f"{name!r} is not an option of enqueue; known are {', '.join(sorted(_OPTION_NAMES))}.",
                      field=name, code="unknown_field")
    return Options(**given)


class _Intake:
    """One batch on its way through E3's steps."""

    def __init__(self, requests: Sequence[Request], door: Door) -> None:
        self.requests = requests
        self.door = door
        self.places: dict[tuple[str | None, str | None], Place] = {}

    def run(self) -> list[Enqueued]:
        for request in self.requests:
            words.external_id(request.options.job_id)
            words.key(request.options.idempotency_key, "idempotency_key")
        spots = [self._place(r.options) for r in self.requests]
        prints = [self._fingerprint(r) for r in self.requests]
        answers = self._known(spots, prints)
        left = [n for n in range(len(self.requests)) if n not in answers]
        target = self.requests[0].options.target
        if left and target is not None:
            # The insert can still lose its key to a twin after the target moved on: a savepoint undoes that.
            with joining(savepoint=True):
                return [self._targeted(spots[0], prints[0])]
        if left:
            answers |= self._insert(left, [self._row(n, spots[n], prints[n]) for n in left], spots, prints)
        return [answers[n] for n in range(len(self.requests))]

    def _place(self, options: Options) -> Place:
        at = (options.workspace, options.tenant)
        if at not in self.places:
            self.places[at] = words.place(*at)
        return self.places[at]

    def _fingerprint(self, request: Request) -> bytes:
        sent = request.sent if request.sent is not None else _as_sent(request)
        return codecs.fingerprint({"endpoint": self.door.endpoint, "origin": self.door.origin, "request": sent})

    def _known(self, spots: Sequence[Place], prints: Sequence[bytes]) -> dict[int, Enqueued]:
        """Steps 1 and 2: requests whose keys already name a job; a repeat has no effect (A18, B15)."""
        keyed = [n for n, r in enumerate(self.requests) if r.options.job_id or r.options.idempotency_key]
        if not keyed:
            return {}
        found = lookup.by_keys([(spots[n].tenant_id, self.requests[n].options.job_id,
                                 self.requests[n].options.idempotency_key) for n in keyed])
        return {n: self._repeat(self.requests[n], prints[n], hits) for n, hits in zip(keyed, found, strict=True) if hits}

    def _repeat(self, request: Request, fingerprint: bytes, hits: Sequence[lookup.Hit]) -> Enqueued:
        if len({hit.id for hit in hits}) > 1:
            raise KeyMismatch()
        hit = hits[0]
        by_job_id = request.options.job_id is not None and hit.external_id == request.options.job_id
        # An explicit job_id returns its job unchanged, even with another payload (A18).
        if not by_job_id and hit.fingerprint != fingerprint and not self._same_normal_form(request, hit):
            raise KeyReused("This idempotency key already names another request.", field="idempotency_key")
        return Enqueued(hit.id, repeated=True)

    def _same_normal_form(self, request: Request, hit: lookup.Hit) -> bool:
        """In-process doors compare the codec's normal form under the stored version as well (B15, E6)."""
        definition = registry().find(hit.type, hit.version)
        if self.door.endpoint != "python" or definition is None or request.type != hit.type:
            return False
        return codecs.digest(definition.input.normal(request.input)) == hit.input_hash

    def _row(self, n: int, spot: Place, fingerprint: bytes) -> dict[str, Any]:
        """Step 3: every refusal, then the row."""
        return row_of(self.requests[n], spot, self.door, fingerprint)

    def _targeted(self, spot: Place, fingerprint: bytes) -> Enqueued:
        """Steps 2 to 7 for a request with a target: a newer generation supersedes the active older jobs (B16)."""
        request = self.requests[0]
        row = self._row(0, spot, fingerprint)
        target = lookup.lock_target(spot.tenant_id, f"{request.type}:{request.options.target}")
        known = self._known([spot], [fingerprint])
        if known:
            return known[0]
        row["target_id"], row["generation"] = target, lookup.next_generation(target)
        older = lookup.active_of_target(target, row["generation"])
        apply([Move(id_, Verb.SUPERSEDE, by=self.door.by, reason="superseded", facts={"generation": row["generation"]})
               for id_ in older], release=False)
        row["body"] = _body(row, self.door)
        return self._insert([0], [row], [spot], [fingerprint])[0]

    def _insert(self, left: Sequence[int], rows: list[dict[str, Any]], spots: Sequence[Place],
                prints: Sequence[bytes]) -> dict[int, Enqueued]:
        unlimited = _gate(rows)
        made = store.insert(rows)
        answers = {n: Enqueued(row["id"], warnings=_warnings(self.requests[n], row, unlimited))
                   for n, row in zip(left, rows, strict=True) if row["id"] in made}
        lost = [n for n in left if n not in answers]
        if lost:
            # Somebody else's request with the same key committed first: theirs is the job.
            twin = _Intake([self.requests[n] for n in lost], self.door)
            known = twin._known([spots[n] for n in lost], [prints[n] for n in lost])
            if len(known) != len(lost):
                raise KeyMismatch("A key of this request was taken at the same moment; repeat the request.")
            answers |= {n: known[i] for i, n in enumerate(lost)}
        return answers


def _as_sent(request: Request) -> dict[str, Any]:
    said: dict[str, Any] = {"type": request.type, "input": request.input}
    for f in fields(Options):
        value = getattr(request.options, f.name)
        if value is None and f.name != "retry" or value is SITE or f.name in ("workspace", "tenant"):
            continue
        said[f.name] = _plain(value)
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return clock.jsonable(value)
    if isinstance(value, RetryPolicy):
        return {"max_attempts": value.max_attempts, "base_delay_s": value.base_delay_s,
                "max_delay_s": value.max_delay_s, "retry_on": None if value.retry_on is None else list(value.retry_on)}
    return value


def row_of(request: Request, spot: Place, door: Door, fingerprint: bytes) -> dict[str, Any]:
    """The row that a request becomes; raises every refusal that does not depend on other rows (E3.3)."""
    options = request.options
    definition = _definition(request, door)
    if spot.archived:
        raise Refused("This tenant is archived and takes no new jobs.", code="tenant_archived", field="tenant_subject")
    text = definition.input.normal(request.input)
    given = json.loads(text) if definition.reads_input else {}
    spans = definition.spans(given, lease_s=conf().LEASE_S, timeout_s=conf().TIMEOUT_S)
    row: dict[str, Any] = {
        **_template(definition), "id": str(uuid7()), "workspace_id": spot.workspace_id, "tenant_id": spot.tenant_id,
        "queue": words.queue(options.queue, definition.queue), "worker_group": _group(definition, options.agent),
        "agent": options.agent, "origin": door.origin, "priority": _priority(options.priority, definition.priority),
        "subject": definition.subject_of(given), "input": text, "input_hash": codecs.digest(text),
        "fingerprint": fingerprint, "external_id": words.external_id(options.job_id),
        "idempotency_key": words.key(options.idempotency_key, "idempotency_key"),
        "session_key": words.key(options.session_key, "session_key"), "singleton": "allow",
        "exclusive_group": words.key(options.exclusive_group, "exclusive_group"),
        "target_id": None, "generation": None, "held": None,
        "lease_ms": words.span_ms(spans.lease_s, "lease_s"), "timeout_ms": words.span_ms(spans.timeout_s, "timeout_s"),
        "max_duration_ms": words.span_ms(spans.max_duration_s, "max_duration_s"),
        **_retry(definition, options), **_times(options)}
    if options.target is not None:
        words.target(options.target)
    else:
        row["body"] = _body(row, door)
    return row


def _definition(request: Request, door: Door) -> Definition:
    version = request.options.version
    known = registry()
    definition = known.current(request.type) if version is None else known.exact(request.type, version)
    if door.origin not in definition.origins:
        raise Refused(f"{definition.name} may not be enqueued by a {door.origin}.", code="origin_forbidden", field="type")
    if not definition.enabled:
        raise Refused(f"{definition.name} is disabled on this site.", code="definition_disabled", field="type")
    return definition


def _template(definition: Definition) -> dict[str, Any]:
    return {"type": definition.type, "version": definition.version, "lapse_counts": definition.lapse_counts,
            "max_lapses": definition.max_lapses, "max_claims": definition.max_claims,
            "duration_scope": definition.duration_scope, "strict_lease": definition.strict_lease,
            "credential": definition.credential}


def _group(definition: Definition, agent: str | None) -> str:
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


def _retry(definition: Definition, options: Options) -> dict[str, Any]:
    """The effective policy: the request's, else the definition's, else the site's (E4)."""
    policy = next((p for p in (options.retry, definition.retry) if p is not SITE), conf().RETRY)
    keeps = definition.dead_letter if definition.dead_letter is not None else policy is not None
    timing = policy or conf().RETRY or RetryPolicy()
    if not isinstance(timing, RetryPolicy):
        raise Invalid("must be a retry policy or null", field="retry", code="invalid_retry_policy")
    return {"max_attempts": policy.max_attempts if policy else None, "base_delay_ms": int(timing.base_delay_s * MS),
            "max_delay_ms": int(timing.max_delay_s * MS), "retry_on": timing.retry_on if policy else None,
            "dead_letter": keeps}


def _times(options: Options) -> dict[str, Any]:
    if options.delay_s is not None and options.available_at is not None:
        raise Invalid("Say delay_s or available_at, not both.", field="delay_s", code="invalid_availability")
    if options.deadline_s is not None and options.deadline_at is not None:
        raise Invalid("Say deadline_s or deadline_at, not both.", field="deadline_s", code="invalid_deadline")
    return {"after_us": words.delay_us(options.delay_s), "at_us": clock.micros(words.moment(options.available_at, "available_at")),
            "deadline_ms": words.deadline_ms(options.deadline_s),
            "deadline_at": words.moment(options.deadline_at, "deadline_at")}


def _body(row: dict[str, Any], door: Door) -> str:
    when = {"available_at": row["at_us"]} if row["at_us"] is not None else {"after": row["after_us"] or None}
    return body_text(by=door.by, generation=row["generation"], input=row["input_hash"].hex(), origin=door.origin,
                     to="queued", type=f"{row['type']}@{row['version']}", **when)


def _gate(rows: list[dict[str, Any]]) -> set[str]:
    """Send jobs of full exclusive groups behind their gate; the names of groups that have no limit here."""
    grouped = [r for r in rows if r["exclusive_group"] is not None]
    groups = [admission.Group(r["workspace_id"], r["tenant_id"], r["exclusive_group"]) for r in grouped]
    rooms = admission.group_rooms(groups)
    for row, gate in zip(grouped, admission.gates(groups), strict=True):
        row["held"] = gate
    return {group.name for group, room in rooms.items() if room is None}


def _warnings(request: Request, row: dict[str, Any], unlimited: set[str]) -> tuple[dict[str, str], ...]:
    found = []
    if row["exclusive_group"] in unlimited:
        found.append({"code": "exclusive_group_unlimited", "field": "exclusive_group",
                      "message": "This workspace sets no jobs.exclusive_group_max: the group limits nothing."})
    if request.options.agent is not None and request.options.agent not in conf().AGENTS:
        where = "" if row["worker_group"] != UNROUTED else " and fails at the first worker that takes it"
        found.append({"code": "unknown_agent", "field": "agent", "message": f"This site knows no such agent; the job waits{where}."})
    if (request.options.target or "").startswith(f"{request.type}:"):
        found.append({"code": "target_prefixed", "field": "target",
                      "message": "The target is prefixed with the type already; it is stored doubled."})
    return tuple(found)


def with_options(request: Request, **changes: Any) -> Request:
    """A copy of a request with some options changed."""
    return Request(request.type, request.input, replace(request.options, **changes), request.sent)
