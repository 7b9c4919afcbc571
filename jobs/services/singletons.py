"""Singletons: what an enqueue does with the active jobs of its session key before it makes another (A14 to A17, E3).

Joins the caller's transaction, inside a savepoint of intake's. Which mode a request asks for is `words`' to say.
"""

from __future__ import annotations

import json
from typing import Any

from jobs.errors import NeedsReadCommitted
from jobs.services import commands
from jobs.states import HELD, CommandKind, SingletonMode, Verb
from jobs.store import commands as store
from jobs.store import singletons
from jobs.store.moves import apply
from jobs.store.singletons import Session
from jobs.store.verbs import Move

REASON = "singleton_cancel"
# What a steer says beside the input, which may be as long as a command by itself.
MORE = 512


def lock(sessions: list[Session]) -> None:
    """Stand in line with other enqueues that act on these keys. Raises NeedsReadCommitted."""
    if not singletons.lock(sessions):
        raise NeedsReadCommitted(field="singleton")


def act(row: dict[str, Any], by: str, locked: bool) -> str | None:
    """Steps 4 and 5 of E3, with the key locked: the job that was steered instead of making `row`, if one was.

    A dead worker's job is recovered first: it neither swallows a steer nor waits for an abort that nobody hears (A17).
    `locked`: the active jobs of the key are, with others by id.
    """
    session = (row["tenant_id"], row["session_key"])
    if row["singleton"] == SingletonMode.CANCEL:
        _stop(session, by, locked)
        return None
    singletons.lapse(session, by, locked)
    return _steer(session, row, by, locked)


def _stop(session: Session, by: str, locked: bool) -> None:
    """Whoever waits is cancelled at once, whoever is held is asked to stop: only its holder can do that (A15)."""
    active = singletons.active(session, locked)
    if any(job.state in HELD for job in active) and singletons.lapse(session, by, True):
        active = singletons.active(session, True)
    apply([Move(job.id, Verb.CANCEL, by=by, reason=REASON) for job in active if job.state not in HELD], release=False)
    store.write([job.id for job in active if job.state in HELD and not job.aborting],
                commands.draft(CommandKind.ABORT, None, by, reason=REASON))


def _steer(session: Session, row: dict[str, Any], by: str, locked: bool) -> str | None:
    """The newest active job of the key gets the new input as a command, with the request's keys (A16)."""
    newest = singletons.newest(session, locked)
    if newest is None:
        return None
    given = json.loads(row["input"])
    said = {**(given if type(given) is dict else {"input": given}), "from_session_key": session[1],
            "from_enqueue": True}
    wanted = commands.draft(CommandKind.STEER, said, by, most=commands.PAYLOAD_BYTES + MORE,
                            idempotency_key=row["idempotency_key"], external_id=row["external_id"],
                            fingerprint=row["fingerprint"])
    if not store.write([newest], wanted):
        raise commands.unwritten(newest, wanted)
    return newest
