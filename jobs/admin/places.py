"""Forms that name a workspace and a tenant by their words: menus of them would read whole tables."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from jobs.errors import JobsError
from jobs.models import Tenant, Workspace
from jobs.services import tenancy


class PlaceForm(forms.ModelForm):
    """A new row of a workspace, or of one of its tenants; `place()` gives both as rows."""

    workspace = forms.CharField(max_length=64, help_text="Its slug.")
    tenant = forms.CharField(max_length=tenancy.SUBJECT_LIMIT, required=False,
                             help_text="A tenant's subject; empty: the whole workspace.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("workspace", "tenant"):
            self.fields[name].widget.attrs["class"] = "vTextField"

    def clean_workspace(self) -> Any:
        """The workspace of this slug."""
        try:
            return tenancy.workspace(self.cleaned_data["workspace"])
        except JobsError as error:
            raise ValidationError(error.message) from error

    def clean_tenant(self) -> str | None:
        """A subject that there could be, None for none; its tenant is made with the row, as an enqueue would."""
        subject: str = self.cleaned_data["tenant"]
        try:
            if subject:
                tenancy.check_subject(subject)
        except JobsError as error:
            raise ValidationError(error.message) from error
        return subject or None

    def place(self) -> tuple[Workspace, Tenant | None]:
        """Both as rows."""
        workspace, subject = self.cleaned_data["workspace"], self.cleaned_data["tenant"]
        return workspace, tenancy.tenant(workspace, subject, make=True) if subject else None

    def _post_clean(self) -> None:
        """The service judges the whole row, not the model."""
