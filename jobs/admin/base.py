"""What every page of the admin has: permissions of jobs, nothing to add, change or delete, lists by key, patience."""

from __future__ import annotations

from typing import Any

import django
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse

from jobs.admin import patience, showing
from jobs.admin.lists import KeysetList
from jobs.models.permissions import Permission


class JobsAdmin(ModelAdmin):
    """Rows to look at. Whoever may view jobs may see them; nobody edits them here, superusers neither."""

    list_per_page = 50
    empty_value_display = showing.NOTHING
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    actions: Any = ()
    # Columns that order the list, as an index has them; the newest come first.
    keys: tuple[str, ...] = ("pk",)
    # Of those the one that is a UUIDv7: it dates the rows.
    dated: str | None = None
    # Columns that a list does not read.
    heavy: tuple[str, ...] = ()

    class Media:
        css = {"all": ["jobs/admin.css"]}

    # --- permissions ------------------------------------------------------------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs."""
        return self.may(request, Permission.VIEW)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the index lists it."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody, ever: retention deletes (E13)."""
        return False

    @staticmethod
    def may(request: HttpRequest, permission: Permission) -> bool:
        """Whether the person behind a request has a permission."""
        return request.user.has_perm(permission.label)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Never by the row itself: services write."""
        raise PermissionDenied

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Never."""
        raise PermissionDenied

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Never."""
        raise PermissionDenied

    # --- lists ------------------------------------------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Pages by key."""
        return KeysetList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what a filter offers: `?input__startswith=` would tell an input letter by letter."""
        return lookup in {getattr(spec, "parameter_name", None) for spec in self.list_filter}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list, or a notice that it takes too long."""
        if request.method not in ("GET", "HEAD") and not self.has_view_permission(request):
            raise PermissionDenied
        self._refuse_foreign_actions(request)
        try:
            with patience.within(patience.LIST_MS):
                return super().changelist_view(request, extra_context)
        except patience.OutOfPatience:
            return self.too_slow(request)

    def get_paginator(self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any) -> Any:
        """Not of our rows: lists go by key, and Django's menus (`/admin/autocomplete/`) would count all of them."""
        if queryset.model is self.model:
            raise PermissionDenied
        return super().get_paginator(request, queryset, *args, **kwargs)

    def _refuse_foreign_actions(self, request: HttpRequest) -> None:
        """What somebody posts without the permission is refused, not overlooked."""
        asked = {*request.POST.getlist("action"), *request.POST.getlist("CHANGE_FORM-action")} - {""}
        if asked - set(self.get_actions(request)):
            raise PermissionDenied

    def too_slow(self, request: HttpRequest) -> TemplateResponse:
        """The notice."""
        context = {**self.page(request, "This list takes too long"), "seconds": patience.LIST_MS // 1_000,
                   "dated": self.dated}
        return TemplateResponse(request, "admin/jobs/too_slow.html", context, status=503)

    def page(self, request: HttpRequest, title: str) -> dict[str, Any]:
        """What every page of our own needs. Breadcrumbs are a list from Django 6.1 on."""
        return {**self.admin_site.each_context(request), "title": title, "opts": self.opts,
                "crumbs_listed": django.VERSION >= (6, 1)}

    # --- one row ----------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row, None for what can be no id."""
        if "\x00" in object_id:
            return None
        return super().get_object(request, object_id, from_field)

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
                        extra_context: Any = None) -> Any:
        """The row's page."""
        self._refuse_foreign_actions(request)
        return super().changeform_view(request, object_id, form_url, extra_context)
