"""The claim: which jobs are next, taken by exactly one holder, in one transaction that never waits (CLAIM).

Lines say which tenants may have work; a claimer's own cursor gives each its turn. Candidates are locked with
skip locked, an equal share a tenant, and written with their attempts and receipts in one statement.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models import F, Q
from django.db.models.expressions import RawSQL

from jobs import failpoints, meters, publish
from jobs.callbacks import EVENTS, PER_HOST
from jobs.clock import Now, moment
from jobs.models import Job
from jobs.receipts import Kind
from jobs.routing import SYSTEM
from jobs.states import State
from jobs.store import admission, rotation, throttling
from jobs.store.picking import Candidate, Line, Pair, Picked, admit, judge, places_left, shut
from jobs.store.spoilt import FAULTS, Spoilt, Unclaimable
from jobs.store.sql import ALIAS, array, chain_hash, packed, rows
from jobs.store.verbs import holder

DISPATCHED = EVENTS["dispatched"]
LOOKS = 8
PASSES = 32


class Claimed(NamedTuple):
    """One attempt that the claim made, with what its holder needs to run it. Ids are text, spans milliseconds."""

    id: str
    fence: str
    type: str
    version: int
    input: str
    claims: int
    chain: int
    lease_ms: int
    timeout_ms: int | None
    max_duration_ms: int | None
    deadline_at: datetime | None
    checkpoint: str | None
    checkpoint_number: int
    workspace_id: int
    tenant_id: int
    worker_group: str
    queue: str
    agent: str | None
    target_id: int | None
    generation: int | None
    leased_us: int

    @property
    def leased_at(self) -> datetime:
        """When it was claimed; read from microseconds, since a moment costs more to load than all ids together."""
        return moment(self.leased_us)


@dataclass
class Claimer:
    """Who claims, from where on, and with which rights. The cursors are this process's turns, one per pair."""

    pairs: Sequence[Pair]
    by: str
    worker_id: str | None = None
    key_id: int | None = None
    workspaces: tuple[int, ...] | None = None
    tenant_id: int | None = None
    types: Sequence[tuple[str, int]] | None = None
    weights: dict[str, int] = field(default_factory=dict)
    strict: bool = True
    cursors: dict[Pair, int] = field(default_factory=dict)
    spoilt: Spoilt = field(default_factory=Spoilt)

    def __post_init__(self) -> None:
        holder(self.by)

    def order(self) -> list[Pair]:
        """The pairs in the order in which this claim serves them: as given, or drawn by the queues' weights."""
        if self.strict or len(self.pairs) < 2:
            return list(self.pairs)
        drawn = {p: random.random() ** (1.0 / max(1, self.weights.get(p[1], 1))) for p in self.pairs}
        return sorted(self.pairs, key=drawn.__getitem__, reverse=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """The attempts of one claim. `again`: full or empty tenants were put aside, so look again at once."""

    jobs: list[Claimed]
    again: bool = False


def claim(claimer: Claimer, slots: int) -> Batch:
    """Take up to `slots` jobs inside the present transaction, which must be short and commit soon.

    Raises Unclaimable, and the transaction is lost, where the database refuses the row of one of them.
    """
    picked = Picked(slots, met=claimer.spoilt.present())
    left_alone = frozenset(picked.met)
    try:
        return _claim(claimer, slots, picked)
    except FAULTS as error:
        raise Unclaimable(picked.met - left_alone) from error


def _claim(claimer: Claimer, slots: int, picked: Picked) -> Batch:
    if slots > 0 and claimer.pairs:
        _gather(claimer, picked)
    if not picked.ids:
        return Batch([], picked.again and picked.left > 0)
    failpoints.at("claim.found")
    jobs = _write(claimer, picked)
    failpoints.at("claim.written")
    return Batch(jobs, picked.again and picked.left > 0)


def _gather(claimer: Claimer, picked: Picked) -> None:
    pairs = claimer.order()
    seen: dict[Pair, set[int]] = {pair: set() for pair in pairs}
    for _ in range(LOOKS):
        limit = max(picked.left, 8)
        found = _lines(claimer, pairs, limit, picked)
        more: list[Pair] = []
        for n, pair in enumerate(pairs, 1):
            here, cut = found.get(n, ([], False))
            lines = [line for line in here if line.tenant_id not in seen[pair]]
            seen[pair] |= {line.tenant_id for line in lines}
            before = picked.left
            if lines and picked.left > 0:
                # One tenant whose own lines fill the look need not wait for others.
                _serve(claimer, pair, lines, cut and len(here) > 1, picked)
            # Each had one helping at most: who came back short may find more at once.
            picked.again |= cut and picked.left < before
            if lines and cut and not shut(pair, picked):
                more.append(pair)
        if picked.left <= 0 or not more:
            return
        pairs = more
    picked.again = True


def _lines(claimer: Claimer, pairs: Sequence[Pair], limit: int, picked: Picked) -> dict[int, tuple[list[Line], bool]]:
    """The next tenants of each pair in rotation, numbered by pair, and whether there may be more.

    Lines are not locked: turns are kept by the claimer's own cursor, and a locked line would hide the only tenant
    of a queue from every other claimer. The throttles come with them, as number 0.
    """
    scope = rotation.Scope(claimer.workspaces, claimer.tenant_id)
    if new := [pair for pair in pairs if pair not in claimer.cursors]:
        claimer.cursors.update(zip(new, rotation.anywhere(scope, new), strict=True))
    cursors = [claimer.cursors[pair] for pair in pairs]
    found: dict[int, dict[int, Line]] = {}
    # A tenant may have several lines for a while: what was cut off is told by rows, not by tenants.
    count: dict[int, int] = {}
    rules: list[Sequence[Any]] = []
    for n, *line in rotation.look(scope, pairs, cursors, limit, picked.shut):
        if n == 0:
            rules.append(line)
            continue
        if pairs[n - 1][0] == SYSTEM:
            line[3:] = None, PER_HOST, "workspace", False
        found.setdefault(n, {}).setdefault(line[2], Line(*line))
        count[n] = count.get(n, 0) + 1
    picked.rules = throttling.Rules(rules) if rules else throttling.NONE
    return {n: (_in_turn(by.values(), cursors[n - 1]), count[n] >= limit) for n, by in found.items()}


def _in_turn(lines: Iterable[Line], after: int) -> list[Line]:
    return sorted(lines, key=lambda x: (x.tenant_id <= after, x.tenant_id))


def _serve(claimer: Claimer, pair: Pair, lines: list[Line], cut: bool, picked: Picked) -> None:
    """Give each tenant in turn its share, again until the slots are full or nothing is left.

    With more tenants than we looked at (`cut`) each gets one job at most before the next look.
    """
    live = _with_room(pair, admit(pair, lines, picked), picked)
    for _ in range(PASSES):
        left = places_left(live, picked)
        take = live[:left]
        if not take or left <= 0:
            break
        share = 1 if cut else max(1, left // len(take))
        given = _pass(pair, take, share, claimer, picked)
        claimer.cursors[pair] = take[-1].tenant_id
        rest = live[len(take):]
        live = rest if cut else rest + [x for x in take if x.room > 0 and given[x.tenant_id] >= min(share, x.room)]
    if picked.left > 0:
        # Nobody here has more for us, full and busy tenants included: go on behind them, or they hide the others.
        claimer.cursors[pair] = lines[-1].tenant_id


def _with_room(pair: Pair, lines: list[Line], picked: Picked) -> list[Line]:
    """Tenants that may run one more: keys first, then the count; full ones leave the rotation."""
    capped = {admission.tenant_key(x.tenant_id): x for x in lines if x.cap is not None}
    if not capped:
        return lines
    used = admission.usage(capped)
    full: list[int] = []
    for name, line in capped.items():
        key, count = used.get(name, (None, 0))
        count += picked.taken.get(line.tenant_id, 0)
        line.key, line.room = key, 0 if key is None or line.cap is None else line.cap - count
        if key is not None and line.room <= 0:
            full.append(line.tenant_id)
    if full:
        admission.park(pair, full)
        picked.again = True
    return [x for x in lines if x.room > 0]


def _pass(pair: Pair, take: list[Line], share: int, claimer: Claimer, picked: Picked) -> dict[int, int]:
    """One helping for each tenant; how many candidates each had, whether taken or not."""
    by_tenant = {x.tenant_id: x for x in take}
    found = _candidates(claimer, pair, [x.tenant_id for x in take], min(share, max(x.room for x in take)), picked)
    return judge(pair, found, by_tenant, claimer.by, picked)


@lru_cache(maxsize=512)
def _candidate_sql(limit: int, typed: bool) -> tuple[str, tuple[Any, ...]]:
    """The locking read of one line, as Django writes it, with the line's columns where the outer row stands.

    The state is a literal: as a parameter it would keep a prepared plan from using the partial index.
    """
    waiting = Job.objects.using(ALIAS).filter(
        Q(deadline_at=None) | Q(deadline_at__gt=Now()),
        state=RawSQL("'queued'", ()), gate=None, available_at__lte=Now(),
        worker_group=RawSQL("line.worker_group", ()), queue=RawSQL("line.queue", ()),
        tenant_id=RawSQL("line.tenant_id", ()))
    columns = ("id", "exclusive_group", "credential", *(("type",) if typed else ()))
    picked: Any = (waiting.order_by(F("priority").desc(), "available_at", "id").values(*columns)
              .select_for_update(skip_locked=True, of=("self",), no_key=True))[:limit]
    compiled: tuple[str, tuple[Any, ...]] = picked.query.sql_with_params()
    return compiled


def _candidates(claimer: Claimer, pair: Pair, tenants: list[int], share: int,
                picked: Picked) -> list[Candidate]:
    # Literal limits: with a parameter there a cached plan may take a tenth of the table for granted.
    typed = bool(picked.rules.types)
    inner, inner_params = _candidate_sql(share, typed)
    extra, extra_params = _narrowed(claimer, picked)
    if extra:
        inner = inner.replace(" ORDER BY ", f"{extra} ORDER BY ", 1)
    line = f"unnest({array('bigint')}) WITH ORDINALITY u(tenant_id, n)"
    sql = (f"SELECT c.id::text, line.tenant_id, c.exclusive_group, c.credential, {'c.type' if typed else 'NULL'}"
           f" FROM (SELECT u.n, u.tenant_id,"
           f" %s::text AS worker_group, %s::text AS queue FROM {line} OFFSET 0) line CROSS JOIN LATERAL ({inner}) c")
    return rows(sql, [pair[0], pair[1], packed(tenants), *inner_params, *extra_params])  # type: ignore[return-value]


def _narrowed(claimer: Claimer, picked: Picked) -> tuple[str, list[Any]]:
    extra, params = "", []
    if picked.met:
        # Our own locks do not hide rows from us: leave out what an earlier pass met.
        extra += f' AND NOT ("jobs_job"."id" = ANY({array("uuid")}))'
        params.append(packed(picked.met))
    if claimer.types is not None:
        extra += (f' AND EXISTS (SELECT 1 FROM unnest({array("text")}, {array("int")}) k(type, version)'
                  ' WHERE k.type = "jobs_job"."type" AND k.version = "jobs_job"."version")')
        params += [packed([t for t, _ in claimer.types]), packed([v for _, v in claimer.types])]
    return extra, params


_BODY = """'{{"attempt":"' || s.fence || '","by":"{by}","to":"leased"}}'"""
# The guard compares with a column of ours: a literal 'queued' would offer the planner the claim's partial index,
# and with stale statistics it reads the whole backlog through it to find rows that we know by id.
# Of a chain's duration what is left of it (E8): whoever is handed 0 must not begin.
_CLAIM = """WITH c AS MATERIALIZED (SELECT s.*, {body} AS body FROM (SELECT u.id, u.n, 'queued'::text AS waiting,
        gen_random_uuid() AS fence FROM unnest({ids}) WITH ORDINALITY u(id, n) OFFSET 0) s),
    j AS (UPDATE jobs_job job SET state = 'leased', reason = NULL, attempt_id = c.fence, claims = job.claims + 1,
            chain_claims = job.chain_claims + 1, started_at = coalesce(job.started_at, jobs_now()),
            chain_started_at = coalesce(job.chain_started_at, jobs_now()),
            deadline_at = CASE WHEN job.deadline_ms IS NOT NULL AND job.deadline_at IS NULL
                THEN jobs_now() + job.deadline_ms * interval '1 millisecond' ELSE job.deadline_at END,
            revision = job.revision + 1, number = job.number + 1, head = {head}
        FROM c WHERE job.id = c.id AND job.state = c.waiting
        RETURNING job.id, c.fence, c.n, c.body, job.head, job.number, job.type, job.version, job.input, job.claims,
            job.chain, job.lease_ms, job.timeout_ms, CASE WHEN job.duration_scope = 'chain'
                AND job.max_duration_ms IS NOT NULL THEN greatest(0, job.max_duration_ms
                - (extract(epoch FROM jobs_now() - job.chain_started_at) * 1000)::bigint)
                ELSE job.max_duration_ms END AS max_duration_ms, job.deadline_at, job.checkpoint,
            job.checkpoint_number, job.workspace_id, job.tenant_id, job.worker_group, job.queue, job.agent,
            job.target_id, job.generation, job.available_at,
            job.chain_claims = 1 AND job.callback_events & {dispatched} <> 0 AS called),
    a AS (INSERT INTO jobs_attempt (id, job_id, number, chain, worker_id, key_id, leased_at, lease_until{bound})
        SELECT j.fence, j.id, j.claims, j.chain, {worker}, {key}, jobs_now(),
            jobs_now() + j.lease_ms * interval '1 millisecond'{binding} FROM j{bindings}),
    r AS (INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)
        SELECT j.id, j.number, '{kind}', jobs_now(), j.body, j.head FROM j){caps}
    SELECT j.id::text, j.fence::text, j.type, j.version, j.input, j.claims, j.chain, j.lease_ms, j.timeout_ms,
        j.max_duration_ms, j.deadline_at, j.checkpoint, j.checkpoint_number, j.workspace_id, j.tenant_id,
        j.worker_group, j.queue, j.agent, j.target_id, j.generation,
        (extract(epoch FROM jobs_now()) * 1000000)::bigint, j.called, j.number,
        greatest(0, extract(epoch FROM jobs_now() - j.available_at) * 1000000)::bigint FROM j ORDER BY j.n"""
_PAIR = itemgetter(Claimed._fields.index("worker_group"), Claimed._fields.index("queue"))
_CAPS = f""",
    p AS (INSERT INTO jobs_attempt_cap (attempt_id, cap_key) SELECT j.fence, k.cap_key
        FROM unnest({array('uuid')}, {array('bigint')}) k(id, cap_key) JOIN j ON j.id = k.id)"""


_BINDINGS = f" LEFT JOIN unnest({array('uuid')}, {array('text')}) b(id, binding) ON b.id = j.id"


@lru_cache(maxsize=64)
def _write_sql(by: str, worker: str | None, key: int | None, capped: bool, owned: bool) -> str:
    return _CLAIM.format(
        body=_BODY.format(by=by), ids=array("uuid"),
        head=chain_hash("job.head", "job.id", "job.number + 1", Kind.LEASED.value, "c.body"),
        worker="NULL::uuid" if worker is None else f"'{worker}'::uuid", key="NULL::bigint" if key is None else int(key),
        kind=Kind.LEASED.value, dispatched=DISPATCHED, caps=_CAPS if capped else "",
        bound=", owner_binding" if owned else "",
        binding=", b.binding" if owned else "", bindings=_BINDINGS if owned else "")


def _write(claimer: Claimer, picked: Picked) -> list[Claimed]:
    params = [packed(picked.ids)]
    if picked.bindings:
        params += [packed([id_ for id_, _ in picked.bindings]), packed([binding for _, binding in picked.bindings])]
    if picked.caps:
        params += [packed([id_ for id_, _ in picked.caps]), packed([key for _, key in picked.caps])]
    sql = _write_sql(claimer.by, claimer.worker_id, claimer.key_id, bool(picked.caps), bool(picked.bindings))
    found = rows(sql, params)
    claimed = [Claimed._make(r[:-3]) for r in found]
    publish.moved([(r[0], r[-2], State.LEASED) for r in found], tenants={c.tenant_id for c in claimed})
    if heard := [(r[0], State.LEASED, DISPATCHED) for r in found if r[-3]]:
        publish.called(heard)
    meters.note(["claimed"], found, _PAIR, -1, meters.WAITED)
    return claimed

