"""Erasure: one job redacted, a tenant's ended jobs redacted, a tenant deleted for good (B38, E13).

What is asked of a whole tenant is a row (`Erasure`) and a mark on the tenant; the duty `erasures` carries it on, batch
by batch in short transactions that also count, so that a million jobs block nobody and a kill loses nothing.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import IntegrityError
from django.db.models import F

from jobs import clock, failpoints
from jobs.conf import blockers, conf
from jobs.errors import Conflict, JobNotFound, JobsError, NotFound
from jobs.leases import heartbeat_s
from jobs.models import Erasure, Job, Leader, Tenant
from jobs.receipts import Kind
from jobs.services import tenancy, words
from jobs.services.cancellation import check_reason
from jobs.services.words import JobId
from jobs.states import Verb
from jobs.store import erase, erasures, redact
from jobs.store.due import FIRST
from jobs.store.erasures import Open
from jobs.store.moves import Moved, apply, note
from jobs.store.redact import Seen
from jobs.store.sql import durable, joining
from jobs.store.verbs import Move

DUTY = "erasures"
BATCH = 500
# Jobs looked at to find a batch among them.
LOOK = 5_000
# How many rows of a table are counted before it is "more".
COUNTED = 3_000
SAMPLE = 5
CANCELLED = "tenant_deleted"
# A holder hears of the end by its next heartbeat, and has a little to stop; nobody is waited for any longer.
HOLDER_GRACE_S, HOLDER_MOST_S = 5.0, 60.0
# Who found the tenant there a moment before it was marked commits meanwhile, and is not told of a broken reference.
LATECOMERS_S = 2.0
# How long those who want to be told of ends are waited for.
TELLING_S = 120.0


class JobActive(Conflict):
    """The job has not ended: cancel it first, or wait. What still runs needs its input."""

    code = "job_active"


class DeletionBlocked(Conflict):
    """Something of this site still needs the tenant."""

    code = "deletion_blocked"


# --- one job ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Redacted:
    """A job without its words. `repeated`: it was so already, and nothing was written."""

    job_id: str
    number: int
    repeated: bool = False


def redact_job(job_id: JobId, *, by: str, reason: str) -> Redacted:
    """Empty every column that holds a caller's words of an ended job; its receipts stay, and verify (E13).

    Gone are input, artifact, checkpoint, subject, keys, target, commands, error messages and log lines. What people
    gave as reasons stays in receipts. Raises JobNotFound, JobActive and Invalid. Joins the caller's transaction.
    """
    answer = redact_many([job_id], by=by, reason=reason)[0]
    if isinstance(answer, JobsError):
        raise answer
    return answer


def redact_many(job_ids: Sequence[JobId], *, by: str, reason: str) -> list[Redacted | JobsError]:
    """Redact each; a refusal stands in its place."""
    check_reason(reason)
    known = [_known(id_) for id_ in job_ids]
    with joining():
        locked = redact.lock(sorted({id_ for id_ in known if id_ is not None}))
        numbers = _redact([seen for seen in locked.values() if seen.ended and not seen.redacted], by, reason)
    return [_answer(None if id_ is None else locked.get(id_), numbers) for id_ in known]


def redacted(job_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those of these jobs that say nothing any more."""
    return set(Job.objects.filter(pk__in=job_ids, input="").values_list("pk", flat=True))


def _known(job_id: JobId) -> str | None:
    try:
        return words.job_id(job_id)
    except JobNotFound:
        return None


def _answer(seen: Seen | None, numbers: dict[str, int]) -> Redacted | JobsError:
    if seen is None:
        return JobNotFound()
    if not seen.ended:
        return JobActive(status=seen.state)
    return Redacted(seen.id, numbers.get(seen.id, seen.number), repeated=seen.redacted)


def _redact(jobs: Sequence[Seen], by: str, reason: str, *, targets: bool = True) -> dict[str, int]:
    """Empty these locked jobs; the number of the receipt that says so, by job."""
    if not jobs:
        return {}
    redact.empty([seen.id for seen in jobs], conf().AGENTS, targets=targets)
    written = note(Kind.REDACTED, [(seen.id, {
        "by": by, "reason": reason, "input": seen.input, "artifact": seen.artifact, "checkpoint": seen.checkpoint})
        for seen in jobs])
    failpoints.at("redact.written")
    return {moved.job_id: moved.number for moved in written if isinstance(moved, Moved)}


# --- what would go ----------------------------------------------------------------------------------------------------


class Foreseen(NamedTuple):
    """What the erasure of a tenant would take. `counts` by table stop at `most`, where one more stands for more.

    `active`: of its newest `most` jobs; `sample`: ids of the newest; `blocked`: why it cannot be deleted.
    """

    tenant: Tenant
    counts: dict[str, int]
    most: int
    active: int
    sample: list[str]
    blocked: list[str]


