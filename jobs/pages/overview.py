"""Overview."""

from __future__ import annotations

from jobs.pages.access import Page


class Overview(Page):
    """Overview."""

    template_name = "jobs/overview.html"
