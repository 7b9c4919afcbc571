"""Workspaces and tenants in the admin, with the way to what is theirs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from jobs.admin import finding
from jobs.admin.base import JobsAdmin
from jobs.admin.filters import WorkspaceFilter
from jobs.models import Tenant, Workspace


def _links(parameter: str, pk: Any) -> Any:
    names = (("job", "jobs"), ("deadletter", "dead letters"), ("claimline", "lines"))
    return format_html_join(" · ", '<a href="{}?{}={}">{}</a>', (
        (reverse(f"admin:jobs_{model}_changelist"), parameter, pk, label) for model, label in names))


@admin.register(Workspace)
class WorkspaceAdmin(JobsAdmin):
    """The isolation boundary."""

    list_display = ("slug", "name", "created_at")
    fields = ("slug", "name", "create_requires_grant", "created_at", "theirs")
    search_fields = ("slug",)
    search_help_text = "A whole slug."

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By its slug."""
        return (queryset.filter(slug=search_term) if search_term else queryset), False

    @admin.display(description="its")
    def theirs(self, workspace: Workspace) -> Any:
        """Lists narrowed to it."""
        tenants = format_html('<a href="{}?workspace={}">tenants</a> · ', reverse("admin:jobs_tenant_changelist"),
                              workspace.pk)
        return tenants + _links("workspace", workspace.pk)


@admin.register(Tenant)
class TenantAdmin(JobsAdmin):
    """Whose work it is."""

    list_display = ("shown_subject", "workspace", "archived_at", "created_at")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace",)
    fields = ("subject", "workspace", "archived_at", "created_at", "theirs")
    search_fields = ("pk",)
    search_help_text = "A whole subject."

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By its subject, workspace by workspace, or by its number."""
        if not search_term:
            return queryset, False
        workspaces = list(Workspace.objects.order_by("pk").values_list("pk", flat=True)[: finding.MOST_TENANTS])
        return queryset.filter(workspace_id__in=workspaces, subject=search_term), False

    @admin.display(description="subject")
    def shown_subject(self, tenant: Tenant) -> str:
        """The untenanted one has none."""
        return tenant.subject or "(untenanted)"

    @admin.display(description="its")
    def theirs(self, tenant: Tenant) -> Any:
        """Lists narrowed to it."""
        return _links("tenant", tenant.pk)
