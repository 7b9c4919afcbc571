"""Reads of the console: jobs of the whole site, for operators, who stand outside of every scope.

Nothing here costs more the more there is: lists go by id, newest first, and a filter that no index serves looks
through a bounded number of jobs and says how far it has looked. Nothing here writes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple, TypeVar

from django.db import OperationalError, connections, transaction
from django.db.models import Func, IntegerField, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast

from jobs import clock, ids
from jobs.models import (
    Artifact,
    Attempt,
    AttemptCap,
    AttemptLog,
    Command,
    DeadLetter,
    Firing,
    Job,
    Target,
    Tenant,
    Timer,
    Workspace,
)
from jobs.routing import SYSTEM
from jobs.selectors import QUERY_CANCELED, TooSlow, limit
from jobs.states import HELD, State
from jobs.store import admission
from jobs.store.sql import ALIAS, run, sqlstate

T = TypeVar("T")
# Of one statement.
PATIENCE_MS = 250
# How many jobs a page looks through at first, and how many where these do not fill it.
NEAR, FAR = 2_000, 50_000
SHOWN = 50
LIVE_AT_MOST = 10_000
_LEFT_OUT = ("input", "input_hash", "fingerprint", "normal_hash", "checkpoint", "checkpoint_hash", "head", "progress")
_HELD = {s.value for s in HELD}
_END_OF_ID = re.compile(r"[0-9a-fA-F-]{3,35}[0-9a-fA-F]")


class Filter(NamedTuple):
    """What the list is narrowed to. `tenant` is a subject; `search` an id, the end of one, or a key of the caller's."""

    states: tuple[str, ...] = ()
    type: str = ""
    queue: str = ""
    worker_group: str = ""
    workspace: str = ""
    tenant: str = ""
    reason: str = ""
    since: datetime | None = None
    until: datetime | None = None
    search: str = ""
    system: bool = False


class Place(NamedTuple):
    """Where in the list a page begins: older than one id, or newer than one."""

    before: uuid.UUID | None = None
    after: uuid.UUID | None = None


class Found(NamedTuple):
    """One page, newest first, and the ids that the pages beside it begin from.

    At most `looked` jobs were looked at. Where that ended before the page was full and before the list did, `reached`
    is the last id that was seen; `hasty` says that it ended early because the database took too long.
    """

    jobs: list[Job]
    newer: uuid.UUID | None = None
    older: uuid.UUID | None = None
    reached: uuid.UUID | None = None
    looked: int = 0
    hasty: bool = False

    @property
    def reached_at(self) -> datetime | None:
        """When the last job that was looked at was made, by the milliseconds that a UUIDv7 begins with."""
        id_ = self.reached
        return clock.moment((id_.int >> 80) * 1_000) if id_ is not None and id_.version == 7 else None


def patiently(read: Callable[[], T], milliseconds: int = PATIENCE_MS) -> T:
    """What `read` answers, each of its statements within so long. Raises TooSlow."""
    if connections[ALIAS].in_atomic_block:
        # In somebody's transaction the limit would stay for all of their statements: theirs is the patience.
        return read()
    with _impatient(), transaction.atomic(using=ALIAS):
        run(f"SET LOCAL statement_timeout = {milliseconds}")
        return read()


@contextmanager
def _impatient() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            raise TooSlow() from error
        raise


# --- the list ------------------------------------------------------------------------------------------------------


def jobs(narrowed: Filter, place: Place) -> Found:
    """One page of jobs. Raises TooSlow where not even the nearest can be looked through in time."""
    near = patiently(lambda: _page(narrowed, place, NEAR))
    if near.reached is None:
        return near
    try:
        return patiently(lambda: _page(narrowed, place, FAR))
    except TooSlow:
        return near._replace(hasty=True)


def some(job_ids: list[uuid.UUID]) -> list[Job]:
    """These jobs, newest first, as the list shows them."""
    return _shown(Job.objects.filter(pk__in=job_ids).order_by("-pk"))


def _shown(found: QuerySet[Job]) -> list[Job]:
    return list(found.defer(*_LEFT_OUT).prefetch_related("tenant", "workspace", "attempt"))


def _page(narrowed: Filter, place: Place, window: int) -> Found:
    start, few = _start(narrowed)
    up = place.after is not None
    start = _from(start, narrowed, place).order_by("pk" if up else "-pk")
    edge = None if few else _edge(start, window)
    found = _wanted(start, narrowed)
    if edge is not None:
        found = found.filter(pk__lte=edge) if up else found.filter(pk__gte=edge)
    read = _shown(found[: SHOWN + 1])
    more, page = len(read) > SHOWN, read[:SHOWN]
    if up:
        page.reverse()
    here = Found(page, looked=window)
    if page:
        here = here._replace(newer=page[0].pk if (more if up else place.before) else None,
                             older=page[-1].pk if up or more else None)
    return here if more or edge is None else here._replace(reached=edge)


