"""Logins that fail too often have to wait: a name from one address, a name from everywhere, an address.

Counted in Django's cache, which is each process's own unless a site names another: with several web processes there
are as many times more tries. What is counted are failures alone, for a quarter of an hour from the first.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import HttpRequest

WINDOW_S: Final = 900
MOST_BY_NAME_HERE: Final = 10
MOST_BY_NAME: Final = 100
MOST_BY_ADDRESS: Final = 50
KNOWN_S: Final = 30 * 86_400

log = logging.getLogger("jobsite.logins")


class Throttled(ModelBackend):
    """Django's own, which looks at no password of a name or an address that has failed too often."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None,  # type: ignore[override]
                     password: str | None = None, **kwargs: Any) -> User | None:
        """The user; None for wrong words. Raises PermissionDenied, which Django takes for a failure, when it is enough.

        One answer for both: whoever tries does not learn that trying has become useless.
        """
        if request is None or username is None:
            return super().authenticate(request, username, password, **kwargs)
        counts = _counts(*_named(username, request))
        # Counted before it is tried: of many tries at the same moment none comes in uncounted. The narrowest first, so
        # that one address cannot use up what a name has everywhere.
        if not all(_count(key) <= most for key, most in counts):
            log.warning("too many failed logins: this one was not tried", extra={
                "event": "login.refused", "address": address_of(request)})
            raise PermissionDenied
        try:
            user = super().authenticate(request, username, password, **kwargs)
        except Error:
            _take_back(counts)
            raise
        if user is None:
            log.warning("a login failed", extra={"event": "login.failed", "address": address_of(request)})
        else:
            _take_back(counts)
            cache.delete(counts[0][0])
            cache.set(_key("known", *_named(username, request)), True, KNOWN_S)
        return user

    async def aauthenticate(self, request: HttpRequest | None, username: str | None = None,  # type: ignore[override]
                            password: str | None = None, **kwargs: Any) -> User | None:
        """The same for async callers."""
        return await sync_to_async(self.authenticate)(request, username, password, **kwargs)


def _named(username: str, request: HttpRequest) -> tuple[str, str]:
    return str(username).casefold(), address_of(request)


def _counts(name: str, address: str) -> list[tuple[str, int]]:
    """What is counted for a try, and how many failures are enough."""
    here = (_key("name here", name, address), MOST_BY_NAME_HERE)
    if cache.get(_key("known", name, address)):
        # Where somebody has come in before, strangers lock nobody out by failures elsewhere or with other names.
        return [here]
    return [here, (_key("address", address), MOST_BY_ADDRESS), (_key("name", name), MOST_BY_NAME)]


def _key(*parts: str) -> str:
    # Names and forwarded addresses are anybody's text, and keys may be seen by others.
    return f"login:{hashlib.sha256(chr(0).join(parts).encode(errors='replace')).hexdigest()}"


def _count(key: str) -> int:
    """One more; how many there are now."""
    if cache.add(key, 1, WINDOW_S):
        return 1
    try:
        return int(cache.incr(key))
    except ValueError:
        # Its time ran out in between.
        cache.add(key, 1, WINDOW_S)
        return 1


def _take_back(counts: list[tuple[str, int]]) -> None:
    """It was no failure."""
    for key, _ in counts:
        try:
            cache.decr(key)
        except ValueError:
            # Its time ran out in between.
            continue


def address_of(request: HttpRequest) -> str:
    """From where a request comes: behind a proxy what that one added last, since the rest is the caller's own word."""
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.BEHIND_PROXY else ""
    return forwarded.rpartition(",")[2].strip()[:64] or str(request.META.get("REMOTE_ADDR", ""))
