"""The claim of runners over HTTP: what one may ask for, and one transaction for as many as ask alike (C31, C37, E7).

Whoever waits is served together with its equals: one look takes jobs for all of them and deals them out in the order in
which they came. A claim under a name (`request_id`) is written in the same transaction, so that a lost answer can be
asked for again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import OperationalError, connection
from django.views.decorators.debug import sensitive_variables

from jobs import clock, codecs, meters, selectors
from jobs.conf import conf, registry
from jobs.errors import Conflict, Invalid, Refused
from jobs.models import Attempt, Key
from jobs.outcomes import Interrupted, Outcome
from jobs.registry import Definition, nearest
from jobs.routing import UNROUTED
from jobs.services import assignments, overtime, owners, settlement, words
from jobs.services.runners import actor
from jobs.store import claim_requests
from jobs.store.claim import Batch, Claimed, Claimer
from jobs.store.claim_requests import Named
from jobs.store.picking import Pair
from jobs.store.spoilt import Spoilt, Unclaimable
from jobs.store.sql import durable, run, sqlstate

MAX_SLOTS = 100
UNKNOWN_TYPE_US = 15_000_000
# A look for a few types among many others reads what lies before them: so long, and no longer.
TYPES_PATIENCE_MS = 3_000
GONE = "client_gone"
_NAME = re.compile(r"[!-~]{1,200}")
# Turns go on from claim to claim of this process: a cursor of a request's own would always begin at the first tenant.
_cursors: dict[tuple[int, int | None], dict[Pair, int]] = {}
_spoilt = Spoilt()


class TooManyAssignments(Refused):
    """This key holds as many jobs as it may."""

    code = "too_many_assignments"


class RequestIdReused(Conflict):
    """This request_id names another claim."""

    code = "request_id_reused"


class _Twin(Exception):
    """Somebody else has claimed under one of our names at the same moment; nothing of ours is done."""


@dataclass(frozen=True)
class Wish:
    """What a runner asks for, checked. Wishes of one `shape` are served by one look."""

    key: Key
    groups: tuple[str, ...]
    queues: tuple[str, ...]
    types: tuple[tuple[str, int], ...] | None
    slots: int
    request_id: str | None = None
    shape: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (self.key.pk, self.groups, self.queues, self.types))

    @property
    def fingerprint(self) -> bytes:
        """What was asked; how long it may take is no part of that."""
        types = None if self.types is None else [list(t) for t in self.types]
        return codecs.fingerprint({"groups": list(self.groups), "queues": list(self.queues), "types": types,
                                   "slots": self.slots})


class Served(NamedTuple):
    """What each of some wishes got (None: look again, its name is known by now), and whether more may be there."""

    hands: list[list[Claimed] | None]
    again: bool


def wish(key: Key, *, worker_groups: Sequence[str] | None = None, queues: Sequence[str] | None = None,
         types: Sequence[str] | None = None, slots: int = 1, request_id: str | None = None) -> Wish:
    """What may be asked for so.

    Raises Invalid (unknown group, queue or type, a bad request_id) and Refused (a group that the key may not serve, or
    that is served in process).
    """
    if request_id is not None and not _NAME.fullmatch(request_id):
        raise Invalid("must be 1 to 200 printable ASCII characters without spaces", field="request_id",
                      code="invalid_request_id")
    return Wish(key, tuple(_groups(key, worker_groups)), tuple(_queues(queues)), _types(types), slots, request_id)


def longest_s(key: Key, wait_s: int) -> int:
    """How long a claim or heartbeat of this key may wait: longer is cut, not refused (C31, C37)."""
    if wait_s <= 0:
        return 0
    own = selectors.limit("claim_max_wait_s", key.workspace_id, key.tenant_id)
    return int(min(wait_s, selectors.CLAIM_MAX_WAIT_S if own is None else own))


def claim(key: Key, *, wait_s: int = 0, **asked: Any) -> Batch:
    """Claim as `wish` asks, waiting up to `wait_s` for the first job. Durable."""
    mine = wish(key, **asked)
    jobs, again = take(mine)
    seconds = 0 if jobs else longest_s(key, wait_s)
    return Batch(*wait(mine, seconds)) if seconds else Batch(jobs, again)


def wait(mine: Wish, seconds: float) -> tuple[list[Claimed], bool]:
    """Look again and again in this thread, until there is something or the time is over (C31)."""
    until = clock.monotonic() + seconds
    while True:
        # Nothing is held while waiting: a hundred idle runners must not cost a hundred connections.
        connection.close()
        clock.sleep(max(0.0, min(until - clock.monotonic(), conf().POLL_S)))
        jobs, again = take(mine)
        if jobs or clock.monotonic() >= until:
            return jobs, again


def take(mine: Wish) -> tuple[list[Claimed], bool]:
    """One look for one wish: the answer that its name had before, or what is claimable now. Durable.

    Raises RequestIdReused, TooManyAssignments, and TooSlow where types are asked for and too many others are in front.
    """
    while True:
        if (before := known(mine)) is not None:
            return before, False
        served = serve([mine])
        if (hand := served.hands[0]) is not None:
            return hand, served.again


def known(mine: Wish) -> list[Claimed] | None:
    """What a claim under this name has brought, as far as it is live and held by this key; None: no such claim."""
    if mine.request_id is None:
        return None
    said = claim_requests.fingerprint(mine.key.pk, mine.request_id)
    if said is None:
        return None
    if said != mine.fingerprint:
        raise RequestIdReused(field="request_id")
    brought = claim_requests.again(mine.key.pk, mine.request_id)
    return None if brought is None else _registered(_held(mine.key, brought), actor(mine.key))


def serve(wishes: Sequence[Wish]) -> Served:
    """Claim in one transaction for all of these, which have one shape (C31). Durable.

    Raises TooManyAssignments and TooSlow, which are the answer to all of them.
    """
    assignments.tick()
    names = [w.request_id for w in wishes]
    # Of two with one name the later one is answered from what the first one gets.
    mine = [n for n, name in enumerate(names) if name is None or name not in names[:n]]
    hands: list[list[Claimed] | None] = [None] * len(wishes)
    try:
        dealt, again = _together([wishes[n] for n in mine])
    except _Twin:
        return Served([None if name else [] for name in names], True)
    good = {job.fence for job in _registered([job for hand in dealt for job in hand], actor(wishes[0].key))}
    for n, hand in zip(mine, dealt, strict=True):
        hands[n] = [job for job in hand if job.fence in good]
    return Served(hands, again)


def _together(wishes: Sequence[Wish]) -> tuple[list[list[Claimed]], bool]:
    """One claim; where the row of some job keeps the database from taking any, one job at a time around that one."""
    claimer, slots = _claimer(wishes[0]), min(MAX_SLOTS, sum(w.slots for w in wishes))
    with meters.timed("claim"):
        try:
            return durable(lambda: _within(wishes, claimer, slots))
        except Unclaimable:
            if all(w.request_id is None for w in wishes):
                around = assignments.claim_around(claimer, slots)
                return _dealt(around.jobs, wishes), True
        for _ in range(assignments.MOST_SPOILT):
            try:
                return durable(lambda: _within(wishes, claimer, 1))[0], True
            except Unclaimable as error:
                assignments.leave_alone(claimer, error)
    return _dealt([], wishes), True


def _within(wishes: Sequence[Wish], claimer: Claimer, slots: int) -> tuple[list[list[Claimed]], bool]:
    key = wishes[0].key
    batch = _patiently(claimer, min(slots, _room(key)))
    hands = _dealt(batch.jobs, wishes)
    named = [Named(w.request_id, w.fingerprint, [job.fence for job in hand])
             for w, hand in zip(wishes, hands, strict=True) if w.request_id is not None and hand]
    if len(claim_requests.keep(key.pk, named)) < len(named):
        raise _Twin
    return hands, batch.again


def _room(key: Key) -> int:
    """How many jobs this key may still take. Raises TooManyAssignments where it is none."""
    most = conf().ASSIGNMENTS_PER_KEY
    free = most - claim_requests.held(key.pk, most)
    if free <= 0:
        raise TooManyAssignments(f"This key holds {most} jobs already: settle some.", retry_after_s=1)
    return free


def _patiently(claimer: Claimer, slots: int) -> Batch:
    if claimer.types is None:
        return assignments.claim_within(claimer, slots)
    run(f"SET LOCAL statement_timeout = {TYPES_PATIENCE_MS}")
    try:
        return assignments.claim_within(claimer, slots)
    except OperationalError as error:
        if sqlstate(error) == selectors.QUERY_CANCELED:
            raise selectors.TooSlow("Too many jobs of other types are in front: give these types a worker group or a "
                                    "queue of their own.", field="types") from error
        raise


def _dealt(jobs: Sequence[Claimed], wishes: Sequence[Wish]) -> list[list[Claimed]]:
    """One for each in turn, until nobody has a free slot or nothing is left."""
    hands: list[list[Claimed]] = [[] for _ in wishes]
    turn = deque(range(len(wishes)))
    for job in jobs:
        n = turn.popleft()
        hands[n].append(job)
        if len(hands[n]) < wishes[n].slots:
            turn.append(n)
    return hands


def give_back(mine: Wish, jobs: Sequence[Claimed]) -> int:
    """Hand back, uncounted, what nobody took: the client was gone before its answer could be sent; how many.

    Nothing, where the claim has a name under which it was answered again meanwhile.
    """
    if not jobs or (mine.request_id is not None and not claim_requests.forget(mine.key.pk, mine.request_id)):
        return 0
    settlement.settle([settlement.Report(job.id, job.fence, Interrupted(GONE)) for job in jobs], actor(mine.key))
    return len(jobs)


def _held(key: Key, fences: Sequence[str]) -> list[Claimed]:
    """The jobs of live attempts as their claim has answered them; of a chain's duration what was left then (E8)."""
    found = Attempt.objects.filter(pk__in=fences, key_id=key.pk, ended_at=None).select_related("job")
    by = {str(row.pk): row for row in found}
    return [_answered(by[fence]) for fence in fences if fence in by]


