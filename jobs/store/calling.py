"""Callbacks in the database: what is to be told of, the log of tries, and hosts that rest after failures (E11).

Written inside the transaction that made the news; nothing here waits for anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from jobs.store.sql import array, packed, rows, run

# The first rest of a host, doubling with each failure beyond, and the longest.
FAILURES_IN_A_ROW = 10
REST_S, LONGEST_REST_S = 60, 1_800
_WANTED = f"""SELECT job.id::text, job.workspace_id, job.tenant_id, job.chain, job.revision, job.state, job.reason,
        job.callback_url, jobs_now()
    FROM jobs_job job WHERE job.id = ANY({array('uuid')}) AND job.callback_events IS NOT NULL ORDER BY job.id"""


class Told(NamedTuple):
    """A job of which somebody is to be told, as it is in the present transaction."""

    job_id: str
    workspace_id: int
    tenant_id: int
    chain: int
    revision: int
    state: str
    reason: str | None
    url: str | None
    at: datetime


def wanted(job_ids: Collection[str]) -> list[Told]:
    """These jobs."""
    return [Told._make(r) for r in rows(_WANTED, [packed(job_ids)])]


class New(NamedTuple):
    """A delivery to be made."""

    id: str
    sender_id: str
    event: str
    told: Told
    host: str
    site: bool


# Reasons are people's words and may hold anything, and a host may be empty: real arrays.
_MAKE = f"""INSERT INTO jobs_delivery (id, sender_id, event, job_id, workspace_id, tenant_id, chain, revision,
        job_state, reason, host, site, at, state, tries, replays)
    SELECT v.*, jobs_now(), 'pending', 0, 0 FROM unnest({array('uuid')}, {array('uuid')}, {array('text')},
        {array('uuid')}, {array('bigint')}, {array('bigint')}, {array('int')}, {array('int')}, {array('text')},
        %s::text[], %s::text[], {array('boolean')}) v
    ON CONFLICT DO NOTHING RETURNING id::text"""


def make(new: Sequence[New]) -> set[str]:
    """Write these; the ids of those that were not there yet. One a job, chain and event."""
    params = [packed([n.id for n in new]), packed([n.sender_id for n in new]), packed([n.event for n in new])]
    params += [packed([getattr(n.told, name) for n in new]) for name in (
        "job_id", "workspace_id", "tenant_id", "chain", "revision", "state")]
    return {r[0] for r in rows(_MAKE, [*params, [n.told.reason for n in new], [n.host for n in new],
                                       packed([n.site for n in new])])}


_ENDS = f"""UPDATE jobs_delivery y SET state = v.state, ended_at = CASE WHEN v.state <> 'pending' THEN jobs_now() END
    FROM unnest({array('uuid')}, {array('text')}) v(sender, state)
    WHERE y.sender_id = v.sender AND y.state <> v.state
        AND NOT (v.state = 'delivered' AND y.state = 'dropped')"""


def ended(states: Sequence[tuple[str, str]]) -> None:
    """Note the state of each delivery by the job that sends it; what was dropped by its sender stays so."""
    run(_ENDS, [packed([sender for sender, _ in states]), packed([state for _, state in states])])


_TRIED = """WITH y AS (UPDATE jobs_delivery SET tries = tries + 1, http_status = %s::int, ms = %s::int, code = %s::text
        WHERE id = %s::uuid AND sender_id = %s::uuid RETURNING id, job_id, tries)
    INSERT INTO jobs_delivery_try (delivery_id, job_id, number, at, http_status, ms, code, answer)
    SELECT y.id, y.job_id, y.tries, jobs_now(), %s::int, %s::int, %s::text, %s::text FROM y"""


def tried(delivery: str, sender: str, http_status: int | None, ms: int, code: str | None, answer: str | None) -> None:
    """Keep what came of one try; nothing where the delivery is gone, or another job sends it by now."""
    run(_TRIED, [http_status, ms, code, delivery, sender, http_status, ms, code, answer])


def dropped(delivery: str, code: str) -> None:
    """There is nothing to tell any more."""
    run("UPDATE jobs_delivery SET state = 'dropped', code = %s, ended_at = jobs_now() WHERE id = %s::uuid",
        [code, delivery])


_FAILED = f"""INSERT INTO jobs_callback_host (name, failures, open_until) VALUES (%s, 1,
        jobs_now() + %s::int * interval '1 second')
    ON CONFLICT (name) DO UPDATE SET failures = jobs_callback_host.failures + 1, open_until = greatest(
        jobs_now() + %s::int * interval '1 second',
        CASE WHEN jobs_callback_host.failures + 1 >= {FAILURES_IN_A_ROW} THEN jobs_now() + interval '1 second'
            * least({LONGEST_REST_S}, {REST_S} * 2 ^ least(jobs_callback_host.failures + 1 - {FAILURES_IN_A_ROW}, 10))
        END, jobs_callback_host.open_until)"""


def failed(name: str, rest_s: int = 0) -> None:
    """A host failed: after so many in a row it rests, the longer the more often; `rest_s` is what it asked for."""
    run(_FAILED, [name, rest_s, rest_s])


def answered(name: str) -> None:
    """A host answered well: its failures are forgotten."""
    run("DELETE FROM jobs_callback_host WHERE name = %s", [name])


# Anybody may name ever new hosts.
_FORGET = """DELETE FROM jobs_callback_host WHERE name IN (SELECT h.name FROM jobs_callback_host h
    WHERE h.open_until IS NULL OR h.open_until < jobs_now() - interval '1 day' LIMIT {limit})"""


def forget_hosts(limit: int) -> int:
    """Forget hosts that have neither failed nor rested for a day; how many."""
    return run(_FORGET.format(limit=int(limit)))


_REPLAY = """UPDATE jobs_delivery SET state = 'pending', sender_id = %s::uuid, replays = replays + 1, ended_at = NULL
    WHERE id = %s::uuid AND sender_id = %s::uuid AND state IN ('delivered', 'failed', 'dropped')"""


def replayed(delivery: str, sender: str, before: str) -> bool:
    """Give an ended delivery another sender; false where it is under way, or somebody else was first."""
    return run(_REPLAY, [sender, delivery, before]) == 1


def lock_tenant(tenant_id: int) -> None:
    """Wait for whoever else changes this tenant's secrets."""
    rows("SELECT pg_advisory_xact_lock(hashtextextended('callback-secrets:' || %s::bigint, 0))", [tenant_id])
