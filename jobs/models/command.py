"""Commands: steer, follow_up or abort, sent to an active job and consumed once (A6, A54, A55)."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.models.job import Job


class Command(models.Model):
    """One durable message to the holder of a job."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, db_index=False, related_name="commands")
    kind = models.CharField(max_length=16)
    payload = models.TextField(db_comment="Canonical JSON; emptied by redaction")
    payload_hash = models.BinaryField()
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=512, null=True)
    idempotency_key = models.CharField(max_length=200, null=True, db_comment="Of the enqueue that became it (E3)")
    external_id = models.CharField(max_length=200, null=True, db_comment="The job_id of that enqueue")
    fingerprint = models.BinaryField(null=True)
    tenant_id = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    consumed_at = models.DateTimeField(null=True)
    attempt_id = models.UUIDField(null=True, db_comment="The attempt that consumed it")

    class Meta:
        db_table = "jobs_command"
        constraints = [
            models.CheckConstraint(name="command_kind_known", condition=Q(kind__in=["steer", "follow_up", "abort"])),
            models.UniqueConstraint(name="command_idempotency_key_once", fields=["tenant_id", "idempotency_key"],
                                    condition=Q(idempotency_key__isnull=False)),
            models.UniqueConstraint(name="command_external_id_once", fields=["tenant_id", "external_id"],
                                    condition=Q(external_id__isnull=False)),
        ]
        indexes = [
            models.Index("job", "created_at", name="command_by_job"),
            models.Index("job", name="command_unread", condition=Q(consumed_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.job_id}"
