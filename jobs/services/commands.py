"""Commands to active jobs: steer and follow_up are read by the holder, abort asks it to stop (A6, A54, A55, E5).

Sending joins the caller's transaction. Reading and consuming are the holder's, under its fence: a command is handed out
until it is consumed, so that one which its reader did not get to is the next attempt's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jobs import codecs, failpoints
from jobs.errors import Invalid, JobEnded, JobNotFound, JobsError, KeyReused, Refused, StaleFence
from jobs.registry import nearest
from jobs.services import words
from jobs.services.assignments import Beat
from jobs.services.cancellation import answered, check_reason, of_archived
from jobs.services.words import JobId
from jobs.states import HELD, TERMINAL, CommandKind, State, Verb
from jobs.store import commands as store
from jobs.store import lookup
from jobs.store.commands import MOST_UNREAD, Draft
from jobs.store.moves import apply
from jobs.store.sql import durable, joining
from jobs.store.verbs import Move

PAYLOAD_BYTES = 64 * 1024
ABORT_REASON = "abort_requested"
# A heartbeat over HTTP carries the oldest of them; the others come once these are consumed.
AT_ONCE = 20
__all__ = ["MOST_UNREAD", "Command", "Sent", "TooManyCommands", "consume", "draft", "follow_up", "send", "steer",
           "unread"]


class TooManyCommands(Refused):
    """This job has too many commands that nobody has read."""

    code = "too_many_commands"

    def __init__(self) -> None:
        super().__init__(f"This job has {MOST_UNREAD} commands that nobody has read; wait until it reads some.",
                         unread=MOST_UNREAD)


@dataclass(frozen=True, slots=True)
class Command:
    """One command as its reader gets it. `payload` is a JSON object, None where it was redacted or spoilt."""

    id: str
    kind: CommandKind
    payload: Any
    by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer to a command. `command` is its id; None for an abort of a job that nobody held: that has stopped."""

    job_id: str
    command: str | None
    repeated: bool = False


def kind(said: Any) -> CommandKind:
    """The kind of a command. Raises Invalid unknown_command_kind, naming the nearest (A6)."""
    if not isinstance(said, str) or said not in list(CommandKind):
        raise Invalid(f"There is no such command{nearest(str(said)[:64], list(CommandKind))}", field="kind",
                      code="unknown_command_kind")
    return CommandKind(said)


def draft(kind: CommandKind, payload: Any, by: str, *, most: int = PAYLOAD_BYTES, **more: Any) -> Draft:
    """A command that is to be written. Raises Invalid: a payload that is no JSON object, or of more than `most`."""
    said = {} if payload is None else payload
    if type(said) is not dict:
        raise Invalid("must be an object", field="payload", code="invalid_payload")
    text = codecs.canonical(said, max_bytes=most)
    return Draft(kind, text, codecs.digest(text), by, **more)


def send(job_id: JobId, said: CommandKind | str, payload: Any = None, *, by: str, reason: str | None = None,
         idempotency_key: str | None = None, allow_archived: bool = False) -> Sent:
    """Send a command to an active job; a listening holder hears of it within 250 ms (A6, A54, A55).

    An abort of a job that nobody holds stops it at once; one that is held is asked to stop, and the first reason stays.
    Aborting what is asked to stop already, or is cancelled, is a quiet yes, and so is the same request with its key.
    Raises JobNotFound, JobEnded naming the state, TooManyCommands, KeyReused, Invalid (kind, payload, reason, key), and
    for an abort `tenant_archived` as `cancel` does (B37).
    """
    what = kind(said)
    words.key(idempotency_key, "idempotency_key")
    if what is CommandKind.ABORT:
        reason = ABORT_REASON if reason is None else reason
    if reason is not None:
        check_reason(reason)
    wanted = draft(what, payload, by, reason=reason, idempotency_key=idempotency_key)
    id_ = words.job_id(job_id)
    with joining():
        job = store.lock(id_)
        if job is None:
            raise JobNotFound()
        if idempotency_key is not None:
            wanted = _marked(id_, wanted)
            if (known := _known(id_, job.tenant_id, wanted)) is not None:
                return known
        if what is CommandKind.ABORT and not allow_archived and (refused := of_archived([id_])):
            raise refused[id_]
        sent = _abort(id_, job, wanted) if what is CommandKind.ABORT else _tell(id_, job, wanted)
        failpoints.at("command.written")
    return sent


def steer(job_id: JobId, payload: Any = None, *, by: str, **more: Any) -> Sent:
    """Send a steer: do it so from now on. As `send`."""
    return send(job_id, CommandKind.STEER, payload, by=by, **more)


def follow_up(job_id: JobId, payload: Any = None, *, by: str, **more: Any) -> Sent:
    """Send a follow-up: do this too. As `send`."""
    return send(job_id, CommandKind.FOLLOW_UP, payload, by=by, **more)


