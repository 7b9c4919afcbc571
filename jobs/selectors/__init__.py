"""Reads: what an actor may see of jobs, and nothing that another tenant owns.

Every queryset starts from a `Scope`; unknown and foreign things are refused alike (E2). Nothing here writes, and
what a read looks like from outside is the edge's business.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.core import signing
from django.db import OperationalError, connections, transaction
from django.db.models import Q, QuerySet

from jobs import ids
from jobs.clock import Now
from jobs.conf import conf
from jobs.errors import Invalid, JobNotFound, NotFound, Refused
from jobs.models import Artifact, Attempt, Command, DeadLetter, Job, Limits, Receipt, Target, Tenant
from jobs.routing import SYSTEM
from jobs.selectors.assignments import Assignment as Assignment
from jobs.selectors.assignments import assignment as assignment
from jobs.selectors.assignments import assignments as assignments
from jobs.selectors.assignments import release_body as release_body
from jobs.store import lookup, position
from jobs.store.position import Position as Position
from jobs.store.sql import ALIAS, run, sqlstate

_EXTERNAL = re.compile(r"[A-Za-z0-9._:~-]{1,200}")
# What lists never show, and what would make them heavy (B40).
HEAVY = ("input", "input_hash", "fingerprint", "normal_hash", "idempotency_key", "checkpoint", "checkpoint_hash",
          "head")
# A filter that few jobs pass makes the database look through all that its tenant ever had.
LIST_PATIENCE_MS = 5_000
QUERY_CANCELED = "57014"
CLAIM_MAX_WAIT_S = 20
RELEASE_MAX_DELAY_S = 86_400
LOGS_AT_ONCE = 20


class TenantNotFound(NotFound):
    """There is no such tenant, or it is not yours."""

    code = "tenant_not_found"


class TooSlow(Refused):
    """The database takes too long to find these; ask for fewer filters, or for one job by its id."""

    code = "too_slow"


class Scope(NamedTuple):
    """What an actor sees: one tenant of one workspace. `tenant_id` None stands for a tenant that it does not have."""

    workspace_id: int
    tenant_id: int | None


def scope(workspace_id: int, subject: str | None) -> Scope:
    """The scope of a tenant by its subject (None: the workspace's system tenant); an unknown one sees nothing."""
    if subject is not None and not subject.isprintable():
        return Scope(workspace_id, None)
    return Scope(workspace_id, lookup.tenant(workspace_id, subject))


def known(seen: Scope) -> Scope:
    """The same scope, if its tenant exists. Raises TenantNotFound, whosever the tenant is."""
    if seen.tenant_id is None:
        raise TenantNotFound(field="tenant_subject")
    return seen


def _jobs(seen: Scope) -> QuerySet[Job]:
    if seen.tenant_id is None:
        return Job.objects.none()
    # The house's own jobs are nobody's business: a caller who cancels one would silence the end of another (E11).
    mine = Job.objects.filter(workspace_id=seen.workspace_id, tenant_id=seen.tenant_id).exclude(worker_group=SYSTEM)
    return mine.select_related("tenant", "target").annotate(now=Now())


def named(name: str) -> Q | None:
    """The condition for an id in a path: ours if it is shaped like a UUID, else the caller's job_id (E2)."""
    if ids.shaped(name):
        return Q(pk=uuid.UUID(name))
    return Q(external_id=name) if _EXTERNAL.fullmatch(name) else None


def job(seen: Scope, name: str) -> Job:
    """The job of this id or job_id. Raises JobNotFound, alike for unknown and foreign ones (C25, E2)."""
    condition = named(name)
    found = None if condition is None else _jobs(seen).filter(condition).first()
    if found is None:
        raise JobNotFound()
    return found


def some(seen: Scope, job_ids: Sequence[str]) -> list[Job]:
    """Those of these jobs that are in scope, newest first, as lists show them."""
    return list(_jobs(seen).defer(*HEAVY).filter(pk__in=list(job_ids)).order_by("-pk"))


def letters(seen: Scope, letter_ids: Sequence[int]) -> list[DeadLetter]:
    """Those of these dead letters that are in scope, newest first, with their jobs."""
    if seen.tenant_id is None:
        return []
    mine = DeadLetter.objects.filter(pk__in=list(letter_ids), workspace_id=seen.workspace_id, tenant_id=seen.tenant_id)
    return list(mine.select_related("job__tenant").defer(*(f"job__{name}" for name in HEAVY)).order_by("-pk"))


_LISTED = tuple(f.attname for f in Job._meta.concrete_fields if f.name not in HEAVY)


def enqueued(workspace_id: int, subject: str | None, ids: Sequence[str]) -> dict[str, Job]:
    """Jobs of a tenant as lists show them, by id, for the answer to their enqueue: one statement, as it was prepared.

    Missing are those that this tenant does not have, and the house's own.
    """
    found = {}
    for values in lookup.listed(_LISTED, SYSTEM, workspace_id, subject, ids):
        *columns, tenant_subject, key, generation, now = values
        row: Any = Job.from_db("default", _LISTED, columns)
        row.now, row.tenant = now, Tenant(pk=row.tenant_id, workspace_id=workspace_id, subject=tenant_subject)
        row.target = None if key is None else Target.from_db("default", ("id", "key", "generation"),
                                                             (row.target_id, key, generation))
        found[str(row.pk)] = row
    return found


def anywhere(name: str) -> Job | None:
    """The job with this id of ours, wherever it is: for operators, who stand outside of every scope."""
    if not ids.shaped(name):
        return None
    return Job.objects.select_related("tenant", "target").annotate(now=Now()).filter(pk=uuid.UUID(name)).first()


class Filter(NamedTuple):
    """What a list of jobs is narrowed to."""

    states: tuple[str, ...] = ()
    type: str | None = None
    queue: str | None = None


class Page(NamedTuple):
    """One page of a list, and where the next one begins (None: there is none)."""

    items: list[Any]
    next: str | int | None


def jobs(seen: Scope, narrowed: Filter, *, limit: int, cursor: str | None = None) -> Page:
    """Jobs of the scope, newest first, without inputs (B40).

    Raises Invalid invalid_cursor, TenantNotFound, and TooSlow after LIST_PATIENCE_MS.
    """
    found = _jobs(known(seen)).defer(*HEAVY)
    if narrowed.states:
        found = found.filter(state__in=narrowed.states)
    if narrowed.type is not None:
        # What no database holds is no type.
        found = found.filter(type=narrowed.type) if narrowed.type.isprintable() else found.none()
    if narrowed.queue is not None:
        found = found.filter(queue=narrowed.queue)
    signer = signing.Signer(salt=_salt(seen, narrowed))
    if cursor is not None:
        found = found.filter(pk__lt=_unsigned(signer, cursor))
    found = found.order_by("-pk")[: limit + 1]
    # Without a filter the index by tenant brings a page in as many steps as it is long.
    items = list(found) if narrowed == Filter() else _patiently(found)
    more = len(items) > limit
    return Page(items[:limit], signer.sign(items[limit - 1].pk.hex) if more else None)


def _patiently(found: QuerySet[Job]) -> list[Job]:
    # In somebody's transaction the limit would stay for all of their statements: theirs is the patience.
    if connections[ALIAS].in_atomic_block:
        return list(found)
    try:
        with transaction.atomic(using=ALIAS):
            run(f"SET LOCAL statement_timeout = {LIST_PATIENCE_MS}")
            return list(found)
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            raise TooSlow() from error
        raise


def _salt(seen: Scope, narrowed: Filter) -> str:
    # A cursor is good for the list that it came from: another filter or tenant signs with another salt.
    said = repr((tuple(seen), narrowed.states, narrowed.type, narrowed.queue))
    return "jobs.cursor:" + hashlib.sha256(said.encode()).hexdigest()


def _unsigned(signer: signing.Signer, cursor: str) -> uuid.UUID:
    try:
        return uuid.UUID(signer.unsign(cursor))
    except (signing.BadSignature, ValueError):
        raise Invalid("This cursor does not belong to this list.", field="cursor", code="invalid_cursor") from None


def receipts(of: Job, *, after: int, limit: int) -> Page:
    """Receipts of a job with a number above `after`, in order; the number is the only cursor (E12)."""
    found = list(Receipt.objects.filter(job_id=of.pk, number__gt=after).order_by("number")[: limit + 1])
    return Page(found[:limit], found[limit - 1].number if len(found) > limit else None)


def attempts(of: Job, *, after: int, limit: int) -> Page:
    """Attempts of a job with a number above `after`, in order."""
    return _attempts(of, after, limit, "worker", "key")


def attempts_with_logs(of: Job, *, after: int, limit: int) -> Page:
    """The same with their log lines, at most 20 at once: an attempt may have kept 64 Ki characters."""
    return _attempts(of, after, min(limit, LOGS_AT_ONCE), "worker", "key", "log")


def _attempts(of: Job, after: int, limit: int, *related: str) -> Page:
    found = list(Attempt.objects.filter(job_id=of.pk, number__gt=after).select_related(*related)
                 .order_by("number")[: limit + 1])
    return Page(found[:limit], found[limit - 1].number if len(found) > limit else None)


def artifact(of: Job) -> Artifact:
    """What a completed job made. Raises NotFound artifact_not_found."""
    found = artifact_of(of)
    if found is None:
        raise NotFound("This job has no artifact.", code="artifact_not_found")
    return found


def artifact_of(of: Job) -> Artifact | None:
    """The artifact, where there is one."""
    return Artifact.objects.filter(job_id=of.pk).first()


def unread_commands(of: Job) -> list[Command]:
    """The commands to a job that nobody has consumed, an abort that came too late among them, the oldest first."""
    return list(Command.objects.filter(job_id=of.pk, consumed_at=None).order_by("created_at", "pk"))


def command(of: Job, pk: str) -> Command:
    """One command to a job."""
    return Command.objects.get(job_id=of.pk, pk=pk)


def last_failure(of: Job) -> Attempt | None:
    """The attempt whose failure or lapse ended the present chain, if one did (C14)."""
    return (Attempt.objects.filter(job_id=of.pk, chain=of.chain, outcome__in=("failed", "lapsed"))
            .order_by("-number").first())


def open_letter(of: Job) -> DeadLetter:
    """The job's open dead letter. Raises NotFound, as for a job that is not there (C28)."""
    found = DeadLetter.objects.filter(job_id=of.pk, resolved_at=None).first()
    if found is None:
        raise JobNotFound()
    return found


def latest_letter(of: Job) -> DeadLetter:
    """The job's latest dead letter, open or answered. Raises NotFound, as for a job that is not there (C28)."""
    found = letter_of(of)
    if found is None:
        raise JobNotFound()
    return found


def letter_of(of: Job) -> DeadLetter | None:
    """The job's latest dead letter, where it has had one."""
    return DeadLetter.objects.filter(job_id=of.pk).order_by("-chain").first()


# --- what a claim is told -------------------------------------------------------------------------------------------


class Whose(NamedTuple):
    """What a runner is told of a job beside what its claim has read: whose it is, and how it came here."""

    external_id: str | None
    tenant_subject: str | None
    subject: str | None
    priority: int
    created_at: datetime
    attempt_count: int


def whose(job_ids: Sequence[str]) -> dict[str, Whose]:
    """That of each of these jobs by its id, in one statement; nothing of it is read by the claim itself."""
    found = Job.objects.filter(pk__in=job_ids).select_related("tenant").defer(*HEAVY)
    return {str(job.pk): Whose(job.external_id, job.tenant.subject, job.subject, job.priority, job.created_at,
                               job.attempt_count) for job in found}


def subjects(tenant_ids: Collection[int]) -> dict[int, str | None]:
    """The subjects of these tenants."""
    return dict(Tenant.objects.filter(pk__in=tenant_ids).values_list("pk", "subject"))


# --- limits --------------------------------------------------------------------------------------------------------


def limit(name: str, workspace_id: int, tenant_id: int | None) -> Any:
    """One limit: the tenant's own word, else its workspace's, at most the platform's; else None (C36, C37)."""
    found = dict(Limits.objects.filter(Q(tenant_id=tenant_id) | Q(tenant_id=None), workspace_id=workspace_id)
                 .values_list("tenant_id", name))
    own = found.get(tenant_id)
    said = own if own is not None else found.get(None)
    most = conf().PLATFORM_LIMITS.get(name)
    return said if said is None or most is None else min(said, most)


# --- followers -----------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Where a job stands, for those who follow it, and whose it is."""

    id: str
    tenant_id: int
    worker_group: str
    state: str
    revision: int
    number: int


_SEEN = ("pk", "tenant_id", "worker_group", "state", "revision", "number")


def seen(job_ids: Collection[str]) -> dict[str, Seen]:
    """Where these jobs stand, by id, whosever they are: one look for all that are followed. Missing: erased."""
    found = Job.objects.filter(pk__in=list(job_ids)).values_list(*_SEEN)
    return {str(row[0]): Seen(str(row[0]), *row[1:]) for row in found}


def positions(job_ids: Collection[str], patience_ms: int = 0) -> dict[str, Position]:
    """Where each of these jobs stands, in its own tenant's queue and in the pool (C6, C8).

    Only queued jobs that could be claimed have a position.
    """
    return position.positions(job_ids, patience_ms)
