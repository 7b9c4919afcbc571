"""Jobs of one session key: its lock, the active ones of it, and those among them whose worker is dead (A14 to A17).

Two enqueues with a singleton stand in line by an advisory lock; one without takes none: it could as well have come
after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobs.states import State
from jobs.store import due
from jobs.store.moves import Answer
from jobs.store.sql import array, packed, rows

Session = tuple[int, str]  # tenant, session key


class Active(NamedTuple):
    """An active job of a session key, locked."""

    id: str
    state: State
    aborting: bool


# One order for everybody who locks several.
_LOCK = f"""SELECT current_setting('transaction_isolation'), pg_advisory_xact_lock(s.key) FROM (
    SELECT DISTINCT hashtextextended('session:' || u.tenant_id || ':' || u.name, 0) AS key
    FROM unnest({array('bigint')}, {array('text')}) u(tenant_id, name) ORDER BY 1) s"""


def lock(sessions: Sequence[Session]) -> bool:
    """Stand in line for these session keys until the commit; whether what the others did can be seen then.

    False at REPEATABLE READ or above: such a transaction sees what there was before it waited.
    """
    found = rows(_LOCK, [packed([t for t, _ in sessions]), packed([key for _, key in sessions])])
    return all(level == "read committed" for level, _ in found)


_ACTIVE = """SELECT id::text, state, abort_reason IS NOT NULL FROM jobs_job
    WHERE tenant_id = %s AND session_key = %s AND ended_at IS NULL
    ORDER BY jobs_job.id {order} FOR NO KEY UPDATE {wait}"""
# Who has locked all that was there waits for nobody again: what came since, with an older id even, came after him.
_WAITS = {False: "", True: "SKIP LOCKED"}


def active(session: Session, locked: bool) -> list[Active]:
    """All active jobs of the key, locked by id. Waits for whoever holds one, but where ours are `locked` already."""
    found = rows(_ACTIVE.format(order="", wait=_WAITS[locked]), [*session])
    return [Active(id_, State(state), aborting) for id_, state, aborting in found]


def newest(session: Session, locked: bool) -> str | None:
    """The newest active job of the key, locked; one that ends while we wait is passed over."""
    found = rows(_ACTIVE.format(order="DESC LIMIT 1", wait=_WAITS[locked]), [*session])
    return found[0][0] if found else None


_LAPSED = """SELECT job.id::text, a.id::text FROM jobs_job job JOIN jobs_attempt a ON a.id = job.attempt_id
    WHERE job.tenant_id = %s AND job.session_key = %s AND job.ended_at IS NULL AND a.lease_until < jobs_now()
    ORDER BY job.id"""


def lapse(session: Session, by: str, locked: bool) -> list[Answer]:
    """End the lapsed attempts of the key's jobs, without the grace: the one lapse that joins a transaction (E3)."""
    found = [(job, attempt) for job, attempt in rows(_LAPSED, [*session])]
    return due.lapse(found, 0, by, joining=True, waits=not locked) if found else []
