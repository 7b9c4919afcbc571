"""Small shapes of lanes' pages: states as words and badges."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.states import HELD, State
from lanes.axes import Axis
from lanes.pages import tracks

register = template.Library()


@register.simple_tag
def axis(name: str, state: str) -> SafeString:
    """Where a lane stands on one axis, as a badge: its word, and the axis for who does not see it."""
    return format_html('<span class="badge axis-{}"><span class="hidden-words">{} </span>{}</span>', state,
                       Axis(name).value, tracks.words(state))


@register.filter
def words(state: Any) -> str:
    """A state as people read it."""
    return tracks.words(str(state))


@register.filter
def by_state(work: Any) -> list[tuple[str, int]]:
    """How many jobs of a lane are in each state, those under way first, then as a job goes."""
    order = [*sorted(HELD), *(state for state in State if state not in HELD)]
    return [(state.value, work.counts[state.value]) for state in order if work.counts.get(state.value)]
