"""The places of the console, in the order in which its head shows them."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.urls import reverse

from jobs.models.permissions import Permission


class Place(NamedTuple):
    """One entry of the head."""

    label: str
    url: str
    here: bool


# Route, label.
PLACES = [
    ("console:overview", "Overview"),
    ("console:jobs", "Jobs"),
    ("console:letters", "Dead letters"),
    ("console:timers", "Timers"),
    ("console:workers", "Workers"),
]


def places(user: Any, path: str) -> list[Place]:
    """The places for this reader; the one that the path lies in is marked."""
    if not user.has_perm(Permission.VIEW.label):
        return []
    found = [(label, reverse(route)) for route, label in PLACES]
    home = reverse(PLACES[0][0])
    return [Place(label, url, path == url if url == home else path.startswith(url)) for label, url in found]