def _from(start: QuerySet[Job], narrowed: Filter, place: Place) -> QuerySet[Job]:
    """Ids are ordered by time, so that moments are ranges of them."""
    for name, id_ in (("pk__lt", place.before), ("pk__gt", place.after), ("pk__gte", _earliest(narrowed.since)),
                      ("pk__lt", _earliest(narrowed.until))):
        start = start if id_ is None else start.filter(**{name: id_})
    return start


def _earliest(moment: datetime | None) -> uuid.UUID | None:
    return None if moment is None else ids.earliest((clock.micros(moment) or 0) // 1_000)


def _edge(start: QuerySet[Job], window: int) -> uuid.UUID | None:
    """The id at which a look at so many jobs ends; None when the list ends before.

    The offset is the window itself, over an index alone: no page skips what earlier ones showed.
    """
    return start.values_list("pk", flat=True)[window - 1 : window].first()


def _start(narrowed: Filter) -> tuple[QuerySet[Job], bool]:
    """The jobs that one index brings by id, and whether they are few enough to look at every one."""
    if ids.shaped(narrowed.search):
        return Job.objects.filter(pk=uuid.UUID(narrowed.search)), True
    theirs = _tenants(narrowed)
    one = theirs[0] if theirs is not None and len(theirs) == 1 else None
    if one is not None and narrowed.search and not _END_OF_ID.fullmatch(narrowed.search):
        return Job.objects.filter(pk__in=_by_keys(one, narrowed)), True
    if narrowed.states and set(narrowed.states) <= _HELD:
        # Live attempts have an index of their own: what runs is found however old it is.
        live = Attempt.objects.filter(ended_at=None).order_by("-job_id").values_list("job_id", flat=True)
        found, few = Job.objects.filter(pk__in=list(live[:LIVE_AT_MOST])), True
    else:
        found, few = Job.objects.all(), False
    if theirs is None:
        return found, few
    # Of several tenants no index brings the jobs in order: they are looked for among everybody's.
    return (found.filter(tenant_id=one) if one is not None else found.filter(tenant_id__in=theirs)), few or not theirs


def _tenants(narrowed: Filter) -> list[int] | None:
    """The tenants with this subject, one in each workspace that knows it; None: whosever."""
    if not narrowed.tenant:
        return None
    found = Tenant.objects.filter(subject=narrowed.tenant)
    if narrowed.workspace:
        found = found.filter(workspace__slug=narrowed.workspace)
    return list(found.order_by("pk").values_list("pk", flat=True)[:SHOWN])


def _by_keys(tenant_id: int, narrowed: Filter) -> list[uuid.UUID]:
    """Jobs of a tenant that a key names, each by the index that enqueueing has for it."""
    key = narrowed.search
    keys = [key, f"{narrowed.type.partition('@')[0]}:{key}"]
    theirs = Job.objects.filter(tenant_id=tenant_id).order_by().values_list("pk", flat=True)
    targets = list(Target.objects.filter(tenant_id=tenant_id, key__in=keys).values_list("pk", flat=True))
    named = theirs.filter(external_id=key).union(
        theirs.filter(idempotency_key=key), theirs.filter(session_key=key, ended_at=None),
        theirs.filter(target__in=targets, ended_at=None), all=True)
    return list(named[:LIVE_AT_MOST])


def _wanted(found: QuerySet[Job], narrowed: Filter) -> QuerySet[Job]:
    """What no index brings: asked of every job that is looked at."""
    for name in ("queue", "worker_group"):
        if value := getattr(narrowed, name):
            found = found.filter(**{name: value})
    if narrowed.states and len(narrowed.states) < len(State):
        found = found.filter(state__in=narrowed.states)
    if narrowed.type:
        name, _, version = narrowed.type.partition("@")
        found = found.filter(type=name, **({"version": int(version)} if version else {}))
    if narrowed.workspace:
        found = found.filter(workspace_id__in=list(
            Workspace.objects.filter(slug=narrowed.workspace).values_list("pk", flat=True)))
    if narrowed.reason:
        found = found.filter(reason__icontains=narrowed.reason)
    if not narrowed.system and narrowed.worker_group != SYSTEM:
        found = found.exclude(worker_group=SYSTEM)
    return _named(found, narrowed)


def _named(found: QuerySet[Job], narrowed: Filter) -> QuerySet[Job]:
    key = narrowed.search
    if not key or ids.shaped(key):
        return found
    # A target's key is looked for with a tenant only: it stands in another table.
    named = Q(external_id=key) | Q(idempotency_key=key) | Q(session_key=key)
    if narrowed.tenant:
        named |= Q(target__key__endswith=key)
    if _END_OF_ID.fullmatch(key):
        found = found.annotate(spelled=Cast("pk", TextField()))
        named |= Q(spelled__endswith=key.lower())
    return found.filter(named)


# --- one job -------------------------------------------------------------------------------------------------------


def _bytes(column: str) -> Func:
    # Of what is stored, without fetching it.
    return Func(column, function="octet_length", output_field=IntegerField())


def job(pk: uuid.UUID) -> Job | None:
    """One job with `input_size`, `artifact_size` and `checkpoint_size` in bytes, and without the texts."""
    artifact = Artifact.objects.filter(job_id=OuterRef("pk")).values(size=_bytes("value"))[:1]
    return (Job.objects.select_related("tenant", "workspace", "target", "attempt").defer("input", "checkpoint")
            .annotate(input_size=_bytes("input"), artifact_size=Subquery(artifact),
                      checkpoint_size=_bytes("checkpoint")).filter(pk=pk).first())


PAYLOADS = ("input", "artifact", "checkpoint")


def payload(pk: uuid.UUID, name: str) -> str | None:
    """The stored text of one of PAYLOADS, empty where it was redacted; None where there is none."""
    if name == "artifact":
        return Artifact.objects.filter(job_id=pk).values_list("value", flat=True).first()
    return Job.objects.filter(pk=pk).values_list(name, flat=True).first()


def attempts(of: Job, limit: int) -> list[Attempt]:
    """The latest attempts with their holders, in order."""
    found = Attempt.objects.filter(job_id=of.pk).select_related("worker", "key").order_by("-number")[:limit]
    return list(found)[::-1]


def logs(attempts: list[Attempt]) -> dict[uuid.UUID, AttemptLog]:
    """The log lines that these attempts left, by attempt."""
    return AttemptLog.objects.exclude(lines="").in_bulk([a.pk for a in attempts])


def log_of(pk: uuid.UUID, number: int) -> AttemptLog | None:
    """The log lines of one attempt of a job."""
    return AttemptLog.objects.filter(attempt__job_id=pk, attempt__number=number).exclude(lines="").first()


class Fired(NamedTuple):
    """The timer that made a job, by its name where it is still there, and the moment for which it did."""

    timer_id: uuid.UUID
    name: str | None
    moment: datetime
    by: str | None

    @property
    def said(self) -> str:
        """In words."""
        what = "a timer that is gone" if self.name is None else f"timer {self.name}"
        asked = f", run by {self.by}" if self.by is not None else f" for {clock.jsonable(self.moment)}"
        return f"{what}{asked}"


def fired(job: Job) -> Fired | None:
    """The timer that made this job, if one did; nobody else's job is looked up (D13)."""
    if job.origin != "scheduler":
        return None
    row = Firing.objects.filter(job_id=job.pk).order_by("job_id").values_list("timer_id", "moment", "by").first()
    if row is None:
        return None
    name = Timer.objects.filter(pk=row[0]).values_list("name", flat=True).first()
    return Fired(row[0], name, row[1], row[2])


def letters(of: Job, limit: int) -> list[DeadLetter]:
    """The latest dead letters of a job, newest first."""
    return list(DeadLetter.objects.filter(job_id=of.pk).order_by("-chain")[:limit])


def commands(of: Job, limit: int) -> list[Command]:
    """The latest commands to a job, newest first."""
    return list(Command.objects.filter(job_id=of.pk).order_by("-created_at")[:limit])


class Members(NamedTuple):
    """Who runs in an exclusive group of at most `most` (None: without a limit); `inside` are the first few."""

    most: int | None
    inside: list[uuid.UUID]


def members(of: Job, few: int = 5) -> Members | None:
    """Who is in the job's exclusive group, by what counts under its cap; None where it has no group (C11)."""
    if of.exclusive_group is None:
        return None
    most = limit("exclusive_group_max", of.workspace_id, of.tenant_id)
    if most is None:
        return Members(None, [])
    scope = limit("exclusive_group_scope", of.workspace_id, of.tenant_id) or "tenant"
    name = admission.group_key(scope, of.workspace_id, of.tenant_id, of.exclusive_group)
    counted = AttemptCap.objects.filter(cap_key=Func(Value(name), Value(0), function="hashtextextended"))
    inside = Attempt.objects.filter(pk__in=counted.values("attempt_id"), ended_at=None).order_by("leased_at")
    return Members(most, list(inside.values_list("job_id", flat=True)[:few]))
