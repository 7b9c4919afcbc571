"""Caps and pauses of queues, worker groups and types, pauses of tenants: of a workspace or the whole site (C9, C11).

What runs goes on: after the commit of a pause, or of a cap that is reached, no claim that begins later starts such a
job. A person may pause or cancel what runs, job by job. The house's own jobs are never held back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from jobs import clock, publish
from jobs.conf import conf, registry
from jobs.errors import Invalid, NotFound
from jobs.models import Job, Tenant, Throttle, Workspace
from jobs.models.throttle import KINDS
from jobs.registry import nearest
from jobs.routing import SYSTEM
from jobs.services import tenancy
from jobs.services.cancellation import check_reason
from jobs.services.words import MAX_DELAY_S, US
from jobs.store import admission, counting, due, throttling
from jobs.store.sql import durable, joining
from jobs.store.throttling import QUEUE, TENANT, TYPE, WORKER_GROUP, Spot, Written

log = logging.getLogger("jobs.throttles")
MOST = 2_000_000_000
BATCH = 1_000
TYPES = 20
HOLDERS = 10


class ThrottleNotFound(NotFound):
    """Nothing holds this back."""

    code = "throttle_not_found"


def pause(kind: str, name: str, *, by: str, reason: str, workspace: Workspace | None = None,
          until: datetime | None = None, for_s: float | None = None) -> Throttle:
    """Let no job of it begin until `until`, for `for_s` seconds, or until somebody resumes it; said anew if paused.

    Without a workspace the whole site's; `name` of a tenant is its subject, empty for the untenanted one. Joins the
    caller's transaction. Raises Invalid, and NotFound for no such tenant.
    """
    check_reason(reason)
    for_us = _span_us(until, for_s)
    spot = _spot(kind, name, workspace, fresh=True)
    with joining():
        written = throttling.pause(spot, by[:200], reason, until, for_us)
        _note(written, "paused", by, reason)
        if written.tenant_id is not None:
            tenant_id = written.tenant_id
            transaction.on_commit(lambda: _park(tenant_id), robust=True)
    return _read(written.id)


def resume(kind: str, name: str, *, by: str, workspace: Workspace | None = None) -> Written:
    """End a pause now; as it was. Joins the caller's transaction. Raises ThrottleNotFound where there is none."""
    spot = _spot(kind, name, workspace)
    with joining():
        was = throttling.resume(spot)
        if was is None:
            raise ThrottleNotFound("It is not paused.", field="name")
        _note(was, "resumed", by)
        transaction.on_commit(let_go, robust=True)
    return was


def cap(kind: str, name: str, most: int | None, *, by: str, workspace: Workspace | None = None) -> Throttle | None:
    """Let at most so many of its jobs run at once; None takes the cap away, and answers None where nothing is left.

    What runs already is counted at once and goes on. Joins the caller's transaction. Raises Invalid, ThrottleNotFound.
    """
    check_most(kind, most)
    spot = _spot(kind, name, workspace, fresh=most is not None)
    with joining():
        written = throttling.uncap(spot) if most is None else throttling.cap(spot, most)
        if written is None:
            raise ThrottleNotFound("It has no cap.", field="name")
        _note(written, "uncapped" if most is None else f"capped at {most}", by)
        transaction.on_commit(let_go if most is None else _count, robust=True)
    return _rows().filter(pk=written.id).first()


def find(kind: str, name: str, *, workspace: Workspace | None = None) -> Throttle | None:
    """What holds it back, if anything does. Raises Invalid for no such kind, NotFound for no such tenant."""
    kind, name, workspace_id, tenant_id = _spot(kind, name, workspace)
    return _rows().filter(kind=kind, name=name, workspace=workspace_id, tenant=tenant_id).first()


def _rows() -> QuerySet[Throttle]:
    return Throttle.objects.select_related("workspace", "tenant")


