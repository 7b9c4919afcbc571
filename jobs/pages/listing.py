"""Jobs."""

from __future__ import annotations

from jobs.pages.access import Page


class Jobs(Page):
    """Jobs."""

    template_name = "jobs/listing.html"
