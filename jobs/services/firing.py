"""Timers that come due (D13): each moment makes its firing and its job in one transaction, exactly once.

Whoever ticks, however many do, and whatever the clocks of processes say: the database's moment decides what is due, a
constraint that each moment has one firing. A timer whose job is refused is noted and goes on; it stops nobody else.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import DataError, Error, IntegrityError, InterfaceError, OperationalError, connections

from jobs import clock, codecs, failpoints, schedules
from jobs.clock import TICK
from jobs.errors import Conflict, Invalid, JobsError
from jobs.models import Firing, Timer
from jobs.services import intake, recurring, words
from jobs.services.draft import Door, Request
from jobs.services.intake import TIMER, Enqueued
from jobs.store import lookup
from jobs.store import timers as store
from jobs.store.sql import ALIAS, TRANSIENT, NotInTransaction, durable, sqlstate
from jobs.store.timers import LATE, Became, New, Step

log = logging.getLogger("jobs.timers")
_lines = clock.Every(60.0)
BATCH = 100
# Of one timer in one transaction; of all in it, and how long is thought about them: others have their turns between.
AT_ONCE, TOGETHER, PLANNING_S = 50, 250, 1.0
# Ticks come as they can: who is no later than this has missed nothing, whatever its catch-up.
PROMPT = timedelta(seconds=5)
# Milliseconds for a lock that another transaction holds: of a batch, and of a timer alone, of which so many may wait.
LOCK_MS, LOCK_ALONE_MS, HELD_MOST = 500, 100, 20
# lock_not_available, and what comes again where locks are taken crosswise.
HELD = {"55P03", *TRANSIENT}
# A ticker that stands still keeps its timers from the others for so long: they must not be LATE by then.
FROZEN_S = 20
# A zone that this machine does not know may come with its next update.
AGAIN = timedelta(hours=1)
DETAIL, RUN_KEY = 500, 100


class TimerJobActive(Conflict):
    """The job of its last firing has not ended, and its overlap says that there is one at a time."""

    code = "timer_job_active"


class Timers:
    """Fires what is due, a batch a tick, in these workspaces where any are named; ends pauses whose end has come."""

    def __init__(self, workspaces: Collection[int] | None = None) -> None:
        self._workspaces = workspaces

    def tick(self, limit: int = BATCH) -> bool:
        """One batch; true while there may be more. One statement where nothing is due."""
        due, over = store.look()
        ended = durable(lambda: store.end_pauses(limit)) if over else []
        for id_ in ended:
            log.info("timer %s was resumed by its own end", id_, extra={"event": "timer.changed", "timer": str(id_)})
        return (fire(limit, workspaces=self._workspaces) if due or ended else False) or len(ended) >= limit


def fire(limit: int, ids: Collection[uuid.UUID] | None = None, workspaces: Collection[int] | None = None) -> bool:
    """Fire what is due, of these timers and in these workspaces where any are named; true while there may be more.

    Durable. Trouble with the storage is raised when all that could be done is done: nothing of it is lost. Where
    another transaction holds what a timer's job needs, a target say, that timer waits for a later tick, and no other.
    """
    try:
        more = durable(lambda: _fire(_due(limit, ids, workspaces), limit))
        failpoints.at("timer.committed")
    except NotInTransaction:
        raise
    except Exception as error:
        if isinstance(error, (OperationalError, InterfaceError)) and not _is_held(error):
            raise
        return _one_by_one(store.due_ids(limit, ids, workspaces))
    return more


def _due(limit: int, ids: Collection[uuid.UUID] | None = None, workspaces: Collection[int] | None = None,
         wait_ms: int = LOCK_MS) -> list[Timer]:
    store.be_brief(wait_ms, FROZEN_S)
    return store.due(limit, ids, workspaces)


def _one_by_one(ids: Sequence[uuid.UUID]) -> bool:
    """One of these cannot be fired: the others are, and it is noted.

    Trouble with the storage is raised unless one of them was made: then it is what a hook of the site's met, say.
    """
    trouble: tuple[uuid.UUID, Exception] | None = None
    held: list[uuid.UUID] = []
    made = 0
    for id_ in ids:
        if len(held) >= HELD_MOST:
            break
        try:
            durable(lambda id_=id_: _fire(_due(1, [id_], wait_ms=LOCK_ALONE_MS), 1))  # type: ignore[misc]
            made += 1
        except Exception as error:
            if not connections[ALIAS].is_usable():
                raise
            if _is_held(error):
                held.append(id_)
                continue
            if _is_storage(error):
                trouble = id_, error
                continue
            log.exception("timer %s cannot be fired", id_)
            _give_up(id_, type(error).__name__)
    if held and _lines.due():
        log.warning("%d timers wait for what another transaction holds, as timer %s does", len(held), held[0],
                    extra={"event": "timer.waits", "timer": str(held[0])})
    if trouble is not None and not made:
        raise trouble[1]
    if trouble is not None and _lines.due():
        log.error("timer %s cannot be fired, and is tried again", trouble[0], exc_info=trouble[1])
    return False


def _is_held(error: Exception) -> bool:
    return isinstance(error, Error) and sqlstate(error) in HELD


def _is_storage(error: Exception) -> bool:
    """Trouble that says nothing about a timer: it is tried again."""
    return isinstance(error, Error) and not isinstance(error, (DataError, IntegrityError))


def _give_up(timer_id: uuid.UUID, said: str) -> None:
    """Note that its moments could not be fired; one whose row a hand has spoilt is put off for an hour."""
    try:
        durable(lambda: _refuse(timer_id, said))
    except Exception as error:
        if _is_storage(error):
            raise
        durable(lambda: store.put_off(timer_id, AGAIN))


def _refuse(timer_id: uuid.UUID, said: str) -> None:
    for row in store.due(1, [timer_id]):
        plan = _plan(row, at_once=AT_ONCE)
        plan.refused = Conflict(f"It could not be enqueued: {said}.", code="timer_failed")
        _write([plan])


# --- what is to be done with a timer that is due -------------------------------------------------------------------


@dataclass(slots=True)
class _Plan:
    """What one timer makes now, and where it goes on."""

    row: Timer
    moments: list[datetime]
    next_at: datetime | None
    missed: tuple[datetime, int] | None = None
    refused: JobsError | None = None
    overlaps: bool = False
    made: list[tuple[datetime, str]] = field(default_factory=list)

    def firings(self) -> list[New]:
        """What is written before anything is enqueued."""
        of = (self.row.pk, self.row.tenant_id)
        return [New(*of, at) for at in self.moments] + ([New(*of, *self.missed)] if self.missed else [])

    def step(self) -> Step:
        """Where it goes on."""
        last_at, last_job_id = self.made[-1] if self.made else (None, None)
        assert self.row.next_at is not None
        return Step(self.row.pk, self.row.next_at, self.next_at, last_at, last_job_id)


def _plan(row: Timer, *, at_once: int) -> _Plan:
    """Which of the moments that have come are made, which are missed (catch-up), and which is the next."""
    now, first = row.now, row.next_at  # type: ignore[attr-defined]
    assert first is not None
    try:
        schedule = recurring.schedule_of(row)
    except Invalid as error:
        return _Plan(row, [first], now + AGAIN, refused=error)
    # What is no later than that is made whatever the catch-up: ticks come as they can.
    prompt = schedule.count(max(first, now - PROMPT) - TICK, now)
    moments, earlier = schedules.newest(schedule, first - TICK, now, max(row.catch_up_most, prompt))
    if row.catch_up == "skip" and moments and now - moments[-1] > LATE:
        moments, earlier = [], earlier + len(moments)
    here, left = moments[:at_once], moments[at_once:]
    missed = (schedule.next(first - TICK) or first, earlier) if earlier else None
    return _Plan(row, here, left[0] if left else schedule.next(now), missed)


def _plans(rows: Sequence[Timer]) -> list[_Plan]:
    waits = store.active([r.last_job_id for r in rows if r.overlap == "skip" and r.last_job_id is not None])
    plans: list[_Plan] = []
    began = clock.monotonic()
    for row in rows:
        if sum(len(p.moments) for p in plans) >= TOGETHER or clock.monotonic() - began > PLANNING_S:
            break
        overlaps = row.overlap == "skip" and str(row.last_job_id) in waits
        # Where one job at a time may run, the next moment must see this one's.
        plans.append(_plan(row, at_once=1 if row.overlap == "skip" and not overlaps else AT_ONCE))
        plans[-1].overlaps = overlaps
    return plans


def _fire(rows: Sequence[Timer], limit: int) -> bool:
    """Fire these locked timers; whether there may be more to do at once."""
    plans = _plans(rows)
    _write(plans)
    return len(rows) >= limit or len(plans) < len(rows) or any(p.next_at is not None and p.next_at <= p.row.now  # type: ignore[attr-defined]
                                     for p in plans)


def _write(plans: Sequence[_Plan]) -> None:
    """Firings, jobs and the timers' next moments, all or nothing."""
    new = store.insert([one for plan in plans for one in plan.firings()])
    wanted = [(plan, at, firing) for plan in plans for at in plan.moments
              if (firing := new.get((plan.row.pk, at))) is not None]
    answers = _enqueue([(plan, at) for plan, at, _ in wanted])
    store.became([_became(plan, at, firing, answer)
                  for (plan, at, firing), answer in zip(wanted, answers, strict=True)])
    failpoints.at("timer.fired")
    store.advance([plan.step() for plan in plans])


