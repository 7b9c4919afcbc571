"""Callbacks in the admin: what was told, every try of it, and sending it again; secrets by their last characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin import finding, showing
from jobs.admin.answering import AnsweringAdmin, refused
from jobs.admin.base import JobsAdmin
from jobs.admin.filters import TenantFilter
from jobs.models import CallbackHost, CallbackSecret, Delivery, DeliveryTry
from jobs.models.permissions import Permission
from jobs.services import deliveries

BADGES = {"pending": "queued", "delivered": "completed", "failed": "failed", "dropped": "cancelled"}


class Replay:
    """Send ended ones again."""

    name, verb, done, permission, batch, danger = "replay", "Send again", "sent again", Permission.REQUEUE, 100, False
    means = "Each goes out again under its id, by which its receiver knows that it is the same."

    def foresee(self, rows: Sequence[Delivery]) -> dict[Any, str]:
        """Those that are under way."""
        return {row.pk: "delivery_pending" for row in rows if row.state == "pending"}

    def give(self, rows: Sequence[Delivery], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return [refused(lambda row=row: deliveries.replay(row.pk, by=by)) for row in rows]  # type: ignore[misc]


class StateFilter(admin.SimpleListFilter):
    """By how it stands."""

    title, parameter_name = "state", "state"
    # Nearly all are delivered; the others have an index.
    bounded = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Those of a delivery."""
        return [(state, state) for state in deliveries.STATES]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """By the index of what was not delivered."""
        return queryset.filter(state=self.value()) if self.value() in deliveries.STATES else queryset


@admin.register(Delivery)
class DeliveryAdmin(AnsweringAdmin):
    """What is told of jobs, to whom, and how it went."""

    answers = (Replay(),)
    dated = "id"
    list_display = ("pk", "shown_job", "event", "host", "shown_state", "tries", "http_status", "ms", "code", "at")
    list_filter = (StateFilter, TenantFilter)
    search_fields = ("pk",)
    search_help_text = "The id of a delivery, or of a job, in full."
    fieldsets = (
        (None, {"fields": ("shown_job", "event", "chain", "revision", "job_state", "reason", "at")}),
        ("Delivery", {"fields": ("shown_state", "host", "site", "shown_sender", "tries", "replays", "http_status", "ms",
                                 "code", "ended_at", "shown_log")}))

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By a whole id."""
        if not search_term:
            return queryset, False
        jobs = finding.jobs(search_term)
        own = finding.as_uuid(search_term)
        return (queryset.filter(pk=own) if own and queryset.filter(pk=own).exists()
                else queryset.filter(job_id__in=jobs)), False

    @admin.display(description="job")
    def shown_job(self, row: Delivery) -> Any:
        """As a link."""
        return showing.job(row.job_id)

    @admin.display(description="sent by")
    def shown_sender(self, row: Delivery) -> Any:
        """The job that sends it, with its attempts."""
        return showing.job(row.sender_id)

    @admin.display(description="state")
    def shown_state(self, row: Delivery) -> Any:
        """How it stands."""
        return showing.badge(row.state, BADGES[row.state])

    @admin.display(description="tries")
    def shown_log(self, row: Delivery) -> Any:
        """The latest tries by what came of them."""
        return showing.words([f"{one.number}: {one.http_status or one.code}, {one.ms} ms"
                              for one in deliveries.tries([row], 20)[row.pk]]) or showing.NOTHING


@admin.register(DeliveryTry)
class DeliveryTryAdmin(JobsAdmin):
    """Single tries; what came back takes the permission to see payloads."""

    list_display = ("pk", "delivery_id", "number", "at", "http_status", "ms", "code")
    heavy = ("answer",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """A stranger's words for those who may see payloads alone."""
        shown = ("delivery_id", "job_id", "number", "at", "http_status", "ms", "code")
        return (*shown, "answer") if self.may(request, Permission.VIEW_PAYLOAD) else shown


@admin.register(CallbackHost)
class CallbackHostAdmin(JobsAdmin):
    """Receivers that failed lately, by a digest of their names."""

    list_display = ("name", "failures", "open_until")
    fields = ("name", "failures", "open_until")


@admin.register(CallbackSecret)
class CallbackSecretAdmin(JobsAdmin):
    """What signs callbacks; made, rotated and revoked over the API or `manage.py callbacks`."""

    list_display = ("pk", "tenant", "hint", "by", "created_at", "revoked_at")
    list_filter = (TenantFilter,)
    list_select_related = ("tenant",)
    heavy = ("sealed",)
    fields = ("tenant", "hint", "by", "created_at", "revoked_at")
