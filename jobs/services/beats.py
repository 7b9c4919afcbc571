"""The heartbeat of a runner over HTTP: it renews the lease, brings what the attempt reports, and takes back what it
should know (C33, E8).

The same verbs as a worker's (`assignments`, `progress`), bound to the key that claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from jobs import clock, codecs, selectors
from jobs.conf import registry
from jobs.diagnostics import snapshot
from jobs.errors import Conflict, IllegalMove, Invalid, JobsError, StaleFence
from jobs.leases import heartbeat_s
from jobs.models import Key
from jobs.outcomes import ResultStatus
from jobs.selectors import Assignment
from jobs.services import assignments, commands, costs, noted, overtime, progress, runners, stages
from jobs.services.commands import Command
from jobs.services.costs import Cost
from jobs.states import State
from jobs.store.moves import Fact
from jobs.store.sql import durable

START_MS = 500
# Leases that were renewed so short a time ago are not written anew.
FRESH_MS = 1_000
LOOK_S = 0.25


class StaleCheckpoint(Conflict):
    """A checkpoint with this number or a later one is already kept."""

    code = "stale_checkpoint"


@dataclass(frozen=True, slots=True)
class Extended:
    """What a runner learns from a heartbeat: until when it is believed, when to beat again, whether to stop, and the
    oldest unread commands to its job (E8)."""

    lease_until: datetime
    heartbeat_after_s: float
    abort: str | None
    checkpoint_number: int
    commands: Sequence[Command] = ()


def extend(key: Key, name: str, *, checkpoint: dict[str, Any] | None = None, stage: dict[str, Any] | None = None,
           diagnostic: dict[str, Any] | None = None, consumed: Sequence[str] = (),
           cost: Decimal | None = None) -> Extended:
    """Renew a lease; the first time the job becomes running (A9, C33).

    Keeps a checkpoint `{seq, ...}`, records a stage `{stage, event}` (B30) and what the attempt has cost so far (C12):
    all of these or, if one is refused, none. Logs a diagnostic (B32). `consumed` are ids of commands that this attempt
    has dealt with: they are told no more (E8, E12). Raises NotFound, StaleFence, DurationExceeded, StaleCheckpoint,
    TooMuchProgress, BudgetExhausted, and Invalid invalid_checkpoint, undeclared_stage, invalid_progress,
    invalid_diagnostic, unknown_command. Durable.
    """
    held = selectors.assignment(key.pk, name)
    said = None if diagnostic is None else snapshot(diagnostic, beneath="diagnostic.")
    if checkpoint is not None:
        _check(checkpoint)
    consumed = commands.check_ids(held.job_id, consumed)
    if stage is not None:
        _check_stage(held, stage)
    runners.check_time(key, held)
    beat = _renewed([held]).get(held.id)
    if beat is None:
        ended = selectors.assignment(key.pk, name)
        raise (cost is not None and costs.refusal(ended)) or overtime.refusal(ended)
    if beat.state == State.LEASED:
        _start(key, held)
    if said is not None:
        noted.note(held, said)
    if checkpoint is not None or stage is not None or cost is not None:
        spent = _keep(key, held, checkpoint, stage, cost)
        if spent is not None:
            costs.end(key, held, spent)
    told = commands.after_beat(held.job_id, held.id, beat, consumed, runners.actor(key))
    held = selectors.assignment(key.pk, name)
    return _extended(held, beat, told)


def look(key: Key, name: str) -> Extended:
    """What `extend` answers, without renewing anything: for a heartbeat that has waited. Raises as it does."""
    held = selectors.assignment(key.pk, name)
    beat = assignments.peek([held.id]).get(held.id)
    if beat is None:
        raise overtime.refusal(held)
    return _told(key, held, beat)


def wait(name: str, seconds: float) -> None:
    """Look again and again in this thread, until there is something to hear or the time is over."""
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > 0:
        # Nothing is held while waiting.
        connection.close()
        clock.sleep(min(left, LOOK_S))
        if has_news([name])[0]:
            return


def has_news(names: Sequence[str]) -> list[bool]:
    """Which of these attempts have something to hear: a stop, commands, or that they are void (A54, E5, E8)."""
    beats = assignments.peek(names)
    return [(beat := beats.get(name)) is None or beat.abort is not None or beat.unread for name in names]


def extend_all(key: Key, names: Sequence[str]) -> list[Extended | JobsError]:
    """The bare heartbeats of many assignments, each answered or refused as by `extend`; a statement each for all.

    One whose first heartbeat it is, or whose time is over, is extended alone. Durable.
    """
    found = selectors.assignments(key.pk, names)
    plain = [held for held in found.values() if held.live and held.over is None and held.state == State.RUNNING]
    beats = _renewed(plain)
    again = selectors.assignments(key.pk, [held.id for held in plain if held.id in beats])
    unread = commands.unread([held.job_id for held in plain if held.id in beats and beats[held.id].unread],
                             limit=commands.AT_ONCE)
    done = {held.id: _extended(again.get(held.id, held), beats[held.id], unread.get(held.job_id, ()))
            for held in plain if held.id in beats}
    return [done[held.id] if (held := found.get(name)) is not None and held.id in done else _alone(key, name)
            for name in names]


def _alone(key: Key, name: str) -> Extended | JobsError:
    try:
        return extend(key, name)
    except JobsError as error:
        return error


def _renewed(held: Sequence[Assignment]) -> dict[str, assignments.Beat]:
    """What each of these learns; renewed but those that were within the last second, which costs no write.

    However often a runner beats, an attempt is written at most once a second for it.
    """
    fresh = {one.id for one in held if one.state == State.RUNNING
             and one.lease_until - one.now > timedelta(milliseconds=one.lease_ms - FRESH_MS)}
    old = [one.id for one in held if one.id not in fresh]
    return {**(assignments.extend(old) if old else {}), **(assignments.peek(sorted(fresh)) if fresh else {})}


def _told(key: Key, held: Assignment, beat: assignments.Beat) -> Extended:
    return _extended(held, beat, commands.after_beat(held.job_id, held.id, beat, (), runners.actor(key)))


def _extended(held: Assignment, beat: assignments.Beat, told: Sequence[Command]) -> Extended:
    return Extended(held.lease_until, heartbeat_s(held.lease_ms / 1_000), beat.abort, held.checkpoint_number, told)


def _start(key: Key, held: Assignment) -> None:
    try:
        answer = assignments.start([(held.job_id, held.id)], runners.actor(key), patience_ms=START_MS)[0]
    except assignments.Locked:
        # The lease is renewed; the next heartbeat says it again.
        return
    # Two first heartbeats at once: the other one has said it.
    if isinstance(answer, JobsError) and not isinstance(answer, IllegalMove):
        answer.facts["result_status"] = ResultStatus.LEASE_LOST
        raise answer


def _check(checkpoint: dict[str, Any]) -> None:
    """Refuse what cannot be kept before anything is written."""
    number = checkpoint.get("seq")
    if type(number) is not int or not 0 < number < 2**31:
        raise Invalid("must be a whole number from 1", field="checkpoint.seq", code="invalid_checkpoint")
    codecs.canonical(checkpoint, max_bytes=progress.CHECKPOINT_BYTES)


def _check_stage(held: Assignment, said: dict[str, Any]) -> None:
    progress.check_stage(registry().exact(held.type, held.version), said.get("stage"), said.get("event", "started"),
                         beneath="progress.")


def _keep(key: Key, held: Assignment, checkpoint: dict[str, Any] | None, stage: dict[str, Any] | None,
          cost: Decimal | None) -> Cost | None:
    """In one transaction, so that a refusal leaves nothing; what the job has cost, if that was said."""
    facts = [] if stage is None else _stage(key, held, stage)
    if checkpoint is not None:
        facts += _checkpoint(key, held, checkpoint)

    def write() -> Cost | None:
        for fact in facts:
            progress.keep(fact)
        return None if cost is None else costs.keep(held.job_id, held.id, cost)

    try:
        return durable(write)
    except StaleFence:
        now = selectors.assignment(key.pk, held.id)
        if not now.live:
            raise ((cost is not None and costs.refusal(now)) or StaleFence(status=now.state)) from None
        if checkpoint is None or now.checkpoint_number == held.checkpoint_number:
            raise
    # Another heartbeat has kept a checkpoint meanwhile: this very one, or it is refused.
    return _keep(key, now, checkpoint, stage, cost)


def _stage(key: Key, held: Assignment, said: dict[str, Any]) -> list[Fact]:
    """Once for each change: a runner may say its stage with every heartbeat."""
    name, event = said["stage"], said.get("event", "started")
    if stages.reported(held, name, event):
        return []
    return [progress.stage_fact(registry().exact(held.type, held.version), held.job_id, held.id, name, event,
                                runners.actor(key), attempt=held.number)]


def _checkpoint(key: Key, held: Assignment, value: dict[str, Any]) -> list[Fact]:
    """Nothing to do for the one that is kept already."""
    kept = (held.checkpoint_number, bytes(held.checkpoint_hash or b""))
    if kept == (value["seq"], codecs.digest(codecs.canonical(value))):
        return []
    if value["seq"] <= held.checkpoint_number:
        raise StaleCheckpoint(f"The last checkpoint is {held.checkpoint_number}.", field="checkpoint",
                              last=held.checkpoint_number)
    return [progress.checkpoint_fact(held.job_id, held.id, value["seq"], value, runners.actor(key))]
