"""The schemas of what the API answers, by name: what `shapes` makes, as callers may count on it.

A test holds every answer of the API's own tests against them, members that nobody described included.
"""

from __future__ import annotations

from typing import Final

from jobs.api.describing import (
    Fields,
    Schema,
    anything,
    boolean,
    listed,
    mapping,
    moment,
    number,
    or_null,
    ref,
    text,
    thing,
    whole,
)
from jobs.models.throttle import KINDS
from jobs.outcomes import End
from jobs.services import limits
from jobs.services.deliveries import STATES as DELIVERED
from jobs.states import CommandKind, State, status

STATES: Final = [state.value for state in State]
STATUSES: Final = sorted({status(state) for state in STATES} | {"canceled"})
_NAME = or_null(text())
_AT = or_null(moment())
_TARGET = or_null(thing({"key": text(), "generation": whole(1), "current": boolean("No newer one is about it")}))
_PROGRESS = or_null(mapping("The latest stage: `stage`, `event`, `attempt`, `at`"))
_WARNINGS = listed(thing({"code": text(), "field": text(), "message": text()}), "What the caller should know")

JOB: Final[Fields] = {
    "id": text("Ours, a UUID"), "job_id": or_null(text("The caller's own")), "type": text(), "version": whole(1),
    "status": text("One of six words for callers; `paused` reads queued, `superseded` cancelled", among=STATUSES),
    "state": text("Where it really stands", among=sorted({*STATES, "canceled"})), "reason": _NAME,
    "tenant_subject": _NAME,
    "queue": text(), "worker_group": text(), "agent": _NAME, "origin": text(), "priority": whole(-100, 100),
    "subject": _NAME, "session_key": _NAME, "singleton": text(), "exclusive_group": _NAME, "target": _TARGET,
    "attempt_count": whole(0, means="Counted starts of this chain"),
    "claims": whole(0, means="Starts ever, never falls: the fencing number for the world outside"),
    "chain": whole(1), "failures": whole(0), "max_attempts": or_null(whole(1)), "available_at": moment(),
    "next_attempt_at": _AT, "created_at": moment(), "started_at": _AT, "ended_at": _AT, "cancelled_at": _AT,
    "deadline_at": _AT, "cost_usd": or_null(text("What its attempts have reported, in US dollars")),
    "max_cost_usd": or_null(text("Most that it may cost")), "progress": _PROGRESS,
    "revision": whole(1, means="Moves of state: the ETag"),
}
_COMMAND: Fields = {
    "id": text(), "kind": text(among=[kind.value for kind in CommandKind]), "by": text(), "reason": _NAME,
    "created_at": moment(), "consumed_at": _AT, "payload": anything()}
_ENVELOPE = or_null(thing({
    "outcome": text(among=STATUSES), "ended_at": moment(), "unread_commands": listed(ref("Command")),
    "artifact": anything(), "error": thing({"reason_code": _NAME, "message": _NAME}), "result_status": _NAME},
    "The one result of an ended job", optional=("artifact", "error", "result_status")))
_STAGE = thing({"stage": text(), "label": _NAME, "event": text(), "attempt": or_null(whole(0)), "at": _AT})
_STANDING: Fields = {
    "queue_position": or_null(whole(1, means="In its tenant's queue; null: beyond 1,000, or nothing to say")),
    "queue_position_capped": boolean("It is beyond 1,000"),
    "jobs_ahead": or_null(whole(0, means="At most so many of everybody's go before it")),
    "jobs_ahead_capped": boolean("There are at least so many"),
    "eta_s": or_null(number("Seconds until it may begin, at the pace of the last minutes", least=0)),
    "estimated_start_at": _AT}
_DEAD: Fields = {
    "reason": text("Why there is no further attempt"), "attempt_count": whole(0), "chain": whole(1),
    "cluster": or_null(text("Letters that failed alike have one")),
    "last_error": thing({"reason_code": _NAME, "message": _NAME}), "opened_at": moment()}
_LETTER: Fields = {
    "id": text("Of its job"), "job_id": _NAME, "type": text(), "version": whole(1), "tenant_subject": _NAME,
    "queue": text(), **_DEAD}
