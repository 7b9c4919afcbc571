"""Artifacts in the admin: what completed jobs made; the value for whoever may view payloads."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin import finding, showing
from jobs.admin.base import JobsAdmin
from jobs.models import Artifact
from jobs.models.permissions import Permission


@admin.register(Artifact)
class ArtifactAdmin(JobsAdmin):
    """One result a completed job, written once."""

    dated = "pk"
    heavy = ("value",)
    list_display = ("shown_id", "shown_job", "created_at")
    search_fields = ("pk",)
    search_help_text = f"The artifacts of jobs. {finding.HELP}"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The value only for whoever may view payloads."""
        found = ["shown_job", "created_at", "shown_hash"]
        return [*found, "shown_value"] if self.may(request, Permission.VIEW_PAYLOAD) else found

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Of the jobs that the word names."""
        return (queryset.filter(pk__in=finding.jobs(search_term)) if search_term else queryset), False

    @admin.display(description="artifact")
    def shown_id(self, artifact: Artifact) -> str:
        """Of this job."""
        return f"of {str(artifact.pk)[-12:]}"

    @admin.display(description="job")
    def shown_job(self, artifact: Artifact) -> Any:
        """As a link."""
        return showing.job(artifact.pk)

    @admin.display(description="sha256")
    def shown_hash(self, artifact: Artifact) -> str:
        """Of the value as it was written."""
        return bytes(artifact.hash).hex()

    @admin.display(description="value")
    def shown_value(self, artifact: Artifact) -> Any:
        """Redacted and cut."""
        return showing.payload(artifact.value)
