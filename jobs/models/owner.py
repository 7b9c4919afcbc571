"""Owners: whose credential runs a tenant's jobs (B35, E10). The secret itself is never here."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.models.tenancy import Tenant, Workspace


class Owner(models.Model):
    """The one owner of a tenant: live until it is revoked or has expired, and live again once it is put again.

    A row stays when it is revoked, so that the generation never falls.
    """

    id = models.BigAutoField(primary_key=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="owners")
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="owner")
    reference = models.CharField(max_length=500, db_comment="Names the secret in the resolver's store; no secret")
    label = models.CharField(max_length=200, blank=True, default="")
    generation = models.PositiveIntegerField(default=1, db_comment="Rises with each credential; attempts bind to it")
    revision = models.PositiveIntegerField(default=1, db_comment="Rises with each change: the ETag")
    concurrency = models.PositiveIntegerField(null=True, db_comment="Most jobs at once; null: OWNER_CONCURRENCY (B36)")
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True, db_comment="Revoked by somebody, or found expired")
    away_until = models.DateTimeField(null=True, db_comment="The resolver had no secret: no job begins before (B24)")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_owner"
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="owner_concurrency_positive",
                                   condition=Q(concurrency=None) | Q(concurrency__gte=1)),
        ]
        indexes = [models.Index("expires_at", name="owner_expiry",
                                condition=Q(revoked_at__isnull=True, expires_at__isnull=False))]

    def __str__(self) -> str:
        # Not by its label: the log of the admin outlives the tenant.
        return f"owner {self.pk}"

    def stands(self, now: datetime) -> bool:
        """Whether jobs may run under it at this moment."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)
