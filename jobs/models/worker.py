"""Workers and leaders: the processes of `runworker`, and which of them does a periodic duty."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from jobs.clock import Now


class Worker(models.Model):
    """One life of one worker process; a restarted process is a new row (case-A15)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    slots = models.PositiveIntegerField()
    running = models.PositiveIntegerField(default=0)
    worker_groups = ArrayField(models.CharField(max_length=64))
    queues = ArrayField(models.CharField(max_length=64))
    types = ArrayField(models.CharField(max_length=80), db_comment="type@version it can run (E7)")
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now(), db_comment="Its latest heartbeat")
    stopped_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "jobs_worker"
        indexes = [models.Index("seen_at", name="worker_live", condition=models.Q(stopped_at__isnull=True))]

    def __str__(self) -> str:
        return self.name


class Leader(models.Model):
    """Who does a periodic duty, until when; a lease row, so that it works through a pooler."""

    duty = models.CharField(max_length=64, primary_key=True)
    holder = models.UUIDField(null=True)
    until = models.DateTimeField(null=True)
    ticked_at = models.DateTimeField(null=True, db_comment="Latest round, whoever did it; recovery's judges gaps by it")
    hold_until = models.DateTimeField(null=True, db_comment="Recovery stands still until then; null: it goes on (E8)")
    holds = models.PositiveSmallIntegerField(db_default=0, db_comment="Times in a row that it was made to stand still")

    class Meta:
        db_table = "jobs_leader"

    def __str__(self) -> str:
        return self.duty
