"""Keys of the API: shown once as `prefix.secret`, stored as a hash, scoped and revocable."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from jobs.clock import Now
from jobs.models.tenancy import Tenant, Workspace


class Key(models.Model):
    """Who a caller of the API is and what it may do; the secret itself is never stored."""

    id = models.BigAutoField(primary_key=True)
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.BinaryField(db_comment="sha256 of the secret")
    name = models.CharField(max_length=200)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="keys")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, null=True, related_name="keys",
                               db_comment="Set: the key sees this tenant only")
    permissions = ArrayField(models.CharField(max_length=32))
    worker_groups = ArrayField(models.CharField(max_length=64), null=True, db_comment="Null: any but the reserved")
    origin = models.CharField(max_length=16, default="user", db_comment="Stamped on what it enqueues (B13)")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    requests_per_s = models.PositiveIntegerField(null=True, db_comment="Null: as the site says; 0: as many as it likes")
    request_burst = models.PositiveIntegerField(null=True,
                                                db_comment="Most requests at once; null: those of two seconds")
    rate_tokens = models.FloatField(null=True, db_comment="What is in its bucket at rate_at; null: it is full")
    rate_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True, db_comment="Coarse: within a minute")

    class Meta:
        db_table = "jobs_key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"
