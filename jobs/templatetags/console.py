"""Small shapes that every page shares: moments, lengths of time, states, ids."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.money import shown
from jobs.pages import navigation

register = template.Library()


@register.simple_tag(takes_context=True)
def ago(context: template.Context, moment: datetime | None) -> SafeString | str:
    """A moment as people say it, the exact one on hover: `3 min ago`, `in 2 h`. Nothing: a dash."""
    if moment is None:
        return "\N{EN DASH}"
    now = context["now"]
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(),
                       moment.strftime("%Y-%m-%d %H:%M:%S.%f UTC"), relative((now - moment).total_seconds()))


def relative(passed: float) -> str:
    """Seconds that have passed (negative: that are left) in people's words."""
    if abs(passed) < 1:
        return "just now"
    return f"{lasting(passed)} ago" if passed > 0 else f"in {lasting(-passed)}"


@register.filter
def lasting(seconds: float | None) -> str:
    """A length of time in the one unit that says most: `340 ms`, `12 s`, `3 min`, `5 h`, `2 d`."""
    if seconds is None:
        return "\N{EN DASH}"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and unit == "min"):
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


@register.filter
def count(number: int | None) -> str:
    """A number with its thousands apart."""
    return "\N{EN DASH}" if number is None else f"{number:,}"


@register.filter
def dollars(amount: Decimal | None) -> str:
    """US dollars, as exact as they are."""
    return "\N{EN DASH}" if amount is None else f"${shown(amount)}"


@register.simple_tag
def state(name: str) -> SafeString:
    """A state as a badge: a word with a colour, never a colour alone."""
    return format_html('<span class="state state-{}">{}</span>', name, name)


@register.simple_tag
def job_link(pk: Any) -> SafeString:
    """A job by the end of its id, where ids differ; the whole one on hover."""
    return format_html('<a class="id" href="{}" title="{}">{}</a>', reverse("console:job", args=[pk]), pk,
                       str(pk)[-12:])


@register.simple_tag(takes_context=True)
def places(context: template.Context) -> list[navigation.Place]:
    """The places of the console that the reader may see, the present one marked."""
    request = context["request"]
    return navigation.places(request.user, request.path)