IN_FULL: Final[Fields] = {
    **JOB, **_STANDING, "dead_letter": or_null(thing({
        **_DEAD, "resolution": _NAME, "resolved_at": _AT, "resolve_reason": _NAME},
        "Of a failed job, with the answer to it where there is one")),
    "result_envelope": _ENVELOPE, "redacted": boolean("Its input is gone for good"), "stages": listed(_STAGE),
    "input": anything("Where `?include=input` asked for it"), "repeated": boolean("It was so before"),
    "warnings": _WARNINGS}
ENQUEUED: Final[Fields] = {
    **JOB, "repeated": boolean("An earlier request made it"), "warnings": _WARNINGS,
    "steered": boolean("No job was made: the newest active one of the session key got the input as a command")}
_SENT: Fields = {
    "id": text(), "kind": text(among=[kind.value for kind in CommandKind]), "payload": anything(), "by": text(),
    "created_at": moment()}
_ASSIGNED = thing({
    "id": text(), "job_id": _NAME, "type": text(), "version": whole(1), "queue": text(), "worker_group": text(),
    "agent": _NAME, "tenant_subject": _NAME, "subject": _NAME, "priority": or_null(whole(-100, 100)),
    "created_at": _AT, "attempt": whole(1, means="Its claims, which never fall"), "attempt_count": or_null(whole(0)),
    "chain": whole(1), "idempotency_key": text("For the world outside: the same in each attempt of a chain"),
    "attempt_key": text("The same for what each attempt does anew: no other attempt has it"),
    "input": anything()})
_ATTEMPT: Fields = {
    "number": whole(1), "chain": whole(1), "leased_at": moment(), "started_at": _AT, "ended_at": _AT,
    "outcome": or_null(text(among=[end.value for end in End])), "reason_code": _NAME, "message": _NAME,
    "retryable": or_null(boolean()), "cost_usd": or_null(text("In US dollars")), "result_status": _NAME,
    "log": or_null(thing({"lines": listed(text()), "dropped": whole(0)}))}
_DEFINITION: Fields = {
    "type": text(), "version": whole(1), "current": boolean(), "label": _NAME, "description": _NAME,
    "origins": listed(text()), "queue": text(), "priority": whole(-100, 100), "worker_group": text(),
    "executor": text(among=("external", "in_process")), "credential": text(), "enabled": boolean(), "runs": anything(),
    "enqueueable": boolean("By this key"), "stages": listed(thing({"stage": text(), "label": _NAME})),
    "limits": mapping(), "retry": or_null(mapping()), "input_schema": mapping(), "artifact_schema": mapping()}
_TRIES = listed(thing({"number": whole(1), "at": moment(), "http_status": or_null(whole(100, 599)),
                       "milliseconds": whole(0), "code": _NAME}), "The latest tries, in order")
_DELIVERY: Fields = {
    "id": text("The `webhook-id`, over all tries"), "job": text(), "event": text(), "chain": whole(1),
    "revision": whole(0, means="The job's at this event: sort by it"), "status": text(among=DELIVERED),
    "tries": whole(0), "replays": whole(0), "host": _NAME,
    "site": boolean("To the site's own callback, not to the job's"),
    "http_status": or_null(whole(100, 599)), "milliseconds": or_null(whole(0)),
    "code": or_null(text("Why the last try did not deliver")), "at": moment(), "ended_at": _AT}
_SECRET: Fields = {
    "id": whole(1), "hint": text("Its last characters"), "state": text(among=("live", "revoked")), "by": text(),
    "created_at": moment(), "revoked_at": _AT, "secret": text("The only showing of it")}
_EXPECTED: Fields = {"expected": or_null(whole(0, means="How many match now; null: it would take too long")),
                     "more": boolean("There are more than `expected`")}
