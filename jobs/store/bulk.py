"""The rows of bulk operations: begun once, carried on by one process at a time, counted in the batch's own transaction.

Nobody who stops one waits for its batch: who carries it on holds an advisory lock, and writes guarded by where the
batch began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs.store.sql import array, packed, rows, run

_LOCKS = 4
_HOLD = f"""SELECT pg_try_advisory_xact_lock({_LOCKS}, (%s::bigint %% 2147483647)::int)"""
_NEXT = """SELECT id FROM jobs_bulk_operation WHERE ended_at IS NULL AND id > %s ORDER BY id LIMIT 1"""
_ADVANCE = """UPDATE jobs_bulk_operation SET after = %s, done = done + %s, skipped = %s::jsonb, moved_at = jobs_now(),
    canary_letter = coalesce(canary_letter, %s) WHERE id = %s AND after = %s AND done = %s"""
_GATHERED = """UPDATE jobs_bulk_operation SET mark = coalesce(%s, mark), gathered = %s, total = %s,
    moved_at = jobs_now() WHERE id = %s AND mark IS NOT DISTINCT FROM %s AND gathered = %s AND total IS NULL"""
_ITEMS = """SELECT number, job_id::text, letter_id FROM jobs_bulk_item WHERE bulk_id = %s AND number > %s
    ORDER BY number LIMIT {limit}"""
_TOLD = f"""UPDATE jobs_bulk_item i SET outcome = v.outcome
    FROM unnest({array('int')}, {array('text')}) v(number, outcome) WHERE i.bulk_id = %s AND i.number = v.number"""
_END = """UPDATE jobs_bulk_operation SET ended_at = jobs_now(), "end" = %s, ended_by = %s
    WHERE id = %s AND ended_at IS NULL"""
_GO = """UPDATE jobs_bulk_operation SET going_at = jobs_now() WHERE id = %s AND ended_at IS NULL AND going_at IS NULL
    AND canary_letter IS NOT NULL"""
# How the latest of those that it requeued have fared: ended, and of these failed again.
_FARED = """SELECT count(*) FILTER (WHERE s.ended), count(*) FILTER (WHERE s.failed) FROM (
    SELECT job.chain > d.chain + 1 OR job.ended_at IS NOT NULL AS ended, job.chain > d.chain + 1
        OR job.state = 'failed' AS failed
    FROM (SELECT job_id, chain FROM jobs_dead_letter WHERE bulk_id = %s AND resolution = 'requeued'
        ORDER BY id DESC LIMIT {latest}) d JOIN jobs_job job ON job.id = d.job_id) s"""
_CANARY = """SELECT job.state, job.chain > d.chain + 1 FROM jobs_dead_letter d JOIN jobs_job job ON job.id = d.job_id
    WHERE d.id = %s"""


def following(after: int) -> int | None:
    """The open bulk operation that comes after this one, if there is one."""
    found = rows(_NEXT, [after])
    return int(found[0][0]) if found else None


def hold(pk: int) -> bool:
    """Keep others off this one until the commit; false while another process is at it."""
    return bool(rows(_HOLD, [pk])[0][0])


class Item(NamedTuple):
    """A job of the frozen set, or a letter of it."""

    number: int
    job_id: str
    letter_id: int | None


def items(pk: int, after: int, limit: int) -> list[Item]:
    """The next items behind this number; one whose job was erased is there no more."""
    return [Item._make(r) for r in rows(_ITEMS.format(limit=int(limit)), [pk, after])]


def tell(pk: int, outcomes: Sequence[tuple[int, str]]) -> None:
    """Note what became of each, by its number."""
    run(_TOLD, [packed([n for n, _ in outcomes]), packed([word for _, word in outcomes]), pk])


def gathered(pk: int, was: tuple[str | None, int], mark: str | None, number: int, done: bool) -> bool:
    """Note that the set has `number` items now, `done`: all of them; false where another process was first."""
    return run(_GATHERED, [mark, number, number if done else None, pk, *was]) == 1


def advance(pk: int, was: tuple[int, int], after: int, done: int, skipped: Mapping[str, int],
            canary: int | None = None) -> bool:
    """Note a batch that began where (`after`, `done`) was; false where somebody else has carried on from there."""
    return run(_ADVANCE, [after, done, json.dumps(skipped, sort_keys=True), canary, pk, *was]) == 1


def end(pk: int, word: str, by: str | None = None) -> bool:
    """It goes on no more; false where it had ended."""
    return run(_END, [word, by, pk]) == 1


def let_go(pk: int) -> bool:
    """The rest may follow the canary; false where it follows already, or none was sent."""
    return run(_GO, [pk]) == 1


def fared(pk: int, latest: int) -> tuple[int, int]:
    """Of the latest letters that it requeued: how many jobs have ended since, and how many of these failed."""
    ended, failed = rows(_FARED.format(latest=int(latest)), [pk])[0]
    return int(ended), int(failed)


def canary(letter_id: int) -> bool | None:
    """Whether the job of this letter has completed since; None while it has not ended."""
    found = rows(_CANARY, [letter_id])
    if not found:
        return False
    state, again = found[0]
    if again or state in ("failed", "cancelled", "superseded"):
        return False
    return True if state == "completed" else None
