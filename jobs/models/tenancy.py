"""Workspaces and the tenants inside them: the isolation boundary and whose work it is."""

from __future__ import annotations

from django.db import models

from jobs.clock import Now


class Workspace(models.Model):
    """The isolation boundary: nothing in one workspace sees anything of another."""

    id = models.BigAutoField(primary_key=True)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=200, blank=True, default="")
    create_requires_grant = models.BooleanField(default=False, db_comment="Enqueue demands the conductor role (E2)")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_workspace"

    def __str__(self) -> str:
        return self.slug


class Tenant(models.Model):
    """The subject inside a workspace whose work it is; takes turns and has caps. One per workspace is untenanted."""

    id = models.BigAutoField(primary_key=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="tenants")
    subject = models.CharField(max_length=255, null=True, db_comment="Null: the workspace's one system tenant")
    revision = models.BigIntegerField(default=0, db_comment="A hint raised after commit, never inside a move (E2)")
    archived_at = models.DateTimeField(null=True, db_comment="Set: no new jobs (B37)")
    archived_by = models.CharField(max_length=200, null=True)
    archive_reason = models.CharField(max_length=512, null=True)
    deleting_at = models.DateTimeField(null=True, db_comment="Set: it is being deleted for good; never unset (B38)")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_tenant"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "subject"], name="tenant_subject_once"),
            models.UniqueConstraint(fields=["workspace"], condition=models.Q(subject=None), name="tenant_system_once"),
        ]

    def __str__(self) -> str:
        return self.subject or f"({self.workspace_id})"


class Limits(models.Model):
    """Limits of a workspace (tenant null) or of one tenant; null: unlimited, or as the workspace says (C36, C37)."""

    id = models.BigAutoField(primary_key=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="limits")
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, null=True, related_name="limits")
    tenant_concurrency = models.PositiveIntegerField(null=True, db_comment="Most running jobs of a tenant (C9)")
    exclusive_group_max = models.PositiveIntegerField(null=True, db_comment="Most running of a group (C11)")
    exclusive_group_scope = models.CharField(max_length=16, null=True, db_comment="tenant (null) or workspace (E2)")
    tenant_ceiling = models.PositiveIntegerField(null=True, db_comment="Most waiting jobs of a tenant (C10)")
    workspace_ceiling = models.PositiveIntegerField(null=True, db_comment="Most waiting jobs of the workspace (C10)")
    max_attempts_cap = models.PositiveIntegerField(null=True, db_comment="Largest max_attempts a request may ask (C13)")
    max_cost_usd_cap = models.DecimalField(max_digits=20, decimal_places=9, null=True,
                                           db_comment="Largest max_cost_usd a request may ask (C12)")
    retry_budget = models.PositiveIntegerField(
        null=True, db_comment="Restarts after failures, and requeues, of a tenant in a window (C20)")
    retry_budget_window_s = models.PositiveIntegerField(null=True, db_comment="Length of that window (C20)")
    claim_max_wait_s = models.PositiveIntegerField(null=True, db_comment="Longest wait of a claim (C31)")
    release_max_delay_s = models.PositiveIntegerField(null=True, db_comment="Longest delay of a release (C32)")
    requeue_rate = models.PositiveIntegerField(null=True, db_comment="Most requeues of a tenant in a window (C28)")
    requeue_window_s = models.PositiveIntegerField(null=True, db_comment="That window in seconds; null: 60 (C28)")
    revision = models.PositiveIntegerField(db_default=1, db_comment="Rises with each change: the ETag (C36)")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_limits"
        verbose_name_plural = "limits"
        constraints = [
            models.UniqueConstraint(fields=["workspace"], condition=models.Q(tenant=None),
                                    name="limits_workspace_once"),
            models.CheckConstraint(
                condition=models.Q(exclusive_group_scope=None)
                | models.Q(exclusive_group_scope__in=["tenant", "workspace"]),
                name="limits_scope_known"),
            models.CheckConstraint(
                condition=models.Q(tenant_concurrency=None) | models.Q(tenant_concurrency__gte=1),
                name="limits_tenant_concurrency_positive"),
            models.CheckConstraint(
                condition=models.Q(exclusive_group_max=None) | models.Q(exclusive_group_max__gte=1),
                name="limits_exclusive_group_max_positive"),
            models.CheckConstraint(
                condition=models.Q(max_cost_usd_cap=None) | models.Q(max_cost_usd_cap__gte=0),
                name="limits_max_cost_not_negative"),
            models.CheckConstraint(
                condition=models.Q(retry_budget_window_s=None) | models.Q(retry_budget_window_s__gte=1),
                name="limits_retry_window_positive"),
        ]

    def __str__(self) -> str:
        return f"limits of {f'workspace {self.workspace_id}' if self.tenant_id is None else f'tenant {self.tenant_id}'}"


class TenantWindow(models.Model):
    """What a tenant has spent since a window began with the first spending in it: restarts (C20), requeues (C28).

    Only tenants with such a limit have a row.
    """

    pk = models.CompositePrimaryKey("tenant_id", "kind")
    tenant_id = models.BigIntegerField()
    kind = models.CharField(max_length=8, db_comment="retry or requeue")
    began_at = models.DateTimeField()
    spent = models.PositiveIntegerField()

    class Meta:
        db_table = "jobs_tenant_window"
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="window_kind_known", condition=models.Q(kind__in=["retry", "requeue"])),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of tenant {self.tenant_id}"
