"""Which versions rows name that a code does not know: what must not be removed yet (E7, E15).

Looks at active jobs and open dead letters alone, along the indexes that hold nothing else, and counts up to a cap.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.store.sql import array, packed, rows, run

# The conditions of the partial indexes: together every active job, and no other.
_PLACES = {
    "queued": "SELECT type, version FROM jobs_job WHERE state = 'queued' AND gate IS NULL",
    "scheduled": "SELECT type, version FROM jobs_job WHERE gate = 'scheduled'",
    "held": "SELECT type, version FROM jobs_job WHERE gate = 'exclusive'",
    "spent": "SELECT type, version FROM jobs_job WHERE gate = 'spent'",
    "paused": "SELECT type, version FROM jobs_job WHERE state = 'paused'",
    "running": "SELECT job.type, job.version FROM jobs_attempt a JOIN jobs_job job ON job.id = a.job_id"
               " WHERE a.ended_at IS NULL",
    "dead_letters": "SELECT job.type, job.version FROM jobs_dead_letter letter JOIN jobs_job job"
                    " ON job.id = letter.job_id WHERE letter.resolved_at IS NULL",
}
PLACES = tuple(_PLACES)
_STRANGE = f"""SELECT type, version, count(*) FROM (SELECT type, version FROM ({{rows}}) named
    WHERE (type, version) NOT IN (SELECT * FROM unnest({array('text')}, {array('int')})) LIMIT {{cap}}) strange
    GROUP BY type, version"""


def strange(place: str, known: Sequence[tuple[str, int]], cap: int) -> list[tuple[str, int, int]]:
    """(type, version, rows) of the rows in this place that none of these versions fits; at most `cap` rows in all."""
    columns = [packed([t for t, _ in known]), packed([v for _, v in known])]
    return [tuple(r) for r in rows(_STRANGE.format(rows=_PLACES[place], cap=int(cap)), columns)]  # type: ignore[misc]


def patience(seconds: float) -> None:
    """For the rest of the present transaction: no statement takes longer."""
    run(f"SET LOCAL statement_timeout = {int(seconds * 1_000)}")
