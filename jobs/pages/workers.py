"""Workers."""

from __future__ import annotations

from jobs.pages.access import Page


class Workers(Page):
    """Workers."""

    template_name = "jobs/workers.html"
