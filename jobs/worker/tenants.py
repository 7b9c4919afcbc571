"""The subjects of the tenants whose jobs run here, for log lines: a claim brings only numbers.

Learnt once per tenant, by the worker's own thread after a claim; a handler's log line never asks the database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.db import Error

from jobs import selectors

log = logging.getLogger("jobs.worker")
MOST = 16_384
_known: dict[int, str | None] = {}


def learn(tenant_ids: Iterable[int]) -> None:
    """Look up those that are not known yet; trouble with the database is left to whoever needs it more."""
    wanted = set(tenant_ids)
    new = wanted - _known.keys()
    if not new:
        return
    try:
        found = selectors.subjects(new)
    except (Error, OSError):
        log.debug("the subjects of %d tenants are not known", len(new), exc_info=True)
        return
    if len(_known) + len(found) > MOST:
        found |= {tenant: _known[tenant] for tenant in wanted if tenant in _known}
        _known.clear()
    _known.update(found)


def know(tenant_id: int, subject: str | None) -> None:
    """Told by whoever knows it: an isolated child is, with each of its jobs."""
    if len(_known) >= MOST:
        _known.clear()
    _known[tenant_id] = subject


def told(tenant_id: int) -> dict[str, str | None]:
    """What a child is told of a tenant: nothing where it is not known here, lest it takes that for none."""
    return {"tenant": _known[tenant_id]} if tenant_id in _known else {}


def subject(tenant_id: int) -> str | None:
    """The subject of a tenant, if it is known."""
    return _known.get(tenant_id)


def asked(tenant_id: int) -> str | None:
    """The subject of a tenant; asks the database where it is not known, and raises its errors."""
    if tenant_id not in _known:
        _known.update(selectors.subjects([tenant_id]))
    return _known.get(tenant_id)
