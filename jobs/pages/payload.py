"""What went into a job and came out of it: for those who may see it, with secrets left out, as text or as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse

from jobs import codecs, sightings
from jobs.errors import Invalid
from jobs.models.permissions import Permission
from jobs.pages.access import Page
from jobs.redaction import REDACTED, restored, whole

SHOWN = 64 * 1024
# Beyond this a page that moves does not read it at all.
READ = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload on a page. `text` is None where it is too large to be read each time, or was redacted for good."""

    name: str
    label: str
    size: int
    text: str | None = None
    cut: bool = False


def shown(pk: UUID, name: str, label: str, size: int | None) -> Shown | None:
    """One of a job's payloads as a page shows it; None where there is none."""
    if size is None:
        return None
    if not 0 < size <= READ:
        return Shown(name, label, size)
    text = pretty(sightings.payload(pk, name) or "")
    return Shown(name, label, size, text[:SHOWN], len(text) > SHOWN)


def pretty(text: str) -> str:
    """Stored JSON for people, every secret in it left out by its name (A64)."""
    try:
        value = whole(json.loads(text))
    except (ValueError, RecursionError):
        return "(it cannot be read as JSON)"
    return json.dumps(value, indent=2, ensure_ascii=False)


def edited(text: str, stored: str | None) -> Any:
    """The JSON that somebody means who saw `stored` without its secrets. Raises Invalid."""
    said = codecs.parse(text, max_bytes=codecs.MAX_PAYLOAD_BYTES)
    try:
        kept = json.loads(stored or "null")
    except ValueError:
        kept = None
    try:
        return restored(said, kept)
    except ValueError:
        raise Invalid(f"Write out each {REDACTED} that is new, or has moved: what it stands for is not known.",
                      field="input", code="left_out") from None


class Download(Page):
    """`/jobs/<uuid>/input`, `/artifact` and `/checkpoint`: the whole of it as a file."""

    permission_required = (Permission.VIEW.label, Permission.VIEW_PAYLOAD.label)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The file."""
        pk, name = kwargs["pk"], kwargs["name"]
        text = sightings.payload(pk, name)
        if not text:
            raise Http404
        return attached(pretty(text), f"{pk}-{name}.json", "application/json")


class Log(Page):
    """`/jobs/<uuid>/log/<number>`: every line that an attempt left."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The file."""
        log = sightings.log_of(kwargs["pk"], kwargs["number"])
        if log is None:
            raise Http404
        return attached(log.lines, f"{kwargs['pk']}-attempt-{kwargs['number']}.log", "text/plain")


def attached(text: str, name: str, kind: str) -> HttpResponse:
    """A file that no browser takes for a page."""
    return HttpResponse(text, content_type=f"{kind}; charset=utf-8", headers={
        "Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox"})
