"""Lanes in the admin: where each stands, its receipts and what its jobs are doing; moved by its conductors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import F
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from jobs.admin import finding, showing
from jobs.admin.filters import Words, WorkspaceFilter
from lanes import selectors, standstill, watchdog
from lanes.admin.base import LanesAdmin, Verb, shown
from lanes.axes import STATES, Axis, possible
from lanes.models import Lane, LaneJob, LaneReceipt
from lanes.services import lanes

# Of a lane's, on its own page.
RECEIPTS, JOBS = 200, 20
# Of an axis's states the colours that jobs have for the like.
_COLOURS = {"open": "queued", "in_progress": "running", "done": "completed", "submitted": "running",
            "approved": "completed", "changes_requested": "paused", "merged": "completed", "conflicted": "failed",
            "abandoned": "cancelled", "none": "cancelled"}


class _Move(Verb):
    """One verb of one axis."""

    def __init__(self, axis: Axis, word: str, verb: str, done: str, means: str, *, danger: bool = False) -> None:
        self.axis, self.word, self.name, self.danger = axis, word, word.replace("_", "-"), danger
        self.verb, self.done = verb, done
        self.means = f"{means} It takes a conductor of their workspace."

    def foresee(self, rows: Sequence[Lane]) -> dict[Any, str]:
        """Those from where it does not lead on."""
        return {row.pk: "lane_ended" if row.ended_at else "lane_move_refused" for row in rows
                if self.word not in possible(row.standing, self.axis)}

    def verb_of(self, row: Lane) -> Callable[..., object]:
        """Through the service, at the version that was shown."""
        verb = {Axis.EXECUTION: lanes.set_state, Axis.REVIEW: lanes.review, Axis.MERGE: lanes.merge}[self.axis]
        return partial(verb, row.pk, self.word, version=shown(row))


class ExecutionFilter(Words):
    """Lanes by how far the work is."""

    title, parameter_name, column = "execution", "execution", "execution"

    def known(self) -> Iterable[str]:
        """All of them."""
        return STATES[Axis.EXECUTION]


class ReviewFilter(Words):
    """Lanes by what has been agreed."""

    title, parameter_name, column = "review", "review", "review"

    def known(self) -> Iterable[str]:
        """All of them."""
        return STATES[Axis.REVIEW]


class QuorumFilter(Words):
    """Lanes of one quorum: offered by links from its page alone."""

    title, parameter_name, column, bounded = "quorum", "quorum", "quorum_id", True

    def known(self) -> Iterable[str]:
        """None."""
        return ()

    def queryset(self, request: Any, queryset: Any) -> Any:
        """What can be no id names no quorum."""
        value = self.value()
        return None if value is None else queryset.filter(quorum_id=finding.as_uuid(value))


@admin.register(Lane)
class LaneAdmin(LanesAdmin):
    """Streams of work. A merge that went in is recorded where its commit can be said: on the board and by the API."""

    answers = (
        _Move(Axis.EXECUTION, "in_progress", "Start", "started", "The work is under way."),
        _Move(Axis.EXECUTION, "done", "Finish", "done", "The work is done. Review and merge stay as they are."),
        _Move(Axis.EXECUTION, "failed", "Fail", "failed", "The lane ends: nothing of it changes any more.",
              danger=True),
        _Move(Axis.EXECUTION, "cancelled", "Cancel", "cancelled",
              "The lane ends: nothing of it changes any more. Its jobs go on.", danger=True),
        _Move(Axis.REVIEW, "approve", "Approve", "approved", "What was submitted is agreed to."),
        _Move(Axis.REVIEW, "request_changes", "Request changes", "sent back", "The assignee submits again."),
        _Move(Axis.MERGE, "conflicted", "Record a conflict", "conflicted", "The branch could not be merged for now."),
        _Move(Axis.MERGE, "abandoned", "Record as abandoned", "abandoned", "Nobody will merge the branch.",
              danger=True),
    )
    list_display = ("name", "quorum", "workspace", "shown_execution", "shown_review", "shown_merge", "assignee",
                    "branch", "version")
    list_filter = (ExecutionFilter, ReviewFilter, QuorumFilter, WorkspaceFilter)
    list_select_related = ("quorum", "workspace")
    heavy = ("reconcile_input",)
    search_fields = ("pk",)
    search_help_text = "Exactly: the id of a lane, or its name."
    fieldsets = (
        (None, {"fields": ("id", "name", "title", "quorum", "workspace", "branch", "task", "assignee", "by",
                           "created_at")}),
        ("Where it stands", {"fields": ("shown_execution", "shown_review", "shown_merge", "commit", "version",
                                        "moved_at", "ended_at")}),
        ("What it depends on", {"fields": ("shown_dependencies",)}),
        ("Its jobs", {"fields": ("shown_work", "shown_standstill", "shown_jobs", "reconcile_type",
                                 "shown_reconcile")}),
        ("What happened", {"fields": ("shown_receipts",)}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        """With what it belongs to; its version is what confirmations remember."""
        rows = super().get_queryset(request).select_related("quorum", "workspace")
        return rows.annotate(revision=F("version"))

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Exact."""
        word = search_term.strip()
        if not word or not word.isprintable():
            return queryset, False
        id_ = finding.as_uuid(word)
        return (queryset.filter(name=word) if id_ is None else queryset.filter(pk=id_)), False

    @admin.display(description="execution")
    def shown_execution(self, lane: Lane) -> Any:
        """As a badge."""
        return showing.badge(lane.execution, _COLOURS.get(lane.execution, ""))

    @admin.display(description="review")
    def shown_review(self, lane: Lane) -> Any:
        """As a badge."""
        return showing.badge(lane.review, _COLOURS.get(lane.review, ""))

    @admin.display(description="merge")
    def shown_merge(self, lane: Lane) -> Any:
        """As a badge."""
        return showing.badge(lane.merge, _COLOURS.get(lane.merge, ""))

    @admin.display(description="depends on")
    def shown_dependencies(self, lane: Lane) -> Any:
        """With how far each is."""
        on = Lane.objects.filter(dependents__lane=lane).order_by("name")
        told = ((reverse("admin:lanes_lane_change", args=[other.pk]), other.name, other.execution) for other in on)
        return format_html_join(", ", '<a href="{}">{}</a> ({})', told) or showing.NOTHING

    @admin.display(description="they are")
    def shown_work(self, lane: Lane) -> str:
        """How many in which state."""
        work = selectors.work([lane.pk])[lane.pk]
        told = [f"{n:,} {state}" for state, n in sorted(work.counts.items())]
        told += [f"{work.dead_letters:,} open dead letter{'s' * (work.dead_letters != 1)}"] if work.dead_letters else []
        told += [f"{work.gone:,} gone"] if work.gone else []
        told += ["of the newest ones"] if work.capped else []
        return ", ".join(told) or showing.NOTHING

    @admin.display(description="stands still")
    def shown_standstill(self, lane: Lane) -> Any:
        """Why, since when, and which job looks into it, as the watchdog sees it now (A49)."""
        found = watchdog.standstills([lane.pk]).get(lane.pk)
        if found is None:
            return showing.NOTHING
        job = format_html("job {}", showing.job(found.job_id)) if found.job_id else "no job"
        since = f"{found.since:%Y-%m-%d %H:%M:%S}"
        return format_html("{} since {}: {} looks into it", standstill.WORDS[found.cause], since, job)

    @admin.display(description="newest")
    def shown_jobs(self, lane: Lane) -> Any:
        """The newest of them; some may be gone."""
        ids = LaneJob.objects.filter(lane=lane).order_by("-job_id").values_list("job_id", flat=True)[:JOBS]
        return format_html_join(" ", "{}", ((showing.job(id_),) for id_ in ids)) or showing.NOTHING

    @admin.display(description="reconciled with")
    def shown_reconcile(self, lane: Lane) -> Any:
        """Redacted and cut."""
        return showing.payload(lane.reconcile_input)

    @admin.display(description="receipts")
    def shown_receipts(self, lane: Lane) -> Any:
        """The newest first."""
        found = LaneReceipt.objects.filter(lane=lane).order_by("-number")[:RECEIPTS]
        lines = ((one.number, f"{one.at:%Y-%m-%d %H:%M:%S}", _told(one), ": ".join(filter(None, (one.by, one.reason))))
                 for one in found)
        head = format_html("<tr>{}</tr>", format_html_join("", "<th>{}</th>", (
            (word,) for word in ("number", "at", "what", "by, and why"))))
        rows = format_html_join("", '<tr><td>{}</td><td class="nowrap">{}</td><td>{}</td><td>{}</td></tr>', lines)
        return format_html('<div class="jobs-scroll"><table class="jobs-table">{}{}</table></div>', head, rows)


def _told(receipt: LaneReceipt) -> Any:
    if receipt.kind == "job":
        return format_html("job {}", showing.job(receipt.after))
    before = f"{receipt.before} \N{RIGHTWARDS ARROW} " if receipt.before else ""
    commit = f" ({receipt.commit})" if receipt.commit else ""
    return f"{receipt.kind}: {before}{receipt.after or showing.NOTHING}{commit}"
