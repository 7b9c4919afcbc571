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
from jobs.outcomes import End
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
    "deadline_at": _AT, "progress": _PROGRESS, "revision": whole(1, means="Moves of state: the ETag"),
}
_COMMAND: Fields = {
    "id": text(), "kind": text(among=[kind.value for kind in CommandKind]), "by": text(), "reason": _NAME,
    "created_at": moment(), "consumed_at": _AT, "payload": anything()}
_ENVELOPE = or_null(thing({
    "outcome": text(among=STATUSES), "ended_at": moment(), "unread_commands": listed(ref("Command")),
    "artifact": anything(), "error": thing({"reason_code": _NAME, "message": _NAME}), "result_status": _NAME},
    "The one result of an ended job", optional=("artifact", "error", "result_status")))
_STAGE = thing({"stage": text(), "label": _NAME, "event": text(), "attempt": or_null(whole(0)), "at": _AT})
IN_FULL: Final[Fields] = {
    **JOB, "result_envelope": _ENVELOPE, "redacted": boolean("Its input is gone for good"), "stages": listed(_STAGE),
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
    "agent": _NAME, "tenant_subject": _NAME, "attempt": whole(1), "chain": whole(1), "idempotency_key": text(),
    "input": anything()})
_ATTEMPT: Fields = {
    "number": whole(1), "chain": whole(1), "leased_at": moment(), "started_at": _AT, "ended_at": _AT,
    "outcome": or_null(text(among=[end.value for end in End])), "reason_code": _NAME, "message": _NAME,
    "retryable": or_null(boolean()), "result_status": _NAME,
    "log": or_null(thing({"lines": listed(text()), "dropped": whole(0)}))}
_DEFINITION: Fields = {
    "type": text(), "version": whole(1), "current": boolean(), "label": _NAME, "description": _NAME,
    "origins": listed(text()), "queue": text(), "priority": whole(-100, 100), "worker_group": text(),
    "executor": text(among=("external", "in_process")), "credential": text(), "enabled": boolean(), "runs": anything(),
    "enqueueable": boolean("By this key"), "stages": listed(thing({"stage": text(), "label": _NAME})),
    "limits": mapping(), "retry": or_null(mapping()), "input_schema": mapping(), "artifact_schema": mapping()}

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
        "checkpoint_number": whole(0), "commands": listed(thing(_SENT)), "credential": anything(), "owner": anything()},
        optional=("credential", "owner"))), "again": anything("Whether more is claimable at once")}),
    "Extended": thing({"lease_expires_at": moment(), "heartbeat_after_s": number(), "abort": anything(),
                       "checkpoint_number": whole(0), "commands": listed(thing(_SENT))}, "The answer to a heartbeat"),
    "Settled": thing({"id": text(), "status": text(among=STATUSES), "state": text(among=STATES),
                      "repeated": boolean()}, "The answer to an end"),
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
