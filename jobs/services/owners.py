"""Owners: put, rotated, revoked, expired, and asked for the secret that runs a job (B35, B36, E10).

What is kept is a reference. The secret comes from the site's resolver when an attempt begins, and lives in the memory
of the process that runs it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from jobs import clock, codecs
from jobs.clock import Now
from jobs.conf import conf, credential_resolver
from jobs.errors import Invalid, NeedsReadCommitted, NotFound, Refused, RevisionMismatch
from jobs.models import Attempt, Owner, Tenant, Workspace
from jobs.outcomes import Interrupted
from jobs.services import tenancy, words
from jobs.services.recovery import BATCH, each
from jobs.store import admission, due, owning, voiding
from jobs.store.sql import durable, joining

log = logging.getLogger("jobs.owners")
BY = "loop:owners"
OWNER = owning.OWNER
UNAVAILABLE = voiding.UNAVAILABLE
REFERENCE_LIMIT = 500
LABEL_LIMIT = 200
MOST = 1_000_000
# How many paused jobs the one who puts an owner looks through himself; the duty has the rest.
FIRST_LOOK = 1_000
# Between two tries of a resolver that has no answer: doubled with each claim, so that it is not asked in a circle.
AGAIN_S, AGAIN_MOST_S = 15, 300


class OwnerNotFound(NotFound):
    """This tenant has no owner, or it is not yours."""

    code = "owner_not_found"


class Unavailable(Refused):
    """The credential of this job's owner cannot be had now."""

    code = "owner_unavailable"


# --- verbs of people -----------------------------------------------------------------------------------------------


def of(tenant_id: int | None) -> Owner:
    """The owner of a tenant as of `now`, live or not. Raises OwnerNotFound."""
    known = Owner.objects.select_related("tenant", "workspace").annotate(now=Now())
    found = None if tenant_id is None else known.filter(tenant_id=tenant_id).first()
    if found is None:
        raise OwnerNotFound()
    return found


def put(tenant: Tenant, reference: str, *, by: str, label: str = "", expires_at: datetime | None = None,
        concurrency: int | None = None, revision: int | None = None, rotate: bool = False) -> Owner:
    """Make a tenant's owner, or say anew all that is known of it. Joins the caller's transaction.

    Another reference, an owner that was gone, and `rotate` (another secret under the same reference) begin a
    generation: attempts under the old one end as interrupted (`credential_rotated`), which is nobody's failure, and
    none of them can settle once this has committed (B23, B24). Jobs paused for want of an owner resume, a batch after
    the commit and the rest by the duty. Raises Invalid, RevisionMismatch, TenantDeleting and NeedsReadCommitted.
    """
    check(reference, label, concurrency, expires_at)
    # A savepoint: a refusal must not leave the new row behind in the caller's transaction.
    with joining(savepoint=True):
        _check_isolation()
        _check_stays(tenant)
        owner = owning.made(tenant.workspace_id, tenant.pk)
        _check_revision(owner, revision)
        new = rotate or owner.reference != reference or not owner.stands(owner.now)  # type: ignore[attr-defined]
        _write(owner, reference=reference, label=label, concurrency=concurrency, expires_at=expires_at, revoked_at=None,
               away_until=None, generation=owner.generation + new)
        if new:
            voiding.interrupt(voiding.bound(tenant.pk), by)
    log.info("an owner was put", extra={"owner": owner.pk, "generation": owner.generation + new, "by": by})
    transaction.on_commit(lambda: _follow(tenant.pk), robust=True)
    return of(tenant.pk)


def put_for(workspace: Workspace, subject: str | None, reference: str, **said: Any) -> Owner:
    """The same for a tenant by its subject, who is made with it: a refusal leaves neither behind."""
    with joining(savepoint=True):
        return put(tenancy.tenant(workspace, subject, make=True), reference, **said)


def _check_stays(tenant: Tenant) -> None:
    """Raises TenantDeleting for a tenant of which nothing is to be left."""
    if Tenant.objects.filter(pk=tenant.pk).exclude(deleting_at=None).exists():
        raise tenancy.TenantDeleting(field="tenant_subject")


