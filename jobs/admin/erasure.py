"""Erasures in the admin: what was asked to go, by whom and why, and how far it has come."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from jobs.admin import showing
from jobs.admin.base import JobsAdmin
from jobs.models import Erasure

# Of a table for people.
NAMES = {"jobs_job": "jobs", "cancelled": "jobs cancelled first", "jobs_bulk_answer": "bulk answers",
         "jobs_claim_line": "lines", "jobs_attempt_cap": "counted caps", "jobs_attempt_log": "logs of attempts"}


def named(table: str) -> str:
    """A table as people call what is in it."""
    return NAMES.get(table) or table.removeprefix("jobs_").replace("_", " ") + ("" if table.endswith("s") else "s")


@admin.register(Erasure)
class ErasureAdmin(JobsAdmin):
    """What goes, or has gone, of which tenant."""

    list_display = ("pk", "verb", "tenant_id", "by", "reason", "created_at", "shown_end")
    fields = ("verb", "workspace_id", "tenant_id", "by", "reason", "shown_end", "shown_counts", "created_at",
              "wait_until", "moved_at", "ended_at")

    @admin.display(description="end")
    def shown_end(self, erasure: Erasure) -> Any:
        """How it ended, or where it is."""
        return showing.badge(erasure.end) if erasure.end else showing.badge("running", erasure.phase)

    @admin.display(description="gone so far")
    def shown_counts(self, erasure: Erasure) -> str:
        """Rows by what they are."""
        return ", ".join(f"{n:,} {named(table)}" for table, n in sorted(erasure.counts.items())) or showing.NOTHING
