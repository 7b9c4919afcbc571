"""The story of one job: its receipts in people's words, its attempts, and why it does not run now (DESIGN 7.1).

Answers values; who prints them is an edge. The order of the reasons is the order in which the claim asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs import clock
from jobs.conf import registry
from jobs.models import Attempt, AttemptLog, ClaimLine, Job, Key, Owner, Receipt, Worker
from jobs.receipts import Kind
from jobs.routing import SYSTEM, UNROUTED
from jobs.selectors import limit
from jobs.services import attempt_logs, owners, throttles, verifying
from jobs.services.keys import Permission
from jobs.states import HELD, Gate, State, status

LIVE_FOR = timedelta(seconds=60)
# As people read it, as wherever the console is exact.
MOMENT = "%Y-%m-%d %H:%M:%S UTC"
# A key's use is noted coarsely, within a minute.
RUNNER_LIVE_FOR = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Step:
    """One receipt, told. `to` is the state that it moved the job to."""

    number: int
    kind: str
    at: datetime
    said: str
    by: str = ""
    to: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job is not running, by a stable code and in words."""

    code: str
    said: str


@dataclass(frozen=True, slots=True)
class Story:
    """All that there is to tell. `broken` says where the receipts are no unbroken chain that says what the row says."""

    job: Job
    now: datetime
    steps: list[Step]
    attempts: list[Attempt]
    log: AttemptLog | None
    broken: str | None
    reason: Reason | None


def story(job: Job) -> Story:
    """The story of a job, as of now."""
    now = clock.now()
    # As its row was read: what was written since would look like a chain that does not fit.
    written = list(Receipt.objects.filter(job_id=job.pk, number__lte=job.number).order_by("number"))
    attempts = list(Attempt.objects.filter(job_id=job.pk).select_related("worker", "key").order_by("number"))
    numbers = {str(a.pk): a.number for a in attempts}
    steps = [step(r, facts(r.body), numbers) for r in written]
    return Story(job, now, steps, attempts, attempt_logs.of(job), _broken(job, written), blocker(job, now))


def _broken(job: Job, written: list[Receipt]) -> str | None:
    if found := verifying.fault(job, written):
        return str(found)
    if has_more(job):
        return f"there are receipts after number {job.number} that the job does not know of"
    return None


def has_more(job: Job) -> bool:
    """Whether there are receipts behind the last one of the job, both as of this statement."""
    return Receipt.objects.filter(job_id=job.pk, number__gt=Job.objects.filter(pk=job.pk).values("number")).exists()


# --- receipts in words ---------------------------------------------------------------------------------------------


