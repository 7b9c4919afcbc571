"""Places to wait in, where a thread of the server waits: so many of each holder and of the process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.conf import conf
from jobs.live.access import TooMany

_waiting: Counter[str] = Counter()
_lock = threading.Lock()


@contextmanager
def place(holder: str) -> Iterator[None]:
    """One of the places of a runner's key. Raises TooMany."""
    with _lock:
        if _waiting[holder] >= conf().WAITS_PER_KEY or _waiting.total() >= conf().LIVE_MOST:
            raise TooMany("Too many requests of this key wait already.", retry_after_s=1)
        _waiting[holder] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[holder] -= 1
            if not _waiting[holder]:
                del _waiting[holder]
