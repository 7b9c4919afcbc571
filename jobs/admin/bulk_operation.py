"""Bulk operations in the admin: who did what to which jobs or letters at once, why, and what became of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html

from jobs.admin import showing
from jobs.admin.base import JobsAdmin
from jobs.models import BulkOperation


@admin.register(BulkOperation)
class BulkOperationAdmin(JobsAdmin):
    """One thing that a person has done to many jobs or letters; it is steered in the console."""

    list_display = ("pk", "verb", "about", "by", "reason", "size", "done", "skipped_count", "created_at", "shown_end")
    fields = ("console", "about", "verb", "by", "reason", "workspace_id", "tenant_id", "type", "letter_reason",
              "cluster", "since", "until", "house", "upto", "job_filter", "expected", "gathered", "total", "after",
              "done", "shown_skipped", "canary", "canary_letter", "rate", "most_failed", "created_at", "going_at",
              "moved_at", "ended_at", "end", "ended_by")

    @admin.display(description="skipped")
    def skipped_count(self, bulk: BulkOperation) -> int:
        """How many were left alone."""
        return bulk.skipped_count

    @admin.display(description="end")
    def shown_end(self, bulk: BulkOperation) -> Any:
        """How it ended, if it has."""
        return showing.badge(bulk.end) if bulk.end else showing.badge("open", "going on")

    @admin.display(description="skipped")
    def shown_skipped(self, bulk: BulkOperation) -> str:
        """By the code of the refusal."""
        return ", ".join(f"{code}: {n}" for code, n in sorted(bulk.skipped.items())) or showing.NOTHING

    @admin.display(description="console")
    def console(self, bulk: BulkOperation) -> Any:
        """Where it can be watched and stopped."""
        url = showing.console(bulk.pk, "bulk")
        return format_html('<a href="{}">Watch it in the console</a>', url) if url else showing.NOTHING