def _enqueue(wanted: Sequence[tuple[_Plan, datetime]]) -> list[Enqueued | JobsError | None]:
    """The job or the refusal of each; None where the one before is in its way."""
    answers: list[Enqueued | JobsError | None] = [None] * len(wanted)
    asked: dict[int, Request] = {}
    for n, (plan, at) in enumerate(wanted):
        if plan.refused is not None:
            answers[n] = plan.refused
        elif not plan.overlaps:
            try:
                asked[n] = _request(plan.row, at)
            except JobsError as error:
                answers[n] = error
    for n, answer in zip(asked, intake.enqueue_each(list(asked.values()), door=TIMER), strict=True):
        answers[n] = answer
    return answers


def _request(row: Timer, at: datetime, key: str | None = None) -> Request:
    return recurring.request(row, row.workspace.slug, row.tenant.subject, at, key)


def _became(plan: _Plan, at: datetime, firing: int, answer: Enqueued | JobsError | None) -> Became:
    if answer is None:
        return Became(firing, "overlapped", detail=f"job {plan.row.last_job_id} had not ended")
    if isinstance(answer, JobsError):
        return Became(firing, "refused", answer.reason_code, codecs.printable(answer.message, DETAIL))
    plan.made.append((at, answer.id))
    if answer.steered:
        return Became(firing, "enqueued", detail=f"steered job {answer.id}")
    return Became(firing, "enqueued", job_id=answer.id)


