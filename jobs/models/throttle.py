"""Throttles: caps and pauses of queues, worker groups and types, and pauses of tenants."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from jobs.clock import Now
from jobs.models.tenancy import Tenant, Workspace

KINDS = ("queue", "worker_group", "type", "tenant")


class Throttle(models.Model):
    """What holds jobs back: `most` of them run at once, or none begins while it is paused. One that says neither is
    deleted. Without a workspace it is the whole site's.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=64, db_comment="Of the queue, worker group or type; empty: of a tenant")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, db_index=False,
                                  related_name="throttles", db_comment="Null: the whole site")
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, null=True, related_name="throttle")
    most = models.PositiveIntegerField(null=True, db_comment="Most running jobs; null: no cap")
    paused_at = models.DateTimeField(null=True)
    paused_until = models.DateTimeField(null=True, db_comment="Null: until somebody resumes it")
    paused_by = models.CharField(max_length=200, null=True)
    pause_reason = models.CharField(max_length=512, null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_throttle"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["kind", "name", "workspace", "tenant"], name="throttle_once",
                                    nulls_distinct=False),
            models.CheckConstraint(name="throttle_kind_known", condition=Q(kind__in=KINDS)),
            models.CheckConstraint(
                name="throttle_names_one",
                condition=(Q(kind="tenant", name="", tenant__isnull=False, workspace__isnull=False)
                           | (~Q(kind="tenant") & ~Q(name="") & Q(tenant__isnull=True)))),
            # A tenant's cap is in its limits.
            models.CheckConstraint(name="throttle_most_positive",
                                   condition=Q(most=None) | (Q(most__gte=1) & ~Q(kind="tenant"))),
            models.CheckConstraint(name="throttle_says_something",
                                   condition=Q(most__isnull=False) | Q(paused_at__isnull=False)),
            models.CheckConstraint(
                name="throttle_pause_whole",
                condition=Q(paused_at=None, paused_until=None, paused_by=None, pause_reason=None)
                | (Q(paused_at__isnull=False, paused_by__isnull=False, pause_reason__isnull=False)
                   & (Q(paused_until=None) | Q(paused_until__gt=F("paused_at"))))),
        ]

    def __str__(self) -> str:
        return f"{self.what} {self.name or self.tenant_id}"

    @property
    def what(self) -> str:
        """Its kind in words."""
        return self.kind.replace("_", " ")

    @property
    def scope(self) -> str:
        """`site`, or `workspace`."""
        return "site" if self.workspace_id is None else "workspace"
