"""Workers and leaders in the admin: which processes there are, and who does which duty."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from jobs.admin import showing
from jobs.admin.base import JobsAdmin
from jobs.models import Leader, Worker


@admin.register(Worker)
class WorkerAdmin(JobsAdmin):
    """One life of one process each; kept for a week."""

    keys = ("started_at", "pk")
    list_display = ("name", "host", "pid", "slots", "running", "seen_at", "shown_state")
    fields = ("id", "name", "host", "pid", "slots", "running", "groups", "shown_queues", "shown_types", "started_at",
              "seen_at", "stopped_at")

    @admin.display(description="state")
    def shown_state(self, worker: Worker) -> Any:
        """Whether it has said goodbye, or was given up."""
        return showing.badge("stopped") if worker.stopped_at else showing.badge("open", "running")

    @admin.display(description="worker groups")
    def groups(self, worker: Worker) -> Any:
        """That it serves."""
        return showing.words(worker.worker_groups)

    @admin.display(description="queues")
    def shown_queues(self, worker: Worker) -> Any:
        """That it serves."""
        return showing.words(worker.queues)

    @admin.display(description="types")
    def shown_types(self, worker: Worker) -> Any:
        """That it can run."""
        return showing.words(worker.types)


@admin.register(Leader)
class LeaderAdmin(JobsAdmin):
    """Who does a periodic duty, and until when."""

    list_display = ("duty", "holder", "until", "ticked_at", "hold_until")
    fields = ("duty", "holder", "until", "ticked_at", "hold_until", "holds")
