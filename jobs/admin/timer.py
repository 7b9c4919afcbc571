"""Timers in the admin: put, paused, resumed, run and removed through the services; what they did, to look at (D13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from jobs import clock
from jobs.admin import showing
from jobs.admin.answering import AnsweringAdmin, refused
from jobs.admin.filters import TenantFilter, WorkspaceFilter
from jobs.admin.firing import BADGES
from jobs.admin.timer_form import EDITABLE, BlindForm, NewTimerForm, TimerForm
from jobs.errors import JobsError
from jobs.models import Firing, Timer
from jobs.models.permissions import Permission
from jobs.services import grants, timers, timetable

_STATES = {timetable.ACTIVE: "completed", timetable.PAUSED: "paused", timetable.ARCHIVED: "cancelled"}
MANAGE = Permission.MANAGE_TIMERS


def _each(rows: Sequence[Timer], verb: Callable[[Timer], object]) -> list[str | None]:
    return [refused(lambda row=row: verb(row)) for row in rows]  # type: ignore[misc]


class Pause:
    """Let their moments pass without jobs."""

    name, verb, done, permission, batch, danger = "pause", "Pause", "paused", MANAGE, 50, False
    means = "Their moments pass without a job until somebody resumes them. What they have enqueued goes on."

    def foresee(self, rows: Sequence[Timer]) -> dict[Any, str]:
        """Those that are paused."""
        now = clock.now()
        return {row.pk: "already_paused" for row in rows if row.paused(now)}

    def give(self, rows: Sequence[Timer], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: timers.pause(row, by=by, reason=reason))


class Resume:
    """End their pauses."""

    name, verb, done, permission, batch, danger = "resume", "Resume", "resumed", MANAGE, 50, False
    means = "They go on with their next moments. What lay in the pause is not made up for."

    def foresee(self, rows: Sequence[Timer]) -> dict[Any, str]:
        """Those that are not paused."""
        now = clock.now()
        return {row.pk: "timer_not_paused" for row in rows if not row.paused(now)}

    def give(self, rows: Sequence[Timer], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: timers.resume(row, by=by, reason=reason))


class Run:
    """One job more of each, now."""

    name, verb, done, permission, batch, danger = "run", "Run now", "fired", MANAGE, 50, False
    means = "Each makes one job now, paused or not. Their moments stay as they are."

    def foresee(self, rows: Sequence[Timer]) -> dict[Any, str]:
        """None."""
        return {}

    def give(self, rows: Sequence[Timer], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: timers.run_now(row, by=by, reason=reason))


class Remove:
    """End them for good."""

    name, verb, done, permission, batch, danger = "remove", "Remove", "removed", MANAGE, 50, True
    means = "They make no jobs any more. Those that they have made stay and go on."

    def foresee(self, rows: Sequence[Timer]) -> dict[Any, str]:
        """Those that the settings declare."""
        return {row.pk: "timer_declared" for row in rows if row.declared}

    def give(self, rows: Sequence[Timer], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda row: timers.remove(row, by=by))


class StateFilter(admin.SimpleListFilter):
    """Paused, or not."""

    title, parameter_name = "state", "state"
    # Nearly none are paused, or nearly all: the list looks so far and offers to look further.
    bounded = False

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Two."""
        return [("active", "not paused"), ("paused", "paused")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Also of pauses that are about to end by themselves."""
        known = {"active": True, "paused": False}.get(str(self.value()))
        return queryset if known is None else queryset.filter(paused_at__isnull=known)


@admin.register(Timer)
class TimerAdmin(AnsweringAdmin):
    """Rules by which jobs are enqueued again and again. What the settings declare may be paused and run, not edited."""

    answers = (Pause(), Resume(), Run(), Remove())
    heavy = ("input", "options")
    list_display = ("name", "shown_state", "shown_next", "shown_last", "shown_schedule", "type", "shown_of")
    list_filter = (WorkspaceFilter, TenantFilter, StateFilter)
    list_select_related = ("workspace", "tenant")
    search_fields = ("name",)
    search_help_text = "A whole name."

    def has_manage_timers_permission(self, request: HttpRequest) -> bool:
        """May manage timers."""
        return self.may(request, MANAGE)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may view jobs or manage timers."""
        return super().has_view_permission(request, obj) or self.may(request, MANAGE)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may manage timers."""
        return self.may(request, MANAGE)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may manage timers; nobody where the settings declare it."""
        return self.may(request, MANAGE) and (obj is None or not obj.declared)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With whose they are, and what became of the latest moment of each."""
        newest = Firing.objects.filter(timer=OuterRef("pk")).order_by("-moment")
        last = {f"last_{name}": Subquery(newest.values(name)[:1]) for name in ("outcome", "code", "moment")}
        return super().get_queryset(request).select_related("workspace", "tenant").annotate(
            now=clock.Now(), **last)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By the name, as it is."""
        if not search_term:
            return queryset, False
        return (queryset.filter(name=search_term) if search_term.isprintable() else queryset.none()), False

    # --- the form ---------------------------------------------------------------------------------------------------

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """New ones say where they belong; who may not see inputs does not edit them, nor what a field cannot hold."""
        if obj is None:
            return super().get_form(request, obj, change, **{**kwargs, "form": NewTimerForm})
        form = TimerForm if self._sees(request, obj) else BlindForm
        return super().get_form(request, obj, change, **{**kwargs, "form": form})

    def _sees(self, request: HttpRequest, obj: Timer) -> bool:
        return self.may(request, Permission.VIEW_PAYLOAD) and len(obj.input) <= EDITABLE

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """What, when, and how it goes; to look at, the same in words."""
        if obj is not None and not self.has_change_permission(request, obj):
            payload = ("shown_input",) if self.may(request, Permission.VIEW_PAYLOAD) else ()
            return [(None, {"fields": ("name", "shown_of", "type", "version", *payload, "shown_options",
                                       "shown_schedule", "moment_field", "catch_up", "catch_up_most", "overlap",
                                       "declared")}), *_STANDS]
        payload = ("said_input",) if obj is None or self._sees(request, obj) else ()
        where = ("workspace", "tenant", "name") if obj is None else ("name", "shown_of")
        revision = () if obj is None else ("revision",)
        said = [
            (None, {"fields": (*where, "type", "version", *payload, "said_options")}),
            ("When", {"fields": ("cron", "zone", "every_s", "anchor_at", "moment_field")}),
            ("If it cannot be in time", {"fields": ("catch_up", "catch_up_most", "overlap", *revision)})]
        return said if obj is None else [*said, *_STANDS]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """How it stands, and whose it is."""
        if obj is None:
            return ()
        fixed = ("name", "shown_of", "shown_state", "shown_next_five", "shown_last", "shown_history", "paused_by",
                 "paused_reason", "paused_until", "by", "created_at", "updated_at", "declared")
        return fixed if self.has_change_permission(request, obj) else (
            *fixed, "type", "version", "shown_input", "shown_options", "shown_schedule", "moment_field", "catch_up",
            "catch_up_most", "overlap")

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
                        extra_context: Any = None) -> Any:
        """What was refused between the look at the form and its writing is a word, and nothing is written."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except JobsError as error:
            self.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the service."""
        said, by = form.cleaned_data, f"user:{request.user.get_username()}"
        grants.check_user_enqueues(obj.workspace if change else said["workspace"], request.user.pk)
        if change:
            row = timers.put(obj.tenant, obj.name, said["draft"], by=by, revision=said["revision"])
        else:
            row = timers.put_for(said["workspace"], said["tenant"], said["name"], said["draft"], by=by, create=True)
        obj.__dict__.update(row.__dict__)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> Any:
        """On to its own page, where its next moments are."""
        self.message_user(request, f"The timer {obj.name} was made.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:jobs_timer_change", args=[obj.pk]))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Of a new one there is one button: next come its moments."""
        context |= {"show_save_and_add_another": False, "show_save_and_continue": kwargs.get("obj") is not None}
        return super().render_change_form(request, context, *args, **kwargs)

    # --- what is shown ----------------------------------------------------------------------------------------------

    @admin.display(description="of")
    def shown_of(self, row: Timer) -> str:
        """A tenant of a workspace."""
        return f"{row.workspace} / {row.tenant.subject or 'no tenant'}"

    @admin.display(description="schedule")
    def shown_schedule(self, row: Timer) -> str:
        """In words."""
        return timetable.words(row)

    @admin.display(description="next (UTC)")
    def shown_next(self, row: Any) -> str:
        """Its next moment."""
        if row.next_at is None or row.paused(row.now):
            return showing.NOTHING
        return f"{row.next_at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="next moments")
    def shown_next_five(self, row: Any) -> Any:
        """Five of them, by its zone's clocks and in UTC."""
        found = timetable.moments(row)
        if not found:
            return "none until somebody resumes it" if row.paused(row.now) else showing.NOTHING
        return format_html_join("", "<div>{} · {} UTC</div>", (
            (f"{one.there:%a %Y-%m-%d %H:%M:%S %Z}", f"{one.at:%Y-%m-%d %H:%M:%S}") for one in found))

    @admin.display(description="last")
    def shown_last(self, row: Any) -> Any:
        """What became of its latest moment."""
        if row.last_outcome is None:
            return showing.NOTHING
        return format_html("{} {} {}", showing.badge(row.last_outcome, BADGES[row.last_outcome]),
                           f"{row.last_moment:%Y-%m-%d %H:%M:%S} UTC", row.last_code or "")

    @admin.display(description="firings")
    def shown_history(self, row: Timer) -> Any:
        """Where all of them are."""
        return format_html('<a href="{}?timer={}">all of them</a>', reverse("admin:jobs_firing_changelist"), row.pk)

    @admin.display(description="state")
    def shown_state(self, row: Any) -> Any:
        """As a badge."""
        state = timetable.state(row, row.now)
        return showing.badge(state, _STATES[state])

    @admin.display(description="input")
    def shown_input(self, row: Timer) -> Any:
        """Secrets by their names left out."""
        return showing.payload(row.input)

    @admin.display(description="options")
    def shown_options(self, row: Timer) -> str:
        """The same."""
        return timetable.options_said(row) or showing.NOTHING


_STANDS: list[Any] = [
    ("How it stands", {"fields": ("shown_state", "shown_next_five", "shown_last", "shown_history", "paused_by",
                                  "paused_reason", "paused_until")}),
    ("Who", {"fields": ("by", "created_at", "updated_at")})]


