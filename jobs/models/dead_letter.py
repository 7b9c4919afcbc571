"""Dead letters: jobs that failed for good, waiting for a person's answer (C22 to C29)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.job import Job


class DeadLetter(models.Model):
    """One chain that ended in failed; open until somebody requeues or discards it."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, db_index=False, related_name="dead_letters")
    workspace_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    type = models.CharField(max_length=64)
    version = models.IntegerField(null=True)
    house = models.BooleanField(default=False, db_default=False,
                                db_comment="Of a job that the house makes for itself (E11)")
    chain = models.PositiveIntegerField()
    reason = models.CharField(max_length=64, db_comment="Why there is no further attempt (C24)")
    reason_code = models.CharField(max_length=64, null=True, db_comment="Of the last failure")
    error = models.CharField(max_length=200, null=True,
                             db_comment="Of the last failure without what differs; empty: none; null: not read yet")
    cluster = models.CharField(max_length=16, null=True,
                               db_comment="Digest of definition, reason, code and error: letters with one are alike")
    attempt_count = models.PositiveIntegerField()
    opened_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=16, null=True)
    resolved_by = models.CharField(max_length=200, null=True)
    resolve_reason = models.CharField(max_length=512, null=True)
    bulk_id = models.BigIntegerField(null=True, db_comment="The bulk operation that answered it")
    answer_key = models.CharField(max_length=200, null=True, db_comment="The idempotency key of its answer (C27)")
    actor_kind = models.CharField(max_length=32, null=True, db_comment="Who answered, as a key attested it (C28)")
    actor_ref = models.CharField(max_length=120, null=True, db_comment="Who answered, as a key attested it (C28)")

    class Meta:
        db_table = "jobs_dead_letter"
        constraints = [
            models.UniqueConstraint(fields=["job", "chain"], name="dead_letter_chain_once"),
            models.UniqueConstraint(fields=["job"], condition=Q(resolved_at__isnull=True), name="dead_letter_one_open"),
            models.CheckConstraint(name="dead_letter_resolved_with_answer",
                                   condition=Q(resolved_at__isnull=True, resolution__isnull=True)
                                   | Q(resolved_at__isnull=False, resolution__in=["requeued", "discarded"])),
        ]
        indexes = [
            models.Index("tenant_id", "id", name="dead_letter_open", condition=Q(resolved_at__isnull=True)),
            # What clusters are counted by, so that counting reads no letter.
            models.Index(fields=["id"], name="dead_letter_grouped", condition=Q(resolved_at__isnull=True),
                         include=["cluster", "tenant_id", "house"]),
            models.Index("cluster", "id", name="dead_letter_cluster", condition=Q(resolved_at__isnull=True)),
            models.Index("id", name="dead_letter_unread",
                         condition=Q(resolved_at__isnull=True, cluster__isnull=True)),
            models.Index("bulk_id", "id", name="dead_letter_bulk", condition=Q(bulk_id__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.reason} of {self.job_id}"
