"""How values look in the admin: badges, links, spans, payloads. Everything is escaped; nothing is marked safe."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobs.redaction import whole
from jobs.services.telling import span

NOTHING = "\N{EN DASH}"
PAYLOAD_LIMIT = 64 * 1024


def badge(word: str | None, kind: str = "") -> SafeString | str:
    """A word with a colour; the word says it all by itself."""
    return format_html('<span class="state state-{}">{}</span>', kind or word, word) if word else NOTHING


def to(model: str, pk: Any, said: Any) -> SafeString | str:
    """A link to a row's page in the admin."""
    if pk is None:
        return NOTHING
    return format_html('<a href="{}">{}</a>', reverse(f"admin:jobs_{model}_change", args=[quote(pk)]), said)


def job(pk: Any) -> SafeString | str:
    """A link to a job by the end of its id, where ids differ; the whole one on hover."""
    if pk is None:
        return NOTHING
    return format_html('<a class="id" href="{}" title="{}">{}</a>', reverse("admin:jobs_job_change", args=[pk]), pk,
                       str(pk)[-12:])


def console(pk: Any, page: str = "job") -> str | None:
    """The address of a job's page in the console (or that of another row), where the site has one."""
    try:
        return reverse(f"console:{page}", args=[pk])
    except NoReverseMatch:
        return None


def words(values: Any) -> SafeString | str:
    """A list of words."""
    return format_html_join(" ", "<code>{}</code>", ((v,) for v in values)) if values else NOTHING


def length(seconds: float) -> str:
    """How long ago something was, in the one unit that says most."""
    return f"{seconds / 86_400:.0f} d" if seconds >= 2 * 86_400 else span(max(0.0, seconds))


def milliseconds(value: int | None) -> str:
    """A span that is stored in milliseconds."""
    return NOTHING if value is None else span(value / 1_000)


def payload(text: str | None) -> SafeString | str:
    """A stored JSON text for reading: secrets by their names left out (A64), cut at 64 Ki characters."""
    if not text:
        return NOTHING if text is None else "(erased)"
    return format_html('<pre class="payload">{}</pre>', readable(text))


def lines(text: str) -> SafeString:
    """Text as it was written."""
    return format_html('<pre class="payload">{}</pre>', text[:PAYLOAD_LIMIT])


def readable(text: str) -> str:
    """The same as plain text. What is no JSON is not shown: nothing could be redacted in it."""
    try:
        shown = json.dumps(whole(json.loads(text)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(not readable as JSON)"
    left = len(shown) - PAYLOAD_LIMIT
    return shown if left <= 0 else f"{shown[:PAYLOAD_LIMIT]}\n... ({left:,} more characters)"
