"""Targets: the thing a job is about, with the generation that tells new requests from old ones (B14 to B16)."""

from __future__ import annotations

from django.db import models

from jobs.clock import Now
from jobs.models.tenancy import Tenant


class Target(models.Model):
    """One resource that jobs of a type update; a newer generation supersedes the active jobs of older ones."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="targets")
    key = models.CharField(max_length=600, db_comment="<type>:<key of the caller> (B14)")
    generation = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_target"
        constraints = [models.UniqueConstraint(fields=["tenant", "key"], name="target_key_once")]

    def __str__(self) -> str:
        return self.key