def facts(body: str) -> dict[str, Any]:
    """What a receipt holds; nothing where somebody has changed it to what is no JSON object."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def step(row: Receipt, body: dict[str, Any], numbers: dict[str, int]) -> Step:
    """One receipt, told; attempts by their numbers."""
    return Step(row.number, row.kind, row.at, tell(row.kind, body, numbers), str(body.get("by") or ""),
                str(body.get("to") or ""))


def tell(kind: str, body: dict[str, Any], numbers: dict[str, int]) -> str:
    """One receipt as a sentence."""
    holder = body.get("attempt")
    number = numbers.get(str(holder))
    attempt = f"attempt {number}" if number is not None else "the attempt"
    words = _TOLD.get(kind)
    return words(body, attempt) if words else f"{kind} {json.dumps(body, sort_keys=True)}"


def _by(body: dict[str, Any]) -> str:
    return f" by {body['by']}" if body.get("by") else ""


def _why(body: dict[str, Any]) -> str:
    return f" ({body['reason']})" if body.get("reason") else ""


def _when(body: dict[str, Any]) -> str:
    if "available_at" in body:
        return f", not before {clock.jsonable(clock.moment(body['available_at']))}"
    return f", not before {span(body['after'] / 1e6)} later" if body.get("after") else ""


def _back(said: str, body: dict[str, Any]) -> str:
    """The end of an attempt and what it meant for the job."""
    match body.get("to"):
        case State.QUEUED:
            return f"{said}; the job waits again{_when(body)}"
        case State.FAILED:
            letter = ", a dead letter was opened" if body.get("dead_letter") else ""
            return f"{said}; the job failed for good ({body.get('reason')}){letter}"
        case State.CANCELLED:
            return f"{said}; an abort was pending, so the job was cancelled ({body.get('reason')})"
        case _:
            return said


def _stage(body: dict[str, Any]) -> str:
    stage = body.get("progress") or {}
    return f"{stage.get('event')} stage {stage.get('stage')!r}"


def _places(body: dict[str, Any]) -> str:
    """Where an input was changed."""
    places = [str(change["at"]) or "its root" for change in body.get("changes", ())]
    more = int(body.get("more", 0)) + max(0, len(places) - 3)
    return ", ".join(places[:3]) + (f" and {more} more places" if more else "")


def _failed(body: dict[str, Any], attempt: str) -> str:
    if body.get("attempt") is None:
        return _back("the job ended while it waited", body)
    return _back(f"{attempt} failed with {body.get('code') or body.get('reason')}", body)


_COMMANDS = {"steer": "a steer", "follow_up": "a follow-up", "abort": "an abort"}


def _count(body: dict[str, Any]) -> str:
    """How many commands were consumed."""
    count = len(body.get("commands", ()))
    return "a command" if count == 1 else f"{count} commands"


_TOLD: dict[str, Callable[[dict[str, Any], str], str]] = {
    Kind.ENQUEUED: lambda b, a: f"enqueued as {b.get('type')}{_by(b)} (origin {b.get('origin')}){_when(b)}",
    Kind.LEASED: lambda b, a: f"{a} claimed{_by(b)}",
    Kind.HEARTBEAT: lambda b, a: f"{a} sent its first heartbeat: running",
    Kind.PROGRESS: lambda b, a: f"{a} {_stage(b)}",
    Kind.CHECKPOINT: lambda b, a: f"{a} kept checkpoint {b.get('checkpoint')}",
    Kind.COMPLETED: lambda b, a: f"{a} completed the job",
    Kind.FAILED: _failed,
    Kind.CANCELLED: lambda b, a: f"cancelled{_by(b)} ({b.get('reason')})",
    Kind.LEASE_EXPIRED: lambda b, a: _back(f"the lease of {a} ran out: its holder was not heard of", b),
    Kind.COMMAND: lambda b, a: f"{_COMMANDS.get(str(b.get('command')), 'a command')} was sent{_by(b)}{_why(b)}",
    Kind.CONSUMED: lambda b, a: f"{a} dealt with {_count(b)}",
    Kind.RELEASED: lambda b, a: _back(f"{a} gave the job back", b),
    Kind.INTERRUPTED: lambda b, a: _back(f"{a} was interrupted ({b.get('code') or b.get('reason')})", b),
    Kind.PAUSED: lambda b, a: f"paused{_by(b)} ({b.get('reason')})",
    Kind.RESUMED: lambda b, a: f"resumed{_by(b)}{_why(b)}{_when(b)}",
    Kind.SUPERSEDED: lambda b, a: f"superseded by generation {b.get('generation')} of its target{_by(b)}",
    Kind.REQUEUED: lambda b, a: f"requeued{_by(b)}: a new chain begins ({b.get('reason')})",
    Kind.CHANGED: lambda b, a: f"its input was changed{_by(b)} at {_places(b)} ({b.get('reason')})",
    Kind.REDACTED: lambda b, a: f"what it said was redacted{_by(b)} ({b.get('reason')})",
    Kind.DISCARDED: lambda b, a: f"its dead letter was discarded{_by(b)} ({b.get('reason')})",
}


def span(seconds: float) -> str:
    """A length of time for people."""
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if abs(seconds) < 7_200 else f"{seconds / 3_600:.1f} h"


# --- why it does not run -------------------------------------------------------------------------------------------


def blocker(job: Job, now: datetime) -> Reason | None:
    """The first reason for which a waiting job is not running; None for one that is held or has ended."""
    if job.ended or job.state in HELD:
        return None
    for ask in (_paused, _late, _not_due, _spent, _throttled, _ownerless, _group_full, _owner_full, _tenant_full,
                _nobody):
        if (reason := ask(job, now)) is not None:
            return reason
    return Reason("waiting_for_turn", "It is claimable and waits for its turn.")


def _paused(job: Job, now: datetime) -> Reason | None:
    if job.state != State.PAUSED:
        return None
    if job.reason == owners.UNAVAILABLE:
        return _ownerless(job, now) or Reason("owner_back", "Its tenant's owner is back; it is about to be resumed.")
    return Reason("paused", f"It is paused ({job.reason}) until somebody resumes it.")


def _ownerless(job: Job, now: datetime) -> Reason | None:
    """Whether it needs its tenant's owner, and there is none (B35)."""
    if job.credential != owners.OWNER:
        return None
    owner = Owner.objects.filter(tenant_id=job.tenant_id).first()
    if owner is not None and owner.stands(now):
        return None
    why = "and there is none" if owner is None else f"which is {owners.state(owner, now)}"
    return Reason("owner_unavailable", f"It needs its tenant's owner, {why}; it goes on when one is put.")


