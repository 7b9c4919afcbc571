"""What continues work that was admitted: an archived tenant takes it, and nothing else (B37, E3).

A continuation is an enqueue for the tenant of the job whose handler, publication hook or `on_ended` is running here.
A runner over HTTP cannot show that it is at one: its requests are new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_told: ContextVar[int | None] = ContextVar("jobs_told_tenant", default=None)
_asks: list[Callable[[], int | None]] = []


def asking(ask: Callable[[], int | None]) -> None:
    """Let `ask` say the tenant of the job that runs in the present context: whoever runs jobs knows, none pays."""
    _asks.append(ask)


@contextmanager
def telling(tenant_id: int) -> Iterator[None]:
    """Within, a definition is told of the end of one of this tenant's jobs."""
    token = _told.set(tenant_id)
    try:
        yield
    finally:
        _told.reset(token)


def of(tenant_id: int) -> bool:
    """Whether what is asked here and now continues work of this tenant."""
    return tenant_id in {_told.get(), *(ask() for ask in _asks)}
