"""Dead letters: in clusters that failed alike, and as a list that a filter narrows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobs import clock
from jobs.pages.access import Page
from jobs.pages.narrowing import SPANS, Narrowed, narrowed, number
from jobs.selectors import TooSlow
from jobs.services import letters, operations
from jobs.services.letters import Clusters

MOST_PAGES = 2_000
# C24, the set that our own verbs write.
REASONS = ("terminal_error", "retry_not_allowed", "quarantined", "attempts_exhausted", "deadline_exceeded",
           "retry_budget_exhausted")


class Narrow(Page):
    """A page about letters that a filter narrows; `slow` says that the database took too long."""

    # Every move anywhere is news of the site's: counting so many letters twice a second serves nobody.
    live = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A filter that makes no sense is refused with what is wrong, not ignored."""
        chosen = narrowed(request.GET, clock.now())
        context = self.get_context_data(chosen=chosen, spans=[(k, v[0]) for k, v in SPANS.items()],
                                        span_words=list(SPANS), reasons=REASONS,
                                        workspaces=list(letters.workspaces()))
        try:
            context |= self.told(chosen) if not chosen.faults else self.nothing()
        except TooSlow:
            context |= {**self.nothing(), "slow": True}
        return self.render_to_response(context, status=400 if chosen.faults else 200)

    def told(self, chosen: Narrowed) -> dict[str, Any]:
        """What the page shows of them."""
        raise NotImplementedError

    def nothing(self) -> dict[str, Any]:
        """What it shows where nothing can be found."""
        raise NotImplementedError


class Letters(Narrow):
    """`/dead-letters/`: the clusters."""

    template_name = "jobs/letters.html"

    def told(self, chosen: Narrowed) -> dict[str, Any]:
        """A page of clusters, in the order that was asked for."""
        order = "latest" if self.request.GET.get("order") == "latest" else "size"
        page = min(number(self.request.GET.get("page", "1")) or 1, MOST_PAGES)
        found = letters.clusters(chosen.match, order, page)
        return {"found": found, "order": order, "page": page, "bulks": operations.going()}

    def nothing(self) -> dict[str, Any]:
        """No clusters."""
        return {"found": Clusters([], 0, 0, False, False), "order": "size", "page": 1, "bulks": []}


class Listing(Narrow):
    """`/dead-letters/list/`: letters one by one, newest first; `answered=1` those that somebody has answered."""

    template_name = "jobs/letters_list.html"

    def told(self, chosen: Narrowed) -> dict[str, Any]:
        """A page of letters, and of a cluster what makes it one."""
        answered = self.request.GET.get("answered") == "1"
        before, of = number(self.request.GET.get("before", "")), number(self.request.GET.get("bulk", ""))
        match = chosen.match._replace(answered=answered, bulk=of)
        lines, more = letters.listed(match, before)
        return {"lines": lines, "more": more, "answered": answered, "before": before, "of": of,
                "count": letters.counted(match) if not answered else None, "most": operations.COUNTED}

    def nothing(self) -> dict[str, Any]:
        """No letters."""
        return {"lines": [], "more": None, "answered": False, "before": None, "of": None, "count": 0,
                "most": operations.COUNTED}