def abort(job_id: JobId, *, by: str, reason: str = ABORT_REASON, **more: Any) -> Sent:
    """Ask a job to stop (E5). As `send`."""
    return send(job_id, CommandKind.ABORT, by=by, reason=reason, **more)


def _marked(job_id: str, wanted: Draft) -> Draft:
    """With the fingerprint of the request as sent (E6)."""
    said = {"endpoint": "command", "job": job_id, "kind": wanted.kind.value, "payload": wanted.payload,
            "reason": wanted.reason}
    return replace(wanted, fingerprint=codecs.fingerprint(said))


def _known(job_id: str, tenant_id: int, wanted: Draft) -> Sent | None:
    """The earlier request with this key. Raises KeyReused where that was another one."""
    hits = lookup.by_keys([(tenant_id, None, wanted.idempotency_key)])[0]
    if not hits:
        return None
    if hits[0].command is None or hits[0].fingerprint != wanted.fingerprint:
        raise KeyReused()
    return Sent(job_id, hits[0].command, repeated=True)


def _tell(job_id: str, job: store.Standing, wanted: Draft) -> Sent:
    if job.state in TERMINAL:
        raise JobEnded(f"The job is {job.state}; it takes no commands any more.", status=job.state)
    return Sent(job_id, _written(job_id, wanted))


def _abort(job_id: str, job: store.Standing, wanted: Draft) -> Sent:
    if job.state is State.CANCELLED:
        return Sent(job_id, None, repeated=True)
    if job.state in TERMINAL:
        raise JobEnded(f"The job is {job.state}.", status=job.state)
    if job.state not in HELD:
        answered(apply([Move(job_id, Verb.CANCEL, by=wanted.by, reason=wanted.reason)], release=False)[0])
        return Sent(job_id, None)
    if job.abort_reason is not None:
        return Sent(job_id, store.pending_abort(job_id), repeated=True)
    return Sent(job_id, _written(job_id, wanted))


def _written(job_id: str, wanted: Draft) -> str:
    """The id of the command, written now. Raises what the guard of the write has found."""
    if written := store.write([job_id], wanted):
        return written[0].command
    raise unwritten(job_id, wanted)


def unwritten(job_id: str, wanted: Draft) -> JobsError:
    """Why a command to this locked, active job was not written."""
    if wanted.kind is not CommandKind.ABORT and store.unread_of(job_id) >= MOST_UNREAD:
        return TooManyCommands()
    # A twin with the same key to another job committed at the same moment.
    return KeyReused()


# --- the holder's --------------------------------------------------------------------------------------------------


def unread(job_ids: Sequence[str], *, fence: str | None = None, limit: int = MOST_UNREAD) -> dict[str, list[Command]]:
    """The unread commands of each job, the oldest first; aborts are told by the heartbeat.

    With a fence only while that attempt is live: nobody else's business.
    """
    found: dict[str, list[Command]] = {}
    for row in store.unread(job_ids, limit, fence):
        found.setdefault(row.job_id, []).append(
            Command(row.id, CommandKind(row.kind), codecs.stored(row.payload), row.by, row.created_at))
    return found


def check_ids(job_id: str, ids: Sequence[str]) -> list[str]:
    """The ids of commands to this job as rows spell them. Raises Invalid unknown_command naming one that is none."""
    spelled = []
    for id_ in ids:
        try:
            spelled.append(words.job_id(id_))
        except JobNotFound:
            raise _unknown(id_ if isinstance(id_, str) else type(id_).__name__) from None
    distinct = list(dict.fromkeys(spelled))
    known = store.known(job_id, distinct) if distinct else set()
    if strange := [id_ for id_ in distinct if id_ not in known]:
        raise _unknown(strange[0])
    return distinct


def _unknown(said: str) -> Invalid:
    return Invalid(f"{codecs.printable(said, 64)!r} is no command to this job that is for reading.", field="consumed",
                   code="unknown_command")


def consume(job_id: str, fence: str, ids: Sequence[str], by: str) -> int:
    """Say that this attempt has dealt with these; how many had not been consumed before. Durable (E12).

    Once more is a quiet yes. Raises StaleFence where the attempt is not the live one, and Invalid unknown_command.
    """
    id_, live = words.job_id(job_id), words.fence(fence)
    mine = check_ids(id_, ids)
    if not mine:
        return 0
    count = durable(lambda: _consume(id_, live, mine, by))
    if count is None:
        raise StaleFence()
    return count


def after_beat(job_id: str, fence: str, beat: Beat, consumed: Sequence[str], by: str) -> list[Command]:
    """What a runner's heartbeat has consumed is written, and what is unread then is told it (E8)."""
    if consumed:
        consume(job_id, fence, consumed, by)
    return unread([job_id], fence=fence, limit=AT_ONCE).get(job_id, []) if beat.unread else []


def _consume(job_id: str, fence: str, ids: Sequence[str], by: str) -> int | None:
    count = store.consume(job_id, fence, ids, by)
    failpoints.at("command.consumed")
    return count
