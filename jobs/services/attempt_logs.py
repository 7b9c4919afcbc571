"""The log lines that attempts leave behind: kept as far as may be, and read with a job's history (A64)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import Error, connections, transaction

from jobs.models import AttemptLog, Job
from jobs.outcomes import storable
from jobs.store.sql import ALIAS, run

log = logging.getLogger("jobs.worker")
# Four bytes a character at most: nothing of what an attempt may keep is cut here.
LIMIT_BYTES = 300_000
AT_ONCE = 100
PATIENCE_MS = 2_000
Entry = tuple[str, str, int]  # attempt, text, how many earlier lines had to go


def keep(entries: Sequence[Entry]) -> None:
    """Keep the lines of these attempts; a database that does not take them costs nothing but them."""
    for begin in range(0, len(entries), AT_ONCE):
        rows = [AttemptLog(attempt_id=fence, lines=storable(text, LIMIT_BYTES), dropped=dropped)
                for fence, text, dropped in entries[begin : begin + AT_ONCE]]
        try:
            with transaction.atomic(using=ALIAS):
                run(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
                AttemptLog.objects.using(ALIAS).bulk_create(rows, ignore_conflicts=True)
        except (Error, OSError) as error:
            log.warning("the log lines of %d attempts are lost: %s", len(entries) - begin, type(error).__name__)
            connections[ALIAS].close_if_unusable_or_obsolete()
            return


def of(job: Job) -> AttemptLog | None:
    """The lines of the latest attempt that left some."""
    return AttemptLog.objects.filter(attempt__job_id=job.pk).select_related("attempt").order_by(
        "-attempt__number").first()
