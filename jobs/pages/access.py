"""Who may see a page and press its buttons: a login, and a permission of Django's for each thing."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.mixins import LoginRequiredMixin, PermissionRequiredMixin
from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.views.generic import TemplateView

from jobs import clock
from jobs.models.permissions import Permission


class Page(LoginRequiredMixin, PermissionRequiredMixin, TemplateView):
    """One page. Without a login it leads to the login, without the permission it is refused (403)."""

    permission_required: Any = Permission.VIEW.label
    # What the page follows over the websocket: the whole site, unless it says a path of its own.
    live: str | None = "/live/site/"

    def handle_no_permission(self) -> Any:
        """To the login for a stranger; a refusal for somebody who is known and may not."""
        self.raise_exception = self.request.user.is_authenticated
        return super().handle_no_permission()

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Never kept by a cache."""
        answer = super().dispatch(request, *args, **kwargs)
        add_never_cache_headers(answer)
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What every page shows: its place, what it follows, what its reader may do, what time it is."""
        may = {p.name.lower(): self.request.user.has_perm(p.label) for p in Permission}
        return super().get_context_data(live=self.live, may=may, now=clock.now(), **kwargs)


def operator(request: HttpRequest) -> str:
    """How receipts name the person behind a request."""
    return f"user:{request.user.get_username()}"
