"""Throttles in the admin: caps set, queues, worker groups, types and tenants paused and resumed through the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.http import HttpRequest

from jobs import clock
from jobs.admin import showing
from jobs.admin.answering import AnsweringAdmin, refused
from jobs.admin.filters import WorkspaceFilter
from jobs.errors import JobsError
from jobs.models import Throttle
from jobs.models.permissions import Permission
from jobs.models.throttle import KINDS
from jobs.services import tenancy, throttles
from jobs.services.cancellation import REASON_LIMIT
from jobs.services.throttles import Wanted

_KINDS = [(kind, kind.replace("_", " ")) for kind in KINDS]
# Where the form has the fields that the service names.
_FIELDS = {"tenant_subject": "name", "for_s": "until"}


def _spot(row: Throttle) -> tuple[str, str]:
    return row.kind, row.name or (row.tenant.subject if row.tenant else None) or ""


def _each(rows: Sequence[Throttle], verb: Callable[[Throttle], object]) -> list[str | None]:
    return [refused(lambda row=row: verb(row)) for row in rows]  # type: ignore[misc]


class Pause:
    """Let none of their jobs begin."""

    name, verb, done, permission, batch, danger = "pause", "Pause", "paused", Permission.MANAGE_LIMITS, 50, False
    means = "None of their jobs begins until somebody resumes them. What runs goes on; nothing is lost."

    def foresee(self, rows: Sequence[Throttle]) -> dict[Any, str]:
        """Those that are paused."""
        now = clock.now()
        return {row.pk: "already_paused" for row in rows if throttles.paused(row, now)}

    def give(self, rows: Sequence[Throttle], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: throttles.pause(*_spot(row), by=by, reason=reason, workspace=row.workspace))


class Resume:
    """Let their jobs begin again."""

    name, verb, done, permission, batch, danger = "resume", "Resume", "resumed", Permission.MANAGE_LIMITS, 50, False
    means = "Their jobs begin again, each in its turn. Caps stay."

    def foresee(self, rows: Sequence[Throttle]) -> dict[Any, str]:
        """Those that are not paused."""
        now = clock.now()
        return {row.pk: "not_paused" for row in rows if not throttles.paused(row, now)}

    def give(self, rows: Sequence[Throttle], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: throttles.resume(*_spot(row), by=by, workspace=row.workspace))


class Remove:
    """Hold them back no more."""

    name, verb, done, permission, batch, danger = "remove", "Remove", "removed", Permission.MANAGE_LIMITS, 50, True
    means = "Their jobs begin again, as many at once as there is room for: pause and cap are gone."

    def foresee(self, rows: Sequence[Throttle]) -> dict[Any, str]:
        """None."""
        return {}

    def give(self, rows: Sequence[Throttle], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: throttles.remove(*_spot(row), by=by, workspace=row.workspace))


class CapForm(forms.ModelForm):
    """The cap of a throttle that is there."""

    most = forms.IntegerField(required=False, label="At most", help_text="Jobs that run at once; empty: no cap.")

    class Meta:
        model = Throttle
        fields = ("most",)

    def clean(self) -> Any:
        """As the service; one that neither pauses nor caps is removed, not saved."""
        said = super().clean() or self.cleaned_data
        if said.get("most") is None and self.instance.paused_at is None and not self.errors:
            self.add_error("most", "It is not paused: without a cap it says nothing. Remove it instead.")
        return self.judged(lambda: throttles.check_most(self.instance.kind, said.get("most")))

    def judged(self, check: Callable[[], object]) -> Any:
        """What was said, with the refusal of the service at its field."""
        if not self.errors:
            try:
                check()
            except JobsError as error:
                field = _FIELDS.get(error.field or "", error.field)
                self.add_error(field if field in self.fields else None, error.message)
        return self.cleaned_data

    def _post_clean(self) -> None:
        """The service judges the whole row, not the model."""


class NewForm(CapForm):
    """A new throttle, or another word about one that is there."""

    kind = forms.ChoiceField(choices=_KINDS)
    name = forms.CharField(max_length=tenancy.SUBJECT_LIMIT, help_text="Of a tenant its subject.")
    workspace = forms.CharField(max_length=64, required=False, help_text="Its slug; empty: the whole site.")
    paused = forms.BooleanField(required=False, help_text="None of its jobs begins. What runs goes on.")
    reason = forms.CharField(max_length=REASON_LIMIT, required=False, help_text="Why it is paused.")
    until = forms.SplitDateTimeField(required=False, widget=AdminSplitDateTime,
                                     help_text="When the pause ends by itself; empty: when somebody resumes it.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("name", "workspace", "reason"):
            self.fields[name].widget.attrs["class"] = "vTextField"

    def clean(self) -> Any:
        """As the service."""
        said = forms.ModelForm.clean(self) or self.cleaned_data

        def check() -> None:
            said["place"] = tenancy.workspace(said["workspace"]) if said["workspace"] else None
            throttles.check(said["kind"], said["name"], self.wanted(), workspace=said["place"])

        return self.judged(check)

    def wanted(self) -> Wanted:
        """All that it should say."""
        said = self.cleaned_data
        return Wanted(said["most"], said["paused"], said["reason"], said["until"])


@admin.register(Throttle)
class ThrottleAdmin(AnsweringAdmin):
    """What is capped or paused."""

    answers = (Pause(), Resume(), Remove())
    form = CapForm
    list_display = ("shown_what", "shown_where", "shown_most", "shown_state", "shown_pause")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace", "tenant")

    def has_manage_limits_permission(self, request: HttpRequest) -> bool:
        """May manage limits."""
        return self.may(request, Permission.MANAGE_LIMITS)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs or manage limits."""
        return super().has_view_permission(request, obj) or self.may(request, Permission.MANAGE_LIMITS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may manage limits."""
        return self.may(request, Permission.MANAGE_LIMITS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may manage limits; a tenant has no cap here."""
        return self.may(request, Permission.MANAGE_LIMITS) and (obj is None or obj.kind != "tenant")

    def get_queryset(self, request: HttpRequest) -> Any:
        """With whose they are."""
        return super().get_queryset(request).select_related("workspace", "tenant")

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """What it holds back is said once."""
        if obj is None:
            kwargs |= {"form": NewForm}
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """A cap, a pause, or both."""
        if obj is None:
            return [(None, {"fields": ("kind", "name", "workspace")}), ("Cap", {"fields": ("most",)}),
                    ("Pause", {"fields": ("paused", "reason", "until")})]
        return [(None, {"fields": ("shown_what", "shown_where", "most", "shown_used")}),
                ("Pause", {"fields": ("shown_state", "paused_at", "paused_until", "paused_by", "pause_reason")}),
                ("When", {"fields": ("created_at", "updated_at")})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All but the cap."""
        return () if obj is None else ("shown_what", "shown_where", "shown_used", "shown_state", "paused_at",
                                       "paused_until", "paused_by", "pause_reason", "created_at", "updated_at")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the service."""
        by, said = f"user:{request.user.get_username()}", form.cleaned_data
        if change:
            row = throttles.cap(*_spot(obj), said["most"], by=by, workspace=obj.workspace) if form.changed_data else obj
        else:
            row = throttles.put(said["kind"], said["name"], form.wanted(), by=by, workspace=said["place"])
        if row is not None:
            obj.__dict__.update(row.__dict__)

    @admin.display(description="what")
    def shown_what(self, row: Throttle) -> str:
        """A queue, a worker group, a type or a tenant."""
        return f"{row.kind.replace('_', ' ')} {_spot(row)[1] or '(untenanted)'}"

    @admin.display(description="of")
    def shown_where(self, row: Throttle) -> str:
        """The whole site, or a workspace."""
        return "the whole site" if row.workspace is None else str(row.workspace)

    @admin.display(description="at most")
    def shown_most(self, row: Throttle) -> str:
        """Its cap."""
        return showing.NOTHING if row.most is None else f"{row.most:,}"

    @admin.display(description="running")
    def shown_used(self, row: Throttle) -> str:
        """How many of how many."""
        return showing.NOTHING if row.most is None else f"{throttles.used_of(row)[0]:,} of {row.most:,}"

    @admin.display(description="pause")
    def shown_pause(self, row: Throttle) -> str:
        """By whom, until when, and why."""
        if row.paused_at is None:
            return showing.NOTHING
        until = "" if row.paused_until is None else f" until {row.paused_until:%Y-%m-%d %H:%M:%S}"
        return f"by {row.paused_by}{until}: {row.pause_reason}"

    @admin.display(description="state")
    def shown_state(self, row: Throttle) -> Any:
        """As a badge."""
        if throttles.paused(row, clock.now()):
            return showing.badge("paused", "paused")
        return showing.badge("capped" if row.most is not None else "not paused any more", "completed")
