"""Tell the story of a job from its receipts, and why it does not run now."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs.management.operating import named, one_line
from jobs.models import Attempt
from jobs.services import explain
from jobs.services.explain import Story
from jobs.services.telling import span

LOG_LINES = 20
LOG_COLUMNS = 200


class Command(BaseCommand):
    """`manage.py explain ID`."""

    help = "Tell what happened to a job, and why it does not run now."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which job, and how."""
        parser.add_argument("id", help="the job's id, or a job_id of the caller's")
        parser.add_argument("--workspace", help="where to look for a job_id; default: the site's own")
        parser.add_argument("--tenant", help="where to look for a job_id; default: no tenant")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find and tell; a refusal is one line."""
        with one_line():
            story = explain.story(named(options, options["id"]))
        if options["json"]:
            self.stdout.write(json.dumps(explain.as_json(story), ensure_ascii=False))
            return
        for line in _lines(story):
            self.stdout.write(line)


def _lines(story: Story) -> list[str]:
    job = story.job
    status = job.state if job.reason is None else f"{job.state} ({job.reason})"
    lines = [f"{job.type}@{job.version}  {job.pk}" + (f"  job_id {job.external_id}" if job.external_id else ""),
             f"{status}; queue {job.queue}, group {job.worker_group}, priority {job.priority}, {job.claims} claimed,"
             f" {job.failures} failed", *([] if story.fired is None else [f"made by {story.fired.said}"]), ""]
    lines += [f"{step.number:>4}  {_moment(step.at)}  {_since(step.at, job.created_at)}  {step.said}"
              for step in story.steps]
    lines.append("")
    lines += [_attempt(attempt) for attempt in story.attempts]
    lines += _log(story)
    lines.append("chain of receipts: ok" if story.broken is None else f"chain of receipts: BROKEN, {story.broken}")
    first, *others = story.blockers
    lines.append(f"{'not running' if story.reason else 'now'}: {first.said} [{first.code}]")
    lines += [f"        also: {other.said} [{other.code}]" for other in others]
    return lines


def _log(story: Story) -> list[str]:
    """The end of what its latest attempt logged, with nothing in it that a terminal would obey."""
    if story.log is None:
        return []
    kept = story.log.lines.split("\n")
    left_out = story.log.dropped + max(0, len(kept) - LOG_LINES)
    head = f"log of attempt {story.log.attempt.number}" + (f", {left_out} earlier lines left out:" if left_out else ":")
    return [head, *(f"    {_shown(line[:LOG_COLUMNS])}" for line in kept[-LOG_LINES:])]


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def _since(at: datetime, start: datetime) -> str:
    return f"+{span(max(0.0, (at - start).total_seconds())):>8}"


def _attempt(attempt: Attempt) -> str:
    until = attempt.ended_at or attempt.leased_at
    end = f"{attempt.outcome} after {span((until - attempt.leased_at).total_seconds())}" if attempt.outcome else "live"
    error = f", {attempt.reason_code}" if attempt.reason_code else ""
    message = f": {' '.join(attempt.message.split())[:200]}" if attempt.message else ""
    return f"attempt {attempt.number} (chain {attempt.chain}) by {explain.holder(attempt)}: {end}{error}{message}"
