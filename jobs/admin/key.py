"""Keys of the API in the admin: made here and shown once, in the answer that made them; revoked with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse

from jobs.admin import showing
from jobs.admin.answering import AnsweringAdmin, refused
from jobs.admin.filters import WorkspaceFilter
from jobs.admin.places import PlaceForm
from jobs.conf import registry
from jobs.models import Key
from jobs.models.permissions import Permission
from jobs.services import keys, rates


class Revoke:
    """End keys at once."""

    name, verb, done, permission, batch, danger = "revoke", "Revoke", "revoked", Permission.MANAGE_KEYS, 1, True
    means = "Whoever uses them is refused from the next request on. This cannot be undone."

    def foresee(self, rows: Sequence[Key]) -> dict[Any, str]:
        """Those that are revoked."""
        return {key.pk: "revoked" for key in rows if key.revoked_at is not None}

    def give(self, rows: Sequence[Key], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return ["revoked" if key.revoked_at is not None else refused(lambda key=key: keys.revoke(key.prefix))
                for key in rows]


class NewKeyForm(PlaceForm):
    """What a new key may do, and whose it is."""

    kind = forms.ChoiceField(
        choices=[("", "of a workspace or tenant"), ("runner", "runner"), ("planner", "planner")], required=False,
        help_text="A runner claims and sees only what it holds. What a planner enqueues is stamped so.")
    permissions = forms.MultipleChoiceField(choices=[(p.value, p.value.replace("_", " ")) for p in keys.Permission],
                                            widget=forms.CheckboxSelectMultiple)
    worker_groups = forms.CharField(required=False, help_text="What a runner may claim from, comma-separated; empty: "
                                                              "any but the reserved ones.")
    expires_at = forms.SplitDateTimeField(required=False, widget=AdminSplitDateTime)

    requests_per_s = forms.IntegerField(required=False, min_value=0, max_value=10**6, label="Requests a second",
                                        help_text="Empty: as the site says; 0: as many as it likes.")
    request_burst = forms.IntegerField(required=False, min_value=1, max_value=10**6, label="Requests at once",
                                       help_text="Empty: those of two seconds.")

    class Meta:
        model = Key
        fields = ("name",)

    def clean(self) -> Any:
        """Only what a key of this kind can have."""
        said = super().clean() or self.cleaned_data
        known = keys.MAY[keys.Kind(said.get("kind") or "workspace")]
        if set(said.get("permissions", ())) - known:
            self.add_error("permissions", f"a {said['kind']} may have: {', '.join(sorted(known))}")
        return said

    def clean_name(self) -> str:
        """Printable."""
        name: str = self.cleaned_data["name"]
        if not name.isprintable():
            raise ValidationError("must be printable")
        return name

    def clean_worker_groups(self) -> list[str] | None:
        """Groups that external definitions have."""
        asked = [word.strip() for word in self.cleaned_data["worker_groups"].split(",") if word.strip()]
        known = registry().groups(external=True)
        if unknown := [group for group in asked if group not in known]:
            raise ValidationError(f"no such worker group for runners: {', '.join(unknown)}")
        return asked or None


@admin.register(Key)
class KeyAdmin(AnsweringAdmin):
    """Who calls the API and what they may do; never their secrets."""

    answers = (Revoke(),)
    list_display = ("name", "prefix", "shown_kind", "workspace", "tenant", "shown_permissions", "shown_state",
                    "last_used_at")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace", "tenant")
    heavy = ("digest",)
    search_fields = ("prefix",)
    search_help_text = "A whole prefix: what stands before the dot of a key."

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs or manage keys."""
        return super().has_view_permission(request, obj) or self.may(request, Permission.MANAGE_KEYS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may manage keys."""
        return self.may(request, Permission.MANAGE_KEYS)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By the prefix; a whole key is cut to it, and not kept."""
        return (queryset.filter(prefix=search_term.partition(".")[0]) if search_term else queryset), False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Only new ones have a form."""
        if obj is None:
            kwargs |= {"form": NewKeyForm}
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Never the digest."""
        if obj is None:
            return [(None, {"fields": ("name", "kind", "workspace", "tenant", "permissions", "worker_groups",
                                       "expires_at", "requests_per_s", "request_burst")})]
        return [(None, {"fields": ("name", "prefix", "shown_kind", "shown_state", "workspace", "tenant",
                                   "shown_permissions", "shown_groups", "origin", "shown_rate")}),
                ("When", {"fields": ("created_at", "expires_at", "last_used_at", "revoked_at")})]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """One button: what comes next is the secret."""
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the service; the secret lives in this request alone."""
        said = form.cleaned_data
        workspace, tenant = form.place()
        made, secret = keys.make(workspace, said["name"], said["permissions"], tenant=tenant,
                                 worker_groups=said["worker_groups"], expires_at=said["expires_at"],
                                 kind=keys.Kind(said["kind"]) if said["kind"] else None,
                                 requests_per_s=said["requests_per_s"], request_burst=said["request_burst"])
        obj.__dict__.update(made.__dict__)
        obj.secret = secret

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> Any:
        """The only page that ever shows the secret: the answer itself, kept by no session and no cache."""
        context = {**self.page(request, "A new key"), "key": obj, "secret": obj.secret,
                   "page": reverse("admin:jobs_key_change", args=[obj.pk])}
        answer = TemplateResponse(request, "admin/jobs/key/made.html", context)
        answer["Cache-Control"] = "no-store"
        return answer

    @admin.display(description="kind")
    def shown_kind(self, key: Key) -> str:
        """What it is for."""
        return keys.kind(key)

    @admin.display(description="permissions")
    def shown_permissions(self, key: Key) -> Any:
        """What it may do."""
        return showing.words(key.permissions)

    @admin.display(description="worker groups")
    def shown_groups(self, key: Key) -> Any:
        """What it may claim from."""
        return "any but the reserved" if key.worker_groups is None else showing.words(key.worker_groups)

    @admin.display(description="requests")
    def shown_rate(self, key: Key) -> str:
        """How many it may make."""
        limit = rates.limit_of(key)
        return "as many as it likes" if limit is None else f"{limit[0]:g} a second, {limit[1]} at once"

    @admin.display(description="state")
    def shown_state(self, key: Key) -> Any:
        """Revoked, or in use."""
        return showing.badge("revoked", "failed") if key.revoked_at else showing.badge("valid", "completed")
