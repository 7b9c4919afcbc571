"""The first page: what waits, runs, settles and stands still."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.shortcuts import redirect
from django.urls import reverse

from jobs.pages import navigation
from jobs.pages.access import Page
from jobs.pages.sparkline import Sparkline, sparkline
from jobs.selectors import TooSlow
from jobs.services import timetable
from jobs.services.overview import Line, look
from jobs.states import HELD

TOLD = 3


class Row(NamedTuple):
    """One worker group and queue, as the table shows it. Links lead into the list of jobs."""

    line: Line
    drawing: Sparkline
    waiting_url: str
    running_url: str
    last_minute: int


class Overview(Page):
    """The site at a glance."""

    template_name = "jobs/overview.html"

    def handle_no_permission(self) -> Any:
        """This is where a login leads: whoever has places, and this is none of them, goes to the first."""
        others = navigation.places(self.request.user, self.request.path)
        return redirect(others[0].url) if others else super().handle_no_permission()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The figures, or the word that the database takes too long for them."""
        try:
            seen, refused = look(), timetable.refused()
        except TooSlow:
            return super().get_context_data(too_slow=True, **kwargs)
        share = 100 * seen.erred_hour / seen.settled_hour if seen.settled_hour else None
        # Every one of them has its badge in the table.
        rows = [_row(line) for line in seen.lines]
        troubled = sorted((x for x in rows if x.line.stalled or x.line.unserved),
                          key=lambda x: x.line.unserved is None)
        return super().get_context_data(
            seen=seen, rows=rows, troubled=troubled[:TOLD], failing=share,
            letters_change=seen.letters_opened - seen.letters_answered, timers_refused=refused, **kwargs)


def _row(line: Line) -> Row:
    return Row(line, sparkline(line.settled, line.erred), _url(line, "queued"), _url(line, *sorted(HELD)),
               line.settled[-2])


def _url(line: Line, *states: str) -> str:
    query = urlencode([*(("state", state) for state in states), ("queue", line.queue), ("group", line.worker_group)])
    return f"{reverse('console:jobs')}?{query}"
