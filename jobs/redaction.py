"""What may be shown of a value in logs and to people: secrets by their names left out, text and depth cut (A64)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

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


MASK: Final = "[credential]"
_LEAST_SECRET: Final = 8


def secrets_of(credential: Any) -> tuple[str, ...]:
    """The texts that must not be kept of a credential, the longest first, also as JSON, Python and addresses write
    them.

    A text is one, and its longer lines are; of a mapping every text of 8 characters or more.
    """
    found: set[str] = set()
    for text in _texts(credential):
        if text is credential or len(text) >= _LEAST_SECRET:
            found |= {text, *(line for line in text.splitlines() if len(line) >= _LEAST_SECRET)}
    written = {form for text in found for form in (text, json.dumps(text)[1:-1], repr(text)[1:-1],
                                                   json.dumps(text, ensure_ascii=False)[1:-1], *_in_addresses(text))}
    return tuple(sorted(filter(None, written), key=len, reverse=True))


def _in_addresses(text: str) -> Iterator[str]:
    """As the addresses in the errors of HTTP clients write it."""
    raw = text.encode(errors="replace")
    yield from (quote(raw), quote(raw, safe=""), quote_plus(raw))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (bytes, bytearray)):
        yield from (bytes(value).decode(errors="replace"), repr(bytes(value))[2:-1])
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def masked(text: str, secrets: tuple[str, ...]) -> str:
    """A text with each of these secrets replaced by a mark."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def masked_facts(value: Any, secrets: tuple[str, ...]) -> Any:
    """A value as a log line says it, without these secrets; what is no JSON becomes text."""
    if isinstance(value, dict):
        return {masked(str(name), secrets): masked_facts(inner, secrets) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_facts(inner, secrets) for inner in value]
    return value if isinstance(value, (int, float, bool, type(None))) else masked(str(value), secrets)


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
