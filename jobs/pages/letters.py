"""Letters."""

from __future__ import annotations

from jobs.pages.access import Page


class Letters(Page):
    """Letters."""

    template_name = "jobs/letters.html"
