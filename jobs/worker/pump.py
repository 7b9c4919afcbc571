"""The pump: every loop and the house's own jobs in the foreground, and nobody else's (D13, E2).

For sites whose workers run without loops, or only over HTTP. It is a worker of the group `system`: claims by leases,
so that several are safe, sends callbacks, tells definitions of ends, and vouches for no other type.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from jobs.conf import conf
from jobs.errors import NotFound
from jobs.models import Workspace
from jobs.registry import nearest
from jobs.routing import SYSTEM
from jobs.services import tenancy
from jobs.worker.connection import own_connection
from jobs.worker.plan import Plan

KNOWN = 1_000


def _place(slug: str) -> int:
    if not slug:
        # What a variable that is not set leaves: it would pass for the site's own, and others' timers would stand.
        raise NotFound("It names no workspace.")
    try:
        return int(tenancy.workspace(slug).pk)
    except NotFound as error:
        known = Workspace.objects.order_by("pk").values_list("slug", flat=True)[:KNOWN]
        raise NotFound(f"{error.message.rstrip('.')}{nearest(slug, known)}") from None


def plan(slots: int, workspaces: Sequence[str] = (), *, listen: bool = True) -> Plan:
    """A pump of this site, or of these workspaces (a profile). Raises NotFound.

    The profile holds the workspace of the site's own in any case: callbacks of all are sent from there, since a host
    is spared over all of them.
    """
    # A pool would say for ten seconds nothing of a database that is not there.
    with own_connection():
        mine = sorted({_place(slug) for slug in workspaces} | {tenancy.workspace().pk})
    return Plan(name=f"pump {socket.gethostname()}:{os.getpid()}", slots=slots, groups=[SYSTEM],
                queues=list(conf().QUEUES), listen=listen, house=True, workspaces=tuple(mine) if workspaces else None)
