"""Enqueue: what a request becomes, in the order of REQUIREMENTS E3. Joins the caller's transaction.

A job exists if and only if the caller's transaction commits. Every refusal comes before the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from jobs import codecs, failpoints
from jobs.conf import conf, registry
from jobs.errors import Conflict, Invalid, JobsError, KeyReused
from jobs.routing import UNROUTED
from jobs.services import ceilings, singletons, words
from jobs.services.ceilings import QueueSaturated
from jobs.services.draft import Door, Options, Request, as_sent, body, normal_hash, row_of
from jobs.services.words import Place
from jobs.states import SingletonMode, Verb
from jobs.store import admission, lookup
from jobs.store import enqueue as store
from jobs.store.moves import apply
from jobs.store.sql import ALIAS, durable, joining
from jobs.store.verbs import Move

BATCH = 1_000
__all__ = ["Door", "Enqueued", "Options", "QueueSaturated", "Request", "aenqueue", "enqueue", "enqueue_many"]


class KeyMismatch(Conflict):
    """The job_id and the idempotency key belong to two different jobs."""

    code = "key_mismatch"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer: the job's id, whether an earlier request had already made it, and what the caller should know.

    `steered`: no job was made; the newest active one of the session key got the input as a command (A16).
    """

    id: str
    repeated: bool = False
    steered: bool = False
    warnings: tuple[dict[str, str], ...] = ()


class _Twin(Exception):
    """Another request with the same key made the job first: this one must leave no trace."""

    def __init__(self, answer: Enqueued) -> None:
        self.answer = answer


PYTHON = Door()
TIMER = Door("timer", "scheduler", "loop:timers")


def enqueue(type: str | Any, input: Any = None, /, *, door: Door = PYTHON, **options: Any) -> Enqueued:
    """Enqueue one job of `type` with `input`; keywords are the fields of Options.

    Raises Invalid (unknown type, bad input, bad option, a policy or cost beyond a cap), Refused (disabled, key reused,
    archived tenant), QueueSaturated (a ceiling is reached; `retry_after_s`) and Conflict (keys of two jobs). Nothing
    is written when it raises.
    """
    return enqueue_many([Request(_type_name(type), {} if input is None else input, _options(options))], door=door)[0]


aenqueue = sync_to_async(enqueue)


def enqueue_many(requests: Iterable[Request], *, door: Door = PYTHON) -> list[Enqueued]:
    """Enqueue all or none; those with a target or a singleton go one by one, others in one insert a thousand (E3)."""
    requests = list(requests)
    answers: list[Enqueued] = []
    # A later request may be refused when an earlier one is written already: the savepoint takes all of them back.
    with joining(savepoint=len(requests) > 1):
        locked = _lock_ahead([r for r in requests if _goes_alone(r.options)])
        for batch in _batches(requests):
            answers += _Intake(batch, door, locked).run()
    return answers


def enqueue_each(requests: Sequence[Request], *, door: Door = PYTHON,
                 atomic: bool = False) -> list[Enqueued | JobsError]:
    """Enqueue each as if it came alone and in order, in one transaction; in its place the refusal of each that is none.

    One that is refused harms no other, unless it is `atomic`: then none is made. What is refused is found by halving
    what could not be made together, so that a few bad ones cost little. A transaction of its own is begun again after a
    deadlock.
    """
    if connections[ALIAS].in_atomic_block:
        return _each(requests, door, atomic)
    return durable(lambda: _each(requests, door, atomic))


def _each(requests: Sequence[Request], door: Door, atomic: bool) -> list[Enqueued | JobsError]:
    answers: dict[int, Enqueued | JobsError] = {}
    with joining(savepoint=True):
        for n, request in enumerate(requests):
            try:
                _check_words(request)
            except JobsError as error:
                answers[n] = error
        left = [n for n in range(len(requests)) if n not in answers]
        locked = _lock_ahead([r for n in left if _goes_alone((r := requests[n]).options)])
        answers |= _divided({n: requests[n] for n in left}, door, locked)
        if atomic and any(isinstance(answer, JobsError) for answer in answers.values()):
            transaction.set_rollback(True)
    return [answers[n] for n in range(len(requests))]


def _check_words(request: Request) -> None:
    """What must be right before anything of the whole batch is locked."""
    words.check_place(request.options.workspace, request.options.tenant)
    if request.options.target is not None:
        words.target(request.options.target)
    _session(request.options)


