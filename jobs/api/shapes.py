"""What rows look like from outside: plain functions from rows to JSON values.

Statuses are the caller's words, states ours (E1). Inputs are shown on request only, secrets and hashes of requests
never (B40).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs import codecs, selectors
from jobs.clock import jsonable
from jobs.conf import registry
from jobs.leases import heartbeat_s
from jobs.models import Artifact, Attempt, AttemptLog, BulkOperation, DeadLetter, Job, Receipt
from jobs.models import Command as CommandRow
from jobs.money import shown
from jobs.outcomes import final_status, result_status
from jobs.selectors import Page, Whose
from jobs.services import operations, runners, stages, standing
from jobs.services.assignments import Moved
from jobs.services.beats import Extended
from jobs.services.commands import Command
from jobs.services.runners import Settled
from jobs.states import State, status


def parsed(text: str | None) -> Any:
    """The value of a stored canonical text; None where there is none, where it was redacted, or spoilt by a hand."""
    return codecs.stored(text)


def summary(job: Job) -> dict[str, Any]:
    """A job as lists show it, without input and result (B40)."""
    waits = job.state == State.QUEUED and job.available_at > job.now  # type: ignore[attr-defined]
    return {
        "id": str(job.pk), "job_id": job.external_id, "type": job.type, "version": job.version,
        "status": status(job.state), "state": job.state, "reason": job.reason,
        "tenant_subject": job.tenant.subject, "queue": job.queue, "worker_group": job.worker_group, "agent": job.agent,
        "origin": job.origin, "priority": job.priority, "subject": job.subject,
        "session_key": job.session_key, "singleton": job.singleton, "exclusive_group": job.exclusive_group,
        "target": target(job),
        "attempt_count": job.attempt_count, "claims": job.claims, "chain": job.chain, "failures": job.failures,
        "max_attempts": job.max_attempts, "available_at": jsonable(job.available_at),
        "next_attempt_at": jsonable(job.available_at) if waits else None,
        "created_at": jsonable(job.created_at), "started_at": jsonable(job.started_at),
        "ended_at": jsonable(job.ended_at), "cancelled_at": jsonable(job.cancelled_at),
        "deadline_at": jsonable(job.deadline_at), "cost_usd": shown(job.cost_usd),
        "max_cost_usd": shown(job.max_cost_usd), "progress": stages.latest(job), "revision": job.revision,
    }


def job(row: Job, *, with_input: bool = False) -> dict[str, Any]:
    """A job as a single read shows it: with its result, and with its input where that was asked for."""
    labels = labels_of(row)
    said = [
        {"stage": e.stage, "label": labels.get(e.stage), "event": e.event, "attempt": e.attempt, "at": jsonable(e.at)}
        for e in stages.entries(row)]
    told = {**summary(row), **standing.as_json(standing.of(row)),
            "result_envelope": envelope(row, with_payloads=with_input), "redacted": not row.input, "stages": said,
            "dead_letter": letter_in(row)}
    return {**told, "input": parsed(row.input)} if with_input else told


def letter(row: DeadLetter) -> dict[str, Any]:
    """An open dead letter as its list shows it, under the id of its job (C23)."""
    return {"id": str(row.job_id), "job_id": row.job.external_id, "type": row.type, "version": row.job.version,
            "tenant_subject": row.job.tenant.subject, "queue": row.job.queue, **_failed(row)}


def letter_in(job: Job) -> dict[str, Any] | None:
    """The dead letter of a failed job, with the answer to it where there is one; None: it left none (C22, C29)."""
    row = selectors.letter_of(job) if job.state == State.FAILED else None
    if row is None:
        return None
    return {**_failed(row), "resolution": row.resolution, "resolved_at": jsonable(row.resolved_at),
            "resolve_reason": row.resolve_reason}


def _failed(row: DeadLetter) -> dict[str, Any]:
    return {"reason": row.reason, "attempt_count": row.attempt_count, "chain": row.chain, "cluster": row.cluster,
            "last_error": {"reason_code": row.reason_code, "message": row.error or None},
            "opened_at": jsonable(row.opened_at)}


def bulk(row: BulkOperation) -> dict[str, Any]:
    """A bulk operation and how far it has come; counts are those of the batches that have committed."""
    how = operations.told(row)
    return {
        "id": str(row.token), "about": row.about, "verb": row.verb, "reason": row.reason, "by": row.by,
        "filter": operations.filter_of(row), "status": how.word,
        **expected(row.expected), "total": row.total, "done": row.done,
        "skipped": row.skipped, "left": how.left, "erased": how.gone, "rate": row.rate, "canary": row.canary,
        "most_failed": row.most_failed, "created_at": jsonable(row.created_at), "moved_at": jsonable(row.moved_at),
        "ended_at": jsonable(row.ended_at), "ended_by": row.ended_by}


def expected(number: int | None) -> dict[str, Any]:
    """How many were counted: at most 100,000, `more` where there are more of them; null: it would take too long."""
    more = number is not None and number > operations.COUNTED
    return {"expected": operations.COUNTED if more else number, "more": more}


def labels_of(job: Job) -> Mapping[str, str]:
    """The labels of the stages that the job's definition declares; none where that is not known here."""
    definition = registry().find(job.type, job.version)
    return {} if definition is None else definition.stages


def target(job: Job) -> dict[str, Any] | None:
    """What the job is about, and whether it is still the newest about it (B16, E2)."""
    if job.target is None:
        return None
    return {"key": job.target.key.removeprefix(f"{job.type}:"), "generation": job.generation,
            "current": job.generation == job.target.generation}