def _owner_full(job: Job, now: datetime) -> Reason | None:
    """Whether its owner runs as many jobs as it may, and which (B36)."""
    if job.credential != owners.OWNER:
        return None
    owner = Owner.objects.filter(tenant_id=job.tenant_id).first()
    if owner is None:
        return None
    if owner.away_until is not None and owner.away_until > now:
        when = clock.jsonable(owner.away_until)
        return Reason("owner_away", f"The secret of its tenant's owner could not be had; no job begins before {when}.")
    most, running = owners.most(owner), owners.running(owner)
    if len(running) < most:
        return None
    names = ", ".join(running[:3])
    return Reason("owner_at_capacity", f"Its tenant's owner runs {most} at once; before it: {names}.")


def _late(job: Job, now: datetime) -> Reason | None:
    if job.deadline_at is None or job.deadline_at > now:
        return None
    return Reason("deadline_passed", f"Its deadline {job.deadline_at:{MOMENT}} has passed; it is about to fail.")


def _not_due(job: Job, now: datetime) -> Reason | None:
    if job.available_at <= now:
        return None
    left = span((job.available_at - now).total_seconds())
    return Reason("not_due", f"It is not due before {job.available_at:{MOMENT}}, in {left}.")


def _spent(job: Job, now: datetime) -> Reason | None:
    if job.gate != Gate.SPENT:
        return None
    return Reason("claims_spent", f"It has used its {job.max_claims} claims; it is about to fail.")


def _throttled(job: Job, now: datetime) -> Reason | None:
    """Whether its queue, worker group, type or tenant is paused or at its cap."""
    held = throttles.blockers_of(job)
    if held:
        return Reason(held[0].code, held[0].said)
    if job.gate != Gate.TYPE:
        return None
    return Reason("type_let_in", "Its type has room again; it is about to be let in.")


def _group_full(job: Job, now: datetime) -> Reason | None:
    if job.gate != Gate.EXCLUSIVE or job.exclusive_group is None:
        return None
    scope = limit("exclusive_group_scope", job.workspace_id, job.tenant_id)
    others = Job.objects.filter(exclusive_group=job.exclusive_group, workspace_id=job.workspace_id, gate=None,
                                state__in=("queued", "leased", "running"))
    if scope != "workspace":
        others = others.filter(tenant_id=job.tenant_id)
    most = limit("exclusive_group_max", job.workspace_id, job.tenant_id)
    names = ", ".join(str(pk) for pk in others.order_by("pk").values_list("pk", flat=True)[:3])
    said = f"Its exclusive group {job.exclusive_group!r} lets {most} in at once"
    return Reason("exclusive_group_full", f"{said}; before it: {names or 'nobody any more'}.")


