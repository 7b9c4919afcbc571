"""Shapes of timers on pages: what became of a moment, and moments as a calendar says them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()
OUTCOMES: Final = {"enqueued": ("enqueued", "good"), "overlapped": ("skipped: one was active", "warn"),
                   "missed": ("missed", "warn"), "refused": ("refused", "bad")}


@register.simple_tag
def outcome(word: str) -> SafeString:
    """What became of a moment, as a badge."""
    said, kind = OUTCOMES.get(word, (word, ""))
    return format_html('<span class="badge {}">{}</span>', kind, said)


@register.filter
def local(moment: datetime) -> str:
    """A moment in its own zone: `Mon 2030-01-31 12:00:00`, with its offset where that is not UTC's."""
    offset = moment.strftime("%z")
    told = "" if offset == "+0000" else f" {offset[:3]}:{offset[3:5]}"
    return f"{moment:%a %Y-%m-%d %H:%M:%S}{told}"
