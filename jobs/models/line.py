"""Lines: which tenants may have claimable work in a (worker group, queue); the rotation scans these, never jobs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class ClaimLine(models.Model):
    """One tenant that may have claimable work. Not unique on purpose: opening never waits for another transaction."""

    id = models.BigAutoField(primary_key=True)
    workspace_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    worker_group = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    parked = models.CharField(max_length=8, null=True,
                              db_comment="cap, paused, deleting or null; each end clears its own word")

    class Meta:
        db_table = "jobs_claim_line"
        constraints = [models.CheckConstraint(name="line_parked_known",
                                              condition=Q(parked=None)
                                              | Q(parked__in=["cap", "paused", "deleting"]))]
        indexes = [
            models.Index("worker_group", "queue", "tenant_id", name="line_known"),
            models.Index("worker_group", "queue", "tenant_id", "id", name="line_open",
                         condition=Q(parked__isnull=True)),
            models.Index("workspace_id", "worker_group", "queue", "tenant_id", name="line_open_workspace",
                         condition=Q(parked__isnull=True)),
            models.Index("tenant_id", name="line_parked", condition=Q(parked__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"line {self.pk} of tenant {self.tenant_id}"
