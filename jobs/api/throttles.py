"""Throttles over the API: caps and pauses of the key's workspace (C9). The whole site's are its operators'."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import clock
from jobs.api import fields, parsing
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.models import Throttle, Workspace
from jobs.services import throttles
from jobs.services.keys import Permission
from jobs.services.throttles import ThrottleNotFound, Wanted

_FIELDS = ("most", "paused", "reason", "for_s", "until")


def shape(row: Throttle) -> dict[str, Any]:
    """A throttle as callers see it; a pause whose end has come is none."""
    paused = throttles.paused(row, clock.now())
    return {
        "kind": row.kind, "name": row.name or (row.tenant.subject if row.tenant else None), "most": row.most,
        "used": None if row.most is None else throttles.used_of(row)[0],
        "paused": paused, "paused_at": jsonable(row.paused_at) if paused else None,
        "until": jsonable(row.paused_until) if paused else None, "paused_by": row.paused_by if paused else None,
        "reason": row.pause_reason if paused else None, "updated_at": jsonable(row.updated_at),
    }


def _workspace(request: Request) -> Workspace:
    key = caller(request).key
    if key.tenant_id is not None:
        raise PermissionDenied("A tenant's key does not set what holds the workspace back.")
    return key.workspace


class Throttles(View):
    """`/throttles`."""

    permissions = {"GET": Permission.THROTTLE}

    def get(self, request: Request) -> Response:
        """All of the workspace, at most 1,000."""
        parsing.query(request)
        return answer({"throttles": [shape(row) for row in throttles.listed(_workspace(request))]})


class ThrottleOf(View):
    """`/throttles/{kind}/{name}`; of the kind `tenant` the name is its subject."""

    permissions = {"GET": Permission.THROTTLE, "PUT": Permission.THROTTLE, "DELETE": Permission.THROTTLE}

    def get(self, request: Request, kind: str, name: str) -> Response:
        """One. Raises ThrottleNotFound."""
        parsing.query(request)
        found = throttles.find(kind, name, workspace=_workspace(request))
        if found is None:
            raise ThrottleNotFound(field="name")
        return answer(shape(found))

    def put(self, request: Request, kind: str, name: str) -> Response:
        """Say anew all of it: `most`, and `paused` with its `reason` and, if it ends by itself, `for_s` or `until`."""
        parsing.query(request)
        body = parsing.body(request, _FIELDS)
        wanted = Wanted(
            body.get("most"), fields.boolean(body, "paused", False), fields.text(body, "reason", default=""),
            fields.moment(body, "until", "invalid_until"), fields.seconds(body, "for_s", "invalid_for_s"))
        place = _workspace(request)
        return answer(shape(throttles.put(kind, name, wanted, by=caller(request).by, workspace=place)))

    def delete(self, request: Request, kind: str, name: str) -> Response:
        """Hold it back no more."""
        parsing.query(request)
        throttles.remove(kind, name, by=caller(request).by, workspace=_workspace(request))
        return answer(None, 204)
