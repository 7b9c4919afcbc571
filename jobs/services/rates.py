"""How many requests a key may make: a bucket of tokens in the key's row, which all web processes share.

A process takes the tokens of a tenth of a second at once and spends them by itself, so a busy key costs ten small
statements a second and an unlimited one none. Tokens that it does not spend within a second are lost, not kept.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobs import clock
from jobs.conf import conf
from jobs.errors import Refused
from jobs.models import Key
from jobs.store import rates as store

AT_ONCE_S: Final = 0.1
KEPT_S: Final = 1.0
_MOST_KNOWN: Final = 10_000


class RateLimited(Refused):
    """This key makes more requests than it may; wait a moment."""

    code = "rate_limited"


class Left(NamedTuple):
    """What a key may still do: `burst` requests at once, so many a second, `left` of them now."""

    burst: int
    per_s: float
    left: int

    @property
    def policy(self) -> str:
        """The `RateLimit-Policy` of the IETF's draft."""
        return f'"key";q={self.burst};w={math.ceil(self.burst / self.per_s)}'

    @property
    def state(self) -> str:
        """The `RateLimit` of the same."""
        return f'"key";r={self.left};t={math.ceil((self.burst - self.left) / self.per_s)}'


@dataclass(slots=True)
class _Purse:
    """What this process has taken of a key's tokens."""

    tokens: float = 0.0
    until: float = 0.0
    shared: float = 0.0
    closed_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_purses: dict[int, _Purse] = {}


def limit_of(key: Key) -> tuple[float, int] | None:
    """Requests a second and at once; None where nothing limits it: 0 a second, or neither the key nor the site says."""
    per_s = conf().KEY_REQUESTS_PER_S if key.requests_per_s is None else key.requests_per_s
    if not per_s:
        return None
    return per_s, key.request_burst or max(1, math.ceil(2 * per_s))


def nothing_left(key: Key) -> Left | None:
    """What a key that is refused is told."""
    limit = limit_of(key)
    return None if limit is None else Left(limit[1], limit[0], 0)


def spend(key: Key) -> Left | None:
    """Count one request of this key; None where nothing limits it. Raises RateLimited, with the seconds to wait."""
    limit = limit_of(key)
    if limit is None:
        return None
    per_s, burst = limit
    if len(_purses) > _MOST_KNOWN:
        _purses.clear()
    purse = _purses.setdefault(key.pk, _Purse())
    with purse.lock:
        now = clock.monotonic()
        if now < purse.closed_until:
            raise RateLimited(retry_after_s=purse.closed_until - now)
        if purse.tokens < 1 or now > purse.until:
            _take(purse, key, per_s, burst, now)
        purse.tokens -= 1
        return Left(burst, per_s, min(burst, math.floor(purse.tokens + purse.shared)))


def _take(purse: _Purse, key: Key, per_s: float, burst: int, now: float) -> None:
    kept = purse.tokens if now <= purse.until else 0.0
    got, purse.shared = store.take(key.pk, per_s, burst, max(1.0, per_s * AT_ONCE_S))
    purse.tokens, purse.until = kept + got, now + KEPT_S
    if purse.tokens < 1:
        # Until there is a token nobody asks again: who hammers costs nothing.
        wait = (1 - purse.tokens - purse.shared) / per_s
        purse.closed_until = now + wait
        raise RateLimited(retry_after_s=wait)


def forget() -> None:
    """Look at every key's bucket anew."""
    _purses.clear()
