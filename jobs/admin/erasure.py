"""Erasures in the admin: what was asked to go, by whom and why, and how far it has come."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from jobs.admin import showing
from jobs.admin.base import JobsAdmin
from jobs.models import Erasure

# Where it is not the table's own name: one, and more of them.
NAMES = {"cancelled": ("job cancelled first", "jobs cancelled first"), "jobs_claim_line": ("line", "lines"),
         "jobs_attempt_cap": ("counted cap", "counted caps"), "jobs_limits": ("row of limits", "rows of limits"),
         "jobs_attempt_log": ("log of an attempt", "logs of attempts")}


def named(table: str, count: int) -> str:
    """What is in a table as people call so many of it."""
    word = table.removeprefix("jobs_").replace("_", " ")
    return NAMES.get(table, (word, f"{word}s"))[count != 1]


@admin.register(Erasure)
class ErasureAdmin(JobsAdmin):
    """What goes, or has gone, of which tenant."""

    list_display = ("pk", "verb", "tenant_id", "by", "reason", "created_at", "shown_end")
    fields = ("verb", "workspace_id", "tenant_id", "by", "reason", "shown_end", "shown_counts", "created_at",
              "wait_until", "moved_at", "ended_at")

    @admin.display(description="end")
    def shown_end(self, erasure: Erasure) -> Any:
        """How it ended, or where it is."""
        kind = {"finished": "completed", "referenced": "failed"}.get(erasure.end or "", "")
        return showing.badge(erasure.end, kind) if erasure.end else showing.badge(erasure.phase, "running")

    @admin.display(description="gone so far")
    def shown_counts(self, erasure: Erasure) -> str:
        """Rows by what they are."""
        return ", ".join(f"{n:,} {named(table, n)}" for table, n in sorted(erasure.counts.items())) or showing.NOTHING