def revoke(tenant_id: int, *, by: str, revision: int | None = None) -> Owner:
    """End an owner: its attempts end with it, and none of them can settle once this has committed; their jobs, and in
    their turn those that wait, are paused as `owner_unavailable` (B23, B35). Joins the caller's transaction.

    Revoking again is a quiet yes. Raises OwnerNotFound, RevisionMismatch and NeedsReadCommitted.
    """
    with joining():
        _check_isolation()
        owner = owning.locked(tenant_id)
        if owner is None:
            raise OwnerNotFound()
        _check_revision(owner, revision)
        if owner.revoked_at is None:
            _end(owner, by)
            log.info("an owner was revoked", extra={"owner": owner.pk, "generation": owner.generation, "by": by})
    return of(tenant_id)


def _check_isolation() -> None:
    if not owning.sees_others():
        raise NeedsReadCommitted(field="owner")


def _end(owner: Owner, by: str) -> list[Any]:
    _write(owner, revoked_at=Now())
    return voiding.stop(voiding.bound(owner.tenant_id), by)


def _write(owner: Owner, **columns: Any) -> None:
    Owner.objects.filter(pk=owner.pk).update(**columns, revision=owner.revision + 1, updated_at=Now())


def _check_revision(owner: Owner, wanted: int | None) -> None:
    if wanted is not None and wanted != owner.revision:
        raise RevisionMismatch(f"The owner is at revision {owner.revision}.", revision=owner.revision)


def check(reference: Any, label: Any = "", concurrency: Any = None, expires_at: datetime | None = None) -> None:
    """What may be said of an owner; raises Invalid with every fault."""
    faults = []
    if not isinstance(reference, str) or not 0 < len(reference) <= REFERENCE_LIMIT or not reference.isprintable():
        faults.append(("reference", f"must be 1 to {REFERENCE_LIMIT} printable characters"))
    if not isinstance(label, str) or len(label) > LABEL_LIMIT or not label.isprintable():
        faults.append(("label", f"must be at most {LABEL_LIMIT} printable characters"))
    if concurrency is not None and (type(concurrency) is not int or not 1 <= concurrency <= MOST):
        faults.append(("concurrency", f"must be a whole number from 1 to {MOST}, or null: the site's"))
    if (until := words.moment(expires_at, "expires_at")) is not None and until <= clock.now():
        faults.append(("expires_at", "must lie in the future"))
    if faults:
        field, message = faults[0]
        raise Invalid(f"{field}: {message}", field=field, code=f"invalid_{field}",
                      faults=[{"field": name, "message": said} for name, said in faults])


def _follow(tenant_id: int) -> None:
    """After the commit of a new owner: the first of its paused jobs, and what waited behind the old one."""
    found, _ = durable(lambda: voiding.resumable(due.FIRST, FIRST_LOOK, tenant_id))
    each(found[:BATCH], lambda some: voiding.resume(some, BY))
    durable(lambda: admission.let_in_owned([tenant_id]))


# --- the duty ------------------------------------------------------------------------------------------------------


class Owners:
    """Ends owners whose time has come, resumes jobs whose owner is back, lets in what a lost release left waiting."""

    def __init__(self) -> None:
        self._after = due.FIRST
        self._tenant = 0

    def tick(self, limit: int = BATCH) -> bool:
        """One batch of each; true while there may be more."""
        expired = durable(lambda: voiding.expired(limit))
        each(expired, _expire)
        found, after = durable(lambda: voiding.resumable(self._after, limit))
        self._after = after or due.FIRST
        each(found, lambda some: voiding.resume(some, BY))
        _, self._tenant = durable(lambda: admission.repair_owners(self._tenant, limit))
        return len(expired) == limit or after is not None or self._tenant != 0


def _expire(tenant_ids: Any) -> list[Any]:
    answers: list[Any] = []
    for tenant_id in sorted(tenant_ids):
        owner = owning.locked(tenant_id)
        if owner is not None and owner.revoked_at is None and not owner.stands(owner.now):  # type: ignore[attr-defined]
            answers += _end(owner, BY)
    return answers


