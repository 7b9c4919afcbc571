"""One job."""

from __future__ import annotations

from jobs.pages.access import Page


class Job(Page):
    """One job."""

    template_name = "jobs/job.html"
