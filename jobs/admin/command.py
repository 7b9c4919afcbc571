"""Commands in the admin: what was said to active jobs; the payload for whoever may view payloads."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin import finding, showing
from jobs.admin.base import JobsAdmin
from jobs.admin.filters import KindFilter
from jobs.models import Command
from jobs.models.permissions import Permission


@admin.register(Command)
class CommandAdmin(JobsAdmin):
    """Messages to holders of jobs."""

    # As `command_by_job` has them; of one moment, by id.
    keys = ("job_id", "created_at", "pk")
    dated = "job_id"
    heavy = ("payload", "payload_hash", "fingerprint")
    list_display = ("kind", "shown_job", "by", "created_at", "consumed_at")
    list_filter = (KindFilter,)
    search_fields = ("pk",)
    search_help_text = f"The commands of jobs. {finding.HELP}"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The payload only for whoever may view payloads."""
        found = ["id", "kind", "shown_job", "by", "reason", "external_id", "idempotency_key", "created_at",
                 "consumed_at", "attempt_id"]
        return [*found, "shown_payload"] if self.may(request, Permission.VIEW_PAYLOAD) else found

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Of the jobs that the word names."""
        return (queryset.filter(job_id__in=finding.jobs(search_term)) if search_term else queryset), False

    @admin.display(description="job")
    def shown_job(self, command: Command) -> Any:
        """As a link."""
        return showing.job(command.job_id)

    @admin.display(description="payload")
    def shown_payload(self, command: Command) -> Any:
        """Redacted and cut."""
        return showing.payload(command.payload)
