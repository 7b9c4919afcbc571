"""Quorums in the admin: made and closed by who is a conductor of their workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from jobs.admin.filters import WorkspaceFilter
from jobs.errors import JobsError
from jobs.models import Workspace
from jobs.services import tenancy
from lanes.actors import Actor, of_user
from lanes.admin.base import LanesAdmin, Verb
from lanes.models import Quorum
from lanes.services import quorums


class Close(Verb):
    """Take no new lanes."""

    name, verb, done, danger = "close", "Close", "closed", True
    means = "They take no new lanes, for good. The lanes that they have go on. It takes a conductor of their workspace."

    def foresee(self, rows: Sequence[Quorum]) -> dict[Any, str]:
        """Those that are closed."""
        return {row.pk: "quorum_closed" for row in rows if row.closed_at is not None}

    def verb_of(self, row: Quorum) -> Callable[..., object]:
        """Through the service."""
        return partial(quorums.close, row.pk)


class NewQuorumForm(forms.ModelForm):
    """Where, and what it is called."""

    by: Actor
    workspace = forms.CharField(max_length=64, help_text="Its slug. You must be a conductor there.")

    class Meta:
        model = Quorum
        fields = ("name", "title")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["workspace"].widget.attrs["class"] = "vTextField"

    def clean_workspace(self) -> Workspace:
        """The workspace of this slug."""
        try:
            return tenancy.workspace(self.cleaned_data["workspace"])
        except JobsError as error:
            raise ValidationError(error.message) from error

    def clean(self) -> Any:
        """Made by the service here, where its refusals have a place; a page that fails later undoes it."""
        said = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                self.made = quorums.create(said["workspace"], said["name"], said["title"], by=self.by)
            except JobsError as error:
                self.add_error(error.field if error.field in self.fields else None, error.message)
        return said

    def _post_clean(self) -> None:
        """The service judges the whole row, not the model."""


@admin.register(Quorum)
class QuorumAdmin(LanesAdmin):
    """Agreements, from which lanes go out."""

    answers = (Close(),)
    list_display = ("name", "title", "workspace", "by", "created_at", "closed_at")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever sees them may ask; its grants decide."""
        return self.has_view_permission(request)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Only new ones have a form; it knows who asks."""
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        asking = type("NewQuorumForm", (NewQuorumForm,), {"by": of_user(request.user)})
        return super().get_form(request, obj, change, **kwargs, form=asking)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Of a new one where and what."""
        if obj is None:
            return [(None, {"fields": ("workspace", "name", "title"),
                            "description": "It takes a grant as conductor: rights over the whole site are none."})]
        return [(None, {"fields": ("name", "title", "workspace", "by", "created_at", "shown_lanes")}),
                ("Closed", {"fields": ("closed_at", "closed_by", "close_reason")})]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """One button."""
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The service has made it."""
        obj.__dict__.update(form.made.__dict__)

    @admin.display(description="lanes")
    def shown_lanes(self, quorum: Quorum) -> Any:
        """Where they are."""
        return format_html('<a href="{}?quorum={}">its lanes</a>', reverse("admin:lanes_lane_changelist"), quorum.pk)