def envelope(job: Job, *, with_payloads: bool = False) -> dict[str, Any] | None:
    """The one result of an ended job, with the commands that it ended without reading (E3); None before (C2).

    What did not complete says how in A39's words too.
    """
    if not job.ended:
        return None
    left = selectors.unread_commands(job)
    told: dict[str, Any] = {"outcome": status(job.state), "ended_at": jsonable(job.ended_at),
                            "unread_commands": [sent(one, with_payload=with_payloads) for one in left]}
    if job.state == State.COMPLETED:
        made = selectors.artifact_of(job)
        return told | {"artifact": parsed(made.value) if made else None}
    last = selectors.last_failure(job) if job.state == State.FAILED else None
    error = {"reason_code": last.reason_code if last else job.reason, "message": last.message if last else None}
    return told | {"error": error, "result_status": final_status(job.state, error["reason_code"])}


_WARNINGS = {"deadline_dropped": ("deadline_at", "The job's deadline has passed; its new chain has none.")}


def warnings(moved: Moved) -> list[dict[str, str]]:
    """What whoever moved a job should know (E4)."""
    return [{"code": code, "field": _WARNINGS[code][0], "message": _WARNINGS[code][1]} for code in moved.warnings]


def sent(row: CommandRow, *, with_payload: bool = False) -> dict[str, Any]:
    """A command as those see it who may see its job; what it says only where inputs were asked for too."""
    told = {"id": str(row.pk), "kind": row.kind, "by": row.by, "reason": row.reason,
            "created_at": jsonable(row.created_at), "consumed_at": jsonable(row.consumed_at)}
    return {**told, "payload": parsed(row.payload)} if with_payload else told


def etag(job: Job) -> str:
    """The ETag of a job: its revision counts moves of state (E12)."""
    return f'"r{job.revision}"'


def receipt(row: Receipt) -> dict[str, Any]:
    """One fact of a job's history. `body` is the very text that was hashed, so that a reader can check the chain."""
    return {"number": row.number, "kind": row.kind, "at": jsonable(row.at), "body": row.body,
            "hash": bytes(row.hash).hex()}


def attempt(row: Attempt) -> dict[str, Any]:
    """One claim of a job, by its number.

    Its id stands in the bodies of receipts and is no secret: an assignment is bound to the key that claimed it, so
    the id alone opens nothing.
    """
    return {
        "number": row.number, "chain": row.chain, "leased_at": jsonable(row.leased_at),
        "started_at": jsonable(row.started_at), "ended_at": jsonable(row.ended_at), "outcome": row.outcome,
        "reason_code": row.reason_code, "message": row.message, "retryable": row.retryable,
        "cost_usd": shown(row.cost_usd),
        "result_status": result_status(row.outcome, row.reason_code),
    }


def attempt_with_log(row: Attempt) -> dict[str, Any]:
    """The same with its last log lines; null where it left none."""
    kept: AttemptLog | None = getattr(row, "log", None)
    told = {"lines": kept.lines.split("\n"), "dropped": kept.dropped} if kept and kept.lines else None
    return {**attempt(row), "log": told}


def artifact(job: Job, row: Artifact) -> dict[str, Any]:
    """The validated result of a job."""
    return {"id": str(job.pk), "job_id": job.external_id, "artifact": parsed(row.value), "hash": bytes(row.hash).hex(),
            "created_at": jsonable(row.created_at), "target": target(job), "redacted": not row.value}


def page(name: str, found: Page, items: list[dict[str, Any]], asked_by: str = "cursor") -> dict[str, Any]:
    """One page: its items, and what to ask for the next one."""
    return {name: items, f"next_{asked_by}": found.next}


def assignment(claimed: Any, whose: Whose | None, told: Sequence[Command] = ()) -> dict[str, Any]:
    """A claim as its runner needs it (C31, E8). `whose` is None where the job is gone already."""
    return {
        "assignment_id": claimed.fence,
        "job": {
            "id": claimed.id, "job_id": whose and whose.external_id, "type": claimed.type, "version": claimed.version,
            "queue": claimed.queue, "worker_group": claimed.worker_group, "agent": claimed.agent,
            "tenant_subject": whose and whose.tenant_subject, "subject": whose and whose.subject,
            "priority": whose and whose.priority, "created_at": jsonable(whose and whose.created_at),
            "attempt": claimed.claims, "attempt_count": whose and whose.attempt_count, "chain": claimed.chain,
            "idempotency_key": f"{claimed.id}:{claimed.chain}",
            "attempt_key": f"{claimed.id}:{claimed.chain}:{claimed.claims}", "input": parsed(claimed.input),
        },
        "lease_expires_at": jsonable(runners.lease_until(claimed)),
        "heartbeat_after_s": heartbeat_s(claimed.lease_ms / 1_000),
        "deadline": jsonable(runners.deadline(claimed)), "job_deadline_at": jsonable(claimed.deadline_at),
        "checkpoint": parsed(claimed.checkpoint), "checkpoint_number": claimed.checkpoint_number,
        "commands": [command(one) for one in told],
    }


def command(one: Command) -> dict[str, Any]:
    """A command as its reader gets it (E8)."""
    return {"id": one.id, "kind": one.kind.value, "payload": one.payload, "by": one.by,
            "created_at": jsonable(one.created_at)}


def extended(beat: Extended) -> dict[str, Any]:
    """The answer to a heartbeat."""
    return {"lease_expires_at": jsonable(beat.lease_until), "heartbeat_after_s": beat.heartbeat_after_s,
            "abort": beat.abort, "checkpoint_number": beat.checkpoint_number,
            "commands": [command(one) for one in beat.commands]}


def settled(end: Settled) -> dict[str, Any]:
    """The answer to an end."""
    return {"id": end.job_id, "status": status(end.state), "state": end.state.value, "repeated": end.repeated}