# --- the secret ----------------------------------------------------------------------------------------------------


class Bound(NamedTuple):
    """What an attempt runs under: an owner at a generation, as its row keeps it, and where the secret is found."""

    owner: int
    generation: int
    reference: str
    tenant: str | None
    stands: bool


def bound(fence: str) -> Bound | None:
    """What a live attempt is bound to; None for one that needs no owner, or has ended."""
    row = (Attempt.objects.filter(pk=fence, ended_at=None).exclude(owner_binding=None)
           .values_list("owner_binding", "job__tenant_id", "job__tenant__subject").first())
    if row is None:
        return None
    said = codecs.stored(row[0])
    owner = Owner.objects.annotate(now=Now()).filter(tenant_id=row[1]).first()
    # A binding that was spoilt by hand names nobody: the job is handed back, and its next claim is bound anew.
    if owner is None or type(said) is not dict or said.get("owner") != owner.pk or "generation" not in said:
        return None
    stands = owner.stands(owner.now) and owner.generation == said["generation"]  # type: ignore[attr-defined]
    return Bound(owner.pk, said["generation"], owner.reference, row[2], stands)


# Nor may it stand in a report of an error, which shows what the frames of a traceback held.
@sensitive_variables()
def resolve(fence: str, job_id: str) -> Any:
    """The secret that this attempt runs with, from the site's resolver: text, or a mapping. Raises Unavailable.

    Never kept: not the secret, and of what a resolver raises only the class, since its words may quote one. A resolver
    without an answer is not asked for this owner by the whole backlog in its turn: no job of it begins for a while.
    """
    under = bound(fence)
    resolver = credential_resolver()
    if under is None or not under.stands or resolver is None:
        raise Unavailable()
    try:
        found = resolver(under.reference, tenant=under.tenant, job_id=job_id)
    except Exception as error:
        log.error("the credential resolver raised %s", type(error).__name__, extra={"owner": under.owner})
        owning.put_off(under.owner, AGAIN_S)
        raise Unavailable() from None
    if not found or not isinstance(found, (str, Mapping)):
        log.error("the credential resolver has no credential", extra={"owner": under.owner})
        owning.put_off(under.owner, AGAIN_S)
        raise Unavailable()
    return found


@sensitive_variables()
def shared(fence: str, job_id: str) -> Any:
    """The same as a runner over HTTP is told it: as JSON. Raises Unavailable, also for what is no JSON."""
    found = resolve(fence, job_id)
    try:
        return json.loads(codecs.canonical(dict(found) if isinstance(found, Mapping) else found))
    except Invalid:
        log.error("the credential is no JSON and cannot be shared", extra={"job": job_id})
        raise Unavailable() from None


def unavailable(claims: int) -> Interrupted:
    """The end of an attempt whose credential could not be had: never a failure, and not again at once (B24)."""
    return Interrupted(UNAVAILABLE, int(min(AGAIN_S * 2 ** min(claims - 1, 10), AGAIN_MOST_S) * 1_000_000))


def most(owner: Owner) -> int:
    """How many jobs may run under it at once (B36)."""
    return conf().OWNER_CONCURRENCY if owner.concurrency is None else owner.concurrency


def running(owner: Owner) -> list[str]:
    """The ids of the jobs that run under it now."""
    return [job for job, _ in voiding.bound(owner.tenant_id)]


def hint(owner: Owner) -> str:
    """As much of a reference as tells two of them apart."""
    return owner.reference if len(owner.reference) <= 4 else f"{owner.reference[:4]}\u2026"


def state(owner: Owner, now: datetime | None = None) -> str:
    """`live`, `expired` or `revoked`."""
    if owner.revoked_at is not None:
        # The loop that found it expired wrote that down later.
        return "expired" if owner.expires_at is not None and owner.expires_at <= owner.revoked_at else "revoked"
    return "live" if owner.stands(now or clock.now()) else "expired"
