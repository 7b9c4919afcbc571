"""Filters of lists: their choices come from settings, the registry and fixed words, never from a table's rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet

from jobs.conf import conf, registry
from jobs.models import Attempt, Workspace
from jobs.routing import SYSTEM, UNROUTED
from jobs.states import HELD, State

# Why a job or a letter is where it is, as the house's own moves say it; people's reasons are free.
REASONS = ("attempts_exhausted", "terminal_error", "retry_not_allowed", "retry_budget_exhausted", "quarantined",
           "deadline_exceeded")
JOB_REASONS = (*REASONS, "unregistered_type", "singleton_cancel", "abort_requested")
MOST_WORKSPACES = 50


class Words(SimpleListFilter):
    """A filter of one column by words; a word that is not offered is taken as well, since rows outlive settings."""

    column = ""
    # Whether what is left is found by an index in the order of the list, however few rows there are.
    bounded = False

    def known(self) -> Iterable[Any]:
        """The words that are offered."""
        raise NotImplementedError

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[Any, str]]:
        """Offered words, and the present one."""
        words = list(dict.fromkeys(self.known()))
        present = self.value()
        return [(word, word) for word in ([*words, present] if present and present not in words else words)]

    def queryset(self, request: Any, queryset: QuerySet) -> QuerySet | None:
        """Rows with this word."""
        value = self.value()
        if value is None:
            return None
        return queryset.filter(**{self.column: value}) if value.isprintable() else queryset.none()


class StateFilter(Words):
    """Jobs in one state; those in somebody's hands are found by their live attempts."""

    title, parameter_name, column = "state", "state", "state"

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Few are held at once."""
        return self.value() in HELD

    def known(self) -> Iterable[str]:
        """All states."""
        return [state.value for state in State]

    def queryset(self, request: Any, queryset: QuerySet) -> QuerySet | None:
        """Jobs in the state."""
        found = super().queryset(request, queryset)
        if found is not None and self.bounded:
            return found.filter(pk__in=list(Attempt.objects.filter(ended_at=None).values_list("job_id", flat=True)))
        return found


class TypeFilter(Words):
    """Rows of one registered type."""

    title, parameter_name, column = "type", "type", "type"

    def known(self) -> Iterable[str]:
        """Registered types."""
        return [definition.type for definition in registry()]


class QueueFilter(Words):
    """Rows of one queue."""

    title, parameter_name, column = "queue", "queue", "queue"

    def known(self) -> Iterable[str]:
        """The site's queues."""
        return conf().QUEUES


class GroupFilter(Words):
    """Rows of one worker group."""

    title, parameter_name, column = "worker group", "group", "worker_group"

    def known(self) -> Iterable[str]:
        """Groups of definitions and of routing rules, and the house's own."""
        known = registry()
        routed = [rule.worker_group for rule in conf().ROUTING]
        return [*sorted({*known.groups(), *known.groups(external=True), *routed}), UNROUTED, SYSTEM]


class ReasonFilter(Words):
    """Jobs by the reason of their latest move."""

    title, parameter_name, column = "reason", "reason", "reason"

    def known(self) -> Iterable[str]:
        """The house's own."""
        return JOB_REASONS


class LetterReasonFilter(ReasonFilter):
    """Letters by why there is no further attempt (C24)."""

    def known(self) -> Iterable[str]:
        """The house's own."""
        return REASONS


class OutcomeFilter(Words):
    """Attempts by their end."""

    title, parameter_name, column = "outcome", "outcome", "outcome"

    def known(self) -> Iterable[str]:
        """How attempts end; `live` has not."""
        return ("live", "completed", "failed", "lapsed", "released", "interrupted", "cancelled", "paused", "superseded")

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Few live at once."""
        return self.value() == "live"

    def queryset(self, request: Any, queryset: QuerySet) -> QuerySet | None:
        """Attempts with this end."""
        return queryset.filter(ended_at=None) if self.bounded else super().queryset(request, queryset)


class KindFilter(Words):
    """Commands by kind."""

    title, parameter_name, column = "kind", "kind", "kind"

    def known(self) -> Iterable[str]:
        """The three kinds."""
        return ("steer", "follow_up", "abort")


class AnswerFilter(SimpleListFilter):
    """Letters that wait for an answer, and those that have one."""

    title, parameter_name, bounded = "answer", "answer", False

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        """Open ones first: they are work."""
        return [("open", "open"), ("requeued", "requeued"), ("discarded", "discarded")]

    def queryset(self, request: Any, queryset: QuerySet) -> QuerySet | None:
        """Letters with this answer, or without one."""
        match self.value():
            case None:
                return None
            case "open":
                return queryset.filter(resolved_at=None)
            case ("requeued" | "discarded") as answer:
                return queryset.filter(resolution=answer)
            case _:
                return queryset.none()


class _ById(SimpleListFilter):
    """Rows that belong to one row of another table."""

    bounded = False
    column = ""

    def queryset(self, request: Any, queryset: QuerySet) -> QuerySet | None:
        """Rows of it; none for what is no number."""
        value = self.value()
        if value is None:
            return None
        return queryset.filter(**{self.column: int(value)}) if _is_id(value) else queryset.none()


def _is_id(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) < 19


class WorkspaceFilter(_ById):
    """Rows of one workspace."""

    title, parameter_name, column = "workspace", "workspace", "workspace_id"

    def lookups(self, request: Any, model_admin: Any) -> Any:
        """The first so many by name."""
        return list(Workspace.objects.order_by("slug").values_list("pk", "slug")[:MOST_WORKSPACES])


class TenantFilter(_ById):
    """Rows of one tenant: offered by links from the tenant's page alone, since there may be any number of them."""

    title, parameter_name, column = "tenant", "tenant", "tenant_id"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        """The present one."""
        value = self.value()
        return [(value, f"tenant {value}")] if value is not None else []
