"""One job: where it stands and why, what happened to it, what went in and came out."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from jobs import sightings
from jobs.conf import conf, registry
from jobs.models import Attempt, AttemptLog
from jobs.models import Job as Row
from jobs.models.permissions import Permission
from jobs.pages import callbacks, payload
from jobs.pages.access import Page
from jobs.pages.acting import possible
from jobs.pages.drawing import Drawing, drawing
from jobs.selectors import TooSlow
from jobs.services import explain, stages
from jobs.services.blockers import Asked
from jobs.services.timeline import Timeline, timeline
from jobs.states import HELD

ATTEMPTS, LOGS = 50, 5
LOG_SHOWN = 16 * 1024
MESSAGE_SHOWN = 160
LETTERS, COMMANDS = 10, 20


class Job(Page):
    """`/jobs/<uuid>/`; `?from=51` shows receipts from there on."""

    template_name = "jobs/job.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page; a page that says so for a job that is not there (any more)."""
        pk: UUID = kwargs["pk"]
        job = sightings.job(pk)
        self.live = f"/live/jobs/{pk}/"
        if job is None:
            self.live = None
            context = self.get_context_data(id=pk, kept=conf().RETENTION_S)
            return render(request, "jobs/gone.html", context, status=404)
        begin = _number(request.GET.get("from", ""))
        context = self.get_context_data()
        return self.render_to_response({**context, **self._told(job, begin, context["now"])})

    def _told(self, job: Row, begin: int | None, now: datetime) -> dict[str, Any]:
        history = timeline(job, begin)
        letters = sightings.letters(job, LETTERS)
        attempts = sightings.attempts(job, ATTEMPTS)
        user = self.request.user
        seen: bool = user.has_perm(Permission.VIEW_PAYLOAD.label)
        return {
            "job": job, "history": history, "drawing": picture(job, history),
            "actions": possible(user, job, any(letter.resolved_at is None for letter in letters)),
            **reasons(job, now), "members": sightings.members(job),
            "attempts": held(attempts, now), "attempts_left_out": max(0, job.claims - len(attempts)),
            "letters": letters, **callbacks.shown(job),
            "answered": [letter for letter in letters if letter.resolved_at is not None],
            "commands": sightings.commands(job, COMMANDS), "stages": staged(job),
            "payloads": payloads(job) if seen else [], "can_see": seen,
            "policy": policy(job), "counters": counters(job),
            "fired": sightings.fired(job),
            "due_later": job.state == "queued" and job.available_at > now,
            "current": job.target is None or job.target.generation == job.generation}


def reasons(job: Row, now: datetime) -> dict[str, Any]:
    """Why a job that waits does not run, the first reason first, and where it stands (DESIGN 7.1, C5, C6)."""
    if job.ended or job.state in HELD:
        return {}
    asked = Asked(job, now)
    try:
        found = explain.reasons(asked)
    except TooSlow:
        return {"reason_too_slow": True}
    # Its place is told below them all.
    others = [one for one in found[1:] if one.code != "waiting_for_turn"]
    return {"reason": found[0], "others": others, "stands": asked.stands}


def _number(said: str) -> int | None:
    return max(1, int(said)) if said.isascii() and said.isdigit() and len(said) < 10 else None


def picture(job: Row, history: Timeline) -> Drawing:
    """The moves that the shown receipts tell of."""
    return drawing(job.state, [[step.to for step in part.steps if step.to] for part in history.parts])


class Held(NamedTuple):
    """An attempt as the page shows it; lengths of time in seconds, never below 0."""

    row: Attempt
    holder: str
    waited_s: float | None
    ran_s: float
    log: AttemptLog | None
    lines: str
    lines_cut: bool
    long: bool


def held(attempts: list[Attempt], now: datetime) -> list[Held]:
    """Attempts with their holders and, of the latest, the ends of their logs."""
    kept = sightings.logs(attempts[-LOGS:])
    return [_held(attempt, now, kept.get(attempt.pk)) for attempt in attempts]


def _held(attempt: Attempt, now: datetime, log: AttemptLog | None) -> Held:
    ran = ((attempt.ended_at or now) - attempt.leased_at).total_seconds()
    waited = None if attempt.started_at is None else (attempt.started_at - attempt.leased_at).total_seconds()
    lines = log.lines if log else ""
    return Held(attempt, explain.holder(attempt), waited, max(0.0, ran), log, lines[-LOG_SHOWN:],
                len(lines) > LOG_SHOWN, len(attempt.message or "") > MESSAGE_SHOWN)


def staged(job: Row) -> list[tuple[str, str]]:
    """Each stage that the definition declares, by its label, with the latest event of it (B30, B31)."""
    events = {entry.stage: entry.event for entry in stages.entries(job)}
    definition = registry().find(job.type, job.version)
    labels = dict(definition.stages or {}) if definition is not None else {}
    return [(label, events.pop(name, "")) for name, label in labels.items()] + list(events.items())


def counters(job: Row) -> list[tuple[str, int]]:
    """How the attempts of the present chain ended, as far as any did so."""
    ends = (("failed", job.failures), ("lapsed", job.lapses), ("released", job.releases),
            ("interrupted", job.interruptions), ("paused", job.pauses))
    return [(word, n) for word, n in ends if n]


def policy(job: Row) -> dict[str, float | None]:
    """The spans of a job in seconds."""
    return {name: None if ms is None else ms / 1_000 for name, ms in (
        ("base", job.base_delay_ms), ("most", job.max_delay_ms), ("lease", job.lease_ms), ("timeout", job.timeout_ms),
        ("duration", job.max_duration_ms), ("deadline", job.deadline_ms))}


def payloads(job: Row) -> list[payload.Shown]:
    """Input, artifact and checkpoint, as far as there are any."""
    sizes: list[tuple[str, str, int | None]] = [
        ("input", "Input", job.input_size),  # type: ignore[attr-defined]
        ("artifact", "Artifact", job.artifact_size),  # type: ignore[attr-defined]
        ("checkpoint", "Checkpoint", job.checkpoint_size)]  # type: ignore[attr-defined]
    return [found for name, label, size in sizes if (found := payload.shown(job.pk, name, label, size)) is not None]