def _tenant_full(job: Job, now: datetime) -> Reason | None:
    if job.worker_group == SYSTEM:
        return None
    line = ClaimLine.objects.filter(worker_group=job.worker_group, queue=job.queue, tenant_id=job.tenant_id)
    parked = line.exclude(parked=None).values_list("parked", flat=True).first()
    if parked == "paused":
        return Reason("tenant_paused", "Its tenant is paused.")
    if parked == "deleting":
        return Reason("tenant_deleting", "Its tenant is being deleted; it is about to be cancelled.")
    most = limit("tenant_concurrency", job.workspace_id, job.tenant_id)
    if parked is None and most is None:
        return None
    # By the index of live attempts: a tenant may have had a million jobs.
    running = Attempt.objects.filter(ended_at=None, job__tenant_id=job.tenant_id).count()
    if parked is None and (most is None or running < most):
        return None
    return Reason("tenant_at_cap", f"Its tenant runs {running} of at most {most} jobs at once.")


def _nobody(job: Job, now: datetime) -> Reason | None:
    """Whether anybody alive would take it: a worker that serves group and queue and knows the type, or a runner."""
    name, where = f"{job.type}@{job.version}", f"group {job.worker_group!r}, queue {job.queue!r}"
    definition = registry().find(job.type, job.version)
    if definition is not None and not definition.runs:
        return Reason("definition_stopped", f"{name} is switched off on this site.")
    if job.worker_group in registry().groups(external=True):
        return None if _runner_live(job, now) else Reason(
            "no_live_runner", f"No runner's key has been used for {where} in the last {span(RUNNER_LIVE_FOR.seconds)}.")
    serving = Worker.objects.filter(stopped_at=None, seen_at__gt=now - LIVE_FOR, queues__contains=[job.queue],
                                    worker_groups__contains=[job.worker_group])
    if not serving.exists():
        return Reason("no_live_worker", f"No live worker serves {where}.")
    # A job of an unknown agent is failed by whoever takes it, so that any worker will do.
    if job.worker_group != UNROUTED and not serving.filter(types__contains=[name]).exists():
        return Reason("no_worker_knows_type", f"Live workers serve {where}, but none of them can run {name}.")
    return None


def _runner_live(job: Job, now: datetime) -> bool:
    keys = Key.objects.filter(workspace_id=job.workspace_id, revoked_at=None, last_used_at__gt=now - RUNNER_LIVE_FOR,
                              permissions__contains=[Permission.CLAIM.value])
    return any(key.tenant_id in (None, job.tenant_id)
               and (key.worker_groups is None or job.worker_group in key.worker_groups) for key in keys)


# --- as values -----------------------------------------------------------------------------------------------------


def as_json(told: Story) -> dict[str, Any]:
    """The story as plain JSON."""
    job = told.job
    return {
        "id": str(job.pk), "job_id": job.external_id, "type": f"{job.type}@{job.version}", "status": status(job.state),
        "state": job.state, "reason": job.reason, "queue": job.queue, "worker_group": job.worker_group,
        "claims": job.claims, "failures": job.failures, "max_attempts": job.max_attempts,
        "chain_ok": told.broken is None, "chain_error": told.broken,
        "not_running": {"code": told.reason.code, "message": told.reason.said} if told.reason else None,
        "log": {"attempt": told.log.attempt.number, "dropped": told.log.dropped,
                "lines": told.log.lines.split("\n")} if told.log else None,
        "steps": [{"number": s.number, "kind": s.kind, "at": clock.jsonable(s.at), "said": s.said} for s in told.steps],
        "attempts": [{"number": a.number, "holder": holder(a), "outcome": a.outcome, "reason_code": a.reason_code,
                      "message": a.message, "leased_at": clock.jsonable(a.leased_at),
                      "ended_at": clock.jsonable(a.ended_at)} for a in told.attempts],
    }


def holder(attempt: Attempt) -> str:
    """Who held an attempt, which was read with both: a worker by name, or a runner by its key."""
    if attempt.worker_id is not None:
        return f"worker {attempt.worker.name if attempt.worker else attempt.worker_id}"
    return f"runner {attempt.key.name} ({attempt.key.prefix})" if attempt.key else "somebody"