_BULK: Fields = {
    "id": text(), "about": text(among=("letters", "jobs")), "verb": text(), "reason": text(), "by": text(),
    "filter": mapping("What it was narrowed to"), "status": text(
        "gathering, running, waiting (for its canary), alone (nobody runs it), or how it ended"), **_EXPECTED,
    "total": or_null(whole(0, means="Of the set that is fixed; null while it is gathered")), "done": whole(0),
    "skipped": mapping("How many were left alone, by the code of the refusal"), "left": or_null(whole(0)),
    "erased": whole(0, means="Of jobs that were erased meanwhile"), "rate": or_null(whole(1)), "canary": boolean(),
    "most_failed": or_null(whole(1, 100)), "created_at": moment(), "moved_at": _AT, "ended_at": _AT,
    "ended_by": _NAME, "repeated": boolean("This Idempotency-Key had begun it")}
_THROTTLE: Fields = {
    "kind": text(among=KINDS), "name": or_null(text("Of a tenant its subject; null: of the untenanted one")),
    "most": or_null(whole(1)), "used": or_null(whole(0, means="Live attempts under the cap; null: there is none")),
    "paused": boolean(), "paused_at": _AT, "until": or_null(moment("Null: until somebody resumes it")),
    "paused_by": _NAME, "reason": _NAME, "updated_at": moment()}
_MONEY = or_null(text("US dollars"))
_LIMITS = thing({name: _MONEY if name == "max_cost_usd_cap" else or_null(text(among=limits.SCOPES))
                 if name == "exclusive_group_scope" else or_null(whole(0)) for name in limits.NAMES},
                optional=("exclusive_group_scope",))
_REFUSED: Fields = {"type": text(), "title": text(), "detail": text(), "code": text(), "field": text(),
                    "faults": listed(mapping()), "retry_after_s": number(), "result_status": text()}


def _each(means: str, told: Fields) -> Schema:
    """An answer to many: for each item its status, and the members of what the single call would have been answered."""
    one = thing({"assignment_id": _NAME, "status": whole(200, 599, means), **told, **_REFUSED},
                optional=(*told, *_REFUSED))
    return thing({"results": listed({**one, "additionalProperties": True}, "In the order of `items`")})


