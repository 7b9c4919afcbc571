"""Owners in the admin: put, rotated and revoked through the services; a reference goes in and does not come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.http import HttpRequest

from jobs.admin import showing
from jobs.admin.answering import AnsweringAdmin, refused
from jobs.admin.filters import WorkspaceFilter
from jobs.admin.places import PlaceForm
from jobs.errors import Invalid
from jobs.models import Owner, Tenant
from jobs.models.permissions import Permission
from jobs.services import owners, tenancy

_STATES = {"live": "completed", "expired": "paused", "revoked": "failed"}


class Rotate:
    """Another secret under the same reference."""

    name, verb, done, permission, batch, danger = "rotate", "Rotate", "rotated", Permission.MANAGE_OWNERS, 1, False
    means = ("What runs under them is interrupted and runs again with the secret that the resolver has now. It is no "
             "failure.")

    def foresee(self, rows: Sequence[Owner]) -> dict[Any, str]:
        """Those that are not live."""
        return {owner.pk: owners.state(owner) for owner in rows if owners.state(owner) != "live"}

    def give(self, rows: Sequence[Owner], by: str, reason: str) -> list[str | None]:
        """Through the service, at the revision that was read."""
        return [owners.state(owner) if owners.state(owner) != "live" else refused(
            lambda owner=owner: owners.put(  # type: ignore[misc]
                owner.tenant, owner.reference, by=by, label=owner.label, expires_at=owner.expires_at,
                concurrency=owner.concurrency, revision=owner.revision, rotate=True)) for owner in rows]


class Revoke:
    """End owners at once."""

    name, verb, done, permission, batch, danger = "revoke", "Revoke", "revoked", Permission.MANAGE_OWNERS, 1, True
    means = "What runs under them ends now, and their tenants' jobs wait, paused, until there is an owner again."

    def foresee(self, rows: Sequence[Owner]) -> dict[Any, str]:
        """Those that are revoked."""
        return {owner.pk: "revoked" for owner in rows if owner.revoked_at is not None}

    def give(self, rows: Sequence[Owner], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return ["revoked" if owner.revoked_at is not None
                else refused(lambda owner=owner: owners.revoke(owner.tenant_id, by=by))  # type: ignore[misc]
                for owner in rows]


class OwnerForm(PlaceForm):
    """Whose credential it is, and where the resolver finds it. Whoever has one is given the new one."""

    tenant = forms.CharField(max_length=tenancy.SUBJECT_LIMIT, required=False,
                             help_text="A tenant's subject; empty: the workspace's own.")
    reference = forms.CharField(
        max_length=owners.REFERENCE_LIMIT, help_text="Names the secret in the resolver's store; never the secret.",
        widget=forms.TextInput(attrs={"class": "vLargeTextField", "autocomplete": "off"}))
    expires_at = forms.SplitDateTimeField(required=False, widget=AdminSplitDateTime)

    class Meta:
        model = Owner
        fields = ("label", "concurrency")
        help_texts = {"concurrency": "Most jobs that run under it at once; empty: as the site says."}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["concurrency"].required = False

    def clean(self) -> Any:
        """As the service judges it."""
        said = super().clean() or self.cleaned_data
        try:
            owners.check(said.get("reference", "x"), said.get("label", ""), said.get("concurrency"),
                         said.get("expires_at"))
        except Invalid as error:
            for fault in error.faults:
                self.add_error(fault["field"], fault["message"])
        if Tenant.objects.filter(workspace=said.get("workspace"), subject=said.get("tenant")).exclude(
                deleting_at=None).exists():
            self.add_error("tenant", tenancy.TenantDeleting().message)
        return said


@admin.register(Owner)
class OwnerAdmin(AnsweringAdmin):
    """Whose credential runs a tenant's jobs."""

    answers = (Rotate(), Revoke())
    list_display = ("shown_of", "label", "shown_state", "generation", "expires_at", "updated_at")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace", "tenant")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs or manage owners."""
        return super().has_view_permission(request, obj) or self.may(request, Permission.MANAGE_OWNERS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may manage owners."""
        return self.may(request, Permission.MANAGE_OWNERS)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With whose they are."""
        return super().get_queryset(request).select_related("workspace", "tenant")

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Only new ones have a form."""
        if obj is None:
            kwargs |= {"form": OwnerForm}
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Of the reference a hint."""
        if obj is None:
            return [(None, {"fields": ("workspace", "tenant", "reference", "label", "expires_at", "concurrency"),
                            "description": "A tenant has one owner: who has one is given this in its place, and what "
                                           "runs under another reference is interrupted and runs again."})]
        return [(None, {"fields": ("shown_of", "label", "shown_state", "shown_reference", "generation", "revision",
                                   "shown_running")}),
                ("When", {"fields": ("created_at", "updated_at", "expires_at", "revoked_at")})]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """One button."""
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the service."""
        said = form.cleaned_data
        workspace, tenant = form.place()
        by = f"user:{request.user.get_username()}"
        row = owners.put(tenant or tenancy.tenant(workspace, None), said["reference"], by=by,
                         label=said["label"], expires_at=said["expires_at"], concurrency=said["concurrency"])
        obj.__dict__.update(row.__dict__)

    @admin.display(description="of")
    def shown_of(self, owner: Owner) -> str:
        """A tenant of a workspace."""
        return f"{owner.workspace} / {owner.tenant}"

    @admin.display(description="state")
    def shown_state(self, owner: Owner) -> Any:
        """Whether jobs may run under it."""
        state = owners.state(owner)
        return showing.badge(state, _STATES[state])

    @admin.display(description="reference")
    def shown_reference(self, owner: Owner) -> str:
        """As much as tells two apart."""
        return owners.hint(owner)

    @admin.display(description="running")
    def shown_running(self, owner: Owner) -> str:
        """How many of how many."""
        return f"{len(owners.running(owner))} of {owners.most(owner)}"
