"""Firings of timers in the admin: what became of each moment (D13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest

from jobs.admin import finding, showing
from jobs.admin.base import JobsAdmin
from jobs.admin.filters import TenantFilter, Words
from jobs.models import Firing, Timer
from jobs.models.timer import OUTCOMES

BADGES = {"enqueued": "completed", "overlapped": "paused", "missed": "paused", "refused": "failed"}


class OutcomeFilter(Words):
    """What became of a moment."""

    title, parameter_name, column = "outcome", "outcome", "outcome"

    def known(self) -> Sequence[str]:
        """The words of a firing."""
        return OUTCOMES


class TimerFilter(admin.SimpleListFilter):
    """Firings of one timer: offered by a link from its page alone."""

    title, parameter_name = "timer", "timer"
    bounded = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The present one."""
        return [(value, f"timer {value[-12:]}")] if (value := self.value()) else []

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """By its id."""
        id_ = finding.as_uuid(str(self.value())) if self.value() else None
        return queryset.filter(timer_id=id_) if id_ else queryset.none() if self.value() else queryset


@admin.register(Firing)
class FiringAdmin(JobsAdmin):
    """What became of the moments of timers, also of those that are gone."""

    list_display = ("pk", "shown_timer", "moment", "shown_outcome", "code", "shown_job", "made_at")
    list_filter = (OutcomeFilter, TimerFilter, TenantFilter)
    fields = ("shown_timer", "moment", "made_at", "shown_outcome", "missed", "code", "detail", "shown_job", "manual",
              "by")

    def get_queryset(self, request: HttpRequest) -> Any:
        """With the names of the timers that are there."""
        names = Timer.objects.filter(pk=OuterRef("timer_id")).values("name")[:1]
        return super().get_queryset(request).annotate(timer_name=Subquery(names))

    @admin.display(description="timer")
    def shown_timer(self, row: Any) -> Any:
        """As a link where it is there."""
        return showing.to("timer", row.timer_id, row.timer_name) if row.timer_name else f"{row.timer_id} (removed)"

    @admin.display(description="outcome")
    def shown_outcome(self, row: Firing) -> Any:
        """As a badge."""
        return showing.badge(row.outcome, BADGES.get(row.outcome, ""))

    @admin.display(description="job")
    def shown_job(self, row: Firing) -> Any:
        """As a link."""
        return showing.job(row.job_id)
