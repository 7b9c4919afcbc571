"""Timers: rules by which a tenant's jobs are enqueued again and again (D13). The verbs of people; they join your
transaction. What comes due is `firing`'s, what a timer may say `recurring`'s.
"""

from __future__ import annotations

import logging
import uuid
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet

from jobs import clock
from jobs.clock import Now
from jobs.conf import conf
from jobs.errors import Conflict, Invalid, NotFound, RevisionMismatch
from jobs.models import Firing, Tenant, Timer, Workspace
from jobs.services import firing, recurring, tenancy, words
from jobs.services.cancellation import check_reason
from jobs.services.recurring import Draft
from jobs.services.words import MAX_DELAY_S
from jobs.store.sql import joining

log = logging.getLogger("jobs.timers")
UPCOMING, PAGE, MOST_A_PAGE = 5, 50, 200
__all__ = [
    "Draft", "TimerDeclared", "TimerExists", "TimerNotFound", "TimerNotPaused", "TooManyTimers", "check", "get",
    "history", "listing", "pause", "put", "put_for", "read", "remove", "resume", "run_now", "upcoming",
]


class TimerNotFound(NotFound):
    """There is no such timer, or it is not yours."""

    code = "timer_not_found"


class TimerExists(Conflict):
    """This tenant has a timer of this name already."""

    code = "timer_exists"


class TooManyTimers(Conflict):
    """This tenant has as many timers as it may."""

    code = "too_many_timers"


class TimerNotPaused(Conflict):
    """This timer is not paused."""

    code = "timer_not_paused"


class TimerDeclared(Conflict):
    """The site's settings declare this timer: change it there. It may be paused, resumed and run."""

    code = "timer_declared"


def put(tenant: Tenant, name: str, draft: Draft, *, by: str, revision: int | None = None,
        create: bool = False, declared: bool = False, origin: str | None = None) -> Timer:
    """Make a timer, or say anew all that it says; `create`: only make it. Joins the caller's transaction.

    The same said again changes nothing; `fresh` of the row says that it was made now. `declared`: the settings say it,
    whoever had made it before. `origin`: of a caller whose timers enqueue what it may enqueue itself (B13).
    Its first moment lies ahead. Where the schedule stays, so does the next moment, and so does the anchor of an
    interval of which the draft names none. A pause stays. Raises what `recurring.columns` does, TimerExists,
    TimerNotFound where a `revision` is asked for and none is there, TimerDeclared, RevisionMismatch and TooManyTimers.
    """
    recurring.check_name(name)
    if origin is not None:
        recurring.check_origin(draft, origin)
    with joining(savepoint=True):
        row = _locked(tenant_id=tenant.pk, name=name)
        if row is None:
            if revision is not None:
                raise TimerNotFound()
            row = _made(tenant, name, draft, by, declared)
            if row is not None:
                return row
            # Somebody else made it at this moment.
            row = _locked(tenant_id=tenant.pk, name=name)
        if row is None or create:
            raise TimerExists(field="name")
        _check_undeclared(row, declared)
        _check_revision(row, revision)
        now = clock.now()
        said = recurring.columns(draft, tenant.workspace, tenant, name, now, row) | {"declared": declared}
        if all(getattr(row, column) == value for column, value in said.items()):
            return row
        if any(getattr(row, column) != said[column] for column in ("cron", "every_s", "anchor_at", "zone")):
            said["next_at"] = recurring.schedule_of(Timer(**said)).next(now)
        return _changed(row, by, "put", by=by[:200], **said)


def put_for(workspace: Workspace, subject: str | None, name: str, draft: Draft, **said: Any) -> Timer:
    """The same for a tenant by its subject, who is made with it: a refusal leaves neither behind."""
    with joining(savepoint=True):
        return put(tenancy.tenant(workspace, subject, make=True), name, draft, **said)


