"""What happened by minute: statistics, gathered in every process and flushed every few seconds."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models


class Traffic(models.Model):
    """One minute of one (worker group, queue). A killed process loses the seconds that it had not flushed yet."""

    pk = models.CompositePrimaryKey("minute", "worker_group", "queue")
    minute = models.DateTimeField(db_comment="Of the flush, by the database's clock: a few seconds after the fact")
    worker_group = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    enqueued = models.BigIntegerField(default=0)
    claimed = models.BigIntegerField(default=0)
    completed = models.BigIntegerField(default=0, db_comment="Attempts, as are those up to stopped")
    erred = models.BigIntegerField(default=0, db_comment="Attempts that their holder called failed")
    lapsed = models.BigIntegerField(default=0)
    released = models.BigIntegerField(default=0)
    interrupted = models.BigIntegerField(default=0)
    stopped = models.BigIntegerField(default=0, db_comment="Attempts ended by a stop, a cancel or a pause")
    failed = models.BigIntegerField(default=0, db_comment="Jobs that ended so, as are the next two")
    cancelled = models.BigIntegerField(default=0)
    superseded = models.BigIntegerField(default=0)
    letters_opened = models.BigIntegerField(default=0)
    letters_answered = models.BigIntegerField(default=0)
    waited_us = models.BigIntegerField(default=0, db_comment="From when they could be claimed until they were")
    ran_us = models.BigIntegerField(default=0, db_comment="From claim to end, of attempts that ended")
    waits = ArrayField(models.BigIntegerField(), default=list, db_comment="Spans by bits of their microseconds")
    runs = ArrayField(models.BigIntegerField(), default=list)

    class Meta:
        db_table = "jobs_traffic"
        verbose_name_plural = "traffic"