# --- beside the schedule -------------------------------------------------------------------------------------------


def manual(row: Timer, *, by: str, key: str | None = None) -> Firing:
    """Fire a locked timer now, in the caller's transaction; with a key that is known already, the same again.

    Raises TimerJobActive, Invalid invalid_idempotency_key, and all that enqueue refuses.
    """
    name = None if key is None else _run_key(row, key)
    if name is not None and (known := lookup.by_keys([(row.tenant_id, None, name)])[0]):
        found = Firing.objects.filter(timer_id=row.pk, job_id=known[0].id).order_by("job_id").first()
        if found is not None:
            return found
    if row.overlap == "skip" and row.last_job_id is not None and store.active([row.last_job_id]):
        raise TimerJobActive(job_id=str(row.last_job_id))
    moment = clock.now()
    # Whole seconds are the schedule's.
    moment += TICK if moment.microsecond == 0 else timedelta()
    while not (new := store.insert([New(row.pk, row.tenant_id, moment, by=by[:200])])):
        moment += TICK
    door = Door(TIMER.endpoint, TIMER.origin, by[:200])
    made = intake.enqueue_many([_request(row, moment, name)], door=door)[0]
    store.became([_became(_Plan(row, [], None), moment, next(iter(new.values())), made)])
    store.note(row.pk, moment, made.id)
    return Firing.objects.get(pk=next(iter(new.values())))


def _run_key(row: Timer, key: str) -> str:
    if len(words.key(key, "idempotency_key") or "") > RUN_KEY:
        raise Invalid(f"must be at most {RUN_KEY} characters", field="idempotency_key", code="invalid_idempotency_key")
    # Apart from those of its moments: nobody takes one of them beforehand.
    return f"timer:{row.pk}:run:{key}"