def _made(tenant: Tenant, name: str, draft: Draft, by: str, declared: bool) -> Timer | None:
    """None where somebody else made it at the same moment."""
    now = clock.now()
    row = Timer(workspace=tenant.workspace, tenant=tenant, name=name, by=by[:200], declared=declared,
                **recurring.columns(draft, tenant.workspace, tenant, name, now))
    row.next_at = recurring.schedule_of(row).next(now)
    most = conf().TIMERS_PER_TENANT
    # Without a lock: puts at the same moment may exceed it by what the others have not committed yet.
    if Timer.objects.filter(tenant=tenant)[:most].count() >= most:
        raise TooManyTimers(f"A tenant may have {most} timers.", field="name")
    Timer.objects.bulk_create([row], ignore_conflicts=True)
    made = _rows().filter(pk=row.pk).first()
    if made is not None:
        made.fresh = True
        _note(made, "made", by)
    return made


def check(tenant: Tenant, name: str, draft: Draft) -> None:
    """Whether `put` would take this draft, but for what others do meanwhile; raises as `put` does."""
    recurring.columns(draft, tenant.workspace, tenant, name, clock.now())


def remove(timer: Timer, *, by: str, revision: int | None = None, declared: bool = False) -> None:
    """Take a timer away; its jobs stay, and its firings go by their age. Joins the caller's transaction.

    Raises TimerNotFound, RevisionMismatch, and TimerDeclared for whom the settings declare, but to them.
    """
    with joining():
        row = _found(timer)
        _check_undeclared(row, declared)
        _check_revision(row, revision)
        Timer.objects.filter(pk=row.pk).delete()
        _note(row, "removed", by)


def pause(timer: Timer, *, by: str, reason: str, until: datetime | None = None,
          revision: int | None = None) -> Timer:
    """Let it not fire until `until`, or until somebody resumes it; said anew if paused. Joins the caller's transaction.

    Moments within a pause are not made up, whatever its catch-up says. Raises Invalid invalid_reason and invalid_until,
    TimerNotFound, RevisionMismatch.
    """
    check_reason(reason)
    if until is not None and (not isinstance(until, datetime) or until.tzinfo is None
                              or not 1 <= (until - clock.now()).total_seconds() <= MAX_DELAY_S):
        raise Invalid(f"must lie ahead, by 1 to {MAX_DELAY_S} seconds", field="until", code="invalid_until")
    with joining():
        row = _found(timer)
        _check_revision(row, revision)
        return _changed(row, by, "paused", paused_at=Now(), paused_by=by[:200], paused_reason=reason,
                        paused_until=until)


def resume(timer: Timer, *, by: str, revision: int | None = None, reason: str = "") -> Timer:
    """End its pause now: the next moment is the first one ahead. Joins the caller's transaction.

    A reason stands in the log. Raises Invalid invalid_reason, TimerNotPaused, TimerNotFound, RevisionMismatch.
    """
    if reason:
        check_reason(reason)
    with joining():
        row = _found(timer)
        _check_revision(row, revision)
        if row.paused_at is None:
            raise TimerNotPaused()
        word = f"resumed ({reason})" if reason else "resumed"
        return _changed(row, by, word, paused_at=None, paused_by=None, paused_reason=None, paused_until=None,
                        next_at=recurring.schedule_of(row).next(clock.now()))


def run_now(timer: Timer, *, by: str, key: str | None = None, reason: str = "") -> Firing:
    """Fire it now beside its schedule, paused or not: a manual firing, and its job. Joins the caller's transaction.

    A reason is kept with the firing.
    Asked again with the same `key` (1 to 100 printable ASCII characters), the answer is the same firing. Raises
    TimerNotFound, Conflict timer_job_active where its overlap is `skip` and the job before is active, Invalid
    invalid_idempotency_key, and all that enqueue refuses.
    """
    if reason:
        check_reason(reason)
    with joining(savepoint=True):
        row = _found(timer)
        made = firing.manual(row, by=by, key=key)
        if reason and made.detail is None:
            made.detail = reason[:firing.DETAIL]
            Firing.objects.filter(pk=made.pk, detail=None).update(detail=made.detail)
        _note(row, "run", by)
        return made


# --- reading -------------------------------------------------------------------------------------------------------


