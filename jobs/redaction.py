"""What may be shown of a value in logs and to people: secrets by their names left out, text and depth cut (A64)."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

LIMIT: Final = 2_000
DEEPEST: Final = 8
REDACTED: Final = "[redacted]"
# As they are compared: small letters alone, so that api_key, Api-Key and apiKey are one word.
SECRETS: Final = ("authorization", "cookie", "password", "secret", "token", "session", "apikey", "accesskey")
# A whole address at once, with a query or without: the time is linear whatever the text is.
_ADDRESS: Final = re.compile(r"(\w://[^\s?#'\"]*+)[^\s'\"]*+")


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret: it contains one of the words, however it is written."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return any(word in letters for word in SECRETS)


def redacted(value: Any, name: str = "", *, limit: int = LIMIT, depth: int = DEEPEST) -> Any:
    """A JSON value as it may be shown: members with a secret's name as `[redacted]`, strings cut to `limit` characters.

    `name` is what the value itself is called. What lies deeper than `depth` is `[...]`. The value given is not changed.
    """
    if is_secret(name):
        return REDACTED
    if isinstance(value, (dict, list, tuple)) and depth == 0:
        return "[...]"
    if isinstance(value, dict):
        return {str(key): redacted(inner, str(key), limit=limit, depth=depth - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(inner, name, limit=limit, depth=depth - 1) for inner in value]
    return value[:limit] if isinstance(value, str) else value


def whole(value: Any) -> Any:
    """All of a JSON value but its secrets: for people who may read it."""
    return redacted(value, limit=sys.maxsize, depth=sys.maxsize)


def restored(shown: Any, kept: Any) -> Any:
    """What somebody made of `whole(kept)`, with every secret that was left as it was shown put back.

    Raises ValueError for one that stood nowhere, or elsewhere in a list: whose it would be is anybody's guess.
    """
    if isinstance(shown, dict):
        known = kept if isinstance(kept, dict) else {}
        return {name: _restored(inner, name, known) for name, inner in shown.items()}
    if isinstance(shown, list):
        same = isinstance(kept, list) and len(kept) == len(shown)
        return [kept[n] if same and whole(kept[n]) == inner else restored(inner, None) for n, inner in enumerate(shown)]
    return shown


def _restored(shown: Any, name: str, kept: dict[str, Any]) -> Any:
    if not is_secret(name) or shown != REDACTED:
        return restored(shown, kept.get(name))
    if name not in kept:
        raise ValueError(f"{name} is left out, and there was none")
    return kept[name]


def without_queries(text: str) -> str:
    """A text with its URLs cut before their query, which may carry keys."""
    return _ADDRESS.sub(r"\1", text)
