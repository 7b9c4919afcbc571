"""Dead letters in the admin: a person's two answers, requeue and discard (C22 to C29)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest

from jobs.admin import across, finding, showing
from jobs.admin.answering import refused
from jobs.admin.filters import AnswerFilter, LetterReasonFilter, TenantFilter, TypeFilter, WorkspaceFilter
from jobs.conf import registry
from jobs.models import DeadLetter, Tenant, Workspace
from jobs.models.permissions import Permission
from jobs.services import dead_letters, operations


class Requeue:
    """Start a new chain of each job (C27)."""

    name, verb, done, permission, batch, danger = "requeue", "Requeue", "requeued", Permission.REQUEUE, 1, False
    means = ("Each job starts a new chain of attempts with its last checkpoint; its count of attempts begins anew. "
             "Deadlines that have passed are dropped.")

    def foresee(self, rows: Sequence[DeadLetter]) -> dict[Any, str]:
        """Answered ones, and those whose job nobody wants or knows any more."""
        known = registry()
        skipped = {}
        for letter in rows:
            job = letter.job
            if letter.resolved_at is not None:
                skipped[letter.pk] = "not_dead_lettered"
            elif job.tenant.archived_at is not None:
                skipped[letter.pk] = "tenant_archived"
            elif known.find(job.type, job.version) is None:
                skipped[letter.pk] = "unregistered_version"
            elif job.target is not None and job.target.generation != job.generation:
                skipped[letter.pk] = "target_superseded"
        return skipped

    def give(self, rows: Sequence[DeadLetter], by: str, reason: str) -> list[str | None]:
        """Through the service; one a transaction, since targets and jobs are locked in its order."""
        return [refused(lambda letter=letter: dead_letters.requeue(letter, by=by, reason=reason))  # type: ignore[misc]
                for letter in rows]


class Discard:
    """Close the letters; the jobs stay failed (C29)."""

    name, verb, done, permission, batch, danger = "discard", "Discard", "discarded", Permission.DISCARD, 1, True
    means = "The letters are closed and their jobs stay failed for good."

    def foresee(self, rows: Sequence[DeadLetter]) -> dict[Any, str]:
        """Answered ones."""
        return {letter.pk: "not_dead_lettered" for letter in rows if letter.resolved_at is not None}

    def give(self, rows: Sequence[DeadLetter], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return [refused(lambda letter=letter: dead_letters.discard(letter, by=by, reason=reason))  # type: ignore[misc]
                for letter in rows]


@admin.register(DeadLetter)
class DeadLetterAdmin(across.AcrossAdmin):
    """Jobs that failed for good and wait for a person."""

    answers = (Requeue(), Discard())
    meant, swept = staticmethod(across.letters), operations.VERBS
    list_display = ("shown_id", "shown_job", "type", "shown_tenant", "reason", "reason_code", "attempt_count",
                    "opened_at", "shown_answer")
    list_filter = (AnswerFilter, LetterReasonFilter, TypeFilter, WorkspaceFilter, TenantFilter)
    search_fields = ("pk",)
    search_help_text = f"{finding.HELP} Or a letter's number after #."
    fieldsets = (
        (None, {"fields": ("shown_job", "type", "shown_workspace", "shown_tenant")}),
        ("Why", {"fields": ("reason", "reason_code", "attempt_count", "chain", "opened_at")}),
        ("Answer", {"fields": ("shown_answer", "resolved_at", "resolved_by", "resolve_reason")}))

    def get_queryset(self, request: HttpRequest) -> Any:
        """With the names of tenant and workspace, and the job without what makes it heavy."""
        tenant = Tenant.objects.filter(pk=OuterRef("tenant_id"))
        workspace = Workspace.objects.filter(pk=OuterRef("workspace_id"))
        found = super().get_queryset(request).annotate(subject=Subquery(tenant.values("subject")),
                                                       slug=Subquery(workspace.values("slug")))
        return found.select_related("job__tenant", "job__target").defer(
            "job__input", "job__checkpoint", "job__head", "job__fingerprint", "job__input_hash", "job__normal_hash",
            "job__progress")

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Letters of the jobs that the word names, or one by its number."""
        if not search_term:
            return queryset, False
        if search_term.startswith("#"):
            return queryset.filter(pk=finding.as_number(search_term[1:])), False
        return queryset.filter(job_id__in=finding.jobs(search_term)), False

    @admin.display(description="letter")
    def shown_id(self, letter: DeadLetter) -> str:
        """Its number."""
        return f"#{letter.pk}"

    @admin.display(description="job")
    def shown_job(self, letter: DeadLetter) -> Any:
        """As a link."""
        return showing.job(letter.job_id)

    @admin.display(description="tenant")
    def shown_tenant(self, letter: Any) -> str:
        """Whose it is."""
        return letter.subject or showing.NOTHING

    @admin.display(description="workspace")
    def shown_workspace(self, letter: Any) -> str:
        """Where it is."""
        return letter.slug or showing.NOTHING

    @admin.display(description="answer")
    def shown_answer(self, letter: DeadLetter) -> Any:
        """Open, or what was said."""
        return showing.badge(letter.resolution or "open", "failed" if letter.resolution is None else "")