def get(tenant_id: int, name: str) -> Timer:
    """A tenant's timer by its name. Raises TimerNotFound."""
    found = _rows().filter(tenant_id=tenant_id, name=name).first() if _could_be(name) else None
    if found is None:
        raise TimerNotFound()
    return found


def read(timer_id: Any) -> Timer:
    """A timer by its id, of whatever tenant. Raises TimerNotFound."""
    try:
        wanted = uuid.UUID(str(timer_id))
    except (ValueError, RecursionError):
        raise TimerNotFound() from None
    found = _rows().filter(pk=wanted).first()
    if found is None:
        raise TimerNotFound()
    return found


def listing(*, workspace_id: int | None = None, tenant_id: int | None = None, paused: bool | None = None,
            after: uuid.UUID | None = None, limit: int = PAGE) -> list[Timer]:
    """Timers by their ids, which is the order in which they were made, behind `after`; at most `limit` (1 to 200)."""
    found = _rows().order_by("pk")
    if workspace_id is not None:
        found = found.filter(workspace_id=workspace_id)
    if tenant_id is not None:
        found = found.filter(tenant_id=tenant_id)
    if paused is not None:
        found = found.filter(paused_at__isnull=not paused)
    if after is not None:
        found = found.filter(pk__gt=after)
    return list(found[:max(1, min(limit, MOST_A_PAGE))])


def upcoming(timer: Timer, count: int = UPCOMING) -> list[datetime]:
    """Its next moments, at most so many (1 to 100): behind the end of its pause, none where that has no end.

    Raises Invalid unknown_zone where this machine does not know its zone.
    """
    after = clock.now()
    if timer.paused(after):
        if timer.paused_until is None:
            return []
        after = timer.paused_until - clock.TICK
    schedule = recurring.schedule_of(timer)
    found: list[datetime] = []
    while len(found) < min(count, 100) and (at := schedule.next(after)) is not None:
        found.append(at)
        after = at
    return found


def history(timer: Timer, *, before: datetime | None = None, limit: int = PAGE) -> list[Firing]:
    """Its firings, the latest moment first, behind `before`; at most `limit` (1 to 200)."""
    found = Firing.objects.filter(timer_id=timer.pk).order_by("-moment")
    if words.moment(before, "before") is not None:
        found = found.filter(moment__lt=before)
    return list(found[:max(1, min(limit, MOST_A_PAGE))])


def _rows() -> QuerySet[Timer]:
    return Timer.objects.select_related("workspace", "tenant")


def _could_be(name: Any) -> bool:
    return isinstance(name, str) and recurring.NAME.match(name) is not None


# --- writing -------------------------------------------------------------------------------------------------------


def _locked(**which: Any) -> Timer | None:
    # Not skip_locked: a person's change waits for the firing that is on, which holds it for milliseconds.
    return _rows().select_for_update(of=("self",), no_key=True).filter(**which).first()


def _found(timer: Timer) -> Timer:
    row = _locked(pk=timer.pk)
    if row is None:
        raise TimerNotFound()
    return row


def _check_undeclared(row: Timer, declared: bool) -> None:
    if row.declared and not declared:
        raise TimerDeclared()


def _check_revision(row: Timer, wanted: int | None) -> None:
    if wanted is not None and wanted != row.revision:
        raise RevisionMismatch(f"The timer is at revision {row.revision}.", revision=row.revision)


def _changed(row: Timer, who: str, word: str, **said: Any) -> Timer:
    done = Timer.objects.filter(pk=row.pk, revision=row.revision).update(
        **said, revision=F("revision") + 1, updated_at=Now())
    if not done:
        raise RevisionMismatch()
    _note(row, word, who)
    return _rows().get(pk=row.pk)


def _note(row: Timer, word: str, by: str) -> None:
    # By its id: names are a tenant's words, and logs are kept longer than what is erased.
    log.info("timer %s was %s by %s", row.pk, word, by,
             extra={"event": "timer.changed", "timer": str(row.pk), "verb": word, "by": by})