def _divided(requests: dict[int, Request], door: Door, locked: bool) -> dict[int, Enqueued | JobsError]:
    if not requests:
        return {}
    try:
        with joining(savepoint=True):
            made = [one for batch in _batches(requests.values()) for one in _Intake(batch, door, locked).run()]
            return dict(zip(requests, made, strict=True))
    except JobsError as error:
        numbers = list(requests)
        if len(numbers) == 1:
            return {numbers[0]: error}
        half = len(numbers) // 2
        return {**_divided({n: requests[n] for n in numbers[:half]}, door, locked),
                **_divided({n: requests[n] for n in numbers[half:]}, door, locked)}


def _goes_alone(options: Options) -> bool:
    """Whether it has an effect on other jobs, which the next request of its batch must see."""
    return options.target is not None or _session(options) is not None


def _session(options: Options) -> str | None:
    """The session key that this request acts on."""
    if options.singleton is None:
        return None
    key, mode = words.singleton(options.session_key, options.singleton)
    return None if mode is SingletonMode.ALLOW else key


def _steers(options: Options) -> bool:
    return _goes_alone(options) and words.singleton(options.session_key, options.singleton)[1] is SingletonMode.STEER


def _lock_ahead(requests: Sequence[Request]) -> bool:
    """Several in one transaction: all session keys first, then targets, then all their jobs (DESIGN 4)."""
    if len(requests) < 2:
        return False
    for request in requests:
        words.check_place(request.options.workspace, request.options.tenant)
        if request.options.target is not None:
            words.target(request.options.target)
    spots = {at: words.place(*at) for at in {(r.options.workspace, r.options.tenant) for r in requests}}
    placed = [(spots[r.options.workspace, r.options.tenant].tenant_id, r) for r in requests]
    # A tenant that is not there yet has neither jobs nor targets; its first job makes it.
    sessions = [(tenant, key) for tenant, r in placed if tenant and (key := _session(r.options)) is not None]
    targets = [(tenant, f"{r.type}:{r.options.target}") for tenant, r in placed
               if tenant and r.options.target is not None]
    if sessions:
        singletons.lock(sessions)
    lookup.lock_active(lookup.lock_targets(targets), sessions)
    return True