def _read(pk: int) -> Throttle:
    return _rows().get(pk=pk)


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that a throttle should say."""

    most: int | None = None
    paused: bool = False
    reason: str = ""
    until: datetime | None = None
    for_s: float | None = None


def put(kind: str, name: str, wanted: Wanted, *, by: str, workspace: Workspace | None = None) -> Throttle:
    """Say anew all that holds it back. Raises Invalid, also where that is nothing, and NotFound for no such tenant."""
    check(kind, name, wanted, workspace=workspace)
    made: Throttle | None = None
    with joining(savepoint=True):
        if wanted.most is not None:
            made = cap(kind, name, wanted.most, by=by, workspace=workspace)
        if wanted.paused:
            made = pause(kind, name, by=by, reason=wanted.reason, workspace=workspace, until=wanted.until,
                         for_s=wanted.for_s)
        for away, takes in ((not wanted.paused, lambda: resume(kind, name, by=by, workspace=workspace)),
                            (wanted.most is None, lambda: cap(kind, name, None, by=by, workspace=workspace))):
            if away:
                _quietly(takes)
    assert made is not None
    return _read(made.pk)


def remove(kind: str, name: str, *, by: str, workspace: Workspace | None = None) -> None:
    """Hold it back no more: neither cap nor pause. Raises ThrottleNotFound where there is none."""
    with joining(savepoint=True):
        gone = [_quietly(lambda: resume(kind, name, by=by, workspace=workspace)),
                kind != TENANT and _quietly(lambda: cap(kind, name, None, by=by, workspace=workspace))]
        if not any(gone):
            raise ThrottleNotFound(field="name")


def _quietly(takes: Any) -> bool:
    try:
        takes()
    except ThrottleNotFound:
        return False
    return True


# --- what may be said ----------------------------------------------------------------------------------------------


def check(kind: str, name: str, wanted: Wanted, *, workspace: Workspace | None = None) -> None:
    """Whether it may be held back so; raises Invalid, and NotFound for no such tenant."""
    _spot(kind, name, workspace, fresh=True)
    check_most(kind, wanted.most)
    if wanted.paused:
        check_reason(wanted.reason)
        _span_us(wanted.until, wanted.for_s)
    elif wanted.until or wanted.for_s is not None or wanted.reason:
        raise Invalid("A reason, `until` and `for_s` are a pause's.", field="paused", code="throttle_not_paused")
    elif wanted.most is None:
        raise Invalid("says neither `most` nor `paused`: remove it instead", field="most", code="throttle_says_nothing")


def check_most(kind: str, most: int | None) -> None:
    """Whether a cap may be this; raises Invalid."""
    if most is None:
        return
    if kind == TENANT:
        raise Invalid("A tenant's cap is the limit tenant_concurrency.", field="most", code="invalid_most")
    if type(most) is not int or not 1 <= most <= MOST:
        raise Invalid(f"must be a whole number from 1 to {MOST}, or null; to let none begin, pause it", field="most",
                      code="invalid_most")


def _span_us(until: datetime | None, for_s: float | None) -> int | None:
    """The length of a pause; checks its end as well."""
    if until is not None and for_s is not None:
        raise Invalid("`until` and `for_s` are two ends of one pause: say one", field="until", code="invalid_until")
    if until is not None:
        aware = isinstance(until, datetime) and until.tzinfo is not None
        if not aware or not 0 < (until - clock.now()).total_seconds() <= MAX_DELAY_S:
            raise Invalid(f"must lie ahead, by at most {MAX_DELAY_S} seconds", field="until", code="invalid_until")
        return None
    if for_s is None:
        return None
    if type(for_s) not in (int, float) or not 0.001 <= for_s <= MAX_DELAY_S:
        raise Invalid(f"must be a number of seconds, more than 0 and at most {MAX_DELAY_S}", field="for_s",
                      code="invalid_for_s")
    return int(for_s * US)


def _spot(kind: str, name: str, workspace: Workspace | None, *, fresh: bool = False) -> Spot:
    if not isinstance(kind, str) or kind not in KINDS:
        raise Invalid(f"There is no such kind of throttle{_nearest(kind, KINDS)}; known are"
                      f" {', '.join(KINDS)}.", field="kind", code="unknown_throttle_kind")
    if kind == TENANT:
        if workspace is None:
            raise Invalid("A tenant is one of a workspace: name it.", field="workspace", code="missing_field")
        return kind, "", workspace.pk, tenancy.tenant(workspace, name or None).pk
    if fresh:
        check_name(kind, name)
    elif not isinstance(name, str) or not name.isprintable():
        raise ThrottleNotFound(field="name")
    return kind, name, None if workspace is None else workspace.pk, None


def check_name(kind: str, name: str) -> None:
    """Whether this site has such a queue, worker group or type; raises Invalid naming the nearest."""
    known = names(kind)
    if not isinstance(name, str) or name not in known:
        raise Invalid(f"There is no such {kind.replace('_', ' ')}{_nearest(name, known)}", field="name",
                      code=f"unknown_{kind}")


def _nearest(said: object, known: Collection[str]) -> str:
    # Of what is no text not even its text is asked: it may be endless.
    return nearest(said[:64], known) if isinstance(said, str) else ""


def names(kind: str) -> Collection[str]:
    """The queues, worker groups or types of this site that may be held back."""
    found = registry()
    if kind == QUEUE:
        return sorted(conf().QUEUES)
    if kind == WORKER_GROUP:
        routed = {rule.worker_group for rule in conf().ROUTING}
        return sorted({*found.groups(), *found.groups(external=True), *routed} - {SYSTEM})
    return sorted({d.type for d in found if d.worker_group != SYSTEM})


def _note(written: Written, word: str, by: str, reason: str = "") -> None:
    # A tenant by its number: logs are kept longer than what is erased.
    what = f"tenant {written.tenant_id}" if written.kind == TENANT else f"{written.kind} {written.name}"
    where = "the site" if written.workspace_id is None else f"workspace {written.workspace_id}"
    until = "" if word != "paused" else (
        f" until {clock.jsonable(written.paused_until)}" if written.paused_until else " until somebody resumes it")
    log.info("%s of %s was %s by %s%s%s", what, where, word, by, until, f": {reason}" if reason else "",
             extra={"event": "throttle.changed", "throttle": written.id, "kind": written.kind, "verb": word, "by": by})


# --- after the commit ----------------------------------------------------------------------------------------------


def _park(tenant_id: int) -> None:
    durable(lambda: throttling.park_tenant(tenant_id))


def _count() -> None:
    """Count what runs under the cap, and let in what a raised one has room for."""
    after: str | None = due.FIRST
    while after is not None:
        _, after = durable(lambda here=after: counting.count_live(here, BATCH))  # type: ignore[misc]
    let_go()


def let_go() -> None:
    """Bring back what no throttle holds any more and wake workers: one batch of jobs, the repair goes on with more."""
    after, more = 0, True
    while more:
        _, after = durable(lambda here=after: throttling.unpark(here, BATCH))  # type: ignore[misc]
        more = after != 0

    def some() -> None:
        admission.repair_types("", TYPES)
        publish.wake_after_commit()

    durable(some)


class Ends:
    """Clears pauses whose end has come, and brings back what they held. Claims do not obey them any more anyway.

    Every process that claims does it, so that a pause ends also where no loop runs; one look at few rows.
    """

    def tick(self, limit: int = 100) -> bool:
        """One batch; true where there may be more."""
        ended = durable(lambda: throttling.end_pauses(limit))
        for one in ended:
            _note(one, "resumed", "its own end")
        if ended:
            let_go()
        return len(ended) >= limit


# --- reading -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blocker:
    """A throttle that holds a job back. `holders` are jobs in its slots, the oldest first, at most 10."""

    kind: str
    name: str
    scope: str
    most: int | None
    used: int
    paused: bool
    paused_by: str | None
    reason: str | None
    until: datetime | None
    holders: tuple[str, ...]

    @property
    def code(self) -> str:
        """`queue_paused`, `type_at_cap`."""
        return f"{self.kind}_{'paused' if self.paused else 'at_cap'}"

    @property
    def said(self) -> str:
        """In words."""
        what = "Its tenant" if self.kind == TENANT else f"Its {self.kind.replace('_', ' ')} {self.name!r}"
        if self.paused:
            ends = "until somebody resumes it" if self.until is None else f"until {clock.jsonable(self.until)}"
            return f"{what} is paused by {self.paused_by} ({self.reason}), {ends}."
        return f"{what} runs {self.used} of at most {self.most} jobs at once; in its slots: {', '.join(self.holders)}."


def of(job: Job) -> list[Throttle]:
    """Every throttle that this job obeys, pauses that have ended included."""
    if job.worker_group == SYSTEM:
        return []
    mine = Q(kind=QUEUE, name=job.queue) | Q(kind=WORKER_GROUP, name=job.worker_group) | Q(kind=TYPE, name=job.type)
    places = Q(workspace=None) | Q(workspace=job.workspace_id)
    return list(Throttle.objects.filter(mine & places | Q(tenant_id=job.tenant_id)).order_by("pk"))


def blockers_of(job: Job, now: datetime | None = None) -> list[Blocker]:
    """The throttles that hold this waiting job back at `now`: pauses first, then full caps."""
    now, found = now or clock.now(), []
    for row in of(job):
        name = row.name or job.tenant.subject or ""
        if paused(row, now):
            found.append(Blocker(row.kind, name, row.scope, row.most, 0, True, row.paused_by, row.pause_reason,
                                 row.paused_until, ()))
        if row.most is not None:
            used, holding = used_of(row)
            if used >= row.most:
                found.append(Blocker(row.kind, name, row.scope, row.most, used, False, None, None, None,
                                     tuple(holding)))
    return sorted(found, key=lambda b: not b.paused)


def paused(row: Throttle, now: datetime) -> bool:
    """Whether this throttle is paused at this moment."""
    return row.paused_at is not None and (row.paused_until is None or row.paused_until > now)


def paused_now(now: datetime, most: int) -> list[Throttle]:
    """What is paused at this moment, the latest first: at most so many."""
    rows = _rows().filter(Q(paused_until=None) | Q(paused_until__gt=now), paused_at__isnull=False)
    return list(rows.order_by("-paused_at")[:most])


def used_of(row: Throttle) -> tuple[int, list[str]]:
    """How many live attempts count under its cap, and the jobs of the oldest."""
    return throttling.holders(throttling.cap_name(row.kind, row.workspace_id, row.name), HOLDERS)


def listed(workspace: Workspace | None = None, tenant: Tenant | None = None, *, most: int = 1_000) -> list[Throttle]:
    """The throttles of a workspace, of all where none is named, of a tenant where one is: at most so many."""
    rows = _rows().order_by("kind", "name", "pk")
    if workspace is not None:
        rows = rows.filter(workspace=workspace)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return list(rows[:most])
