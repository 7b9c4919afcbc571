"""The rollup by minute: added to by one statement a flush, read by whole minutes, erased by age."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from jobs.meters import BUCKETS, COUNTS, RUNS, SUMS, WAITS, Pair, Vector
from jobs.store.sql import array, packed, rows, run

_NUMBERS = (*COUNTS, *SUMS)
_ARRAYS = ("waits", "runs")
_SUM = "ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0) FROM unnest(jobs_traffic.{0}, EXCLUDED.{0}) u(a, b))"
# In the order of the keys, so that two flushes at the same time wait for each other and never in a ring.
_ADD = f"""INSERT INTO jobs_traffic (minute, worker_group, queue, {', '.join((*_NUMBERS, *_ARRAYS))})
    SELECT date_trunc('minute', jobs_now()), v.worker_group, v.queue, {', '.join(f'v.{n}' for n in _NUMBERS)},
        {', '.join(f'v.{n}::bigint[]' for n in _ARRAYS)}
    FROM unnest({', '.join([array('text')] * 2 + [array('bigint')] * len(_NUMBERS) + [array('text')] * 2)})
        v(worker_group, queue, {', '.join((*_NUMBERS, *_ARRAYS))})
    ORDER BY v.worker_group, v.queue
    ON CONFLICT (minute, worker_group, queue) DO UPDATE SET
        {', '.join(f'{n} = jobs_traffic.{n} + EXCLUDED.{n}' for n in _NUMBERS)},
        {', '.join(f'{n} = {_SUM.format(n)}' for n in _ARRAYS)}"""


def add(found: Mapping[Pair, Vector]) -> None:
    """Add these vectors to the present minute of their pairs."""
    pairs = sorted(found)
    columns: list[list[Any]] = [[group for group, _ in pairs], [queue for _, queue in pairs]]
    columns += [[found[pair][n] for pair in pairs] for n in range(len(_NUMBERS))]
    columns += [[_array(found[pair][at:at + BUCKETS]) for pair in pairs] for at in (WAITS, RUNS)]
    run(_ADD, [packed(column) for column in columns])


def _array(buckets: Vector) -> str:
    """As PostgreSQL reads it, without the empty end."""
    last = max((n for n, times in enumerate(buckets, 1) if times), default=0)
    return "{" + ",".join(map(str, buckets[:last])) + "}"


class Minute(NamedTuple):
    """One minute of one pair: what came, began, ended, and what of that was a failure or a lapse."""

    minute: datetime
    worker_group: str
    queue: str
    enqueued: int
    claimed: int
    completed: int
    erred: int
    lapsed: int
    settled: int
    waits: list[int]
    runs: list[int]


# A lapse is nobody's word: a fleet whose claims all lapse settles nothing.
_SETTLED = "completed + erred + released + interrupted + stopped"
_MINUTES = f"""SELECT minute, worker_group, queue, enqueued, claimed, completed, erred, lapsed, {_SETTLED}, waits, runs
    FROM jobs_traffic WHERE minute > date_trunc('minute', jobs_now()) - %s::int * interval '1 min'
        AND minute <= jobs_now() ORDER BY minute"""
# Minute by minute through the key: by a range it would read what all other pairs did.
_PACE = """SELECT coalesce(sum(t.claimed), 0)::bigint,
        coalesce(extract(epoch FROM jobs_now() - min(t.minute)), 0)::float8
    FROM generate_series(0, %s::int) back CROSS JOIN LATERAL (SELECT x.minute, x.claimed FROM jobs_traffic x
        WHERE x.minute = date_trunc('minute', jobs_now()) - back * interval '1 min'
            AND x.worker_group = %s AND x.queue = %s AND x.claimed > 0) t"""
_LETTERS = """SELECT coalesce(sum(letters_opened), 0)::bigint, coalesce(sum(letters_answered), 0)::bigint
    FROM jobs_traffic WHERE minute > jobs_now() - interval '1 day' AND minute <= jobs_now()"""
_FORGET = """DELETE FROM jobs_traffic WHERE (minute, worker_group, queue) IN (SELECT minute, worker_group, queue
    FROM jobs_traffic WHERE minute < jobs_now() - %s::int * interval '1 day' ORDER BY minute LIMIT {limit})"""


def minutes(count: int) -> list[Minute]:
    """The last so many minutes, the present one included, as far as anything happened in them."""
    return [Minute._make(row) for row in rows(_MINUTES, [count])]


def pace(worker_group: str, queue: str, minutes_back: int) -> tuple[int, float]:
    """How many jobs of a pair were claimed since the first minute with a claim, of so many; and seconds since then."""
    claimed, seconds = rows(_PACE, [minutes_back, worker_group, queue])[0]
    return int(claimed), float(seconds)


def letters() -> tuple[int, int]:
    """Dead letters that were opened and answered within a day."""
    opened, answered = rows(_LETTERS)[0]
    return opened, answered


def forget(days: int, limit: int) -> int:
    """Erase minutes that are older, at most so many rows; how many."""
    return run(_FORGET.format(limit=int(limit)), [days])