FORMS: Final[dict[str, Schema]] = {
    "Job": thing(JOB, "A job as lists show it"),
    "JobInFull": thing(IN_FULL, "A job as a single read shows it", optional=("input", "repeated", "warnings")),
    "Enqueued": thing(ENQUEUED, "A job, and what the request did"),
    "Jobs": thing({"jobs": listed(ref("Job")), "next_cursor": _NAME}),
    "Command": thing(_COMMAND, optional=("payload",)),
    "CommandSent": thing({"command": or_null(ref("Command")), "job": ref("Job"), "repeated": boolean()}),
    "Receipts": thing({"receipts": listed(thing({"number": whole(1), "kind": text(), "at": moment(), "body": text(
        "The very text that was hashed"), "hash": text()})), "next_after": or_null(whole(1))}),
    "Attempts": thing({"attempts": listed(thing(_ATTEMPT, optional=("log",))), "next_after": or_null(whole(1))}),
    "Artifact": thing({"id": text(), "job_id": _NAME, "artifact": anything(), "hash": text(), "created_at": moment(),
                       "target": _TARGET, "redacted": boolean()}, "The validated result of a completed job"),
    "AgentsJob": thing({
        "ok": boolean(), "job": ref("Job"), "repeated": boolean(), "steered": boolean(), "warnings": _WARNINGS,
        "async": thing({"jobId": text(), "stream": text(), "status": text(),
                        "events": thing({"job": text(), "receipt": text()})})}),
    "Definitions": thing({"definitions": listed(thing(_DEFINITION))}),
    "Owner": thing({
        "owner": whole(1), "tenant_subject": _NAME, "state": text(), "reference_hint": text(), "label": text(),
        "generation": whole(1), "revision": whole(1), "concurrency": whole(1), "running": whole(0), "expires_at": _AT,
        "revoked_at": _AT, "created_at": moment(), "updated_at": moment()}, "Whose credential runs a tenant's jobs"),
    "Assignments": thing({"assignments": listed(thing({
        "assignment_id": text("Ends and heartbeats carry it"), "job": _ASSIGNED, "lease_expires_at": moment(),
        "heartbeat_after_s": number(), "deadline": _AT, "job_deadline_at": _AT, "checkpoint": anything(),
        "checkpoint_number": whole(0), "commands": listed(thing(_SENT)), "credential": anything(), "owner": anything(),
        "cost_left_usd": or_null(text("What it may still cost, in US dollars; null: as much as it likes"))},
        optional=("credential", "owner"))), "again": anything("Whether more is claimable at once")}),
    "Extended": thing({"lease_expires_at": moment(), "heartbeat_after_s": number(), "abort": anything(),
                       "checkpoint_number": whole(0), "commands": listed(thing(_SENT))}, "The answer to a heartbeat"),
    "Settled": thing({"id": text(), "status": text(among=STATUSES), "state": text(among=STATES),
                      "repeated": boolean()}, "The answer to an end"),
    "ExtendedMany": _each("As the heartbeat alone would have been answered", {
        "lease_expires_at": moment(), "heartbeat_after_s": number(), "abort": anything(), "checkpoint_number": whole(0),
        "commands": listed(thing(_SENT))}),
    "SettledMany": _each("As the end alone would have been answered", {
        "id": text("The job's"), "job_status": text(among=STATUSES), "state": text(among=STATES),
        "repeated": boolean()}),
    "DeadLetters": thing({"dead_letters": listed(thing(_LETTER)), "next_cursor": _NAME}),
    "Bulk": thing(_BULK, "A bulk operation, and how far it has come", optional=("repeated",)),
    "BulkPreview": thing({"verb": text(), **_EXPECTED, "sample": listed(
        {"anyOf": [ref("Job"), thing(_LETTER)]}, "The newest of them, jobs or letters")}),
    "BulkItems": thing({"items": listed(thing({
        "number": whole(1), "id": text("The job's"), "outcome": text("done, waiting, or the code of a refusal")})),
        "next_after": or_null(whole(1))}),
    "Delivery": thing(_DELIVERY, "What is told of a job, once"),
    "JobDeliveries": thing({"deliveries": listed(thing({**_DELIVERY, "log": _TRIES}))}),
    "Deliveries": thing({"deliveries": listed(ref("Delivery")), "next_cursor": _NAME}),
    "Secret": thing(_SECRET, "What signs a tenant's callbacks", optional=("secret",)),
    "Secrets": thing({"secrets": listed(ref("Secret"))}),
    "Throttle": thing(_THROTTLE, "What holds a queue, worker group, type or tenant back"),
    "Throttles": thing({"throttles": listed(ref("Throttle"))}),
    "JobLimits": thing({
        "workspace": text(), "tenant_subject": _NAME, "revision": whole(0, means="The ETag"), "limits": _LIMITS,
        "effective": _LIMITS, "platform": _LIMITS, "updated_at": _AT},
        "What is set (`limits`), what holds in the end (`effective`), and the most that may be set (`platform`)"),
    "Explanation": thing({
        "id": text(), "job_id": _NAME, "status": text(among=STATUSES), "state": text(among=STATES),
        "asked_at": moment(), "blockers": listed({**thing({"code": text("Stable"), "message": text()}),
                                                  "additionalProperties": True},
                                                 "Why it does not run, the first reason first, each with its numbers"),
        **_STANDING}),
    "Batch": thing({"results": listed(thing({
        "status": whole(200, 599, "As the item alone would have been answered"), "id": text("The job's"),
        "repeated": boolean(), "steered": boolean(), "warnings": _WARNINGS, "problem": ref("Problem")},
        optional=("id", "repeated", "steered", "warnings", "problem"))),
        "enqueued": whole(0), "repeated": whole(0), "refused": whole(0)}, "What became of each, in the order sent"),
    "Problem": {**thing({
        "type": text(), "title": text(), "status": whole(400, 599), "detail": text(), "code": text("Stable"),
        "field": text("The offending field, or a pointer into a value"), "request_id": text(),
        "faults": listed(thing({"field": text(), "message": text(), "code": text()}, optional=("code",)),
                         "Every fault of a body at once")},
        "Every refusal (RFC 9457); some have facts of their own beside", optional=("field", "request_id", "faults")),
        "additionalProperties": True},
}
