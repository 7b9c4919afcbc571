"""Which dead letters a URL means: its filter read, checked, and written back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from jobs.services import letters
from jobs.services.operations import MOST_SELECTED, Match

SPANS = {"1h": ("an hour", 3_600), "24h": ("a day", 86_400), "7d": ("a week", 604_800)}
WORDS = ("workspace", "tenant", "type", "reason", "cluster", "since")
UNREAD = "none"
_CLUSTER = re.compile(r"[0-9a-f]{16}|none")
MAX_ID = 2**63 - 1


class Narrowed(NamedTuple):
    """What a URL says, what it means, and what is wrong with it by field."""

    said: dict[str, str]
    match: Match
    faults: dict[str, str]

    @property
    def query(self) -> str:
        """As it was said, for links: `type=echo&cluster=...`; a moment does not move any more."""
        return urlencode(list(self.fields.items()))

    @property
    def fields(self) -> dict[str, str]:
        """The same by name."""
        kept = {k: v for k, v in self.said.items() if v}
        if self.match.since is not None:
            kept["since"] = self.match.since.isoformat()
        return kept

    @property
    def picked(self) -> tuple[int, ...]:
        """The letters that were chosen by hand."""
        return self.match.letters or ()

    def but(self, *words: str, **more: str) -> str:
        """The query without some words, or with others."""
        return urlencode([(k, v) for k, v in {**self.fields, **more}.items() if k not in words and v])


def narrowed(given: QueryDict, now: datetime) -> Narrowed:
    """Read a filter. What makes no sense is a fault, and nothing matches then."""
    said = {word: given.get(word, "").replace("\x00", "").strip()[:200] for word in (*WORDS, "house")}
    faults: dict[str, str] = {}
    place, tenants = letters.places(said["workspace"], said["tenant"])
    if said["workspace"] and place is None:
        faults["workspace"] = "There is no such workspace."
    if said["tenant"] and len(tenants) != 1:
        faults["tenant"] = "There is no such tenant." if not tenants else "Several workspaces have it: choose one."
    if said["cluster"] and not _CLUSTER.fullmatch(said["cluster"]):
        faults["cluster"] = "This is no cluster."
    since = _since(said["since"], now, faults)
    ids = _ids(given.getlist("letter"), faults)
    match = Match(place, tenants[0] if len(tenants) == 1 else None, said["type"][:64] or None,
                  said["reason"][:64] or None, _cluster(said["cluster"]), since, said["house"] == "1", ids,
                  _upto(given.get("upto", "")))
    return Narrowed(said, match, faults)


def _cluster(word: str) -> str | None:
    return None if not word else "" if word == UNREAD else word


def _since(word: str, now: datetime, faults: dict[str, str]) -> datetime | None:
    if not word:
        return None
    if word in SPANS:
        return now - timedelta(seconds=SPANS[word][1])
    try:
        moment = parse_datetime(word)
        # In UTC, so that whatever is stored can be read again: an offset may lead out of the calendar.
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)  # type: ignore[union-attr]
    except (ValueError, OverflowError, AttributeError):
        faults["since"] = "This is no moment: 2026-01-31T09:00, or 1h, 24h, 7d."
        return None


def _ids(said: list[str], faults: dict[str, str]) -> tuple[int, ...] | None:
    if not said:
        return None
    ids = tuple(sorted({n for n in map(number, said[:MOST_SELECTED]) if n is not None}))
    if len(said) > MOST_SELECTED or not ids:
        faults["letter"] = f"Select 1 to {MOST_SELECTED} letters."
    return ids


def _upto(word: str) -> int | None:
    return number(word)


def number(word: Any) -> int | None:
    """A whole number above 0 that a letter may have; None for anything else."""
    if not isinstance(word, str) or not word.isascii() or not word.isdigit() or len(word) > 19:
        return None
    value = int(word)
    return value if 0 < value <= MAX_ID else None