def foresee(tenant: Tenant, most: int = COUNTED) -> Foreseen:
    """A dry run: nothing is written, and nothing is read that grows with the tenant beyond `most` rows a table."""
    return Foreseen(tenant, erasures.count(tenant.pk, most), most, erasures.active_count(tenant.pk, most),
                    erasures.sample(tenant.pk, SAMPLE), _blocked(tenant))


def _blocked(tenant: Tenant) -> list[str]:
    if tenant.subject is None:
        return [tenancy.SystemTenant().message]
    return [str(reason) for blocker in blockers() for reason in blocker(tenant) or ()]


# --- a tenant ---------------------------------------------------------------------------------------------------------


def delete(tenant: Tenant, *, by: str, reason: str) -> Erasure:
    """Begin to delete a tenant with everything of its own, for good; the same again is the same one (B38).

    From the commit on it takes no jobs and none is claimed. Raises SystemTenant, DeletionBlocked, NotFound, Invalid.
    Joins the caller's transaction.
    """
    check_reason(reason)
    if tenant.subject is None:
        raise tenancy.SystemTenant()
    if why := _blocked(tenant):
        raise DeletionBlocked(f"It cannot be deleted: {'; '.join(why)}", reasons=why)
    with joining(savepoint=True):
        if not erasures.mark(tenant.pk):
            raise NotFound("There is no such tenant.", field="tenant_subject")
        for other in Erasure.objects.filter(tenant_id=tenant.pk, ended_at=None, verb="redact"):
            erasures.end(other.pk, "overtaken")
        return _begin(tenant, "delete", "stopping", by, reason)


def redact_tenant(tenant: Tenant, *, by: str, reason: str) -> Erasure:
    """Begin to redact all jobs of a tenant that have ended; receipts and the tenant itself stay (E13).

    Jobs that are active go on and keep their words. Raises TenantDeleting, Invalid. Joins the caller's transaction.
    """
    check_reason(reason)
    if tenant.subject is None:
        raise tenancy.SystemTenant()
    with joining(savepoint=True):
        begun = _begin(tenant, "redact", "redacting", by, reason)
        if begun.verb != "redact":
            raise tenancy.TenantDeleting()
        return begun


def _begin(tenant: Tenant, verb: str, phase: str, by: str, reason: str) -> Erasure:
    made, _ = Erasure.objects.get_or_create(tenant_id=tenant.pk, ended_at=None, defaults={
        "workspace_id": tenant.workspace_id, "verb": verb, "phase": phase, "by": by[:200], "reason": reason})
    return made


class Progress(NamedTuple):
    """How an erasure stands: `word` is its phase, how it ended, or alone (nobody runs the loops)."""

    word: str
    counts: dict[str, int]
    seconds: float


def told(erasure: Erasure) -> Progress:
    """How this one stands."""
    until = erasure.ended_at or clock.now()
    word = erasure.end or (erasure.phase if Leader.objects.filter(duty=DUTY, until__gt=clock.Now()).exists()
                           else "alone")
    return Progress(word, erasure.counts, max(0.0, (until - erasure.created_at).total_seconds()))


def latest(tenant_id: int) -> Erasure | None:
    """The latest erasure of a tenant, if there was one."""
    return Erasure.objects.filter(tenant_id=tenant_id).order_by(F("ended_at").desc(nulls_first=True), "-pk").first()


