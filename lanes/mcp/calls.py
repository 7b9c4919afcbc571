"""One call of a tool: whose it is, the thread that it runs in, and what becomes of an answer that nobody takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

from django.db import connections

from jobs.api.errors import Unauthenticated
from jobs.models import Key
from jobs.services import keys, rates

T = TypeVar("T")
# As many as answer the API's requests.
THREADS: Final = 8


@dataclass
class Call:
    """One call. `admit` names its key, in a thread; `undo` gives back what the answer brought, if that is needed."""

    admit: Callable[[], Key]
    left: asyncio.Event = field(default_factory=asyncio.Event)
    undo: Callable[[], object] | None = None

    async def undone(self) -> None:
        """Give back what nobody takes."""
        if self.undo is not None:
            undo, self.undo = self.undo, None
            await asked(undo)


def live(said: str) -> Key:
    """The key that this text is, as the API believes it (C25). Raises Unauthenticated."""
    key = keys.live(said) if "." in said else None
    if key is None:
        raise Unauthenticated("There is no live key here: it is missing, unknown, revoked or expired.")
    return key


def counted(said: str) -> Key:
    """The same, for a request that counts as one of the key's. Raises RateLimited too."""
    key = live(said)
    rates.spend(key)
    return key


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-mcp")


async def asked(question: Callable[..., T], *args: Any) -> T:
    """The answer of a verb, in one of a few threads, which gives its connection back; it commits by itself."""
    here = copy_context()
    return await asyncio.get_running_loop().run_in_executor(_threads(), here.run, _asked, question, args)


def _asked(question: Callable[..., T], args: tuple[Any, ...]) -> T:
    try:
        return question(*args)
    finally:
        connections.close_all()
