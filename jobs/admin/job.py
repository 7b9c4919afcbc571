"""Jobs in the admin: their list, their page, and what people may do to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join

from jobs import clock
from jobs.admin import across, finding, patience, showing
from jobs.admin.answering import refused
from jobs.admin.filters import (
    GroupFilter,
    QueueFilter,
    ReasonFilter,
    StateFilter,
    TenantFilter,
    TypeFilter,
    WorkspaceFilter,
)
from jobs.conf import registry
from jobs.errors import JobsError
from jobs.models import Artifact, Attempt, Command, DeadLetter, Job, Receipt
from jobs.models.permissions import Permission
from jobs.money import shown
from jobs.services import blockers, cancellation, erasure, operations, stages, telling
from jobs.states import HELD, State

RECEIPTS = 100
ROWS = 50


class Cancel:
    """Cancel jobs: at once, whether they wait or run (E5, case-B13)."""

    name, verb, done, permission, batch, danger = "cancel", "Cancel", "cancelled", Permission.CANCEL, 100, True
    means = "They end as cancelled at once and never start again; an attempt that runs is void and told to stop."

    def foresee(self, rows: Sequence[Job]) -> dict[Any, str]:
        """Those that have ended."""
        return {job.pk: "job_ended" for job in rows if job.ended}

    def give(self, rows: Sequence[Job], by: str, reason: str) -> list[str | None]:
        """Through the service, in one statement's order."""
        answers = cancellation.cancel_many([job.pk for job in rows], by=by, reason=reason, allow_archived=True)
        return [a.reason_code if isinstance(a, JobsError) else "cancelled_already" if a.repeated else None
                for a in answers]