def _answered(row: Attempt) -> Claimed:
    job, most = row.job, row.job.max_duration_ms
    if most is not None and job.duration_scope == "chain" and job.chain_started_at is not None:
        most = max(0, most - (row.leased_at - job.chain_started_at) // timedelta(milliseconds=1))
    return Claimed(
        id=str(job.pk), fence=str(row.pk), type=job.type, version=job.version, input=job.input, claims=row.number,
        chain=row.chain, lease_ms=job.lease_ms, timeout_ms=job.timeout_ms, max_duration_ms=most,
        deadline_at=job.deadline_at, checkpoint=job.checkpoint, checkpoint_number=job.checkpoint_number,
        workspace_id=job.workspace_id, tenant_id=job.tenant_id, worker_group=job.worker_group, queue=job.queue,
        agent=job.agent, target_id=job.target_id, generation=job.generation,
        leased_us=clock.micros(row.leased_at) or 0)


# --- what may be asked for -------------------------------------------------------------------------------------------


def _claimer(mine: Wish) -> Claimer:
    key = mine.key
    return Claimer(pairs=[(g, q) for g in mine.groups for q in mine.queues], by=actor(key), key_id=key.pk,
                   workspaces=(key.workspace_id,), tenant_id=key.tenant_id,
                   types=_startable() if mine.types is None else mine.types, weights=conf().QUEUES, strict=False,
                   cursors=_cursors.setdefault((key.workspace_id, key.tenant_id), {}), spoilt=_spoilt)


def _startable() -> list[tuple[str, int]] | None:
    """Every type that may be started, if some may not; else no filter, because it costs the claim (B43, E7)."""
    known_ = list(registry())
    return None if all(d.runs for d in known_) else [(d.type, d.version) for d in known_ if d.runs]


def _types(asked: Sequence[str] | None) -> tuple[tuple[str, int], ...] | None:
    """The versions of the types that are asked for; they narrow what a worker group holds (E7)."""
    if asked is None:
        return None
    known_ = {d.type for d in registry()}
    if strange := [name for name in asked if name not in known_]:
        raise Invalid(f"There is no type {codecs.printable(strange[0])!r}{nearest(strange[0][:64], known_)}",
                      field="types", code="unknown_job_type")
    return tuple((d.type, d.version) for d in registry() if d.type in set(asked) and d.runs)


def _groups(key: Key, asked: Sequence[str] | None) -> list[str]:
    """The worker groups to claim from: what is asked for, within what the key and the site allow (E7)."""
    inside = set(registry().groups())
    outside = {*registry().groups(external=True), *(rule.worker_group for rule in conf().ROUTING),
               conf().UNKNOWN_AGENT_GROUP, *(key.worker_groups or ())} - inside - {UNROUTED}
    allowed = outside if key.worker_groups is None else outside & set(key.worker_groups)
    for group in asked or ():
        if group in inside or group == UNROUTED:
            raise Refused(f"The worker group {codecs.printable(group)!r} is served in process on this site.",
                          field="worker_groups", code="group_served_in_process")
        if key.worker_groups is not None and group not in key.worker_groups:
            raise Refused("This key may not serve this worker group.", field="worker_groups", code="group_forbidden")
        if group not in outside:
            raise Invalid(f"There is no such worker group{nearest(group, outside)}", field="worker_groups",
                          code="unknown_worker_group")
    return sorted(allowed) if asked is None else list(dict.fromkeys(asked))


def _queues(asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        return list(conf().QUEUES)
    return list(dict.fromkeys(words.queue(queue, queue) for queue in asked))


def _registered(jobs: list[Claimed], by: str) -> list[Claimed]:
    """These without what may not begin: versions that this site does not know (E7), a chain whose duration is spent
    (E8), a job whose stored input no longer decodes (B21).

    The first are handed back, uncounted, where a live worker has them, and paused where nobody does. Runners publish no
    versions: what they serve is what the site registers, and a process that does resumes them (`Upkeep`).
    """
    ends: dict[str, Outcome] = {}
    strange: dict[str, str] = {}
    spoilt: dict[str, str] = {}
    known = registry()
    for job in jobs:
        definition = known.find(job.type, job.version)
        if definition is None:
            ends[job.fence] = Interrupted("unregistered_type", UNKNOWN_TYPE_US)
            strange[job.fence] = f"{job.type}@{job.version}"
        elif job.max_duration_ms == 0:
            ends[job.fence] = overtime.SPENT
        elif (fault := _fault(definition, job.input)) is not None:
            spoilt[job.fence] = fault
    if not ends and not spoilt:
        return jobs
    settlement.settle([settlement.Report(j.id, j.fence, ends[j.fence], strange.get(j.fence)) for j in jobs
                       if j.fence in ends], by)
    for job in jobs:
        if job.fence in spoilt:
            settlement.spoil(job.id, job.fence, spoilt[job.fence], by)
    return [job for job in jobs if job.fence not in ends and job.fence not in spoilt]


def _fault(definition: Definition, text: str) -> str | None:
    try:
        definition.input.decode(text)
    except Invalid as error:
        return error.message
    return None


@sensitive_variables()
def credentials(key: Key, jobs: Sequence[Claimed]) -> tuple[list[Claimed], dict[str, dict[str, Any]]]:
    """By attempt what its runner learns of the owner: the binding, and the secret where the definition shares it (E8).

    The jobs come back without those whose secret cannot be had; they are handed back, uncounted (B24).
    """
    owned = [(job, d.share_credential) for job in jobs
             if (d := registry().find(job.type, job.version)) is not None and d.credential == owners.OWNER]
    told: dict[str, dict[str, Any]] = {}
    lost: list[Claimed] = []
    for job, shares in owned:
        under = owners.bound(job.fence)
        try:
            told[job.fence] = {"owner": under and {"owner": under.owner, "generation": under.generation},
                               **({"credential": owners.shared(job.fence, job.id)} if shares else {})}
        except owners.Unavailable:
            lost.append(job)
    if not lost:
        return list(jobs), told
    settlement.settle([settlement.Report(job.id, job.fence, owners.unavailable(job.claims)) for job in lost],
                      actor(key))
    return [job for job in jobs if job not in lost], told