def _batches(requests: Iterable[Request]) -> Iterable[list[Request]]:
    batch: list[Request] = []
    for request in requests:
        if _goes_alone(request.options):
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
    name = getattr(definition, "type", definition)
    # Not the words of what is no name: they may be endless.
    return name if isinstance(name, str) else type(name).__name__


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

    def __init__(self, requests: Sequence[Request], door: Door, locked: bool = False) -> None:
        self.requests = requests
        self.door = door
        self.locked = locked
        self.places: dict[tuple[str | None, str | None], Place] = {}

    def run(self) -> list[Enqueued]:
        for request in self.requests:
            words.check_place(request.options.workspace, request.options.tenant)
            words.external_id(request.options.job_id)
            words.key(request.options.idempotency_key, "idempotency_key")
        spots = [self._place(r.options) for r in self.requests]
        prints = [self._fingerprint(r, spot) for r, spot in zip(self.requests, spots, strict=True)]
        answers = self._known(spots, prints)
        left = [n for n in range(len(self.requests)) if n not in answers]
        if left:
            rows = [row_of(self.requests[n], spots[n], self.door, prints[n]) for n in left]
            # Whoever may steer instead of making a job is asked once that is known; in a new tenant there is nobody to.
            if not (_steers(self.requests[0].options) and spots[0].tenant_id):
                ceilings.admit([self.requests[n] for n in left], rows, [spots[n] for n in left])
            self._make_tenants(left, spots, rows)
            if _goes_alone(self.requests[0].options):
                return [self._alone(rows[0], spots[0], prints[0])]
            answers |= self._insert(left, rows, spots, prints)
        return [answers[n] for n in range(len(self.requests))]

    def _make_tenants(self, left: Sequence[int], spots: list[Place], rows: Sequence[dict[str, Any]]) -> None:
        """Tenants come into being with their first job: after the refusals, because making one is a write."""
        for n, row in zip(left, rows, strict=True):
            options = self.requests[n].options
            if not spots[n].tenant_id and options.tenant is not None:
                at = (options.workspace, options.tenant)
                if not self.places[at].tenant_id:
                    self.places[at] = words.made(*at)
                spots[n] = self.places[at]
                row["tenant_id"] = spots[n].tenant_id

    def _place(self, options: Options) -> Place:
        at = (options.workspace, options.tenant)
        if at not in self.places:
            self.places[at] = words.place(*at)
        return self.places[at]

    def _fingerprint(self, request: Request, spot: Place) -> bytes:
        sent = request.sent if request.sent is not None else as_sent(request)
        try:
            return codecs.fingerprint({"endpoint": self.door.endpoint, "origin": self.door.origin, "request": sent})
        except Invalid:
            # Something said is no JSON at all: the refusal of that very option is the better one.
            row_of(request, spot, self.door, b"")
            raise

    def _known(self, spots: Sequence[Place], prints: Sequence[bytes]) -> dict[int, Enqueued]:
        """Steps 1 and 2: requests whose keys already name a job; a repeat has no effect (A18, B15)."""
        keyed = [n for n, r in enumerate(self.requests) if r.options.job_id or r.options.idempotency_key]
        if not keyed:
            return {}
        found = lookup.by_keys([(spots[n].tenant_id, self.requests[n].options.job_id,
                                 self.requests[n].options.idempotency_key) for n in keyed])
        return {n: self._repeat(self.requests[n], prints[n], hits)
                for n, hits in zip(keyed, found, strict=True) if hits}

    def _repeat(self, request: Request, fingerprint: bytes, hits: Sequence[lookup.Hit]) -> Enqueued:
        if len({hit.id for hit in hits}) > 1:
            raise KeyMismatch()
        hit = hits[0]
        by_job_id = request.options.job_id is not None and hit.external_id == request.options.job_id
        # An explicit job_id returns its job unchanged, even with another payload (A18).
        if not by_job_id and hit.fingerprint != fingerprint and not self._same_normal_form(request, hit):
            raise KeyReused()
        return Enqueued(hit.id, repeated=True, steered=hit.command is not None)

    def _same_normal_form(self, request: Request, hit: lookup.Hit) -> bool:
        """In-process doors compare what was asked, with the input in normal form under the stored version (B15, E6)."""
        definition = registry().find(hit.type, hit.version)
        if hit.normal_hash is None or definition is None or request.type != hit.type or request.sent is not None:
            return False
        try:
            return normal_hash(request, self.door, definition.input.normal(request.input)) == hit.normal_hash
        except Invalid:
            return False

    def _alone(self, row: dict[str, Any], spot: Place, fingerprint: bytes) -> Enqueued:
        """A request that acts on other jobs, undone where a twin made the job meanwhile (B16, E3)."""
        try:
            with joining(savepoint=True):
                answer = self._in_order(row, spot, fingerprint)
                if answer.repeated:
                    raise _Twin(answer)
        except _Twin as twin:
            answer = twin.answer
        return answer

    def _in_order(self, row: dict[str, Any], spot: Place, fingerprint: bytes) -> Enqueued:
        """Steps 2 to 7: locks, the same look-up again, recovery, singleton, target, insert."""
        request = self.requests[0]
        key, target = _session(request.options), None
        if key is not None:
            singletons.lock([(spot.tenant_id, key)])
        if request.options.target is not None:
            target = lookup.lock_target(spot.tenant_id, f"{request.type}:{request.options.target}")
        known = self._known([spot], [fingerprint])
        if known:
            return known[0]
        locked = self.locked
        if key is not None and target is not None and not locked:
            lookup.lock_active([target], [(spot.tenant_id, key)])
            locked = True
        if key is not None and (steered := singletons.act(row, self.door.by, locked)) is not None:
            failpoints.at("command.written")
            return Enqueued(steered, steered=True)
        if _steers(request.options):
            ceilings.admit([request], [row], [spot])
        if target is not None:
            self._supersede(row, target)
        return self._insert([0], [row], [spot], [fingerprint])[0]

    def _supersede(self, row: dict[str, Any], target: int) -> None:
        """A newer generation ends the active jobs of the older ones (B16)."""
        row["target_id"], row["generation"] = target, lookup.next_generation(target)
        older = lookup.active_of_target(target, row["generation"])
        apply([Move(id_, Verb.SUPERSEDE, by=self.door.by, reason="superseded", facts={"generation": row["generation"]})
               for id_ in older], release=False)
        row["body"] = body(row, self.door)

    def _insert(self, left: Sequence[int], rows: list[dict[str, Any]], spots: Sequence[Place],
                prints: Sequence[bytes]) -> dict[int, Enqueued]:
        unlimited = _gate(rows)
        failpoints.at("enqueue.ready")
        made = store.insert(rows)
        failpoints.at("enqueue.written")
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
        found.append({"code": "unknown_agent", "field": "agent",
                      "message": f"This site knows no such agent; the job waits{where}."})
    if (request.options.target or "").startswith(f"{request.type}:"):
        found.append({"code": "target_prefixed", "field": "target",
                      "message": "The target is prefixed with the type already; it is stored doubled."})
    return tuple(found)
