"""Targets in the admin: what jobs are about, and the generation that counts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin import finding
from jobs.admin.base import JobsAdmin
from jobs.admin.filters import TenantFilter
from jobs.models import Target, Tenant


@admin.register(Target)
class TargetAdmin(JobsAdmin):
    """One resource each."""

    list_display = ("key", "tenant", "generation", "created_at")
    list_filter = (TenantFilter,)
    list_select_related = ("tenant",)
    fields = ("key", "tenant", "generation", "created_at")
    search_fields = ("pk",)
    search_help_text = "A target's whole key, type:key."

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By the whole key, tenant by tenant."""
        if not search_term:
            return queryset, False
        if not search_term.isprintable():
            return queryset.none(), False
        tenants = list(Tenant.objects.order_by("pk").values_list("pk", flat=True)[: finding.MOST_TENANTS])
        return queryset.filter(tenant_id__in=tenants, key=search_term), False
