"""The places of the console, in the order in which its head shows them."""

from __future__ import annotations

from collections.abc import Callable
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
# Of apps that stand on jobs: route, label, and who is led there.
_MORE: list[tuple[str, str, Callable[[Any], bool]]] = []


def add(route: str, label: str, whose: Callable[[Any], bool]) -> None:
    """One place more, behind the others, for those signed in of whom `whose` says so."""
    if all(route != other for other, *_ in _MORE):
        _MORE.append((route, label, whose))


def places(user: Any, path: str) -> list[Place]:
    """The places for this reader; the one that the path lies in is marked."""
    own = PLACES if user.has_perm(Permission.VIEW.label) else []
    more = [(route, label) for route, label, whose in _MORE if user.is_authenticated and whose(user)]
    found = [(label, reverse(route)) for route, label in (*own, *more)]
    home = reverse(PLACES[0][0])
    return [Place(label, url, path == url if url == home else path.startswith(url)) for label, url in found]
