"""Lines in the admin: which tenants may have claimable work, and which are parked."""

from __future__ import annotations

from django.contrib import admin

from jobs.admin.base import JobsAdmin
from jobs.admin.filters import GroupFilter, QueueFilter, TenantFilter, WorkspaceFilter
from jobs.models import ClaimLine


@admin.register(ClaimLine)
class ClaimLineAdmin(JobsAdmin):
    """Derived rows: the claim opens and closes them."""

    list_display = ("id", "worker_group", "queue", "workspace_id", "tenant_id", "parked")
    list_filter = (GroupFilter, QueueFilter, WorkspaceFilter, TenantFilter)
    fields = ("worker_group", "queue", "workspace_id", "tenant_id", "parked")
