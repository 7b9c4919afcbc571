"""Places to wait in, where a thread of the server waits: so many of each holder, and of the process for all of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobs.conf import conf
from jobs.live.access import TooMany

_waiting: Counter[str] = Counter()
_lock = threading.Lock()


@contextmanager
def place(holder: str, most: int, **facts: Any) -> Iterator[None]:
    """One of the `most` places of a holder. Raises TooMany with these facts."""
    with _lock:
        if _waiting[holder] >= most or _waiting.total() >= conf().LIVE_MOST:
            raise TooMany("Too many requests of yours wait already." if _waiting[holder] >= most else "", **facts)
        _waiting[holder] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[holder] -= 1
            if not _waiting[holder]:
                del _waiting[holder]
