"""Small shapes of the pages about dead letters."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

BULK_WORDS = {
    "gathering": ("gathers what is meant", "busy"),
    "running": ("under way", "busy"), "waiting": ("waits for the first", "busy"), "alone": ("nobody is at it", "warn"),
    "finished": ("finished", "good"), "stopped": ("stopped", "warn"), "canary_failed": ("stopped itself", "bad"),
    "too_many_failed": ("stopped itself", "bad"),
}
SKIP_REASONS = {
    "target_superseded": "a newer request for the same target has taken its place",
    "tenant_archived": "its tenant is archived", "input_redacted": "its input was redacted",
    "unregistered_version": "its version is not registered any more",
    "not_dead_lettered": "answered by somebody else meanwhile",
    "already_cancelled": "cancelled by somebody else meanwhile", "job_ended": "it has ended meanwhile",
    "already_paused": "paused by somebody else meanwhile", "not_paused": "resumed by somebody else meanwhile",
    "job_not_found": "it was erased meanwhile", "rate_limited": "its tenant has requeued as much as it may for now",
    "locked": "somebody else held the job for too long", "broken": "the database or a hook of the site refused it",
}


@register.simple_tag
def bulk_word(word: str) -> SafeString:
    """How a bulk operation stands, as a badge."""
    said, tone = BULK_WORDS.get(word, (word, ""))
    return format_html('<span class="badge {}">{}</span>', tone, said)


@register.simple_tag
def skip_reason(code: str) -> str:
    """Why jobs or letters were left alone, in words."""
    return SKIP_REASONS.get(code, "it was refused")


@register.simple_tag
def cluster_query(chosen: Any, name: str, **more: str) -> str:
    """The query of a cluster's letters under a filter."""
    query: str = chosen.but(cluster=name or "none", **more)
    return query


@register.filter
def last_line(message: str) -> str:
    """The line of a message that says most: of a traceback the exception."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback (most recent") else lines[0]
