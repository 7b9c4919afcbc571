"""Who is there to run jobs, and what they run."""

from __future__ import annotations

from typing import Any

from jobs.pages.access import Page
from jobs.selectors import TooSlow
from jobs.services import fleet


class Workers(Page):
    """Workers, runners, and who leads which periodic duty."""

    template_name = "jobs/workers.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The fleet, or the word that the database takes too long."""
        try:
            return super().get_context_data(fleet=fleet.look(), **kwargs)
        except TooSlow:
            return super().get_context_data(too_slow=True, **kwargs)
