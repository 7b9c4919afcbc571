"""Attempts in the admin, each with its log lines and the caps that it counts under."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin import finding, showing
from jobs.admin.base import JobsAdmin
from jobs.admin.filters import OutcomeFilter
from jobs.models import Attempt, AttemptCap, AttemptLog
from jobs.models.permissions import Permission
from jobs.money import shown


class AttemptLogInline(admin.StackedInline):
    """The last lines that the attempt logged."""

    model = AttemptLog
    verbose_name_plural = "log"
    fields = readonly_fields = ("shown_lines", "dropped", "at")
    can_delete = False
    extra = max_num = 0

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs."""
        return request.user.has_perm(Permission.VIEW.label)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission

    @admin.display(description="lines")
    def shown_lines(self, log: AttemptLog) -> Any:
        """As they were written."""
        return showing.lines(log.lines)


@admin.register(Attempt)
class AttemptAdmin(JobsAdmin):
    """One claim of a job each."""

    inlines = (AttemptLogInline,)
    # As `attempt_number_once` has them.
    keys = ("job_id", "number")
    dated = "job_id"
    heavy = ("message", "answer_hash", "owner_binding")
    list_display = ("shown_number", "shown_job", "shown_outcome", "reason_code", "leased_at", "started_at", "ended_at")
    list_filter = (OutcomeFilter,)
    search_fields = ("pk",)
    search_help_text = f"The attempts of jobs. {finding.HELP} Or the id of an attempt."
    fieldsets = (
        (None, {"fields": ("id", "shown_job", "number", "chain", "shown_outcome", "reason_code", "retryable",
                           "shown_cost", "shown_message")}),
        ("Holder", {"fields": ("worker", "key", "owner_binding", "caps")}),
        ("When", {"fields": ("leased_at", "started_at", "lease_until", "ended_at")}))

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Of the jobs that the word names, or the one with this id."""
        if not search_term:
            return queryset, False
        jobs = finding.jobs(search_term)
        id_ = finding.as_uuid(search_term)
        if id_ is not None and (job := Attempt.objects.filter(pk=id_).values_list("job_id", flat=True).first()):
            return queryset.filter(job_id=job, pk=id_), False
        return queryset.filter(job_id__in=jobs), False

    @admin.display(description="attempt")
    def shown_number(self, attempt: Attempt) -> str:
        """Its number."""
        return f"attempt {attempt.number}"

    @admin.display(description="job")
    def shown_job(self, attempt: Attempt) -> Any:
        """As a link."""
        return showing.job(attempt.job_id)

    @admin.display(description="outcome")
    def shown_outcome(self, attempt: Attempt) -> Any:
        """How it ended."""
        return showing.badge(attempt.outcome or "live", {None: "running", "lapsed": "failed"}.get(attempt.outcome, ""))

    @admin.display(description="message")
    def shown_message(self, attempt: Attempt) -> Any:
        """The error's text."""
        return showing.lines(attempt.message) if attempt.message else showing.NOTHING

    @admin.display(description="cost (US$)")
    def shown_cost(self, attempt: Attempt) -> str | None:
        """By its holder's word."""
        return shown(attempt.cost_usd)

    @admin.display(description="counts under")
    def caps(self, attempt: Attempt) -> Any:
        """The keys of its caps, while it lives."""
        return showing.words(AttemptCap.objects.filter(attempt_id=attempt.pk).values_list("cap_key", flat=True)[:20])
