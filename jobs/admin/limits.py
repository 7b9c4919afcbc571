"""Limits in the admin: set through the service, which makes what already waits follow (C36, C37)."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from jobs.admin.base import JobsAdmin
from jobs.admin.filters import WorkspaceFilter
from jobs.admin.places import PlaceForm
from jobs.conf import conf
from jobs.errors import Invalid
from jobs.models import Limits
from jobs.models.permissions import Permission
from jobs.money import shown
from jobs.services import limits

ENFORCED = limits.NAMES
# As an operator looks for them.
GROUPS = (
    ("Running", ("tenant_concurrency", "exclusive_group_max", "exclusive_group_scope")),
    ("Waiting", ("tenant_ceiling", "workspace_ceiling")),
    ("Requests", ("max_attempts_cap", "max_cost_usd_cap")),
    ("Retries", ("retry_budget", "retry_budget_window_s")),
    ("Requeues of dead letters", ("requeue_rate", "requeue_window_s")),
    ("Runners", ("claim_max_wait_s", "release_max_delay_s")),
)
SCOPES = [("", "as the workspace says"), *((scope, scope) for scope in limits.SCOPES)]


def _judge(form: LimitsForm) -> None:
    """Each value as the service judges it."""
    for name in ENFORCED:
        if name in form.cleaned_data:
            value = form.cleaned_data[name]
            form.cleaned_data[name] = value = None if value == "" else value
            try:
                limits.check(name, value, of_tenant=form.of_tenant())
            except Invalid as error:
                form.add_error(name, error.message)


class LimitsForm(forms.ModelForm):
    """The limits of a row that is there; whose they are does not change."""

    exclusive_group_scope = forms.ChoiceField(choices=SCOPES, required=False,
                                              help_text="Whether tenants of the workspace share such a group.")

    class Meta:
        model = Limits
        fields = ENFORCED
        labels = {"exclusive_group_max": "Most of an exclusive group", "max_attempts_cap": "Most attempts",
                  "max_cost_usd_cap": "Largest cost (US$)", "retry_budget_window_s": "Window of the retry budget (s)",
                  "requeue_rate": "Requeues in a window", "requeue_window_s": "Window of requeues (s)",
                  "claim_max_wait_s": "Longest wait of a claim (s)",
                  "release_max_delay_s": "Longest delay of a release (s)"}
        help_texts = {"tenant_concurrency": "Most jobs of a tenant that run at once.",
                      "exclusive_group_max": "Most jobs of one exclusive group that run at once.",
                      "tenant_ceiling": "Most jobs of a tenant that wait; more are refused until some have begun.",
                      "workspace_ceiling": "The same for all tenants of the workspace together.",
                      "max_attempts_cap": "Most attempts that a request may ask for.",
                      "max_cost_usd_cap": "Largest maximum cost that a request may ask for.",
                      "retry_budget": "Restarts after failures, and requeues, of a tenant in a window; beyond it "
                                      "failures become dead letters.",
                      "retry_budget_window_s": "Begins with the first restart in it.",
                      "requeue_rate": "Most requeues of a tenant by its keys in a window.",
                      "requeue_window_s": "Begins with the first requeue in it; 60 where nothing is said."}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Whoever may only look has a form without fields.
        for name in set(ENFORCED) & set(self.fields):
            self.fields[name].required = False

    def of_tenant(self) -> bool:
        """Whether they are one tenant's."""
        return self.instance.tenant_id is not None

    def clean(self) -> Any:
        """As the service."""
        super().clean()
        _judge(self)
        return self.cleaned_data


class NewLimitsForm(LimitsForm, PlaceForm):
    """Limits of a workspace or tenant that has none."""

    def of_tenant(self) -> bool:
        """Whether they are to be one tenant's."""
        return bool(self.cleaned_data.get("tenant"))

    def clean(self) -> Any:
        """As the service; limits that are there are changed, not made again."""
        found = super().clean()
        place, subject = found.get("workspace"), found.get("tenant")
        of = {"tenant__subject": subject} if subject else {"tenant": None}
        if place and Limits.objects.filter(workspace=place, **of).exists():
            self.add_error(None, "There are limits for it already: change those.")
        return found


@admin.register(Limits)
class LimitsAdmin(JobsAdmin):
    """Of a workspace, or of one tenant."""

    form = LimitsForm
    list_display = ("shown_of", "tenant_concurrency", "exclusive_group_max", "tenant_ceiling", "workspace_ceiling",
                    "max_attempts_cap", "shown_cost", "shown_budget", "updated_at")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace", "tenant")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs or manage limits."""
        return super().has_view_permission(request, obj) or self.may(request, Permission.MANAGE_LIMITS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may manage limits."""
        return self.may(request, Permission.MANAGE_LIMITS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may manage limits."""
        return self.may(request, Permission.MANAGE_LIMITS)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With whose they are."""
        return super().get_queryset(request).select_related("workspace", "tenant")

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Whose limits they are is said once, when they are made."""
        if obj is None:
            kwargs |= {"form": NewLimitsForm}
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """By what they limit; whose they are on top."""
        whose = {"fields": ("workspace", "tenant") if obj is None else ("shown_of", "updated_at"),
                 "description": "A limit left empty is none, or as the workspace says."}
        return [(None, whose), *((title, {"fields": names}) for title, names in GROUPS)]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All but the limits."""
        return () if obj is None else ("shown_of", "updated_at")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the service."""
        said = form.cleaned_data
        place, tenant = (obj.workspace, obj.tenant) if change else form.place()
        row = limits.set_limits(place, tenant, by=f"user:{request.user.get_username()}",
                                **{name: said[name] for name in ENFORCED})
        obj.__dict__.update(row.__dict__)

    @admin.display(description="of")
    def shown_of(self, row: Limits) -> str:
        """A tenant, or the whole workspace."""
        return f"{row.workspace} / {row.tenant}" if row.tenant else f"{row.workspace} (whole workspace)"

    @admin.display(description="largest cost")
    def shown_cost(self, row: Limits) -> str | None:
        """In US dollars."""
        return shown(row.max_cost_usd_cap)

    @admin.display(description="retry budget")
    def shown_budget(self, row: Limits) -> str | None:
        """Restarts in a window."""
        if row.retry_budget is None:
            return None
        return f"{row.retry_budget} in {row.retry_budget_window_s or conf().RETRY_WINDOW_S} s"
