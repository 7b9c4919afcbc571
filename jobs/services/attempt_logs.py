"""The log lines that attempts leave behind: kept as far as may be, and read with a job's history (A64)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import Error, connections, transaction

from jobs import clock
from jobs.models import AttemptLog, Job
from jobs.outcomes import storable
from jobs.store.sql import ALIAS, array, packed, run

log = logging.getLogger("jobs.worker")
# Four bytes a character at most: nothing of what an attempt may keep is cut here.
LIMIT_BYTES = 300_000
AT_ONCE = 100
PATIENCE_MS = 500
LOCK_MS = 100
# After a failure the lines of so many seconds are let go: claims wait for this.
AGAIN_S = 30.0
_rest = clock.Every(AGAIN_S)
# Not of an attempt that has been erased meanwhile: nothing would ever erase its lines. The lock keeps an eraser from
# deleting it in between; where the lines were redacted, their place is taken.
_KEEP = f"""INSERT INTO jobs_attempt_log (attempt_id, lines, dropped, at)
    SELECT a.id, u.lines, u.dropped, jobs_now() FROM unnest({array('uuid')}, %s::text[], {array('int')})
        u(id, lines, dropped) JOIN jobs_attempt a ON a.id = u.id FOR KEY SHARE OF a ON CONFLICT DO NOTHING"""
Entry = tuple[str, str, int]  # attempt, text, how many earlier lines had to go


def keep(entries: Sequence[Entry]) -> None:
    """Keep the lines of these attempts; a database that does not take them costs nothing but them."""
    if _rest.wait_s() > 0:
        return
    for begin in range(0, len(entries), AT_ONCE):
        some = entries[begin : begin + AT_ONCE]
        columns = [packed([fence for fence, _, _ in some]), [storable(text, LIMIT_BYTES) for _, text, _ in some],
                   packed([dropped for _, _, dropped in some])]
        try:
            with transaction.atomic(using=ALIAS):
                run(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
                run(f"SET LOCAL lock_timeout = {LOCK_MS}")
                # No settlement hangs on these.
                run("SET LOCAL synchronous_commit = off")
                run(_KEEP, columns)
        except (Error, OSError) as error:
            _rest.after(AGAIN_S)
            log.warning("log lines of attempts are lost for %d s, of %d so far: %s", AGAIN_S, len(entries) - begin,
                        type(error).__name__)
            connections[ALIAS].close_if_unusable_or_obsolete()
            return


def of(job: Job) -> AttemptLog | None:
    """The lines of the latest attempt that left some; none of a redacted job."""
    return AttemptLog.objects.filter(attempt__job_id=job.pk).exclude(lines="").select_related("attempt").order_by(
        "-attempt__number").first()
