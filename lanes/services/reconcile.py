"""The job that looks into a lane which stands still (A49): what may be one, and how it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobs.errors import Invalid, Refused
from jobs.routing import SYSTEM
from jobs.services.draft import Door, Request, row_of
from jobs.services.words import Place
from lanes.actors import Actor

# How the watchdog enqueues it, whoever has made the lane.
DOOR: Final = Door("watchdog", "scheduler", "loop:watchdog")
_TYPE: Final = "reconcile.type"
_ANYWHERE: Final = Place(0, 0, archived=False)


def drafted(said: Any, by: Actor) -> tuple[str | None, str | None]:
    """Its type, and its input as its codec reads it: nothing that the watchdog would be refused later (D8).

    Raises Invalid invalid_reconcile, what the codec refuses, UnknownJobType, and Refused: origin_forbidden,
    definition_disabled. It goes to the tenant that is the workspace's own, so that who is of another one says none.
    """
    if said is None:
        return None, None
    if not isinstance(said, Mapping) or not isinstance(said.get("type"), str) or said.keys() - {"type", "input"}:
        raise Invalid('must be null, or {"type": ..., "input": {...}}', field="reconcile", code="invalid_reconcile")
    if by.tenant_id is not None:
        raise Invalid("must be null from who acts for one tenant: this job is the workspace's own", field="reconcile",
                      code="invalid_reconcile")
    try:
        row = row_of(Request(said["type"], said.get("input", {})), _ANYWHERE, DOOR, b"")
    except (Invalid, Refused) as error:
        # A lane has no type of its own.
        if error.field == "type":
            error.field = _TYPE
            if isinstance(error, Invalid):
                error.faults = [{**fault, "field": _TYPE} for fault in error.faults]
        raise
    if row["worker_group"] == SYSTEM:
        raise Refused(f"{said['type']} is the house's own.", code="origin_forbidden", field=_TYPE)
    return said["type"], row["input"]
