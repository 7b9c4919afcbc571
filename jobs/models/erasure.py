"""Erasures: one person's wish that a tenant, or all that its ended jobs say, be gone; done batch by batch."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.clock import Now


class Erasure(models.Model):
    """What is to go of which tenant, and how far it has come. It outlives the tenant and never names its subject."""

    workspace_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField(db_comment="No foreign key: the tenant goes, this stays")
    verb = models.CharField(max_length=16)
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=512)

    phase = models.CharField(max_length=16, db_comment="stopping, waiting, erasing, or redacting")
    after = models.UUIDField(null=True, db_comment="The last job that this pass has looked at")
    unfinished = models.BooleanField(default=False, db_comment="This pass did or left something: another follows")
    wait_until = models.DateTimeField(null=True, db_comment="Holders of ended attempts hear of it until then")
    counts = models.JSONField(default=dict, db_comment="Rows that are gone or emptied, by table; jobs that ended")

    created_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(null=True, db_comment="Of the latest batch")
    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=32, null=True)

    class Meta:
        db_table = "jobs_erasure"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(name="erasure_verb_known", condition=Q(verb__in=["delete", "redact"])),
            models.CheckConstraint(name="erasure_ended_with_end",
                                   condition=Q(ended_at__isnull=True, end__isnull=True)
                                   | Q(ended_at__isnull=False, end__isnull=False)),
            models.UniqueConstraint(name="erasure_one_open", fields=["tenant_id"], condition=Q(ended_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.verb} of tenant {self.tenant_id}"

    @property
    def ended(self) -> bool:
        """Whether it goes on no more."""
        return self.ended_at is not None
