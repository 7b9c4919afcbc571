"""Claims that runners named, and how many live attempts a key holds: what the claim of a runner adds to a worker's.

A named claim is written after its attempts and in their transaction: of two at the same moment the later one waits
here, finds the name taken, and undoes what it has claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobs.store.sql import array, packed, rows, run


class Named(NamedTuple):
    """A claim under a name, with the attempts that it brought."""

    request_id: str
    fingerprint: bytes
    attempts: Sequence[str]


_KEEP = f"""INSERT INTO jobs_claim_request (key_id, request_id, fingerprint, attempts, repeats, created_at)
    SELECT %s, v.request_id, decode(v.fingerprint, 'hex'), string_to_array(v.attempts, ' ')::uuid[], 0, jobs_now()
    FROM unnest({array('text')}, {array('text')}, {array('text')}) v(request_id, fingerprint, attempts)
    ORDER BY v.request_id ON CONFLICT DO NOTHING RETURNING request_id"""
_SEEN = "SELECT fingerprint FROM jobs_claim_request WHERE key_id = %s AND request_id = %s"
_AGAIN = """UPDATE jobs_claim_request SET repeats = repeats + 1 WHERE key_id = %s AND request_id = %s
    RETURNING attempts::text[]"""
_FORGET = "DELETE FROM jobs_claim_request WHERE key_id = %s AND request_id = %s AND repeats = 0"
# Waits, as the first of its transaction: of two claims of one key the second one must count what the first one takes.
_LOCK = "SELECT id FROM jobs_key WHERE id = %s FOR NO KEY UPDATE"
_HELD = """SELECT count(*) FROM (SELECT FROM jobs_attempt WHERE ended_at IS NULL AND key_id = %s
    LIMIT {limit}) held"""
_OLD = """DELETE FROM jobs_claim_request WHERE id IN (SELECT r.id FROM jobs_claim_request r
    WHERE r.created_at < jobs_now() - %s::bigint * interval '1 ms' AND NOT EXISTS (
        SELECT FROM jobs_attempt a WHERE a.id = ANY(r.attempts) AND a.ended_at IS NULL)
    ORDER BY r.id LIMIT {limit})"""


def keep(key_id: int, named: Sequence[Named]) -> set[str]:
    """Write these inside the transaction of their claim; the names that were free."""
    if not named:
        return set()
    columns = ([n.request_id for n in named], [n.fingerprint.hex() for n in named],
               [" ".join(n.attempts) for n in named])
    return {name for (name,) in rows(_KEEP, [key_id, *map(packed, columns)])}


def fingerprint(key_id: int, request_id: str) -> bytes | None:
    """What this key asked under this name before; None: nothing that brought anything."""
    found = rows(_SEEN, [key_id, request_id])
    return bytes(found[0][0]) if found else None


def again(key_id: int, request_id: str) -> list[str] | None:
    """The attempts of a named claim, which is being answered once more; None where it was forgotten meanwhile."""
    found = rows(_AGAIN, [key_id, request_id])
    return list(found[0][0]) if found else None


def forget(key_id: int, request_id: str) -> bool:
    """Forget a named claim whose answer nobody got; false where it was answered again already."""
    return run(_FORGET, [key_id, request_id]) == 1


def held(key_id: int, most: int) -> int:
    """How many live attempts a key holds, counted up to `most`; until the commit no other claim of the key counts."""
    rows(_LOCK, [key_id])
    return int(rows(_HELD.format(limit=int(most)), [key_id])[0][0])


def forget_old(ms: int, limit: int = 500) -> int:
    """Delete named claims that are older than this and hold nothing any more; how many."""
    return run(_OLD.format(limit=int(limit)), [ms])
