"""Grants in the admin: who is what in a workspace; given here and taken with a reason, both through the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from jobs.admin import showing
from jobs.admin.answering import AnsweringAdmin
from jobs.admin.filters import WorkspaceFilter
from jobs.errors import JobsError
from jobs.models import Grant, Key, Workspace
from jobs.models.permissions import Permission
from jobs.services import grants, tenancy

# Of a workspace's on its own page.
SHOWN = 20


def named(rows: QuerySet[Grant]) -> QuerySet[Grant]:
    """With what their users are called."""
    User = get_user_model()
    # The text is cast, not the key: its index brings the user.
    users = User._default_manager.filter(pk=Cast(OuterRef("user_id"), User._meta.pk.__class__()))
    return rows.select_related("workspace", "key").annotate(username=Subquery(users.values(User.USERNAME_FIELD)[:1]))


def principal(grant: Any) -> str:
    """Whose grant it is."""
    if grant.key is not None:
        return f"key {grant.key}"
    return f"user {grant.username if grant.username is not None else grant.user_id}"


def shown_members(workspace: Workspace) -> Any:
    """The first grants of a workspace, and where all of them are."""
    rows = list(named(Grant.objects.filter(workspace=workspace)).order_by("-pk")[: SHOWN + 1])
    told = format_html_join("", "<li>{}: {}</li>", ((principal(row), row.role) for row in rows[:SHOWN]))
    link = format_html('<a href="{}?workspace={}">{}</a>', reverse("admin:jobs_grant_changelist"), workspace.pk,
                       "all of them" if rows else "grants")
    return format_html("<ul>{}</ul>{}", told, link) if rows else format_html("nobody yet · {}", link)


class Take:
    """Take roles away."""

    name, verb, done, permission, batch, danger = "take", "Take away", "taken away", Permission.MANAGE_KEYS, 1, True
    means = "They are nothing in these workspaces from the next request on. It can be given again."

    def foresee(self, rows: Sequence[Grant]) -> dict[Any, str]:
        """None is left alone."""
        return {}

    def give(self, rows: Sequence[Grant], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return [None if grants.take_row(row) else "gone_already" for row in rows]


class NewGrantForm(forms.ModelForm):
    """Who shall be what, and where; whoever has a role there is given this one instead."""

    workspace = forms.CharField(max_length=64, help_text="Its slug.")
    user = forms.CharField(max_length=150, required=False, help_text="A username; or a key below.")
    key = forms.CharField(max_length=16, required=False, help_text="What stands before the dot of a key.")
    role = forms.ChoiceField(choices=[(role.value, role.value) for role in grants.Role])

    class Meta:
        model = Grant
        fields: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("workspace", "user", "key"):
            self.fields[name].widget.attrs["class"] = "vTextField"

    def clean_workspace(self) -> Workspace:
        """The workspace of this slug."""
        try:
            return tenancy.workspace(self.cleaned_data["workspace"])
        except JobsError as error:
            raise ValidationError(error.message) from error

    def clean_user(self) -> Any:
        """The user of this name."""
        name, User = self.cleaned_data["user"], get_user_model()
        found = User._default_manager.filter(**{User.USERNAME_FIELD: name}).first() if name else None
        if name and found is None:
            raise ValidationError("There is no such user.")
        return found

    def clean_key(self) -> Key | None:
        """The key of this prefix."""
        prefix = self.cleaned_data["key"].partition(".")[0]
        found = Key.objects.filter(prefix=prefix).first() if prefix else None
        if prefix and found is None:
            raise ValidationError("There is no such key.")
        return found

    def clean(self) -> Any:
        """As the service judges it."""
        said = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                grants.check(said["workspace"], said["role"], user=said["user"], key=said["key"])
            except JobsError as error:
                self.add_error(None, error.message)
        return said

    def _post_clean(self) -> None:
        """The service judges the whole row, not the model."""


@admin.register(Grant)
class GrantAdmin(AnsweringAdmin):
    """What users and keys are in workspaces."""

    answers = (Take(),)
    list_display = ("shown_principal", "workspace", "role", "by", "created_at")
    list_filter = (WorkspaceFilter,)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs or manage keys."""
        return super().has_view_permission(request, obj) or self.may(request, Permission.MANAGE_KEYS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may manage keys."""
        return self.may(request, Permission.MANAGE_KEYS)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With whose they are."""
        return named(super().get_queryset(request))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Only new ones have a form."""
        if obj is None:
            kwargs |= {"form": NewGrantForm}
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Of a new one who, where and what."""
        if obj is None:
            return [(None, {"fields": ("workspace", "user", "key", "role"),
                            "description": "Rights over the whole site give no role: each is given here."})]
        return [(None, {"fields": ("shown_principal", "workspace", "role", "shown_rights", "by", "created_at")})]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """One button."""
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the service."""
        said = form.cleaned_data
        row = grants.give(said["workspace"], said["role"], by=f"user:{request.user.get_username()}", user=said["user"],
                          key=said["key"])
        obj.__dict__.update(row.__dict__)

    @admin.display(description="principal")
    def shown_principal(self, grant: Grant) -> str:
        """A user or a key."""
        return principal(grant)

    @admin.display(description="may over the API")
    def shown_rights(self, grant: Grant) -> Any:
        """What the role lets a person do; a key has its own permissions."""
        if grant.key_id is not None:
            return "what the key may; as a conductor also enqueue where a grant is demanded"
        return showing.words(sorted(str(word) for word in grants.MAY[grants.Role(grant.role)]))
