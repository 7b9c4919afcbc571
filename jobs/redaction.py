"""Which names stand for secrets, and what stands in their place wherever people read (A64)."""

from __future__ import annotations

from typing import Any

SECRETS = ("authorization", "cookie", "password", "secret", "token", "session", "api_key", "access_key")
INSTEAD = "[redacted]"


def secret(name: str) -> bool:
    """Whether what has this name is not shown: `password`, `X-Api-Key`, `sessionId`, ..."""
    spelled = name.lower().replace("-", "_")
    return any(word in spelled or word.replace("_", "") in spelled for word in SECRETS)


def redacted(value: Any) -> Any:
    """A JSON value with every secret in it left out, by the names of its fields."""
    if isinstance(value, dict):
        return {key: INSTEAD if secret(str(key)) else redacted(inner) for key, inner in value.items()}
    return [redacted(inner) for inner in value] if isinstance(value, list) else value