class Erasures:
    """Carries erasures on, a batch of one of them at a time, in turns."""

    def __init__(self) -> None:
        self._last = 0
        self._sizes: dict[int, int] = {}

    def tick(self, limit: int = BATCH) -> bool:
        """One batch; true while there is more to do at once."""
        seen: set[int] = set()
        while (pk := self._following()) is not None and pk not in seen:
            seen.add(pk)
            self._last = pk
            if self.carry_on(pk, limit):
                return True
        return False

    def _following(self) -> int | None:
        found = erasures.following(self._last)
        return found if found is not None or self._last == 0 else erasures.following(0)

    def carry_on(self, pk: int, limit: int = BATCH) -> bool:
        """One batch of this one; false when it has ended, waits, or is another process's."""
        size = min(limit, self._sizes.get(pk, BATCH))
        try:
            more = durable(lambda: _batch(pk, size))
        except IntegrityError:
            # Rows of the site that refer to ours, or a job that came in between.
            return self._smaller(pk, size)
        self._sizes[pk] = min(BATCH, 2 * size)
        return more

    def _smaller(self, pk: int, size: int) -> bool:
        """The one that cannot go is found, and left where it is: the others go."""
        if size > 1:
            self._sizes[pk] = max(1, size // 8)
            return True
        return durable(lambda: _batch(pk, 1, leave=True))


def _batch(pk: int, limit: int, *, leave: bool = False) -> bool:
    """One batch of whatever phase it is in, counted in the same transaction; true while there is more at once.

    `leave`: the next job, or the tenant where no job is left, cannot be deleted; it is passed over.
    """
    if not erasures.hold(pk):
        return False
    now = erasures.read(pk, int(TELLING_S * 1000))
    if now is None:
        return False
    match now.phase:
        case "stopping":
            return _stop(pk, now, limit)
        case "waiting":
            return _wait(pk, now)
        case "erasing":
            return _erase(pk, now, limit, leave)
        case "redacting":
            return _redact_some(pk, now, limit)
        case _:
            return _redact_targets(pk, now, limit)


def _stop(pk: int, now: Open, limit: int) -> bool:
    """Cancel what is held first, then what waits; a look at so many jobs at most."""
    erasures.park(now.tenant_id)
    held = erasures.live(now.tenant_id, limit)
    if held:
        beat = max(heartbeat_s(ms / 1_000) for _, ms in held)
        erasures.wait(pk, int(1_000 * min(HOLDER_MOST_S, beat + HOLDER_GRACE_S)))
    found, last = ([id_ for id_, _ in held], now.after) if held else erasures.active(now.tenant_id, now.after, LOOK,
                                                                                    limit)
    counts = _cancelled(now, found)
    if last is None:
        erasures.wait(pk, int(1_000 * LATECOMERS_S))
    erasures.advance(pk, "stopping" if last else "waiting", last, False, counts)
    return True


def _cancelled(now: Open, job_ids: Sequence[str]) -> Counter[str]:
    """End these locked jobs; whoever holds one can commit nothing any more."""
    answers = apply([Move(id_, Verb.CANCEL, by=now.by, reason=CANCELLED) for id_ in job_ids])
    done = sum(isinstance(answer, Moved) for answer in answers)
    return Counter(now.counts) + Counter({"cancelled": done})


def _wait(pk: int, now: Open) -> bool:
    """Until those who held one have had the time to hear of it; the fence keeps late ones out in any case."""
    if now.waits:
        return False
    erasures.advance(pk, "erasing", None, False, now.counts)
    return True


def _erase(pk: int, now: Open, limit: int, leave: bool) -> bool:
    """Delete the next jobs; at the end of a pass begin anew, until there are none, then the tenant itself."""
    looked = erase.tenants_jobs(now.tenant_id, now.after, limit, untold=now.patience_over, leave=leave)
    counts = _cancelled(now, looked.active) + looked.gone
    failpoints.at("erase.written")
    if looked.last is not None:
        # Jobs are walked from where the last batch ended: what was deleted there is not stepped over again.
        unfinished = now.unfinished or looked.waits or bool(looked.active or looked.gone)
        erasures.advance(pk, "erasing", looked.last, unfinished, counts)
        return True
    if erasures.has_jobs(now.tenant_id):
        return _another_pass(pk, now, counts)
    return _erase_tenant(pk, now, counts, leave)


def _another_pass(pk: int, now: Open, counts: Counter[str]) -> bool:
    if now.after != FIRST and not now.unfinished:
        # Every one of them is referred to by something of the site's.
        erasures.end(pk, "referenced")
        return False
    erasures.advance(pk, "erasing", None, False, counts)
    return False


def _erase_tenant(pk: int, now: Open, counts: Counter[str], leave: bool) -> bool:
    if gone := erase.rest_of_tenant(now.tenant_id):
        erasures.advance(pk, "erasing", None, False, counts + gone)
        return True
    if leave:
        erasures.end(pk, "referenced")
        return False
    counts["jobs_tenant"] += erase.tenant(now.tenant_id)
    erasures.advance(pk, "erasing", None, False, counts)
    erasures.end(pk, "finished")
    return False


def _redact_some(pk: int, now: Open, limit: int) -> bool:
    """Redact the next ended jobs; held ones in another pass."""
    found, last, held = redact.ended(now.tenant_id, now.after, LOOK, limit)
    seen = redact.lock(found, targets=False)
    done = _redact(list(seen.values()), now.by, now.reason, targets=False)
    counts = Counter(now.counts) + Counter({"jobs_job": len(done)})
    unfinished = now.unfinished or held
    if last is not None:
        erasures.advance(pk, "redacting", last, unfinished, counts)
        return True
    erasures.advance(pk, "redacting" if unfinished else "naming", None, False, counts)
    return not unfinished


def _redact_targets(pk: int, now: Open, limit: int) -> bool:
    """Empty the names of its targets; `after` holds the number of the last one here."""
    done, last = redact.targets(now.tenant_id, uuid.UUID(now.after).int, limit)
    counts = Counter(now.counts) + Counter({"jobs_target": done})
    erasures.advance(pk, "naming", None if last is None else str(uuid.UUID(int=last)), False, counts)
    if last is None:
        erasures.end(pk, "finished")
    return last is not None