class Pause:
    """Put jobs aside until somebody resumes them (B19)."""

    name, verb, done, permission, batch, danger = "pause", "Pause", "paused", Permission.PAUSE, 1, False
    means = "They are put aside until somebody resumes them; an attempt that runs is void."

    def foresee(self, rows: Sequence[Job]) -> dict[Any, str]:
        """Those that neither wait nor run."""
        able = {State.QUEUED, *HELD}
        return {job.pk: "job_ended" if job.ended else "paused_already" for job in rows if job.state not in able}

    def give(self, rows: Sequence[Job], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return [refused(lambda job=job: cancellation.pause(  # type: ignore[misc]
            job.pk, by=by, reason=reason, revision=_shown(job))) for job in rows]


class Resume:
    """Let paused jobs wait again (B19, B28)."""

    name, verb, done, permission, batch, danger = "resume", "Resume", "resumed", Permission.PAUSE, 1, False
    means = "They wait for a worker again."

    def foresee(self, rows: Sequence[Job]) -> dict[Any, str]:
        """Those that are not paused, or that nobody knows any more."""
        known = registry()
        skipped = {job.pk: "unregistered_version" for job in rows if known.find(job.type, job.version) is None}
        return skipped | {job.pk: "not_paused" for job in rows if job.state != State.PAUSED}

    def give(self, rows: Sequence[Job], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return [refused(lambda job=job: cancellation.resume(  # type: ignore[misc]
            job.pk, by=by, reason=reason, revision=_shown(job))) for job in rows]


def _shown(job: Any) -> int | None:
    """The revision that the confirmation showed, where it did (B28)."""
    revision: int | None = getattr(job, "shown_revision", None)
    return revision


class Redact:
    """Empty what ended jobs say, for good (E13)."""

    name, verb, done, permission, batch, danger = "redact", "Redact", "redacted", Permission.ERASE, 100, True
    means = ("Input, artifact, checkpoint, subject, keys, target, commands, error messages and log lines are emptied "
             "for good. State and receipts stay, and with them what people gave as reasons.")

    def foresee(self, rows: Sequence[Job]) -> dict[Any, str]:
        """Those that have not ended, and those that say nothing any more."""
        done = erasure.redacted([job.pk for job in rows])
        return {job.pk: "redacted_already" if job.pk in done else "job_active" for job in rows
                if job.pk in done or not job.ended}

    def give(self, rows: Sequence[Job], by: str, reason: str) -> list[str | None]:
        """Through the service, in one statement's order."""
        answers = erasure.redact_many([job.pk for job in rows], by=by, reason=reason)
        return [a.reason_code if isinstance(a, JobsError) else "redacted_already" if a.repeated else None
                for a in answers]


class Told(NamedTuple):
    """A receipt, told."""

    number: int
    kind: str
    at: datetime
    said: str


@admin.register(Job)
class JobAdmin(across.AcrossAdmin):
    """Jobs and their history."""

    answers = (Cancel(), Pause(), Resume(), Redact())
    meant, swept = staticmethod(across.jobs), tuple(operations.JOB_VERBS)
    dated = "pk"
    heavy = ("input", "input_hash", "fingerprint", "normal_hash", "checkpoint", "checkpoint_hash", "head", "progress")
    list_display = ("shown_id", "shown_state", "shown_type", "shown_tenant", "place", "attempt_count", "age", "reason")
    list_filter = (StateFilter, TypeFilter, QueueFilter, GroupFilter, ReasonFilter, WorkspaceFilter, TenantFilter)
    list_select_related = ("tenant",)
    search_fields = ("pk",)
    search_help_text = finding.HELP
    change_form_template = "admin/jobs/job/change_form.html"

    # --- the list ---------------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> Any:
        """With the moment, for ages."""
        return super().get_queryset(request).select_related("tenant", "workspace", "target").annotate(now=clock.Now())

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Exact and by indexes."""
        return (queryset.filter(pk__in=finding.jobs(search_term)) if search_term else queryset), False

    @admin.display(description="id")
    def shown_id(self, job: Job) -> str:
        """The end of it, where ids differ."""
        return str(job.pk)[-12:]

    @admin.display(description="state")
    def shown_state(self, job: Job) -> Any:
        """As a badge."""
        return showing.badge(job.state)

    @admin.display(description="type")
    def shown_type(self, job: Job) -> str:
        """With its version."""
        return f"{job.type}@{job.version}"

    @admin.display(description="tenant")
    def shown_tenant(self, job: Job) -> str:
        """Whose it is."""
        return job.tenant.subject or showing.NOTHING

    @admin.display(description="queue, group")
    def place(self, job: Job) -> str:
        """Where it waits."""
        return f"{job.queue}, {job.worker_group}"

    @admin.display(description="attempts")
    def attempt_count(self, job: Job) -> str:
        """Of so many."""
        return f"{job.attempt_count}/{job.max_attempts}" if job.max_attempts else str(job.attempt_count)

    @admin.display(description="age")
    def age(self, job: Any) -> str:
        """Since it was made."""
        return showing.length((job.now - job.created_at).total_seconds())

    # --- the page ---------------------------------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Payloads only for whoever may view them."""
        found: list[Any] = [
            (None, {"fields": ("id", "shown_state", "why", "reason", "shown_progress")}),
            ("What it is", {"fields": ("shown_type", "workspace", "tenant", "queue", "worker_group", "agent", "origin",
                                       "priority", "subject")}),
            ("Keys", {"fields": ("external_id", "idempotency_key", "session_key", "singleton", "exclusive_group",
                                 "target", "generation")}),
            ("When", {"fields": ("created_at", "available_at", "started_at", "chain_started_at", "deadline_at",
                                 "ended_at", "cancelled_at")}),
            ("Policy", {"fields": ("max_attempts", "delays", "retry_on", "lapse_counts", "max_lapses", "max_claims",
                                   "dead_letter", "lease", "timeout", "max_duration", "strict_lease", "credential",
                                   "shown_cost")}),
            ("Counters", {"fields": ("chain", "counters", "abort_reason", "gate", "revision", "number"),
                          "classes": ("collapse",)})]
        if self.may(request, Permission.VIEW_PAYLOAD):
            found.insert(2, ("Payload", {"fields": ("shown_input", "shown_artifact", "shown_checkpoint")}))
        return found

    @admin.display(description="why not running")
    def why(self, job: Job) -> str:
        """Every reason for which it does not run, the first one first (DESIGN 7.1)."""
        try:
            with patience.within(patience.SECTION_MS):
                found = blockers.all_of(blockers.Asked(job, job.now))  # type: ignore[attr-defined]
        except patience.OutOfPatience:
            return "The database takes too long to say."
        return format_html_join("", "<p>{} <code>{}</code></p>", ((one.said, one.code) for one in found))

    @admin.display(description="progress")
    def shown_progress(self, job: Job) -> str:
        """The latest stage."""
        told = stages.latest(job)
        return f"{told.get('stage')} {told.get('event')}" if told else showing.NOTHING

    @admin.display(description="input")
    def shown_input(self, job: Job) -> Any:
        """Redacted and cut."""
        return showing.payload(job.input)

    @admin.display(description="artifact")
    def shown_artifact(self, job: Job) -> Any:
        """Redacted and cut."""
        return showing.payload(Artifact.objects.filter(job_id=job.pk).values_list("value", flat=True).first())

    @admin.display(description="checkpoint")
    def shown_checkpoint(self, job: Job) -> Any:
        """Redacted and cut."""
        return showing.payload(job.checkpoint)

    @admin.display(description="retry delays")
    def delays(self, job: Job) -> str:
        """From, doubling to."""
        return f"{showing.milliseconds(job.base_delay_ms)} to {showing.milliseconds(job.max_delay_ms)}"

    @admin.display(description="cost, and the most")
    def shown_cost(self, job: Job) -> str:
        """What its attempts have reported, in US dollars, and what it may cost."""
        return f"{shown(job.cost_usd) or 'nothing said'}, {shown(job.max_cost_usd) or 'no maximum'}"

    @admin.display(description="lease")
    def lease(self, job: Job) -> str:
        """How long a silent holder is believed."""
        return showing.milliseconds(job.lease_ms)

    @admin.display(description="time-out of an attempt")
    def timeout(self, job: Job) -> str:
        """How long an attempt may run."""
        return showing.milliseconds(job.timeout_ms)

    @admin.display(description="longest duration")
    def max_duration(self, job: Job) -> str:
        """Of an attempt or of the chain."""
        return f"{showing.milliseconds(job.max_duration_ms)} of the {job.duration_scope}" if job.max_duration_ms \
            else showing.NOTHING

    @admin.display(description="counted")
    def counters(self, job: Job) -> str:
        """All of them."""
        return (f"{job.claims} claims ever, {job.chain_claims} of this chain; {job.failures} failures, {job.lapses} "
                f"lapses, {job.releases} releases, {job.interruptions} interruptions, {job.pauses} pauses")

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """With the job's history."""
        job = kwargs.get("obj")
        if job is not None:
            context |= {"console_url": showing.console(job.pk), "receipts_shown": RECEIPTS, **_history(job)}
        return super().render_change_form(request, context, *args, **kwargs)


def _history(job: Job) -> dict[str, Any]:
    """The newest of everything that belongs to the job."""
    try:
        with patience.within(patience.LIST_MS):
            attempts = list(Attempt.objects.filter(job_id=job.pk).select_related("worker", "key")
                            .order_by("-number")[:ROWS])
            numbers = {str(attempt.pk): attempt.number for attempt in attempts}
            written = Receipt.objects.filter(job_id=job.pk).order_by("-number")[:RECEIPTS]
            told = [Told(r.number, r.kind, r.at, _told(r, numbers)) for r in written]
            return {"attempts": [(attempt, _holder(attempt)) for attempt in attempts], "receipts": told,
                    "letters": list(DeadLetter.objects.filter(job_id=job.pk).order_by("-chain")[:ROWS]),
                    "commands": list(Command.objects.filter(job_id=job.pk).defer("payload")
                                     .order_by("-created_at")[:ROWS])}
    except patience.OutOfPatience:
        return {"history_too_slow": True}


def _told(receipt: Receipt, numbers: dict[str, int]) -> str:
    tell: Callable[[str, Any, dict[str, int]], str] = telling.tell
    return tell(receipt.kind, json.loads(receipt.body), numbers)


def _holder(attempt: Attempt) -> str:
    # Not explain.holder, which asks once a row.
    if attempt.worker_id is not None:
        return f"worker {attempt.worker.name}" if attempt.worker else f"worker {attempt.worker_id}"
    return f"runner {attempt.key}" if attempt.key_id is not None and attempt.key else showing.NOTHING
