"""Ids of jobs: UUIDv7, ascending within a process, because the id is the claim's last sort key.

Python has `uuid.uuid7` only from 3.14 on, and the claim must not depend on a compiled extra.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid

_SHAPE = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_lock = threading.Lock()
_last = 0


def uuid7() -> uuid.UUID:
    """A UUIDv7 (RFC 9562) greater than every one this process made before; 62 bits are random."""
    global _last
    with _lock:
        # Milliseconds and a 12-bit fraction of one as a single counter: ascending also within a millisecond
        # and while the wall clock is set back.
        _last = tick = max((time.time_ns() << 12) // 1_000_000, _last + 1)
    tail = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    return uuid.UUID(int=((tick >> 12) & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | (tick & 0xFFF) << 64 | 0x2 << 62 | tail)


def earliest(milliseconds: int) -> uuid.UUID:
    """Not above any UUIDv7 made at or after this moment, in milliseconds since 1970."""
    return uuid.UUID(int=max(0, milliseconds) << 80)


def shaped(word: str) -> bool:
    """Whether a word looks like an id of ours, with or without its hyphens."""
    return _SHAPE.fullmatch(word) is not None
